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
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
)

// What the manager may do in a member.
//
// +kubebuilder:rbac:groups=konveyor.io,resources=agentruns,verbs=get;list;watch
// +kubebuilder:rbac:groups=konveyor.io,resources=agentruns/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=agents.x-k8s.io,resources=sandboxes,verbs=list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// maxConflicts bounds how often a decision is made anew within one reconcile.
const maxConflicts = 3

// Reconciler keeps the status of AgentRuns in member clusters.
type Reconciler struct {
	clusters clusterGetter
	member   func(multicluster.ClusterName) MemberState
	policy   startup.Policy
	clock    clock.PassiveClock
	seen     *firstSeen
}

// MemberState is what decisions depend on beside what the member's cache holds.
type MemberState struct {
	// Paused keeps the manager from writing in the member.
	Paused bool
	// ClockOffset is how far the member's clock is ahead of the hub's.
	ClockOffset time.Duration
}

// pausedAgain is when a run in a paused member is looked at again: nothing tells when
// the pause ends.
const pausedAgain = 10 * time.Second

// clusterGetter finds a member; its error is multicluster.ErrClusterNotFound once the
// member is gone.
type clusterGetter interface {
	GetCluster(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error)
}

// Reconcile brings one run's status up to what is observed of it.
func (r *Reconciler) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	seenAt := r.seen.take(req)
	if req.ClusterName == mcmanager.LocalCluster {
		// The empty name is the hub, which is no member.
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("request for %s names no member cluster", req.NamespacedName))
	}
	cl, err := r.clusters.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return reconcile.Result{}, err
	}
	o, err := gather(ctx, cl, req.NamespacedName)
	if err != nil || o.run.DeletionTimestamp != nil {
		// A run on its way out is left alone.
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	state := r.member(req.ClusterName)
	if state.Paused {
		return r.whilePaused(o, state), nil
	}
	decision, err := r.settle(ctx, cl, o, state)
	if err != nil {
		return reconcile.Result{}, err
	}
	if decision.Failure != nil {
		observeFailure(req.ClusterName, decision.Failure.Reason, seenAt, r.clock.Now())
	}
	return reconcile.Result{RequeueAfter: decision.RequeueAfter}, nil
}

// whilePaused writes nothing, and comes back when there is something to write.
func (r *Reconciler) whilePaused(o observed, state MemberState) reconcile.Result {
	decision := startup.Decide(o.input(r.policy, r.now(state)))
	if decision.StopSandbox || !equality.Semantic.DeepEqual(o.run.Status, decision.Status) {
		return reconcile.Result{RequeueAfter: pausedAgain}
	}
	return reconcile.Result{RequeueAfter: decision.RequeueAfter}
}

// now is the member's time, in which the times of its objects are.
func (r *Reconciler) now(state MemberState) time.Time {
	return r.clock.Now().Add(state.ClockOffset)
}

// settle decides and writes. When somebody else wrote the run meanwhile, it reads the
// run as it is now and decides again; a run that was made anew under the same name is
// left to the event that announces it.
func (r *Reconciler) settle(ctx context.Context, cl cluster.Cluster, o observed, state MemberState) (startup.Decision, error) {
	for range maxConflicts {
		now := r.now(state)
		decision := startup.Decide(o.input(r.policy, now))
		err := r.write(ctx, cl, o, decision, now)
		if err == nil {
			return decision, nil
		}
		if !apierrors.IsConflict(err) {
			return startup.Decision{}, client.IgnoreNotFound(err)
		}
		live := &agentv1alpha1.AgentRun{}
		if err := cl.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(o.run), live); err != nil {
			return startup.Decision{}, client.IgnoreNotFound(err)
		}
		if live.UID != o.run.UID {
			return startup.Decision{}, nil
		}
		o.run = live
	}
	return startup.Decision{}, fmt.Errorf("AgentRun %s changed %d times while its status was being written", client.ObjectKeyFromObject(o.run), maxConflicts)
}

// write sends what the decision asks for: one status patch when something changed,
// its Event after that, and the Sandbox's end when the pod is at work after all.
func (r *Reconciler) write(ctx context.Context, cl cluster.Cluster, o observed, decision startup.Decision, now time.Time) error {
	if !equality.Semantic.DeepEqual(o.run.Status, decision.Status) {
		updated := o.run.DeepCopy()
		updated.Status = decision.Status
		// The patch carries the resourceVersion it was decided on: a run that was
		// deleted and made anew under this name has another, and is not touched.
		patch := client.MergeFromWithOptions(o.run, client.MergeFromWithOptimisticLock{})
		if err := cl.GetClient().Status().Patch(ctx, updated, patch); err != nil {
			return fmt.Errorf("patching the status of AgentRun %s: %w", client.ObjectKeyFromObject(o.run), err)
		}
		announce(cl, o.run, decision)
		logChange(log.FromContext(ctx), o.run, decision)
	}
	if decision.StopSandbox {
		return stopSandbox(ctx, cl, o, now)
	}
	return nil
}
