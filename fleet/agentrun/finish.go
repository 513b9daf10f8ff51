/*
Copyright The agentrun-fleet Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package agentrun

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/ttl"
)

// finish marks a run whose failure is recorded, and deletes a finished one whose time is
// over. It says when to come back. Another's write that came between, or a run made anew
// under the name, is left to the event that announces it.
func (r *Reconciler) finish(ctx context.Context, cl cluster.Cluster, o observed, req mcreconcile.Request, state MemberState) (time.Duration, error) {
	if ledger := r.wantedMark(o.run, req); ledger != "" {
		// The marked run comes back by its event, and is deleted then.
		return r.asked(ctx, req, verbPatch, func() error { return mark(ctx, cl, o.run, ledger) })
	}
	decision := ttl.Decide(o.run, r.ttl, r.now(state))
	if !decision.Delete {
		return decision.RequeueAfter, nil
	}
	return r.asked(ctx, req, verbDelete, func() error { return r.deleteRun(ctx, cl, o, req, decision) })
}

// wantedMark is the ledger that has recorded the run's failure while the run does not say
// so, or empty. The ledger holds its UID until it is marked or gone, and has room for so
// many only. So a run on its way out is marked too, which a finalizer may hold for long, and
// one that somebody has moved to another phase since.
func (r *Reconciler) wantedMark(run *agentv1alpha1.AgentRun, req mcreconcile.Request) types.UID {
	if r.ledger == nil {
		return ""
	}
	ledger := r.ledger.WantedMark(req.ClusterName, run.UID)
	if ledger == "" || run.Mark(ledger) == run.Mark() { // it is there, or has no room
		return ""
	}
	return ledger
}

// mark writes the mark of a recorded run.
func mark(ctx context.Context, cl cluster.Cluster, run *agentv1alpha1.AgentRun, ledger types.UID) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		// The run as it was counted: one made anew under this name has another UID and
		// another resourceVersion, and would pass for recorded.
		"uid":             run.UID,
		"resourceVersion": run.ResourceVersion,
		"annotations":     map[string]string{agentv1alpha1.RecordedAnnotation: run.Mark(ledger)},
	}})
	if err != nil {
		return err
	}
	err = cl.GetClient().Patch(ctx, run.DeepCopy(), client.RawPatch(mergePatch, patch))
	if apierrors.IsForbidden(err) {
		announceNotMarked(cl, run)
	}
	if err != nil {
		return fmt.Errorf("marking AgentRun %s as recorded: %w", client.ObjectKeyFromObject(run), err)
	}
	return nil
}

// deleteRun deletes a run whose time is over, and tells of it.
func (r *Reconciler) deleteRun(ctx context.Context, cl cluster.Cluster, o observed, req mcreconcile.Request, decision ttl.Decision) error {
	err := cl.GetClient().Delete(ctx, o.run.DeepCopy(),
		// The run that was decided on: not one made anew under this name, and none that
		// somebody has changed since.
		client.Preconditions{UID: &o.run.UID, ResourceVersion: &o.run.ResourceVersion},
		propagation(o))
	if apierrors.IsForbidden(err) {
		announceNotDeleted(cl, o.run, decision)
	}
	if err != nil {
		return fmt.Errorf("deleting AgentRun %s, whose TTL is over: %w", req.NamespacedName, err)
	}
	r.countDeletion(ctx, req.ClusterName)
	announceDeleted(cl, o.run, decision)
	log.FromContext(ctx).Info("AgentRun deleted, its TTL is over", "ttl", decision.TTL, "finished", decision.Finished, "finishedBy", finishedBy(decision))
	return nil
}

// propagation keeps a run that owns something until that is gone, as a Job is kept until
// its pods are: whoever waits for the run's end waits for its pod's.
func propagation(o observed) client.PropagationPolicy {
	if o.sandbox != nil && metav1.IsControlledBy(o.sandbox, o.run) || o.pod != nil && metav1.IsControlledBy(o.pod, o.run) {
		return client.PropagationPolicy(metav1.DeletePropagationForeground)
	}
	return client.PropagationPolicy(metav1.DeletePropagationBackground)
}
