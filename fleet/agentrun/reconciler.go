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
	"github.com/konveyor/agentrun-fleet/fleet/ttl"
)

// What the manager may do in a member.
//
// +kubebuilder:rbac:groups=konveyor.io,resources=agentruns,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=konveyor.io,resources=agentruns/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=agents.x-k8s.io,resources=sandboxes,verbs=list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// maxConflicts bounds how often a decision is made anew within one reconcile, and
// contendedAgain is when the next one is made.
const (
	maxConflicts   = 3
	contendedAgain = time.Second
)

// Reconciler keeps the status of AgentRuns in member clusters.
type Reconciler struct {
	clusters clusterGetter
	member   func(multicluster.ClusterName) MemberState
	policy   startup.Policy
	ttl      ttl.Policy
	ledger   Ledger
	clock    clock.PassiveClock
	seen     *firstSeen
	refused  refusals
}

// MemberState is what decisions depend on beside what the member's cache holds.
type MemberState struct {
	// Paused keeps the manager from writing in the member.
	Paused bool
	// Lost says that the member does not answer, so that nothing is asked of it.
	Lost bool
	// ClockOffset is how far the member's clock is ahead of the hub's.
	ClockOffset time.Duration
}

// lostAgain is when a run in a lost member is looked at again.
const lostAgain = 5 * time.Second

// pausedAgain is when a run in a paused member is looked at again: nothing tells when
// the pause ends.
const pausedAgain = 10 * time.Second

// clusterGetter finds a member; its error is multicluster.ErrClusterNotFound once the
// member is gone.
type clusterGetter interface {
	GetCluster(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error)
}

// Reconcile brings one run's status up to what is observed of it, and a run that has
// finished to its end.
func (r *Reconciler) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	defer r.seen.take(req) // what is not observed by then is not measured
	if req.ClusterName == mcmanager.LocalCluster {
		// The empty name is the hub, which is no member.
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("request for %s names no member cluster", req.NamespacedName))
	}
	cl, err := r.clusters.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return reconcile.Result{}, err
	}
	state := r.member(req.ClusterName)
	if state.Lost {
		// A worker that waits for its answer would be missing elsewhere.
		return reconcile.Result{RequeueAfter: lostAgain}, nil
	}
	o, err := gather(ctx, cl, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if state.Paused {
		return reconcile.Result{RequeueAfter: r.whilePaused(o, req, state)}, nil
	}
	after, written, err := r.settle(ctx, cl, o, req, state)
	if err == nil && !written {
		// A run that was written comes back by its event, as it is then.
		var end time.Duration
		end, err = r.finish(ctx, cl, o, req, state)
		after = startup.Sooner(after, end)
	}
	return reconcile.Result{RequeueAfter: after}, err
}

// whilePaused writes nothing, and comes back when there is something to write.
func (r *Reconciler) whilePaused(o observed, req mcreconcile.Request, state MemberState) time.Duration {
	now := r.now(state)
	decision, end := r.decide(o, now), ttl.Decide(o.run, r.ttl, now)
	if changes(o.run, decision) || decision.StopSandbox || end.Delete || r.wantedMark(o.run, req) != "" {
		return pausedAgain
	}
	return startup.Sooner(decision.RequeueAfter, end.RequeueAfter)
}

// now is the member's time, in which the times of its objects are.
func (r *Reconciler) now(state MemberState) time.Time {
	return r.clock.Now().Add(state.ClockOffset)
}

// decide says what the run's status should be. A run on its way out keeps the one it has.
func (r *Reconciler) decide(o observed, now time.Time) startup.Decision {
	if o.run.DeletionTimestamp != nil {
		return startup.Decision{Status: o.run.Status}
	}
	return startup.Decide(o.input(r.policy, now))
}

// changes says whether a decision has something to write.
func changes(run *agentv1alpha1.AgentRun, decision startup.Decision) bool {
	return !equality.Semantic.DeepEqual(run.Status, decision.Status)
}

// settle decides and writes. It says when to come back, and whether the run has been
// written since it was gathered. When somebody else wrote the run meanwhile, it reads the
// run as it is now and decides again; a run that was made anew under the same name is
// left to the event that announces it.
func (r *Reconciler) settle(ctx context.Context, cl cluster.Cluster, o observed, req mcreconcile.Request, state MemberState) (after time.Duration, written bool, err error) {
	for range maxConflicts {
		now := r.now(state)
		decision := r.decide(o, now)
		err := r.write(ctx, cl, o, req, decision)
		if err == nil && decision.StopSandbox {
			err = stopSandbox(ctx, cl, o, now)
		}
		if err == nil {
			return decision.RequeueAfter, written || changes(o.run, decision), nil
		}
		if !apierrors.IsConflict(err) {
			return 0, true, client.IgnoreNotFound(err)
		}
		written = true
		live := &agentv1alpha1.AgentRun{}
		if err := cl.GetAPIReader().Get(ctx, req.NamespacedName, live); err != nil {
			return 0, true, client.IgnoreNotFound(err)
		}
		if live.UID != o.run.UID {
			return 0, true, nil
		}
		o.run = live
	}
	log.FromContext(ctx).Info("The AgentRun changes faster than its status can be written, trying again", "conflicts", maxConflicts)
	return contendedAgain, true, nil
}

// write sends one status patch when something changed, and tells of it after that.
func (r *Reconciler) write(ctx context.Context, cl cluster.Cluster, o observed, req mcreconcile.Request, decision startup.Decision) error {
	if !changes(o.run, decision) {
		return nil
	}
	updated := o.run.DeepCopy()
	updated.Status = decision.Status
	// The patch carries the resourceVersion it was decided on: a run that was deleted and
	// made anew under this name has another, and is not touched.
	patch := client.MergeFromWithOptions(o.run, client.MergeFromWithOptimisticLock{})
	if err := cl.GetClient().Status().Patch(ctx, updated, patch); err != nil {
		return fmt.Errorf("patching the status of AgentRun %s: %w", req.NamespacedName, err)
	}
	if decision.Failure != nil {
		r.countFailure(ctx, req, decision.Failure.Reason)
	}
	announce(cl, o.run, decision)
	logChange(log.FromContext(ctx), o.run, decision)
	return nil
}
