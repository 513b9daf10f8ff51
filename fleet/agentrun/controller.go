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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/fleet/ttl"
)

// Options configure the controller.
type Options struct {
	// Policy says what fails a run, and when.
	Policy startup.Policy
	// TTL says how long finished runs are kept whose spec does not say.
	TTL ttl.Policy
	// Ledger knows which failures are recorded. Without one no run is marked as recorded,
	// so that failed runs are never deleted.
	Ledger Ledger
	// MaxConcurrentReconciles is how many runs are worked on at a time, over all
	// members. A member has at most a tenth of them, rounded up, and less while half of
	// them are at work or it is slow to answer (lanes). Default 40.
	MaxConcurrentReconciles int
	// ReconciliationTimeout bounds the work on one run. Default 30 s.
	ReconciliationTimeout time.Duration
	// Member tells the state of a member, as of now. Default: none is paused, and all
	// clocks agree.
	Member func(multicluster.ClusterName) MemberState
	// Clock tells the hub's time. Default the real one.
	Clock clock.WithTicker
}

// defaultWorkers is Options.MaxConcurrentReconciles' default.
const defaultWorkers = 40

func (o *Options) setDefaults() {
	if o.MaxConcurrentReconciles == 0 {
		o.MaxConcurrentReconciles = defaultWorkers
	}
	if o.ReconciliationTimeout == 0 {
		o.ReconciliationTimeout = 30 * time.Second
	}
	if o.Member == nil {
		o.Member = func(multicluster.ClusterName) MemberState { return MemberState{} }
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// SetupWithManager adds the controller to mgr. Each member that mgr engages must have
// been built by NewCluster and have synced.
func SetupWithManager(mgr mcmanager.Manager, opts Options) error {
	opts.setDefaults()
	r := &Reconciler{
		clusters: mgr, member: opts.Member, policy: opts.Policy, ttl: opts.TTL, ledger: opts.Ledger,
		clock: opts.Clock, seen: newFirstSeen(),
	}
	queue := newFairQueue(controllerName, newLimiter(), opts.MaxConcurrentReconciles, opts.Clock)
	// A controller-runtime controller without sources: multicluster-runtime's own leaves
	// a goroutine behind for each source of each member that was ever engaged, puts all
	// members into one queue, and does not tell an initial list from what happens now.
	c, err := controller.NewTypedUnmanaged(controllerName, controller.TypedOptions[mcreconcile.Request]{
		Reconciler:              mcreconcile.NewClusterNotFoundWrapper(r),
		MaxConcurrentReconciles: opts.MaxConcurrentReconciles,
		ReconciliationTimeout:   opts.ReconciliationTimeout,
		RecoverPanic:            new(true),
		SkipNameValidation:      mgr.GetControllerOptions().SkipNameValidation,
		LogConstructor:          logConstructor(mgr.GetLogger()),
		NewQueue: func(string, workqueue.TypedRateLimiter[mcreconcile.Request]) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
			return queue
		},
	})
	if err != nil {
		return err
	}
	if opts.Ledger != nil {
		enqueueUnmarked(opts.Ledger, queue)
	}
	return mgr.Add(&engager{TypedController: c, queue: queue, seen: r.seen, clock: opts.Clock})
}

// maxBackoff is how long a run may wait after a member has returned: nothing but the next
// try tells that a write which failed before would be taken now.
const maxBackoff = 30 * time.Second

// newLimiter has each run back off on its own. controller-runtime's default waits up to 17
// minutes, and lets all members together try again ten times a second, so that one that is
// away with many runs would hold up the others' next tries.
func newLimiter() workqueue.TypedRateLimiter[mcreconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](5*time.Millisecond, maxBackoff)
}

// logConstructor gives each reconcile a logger that names the member and the run.
func logConstructor(base logr.Logger) func(*mcreconcile.Request) logr.Logger {
	base = base.WithValues("controller", controllerName)
	return func(req *mcreconcile.Request) logr.Logger {
		if req == nil {
			return base
		}
		return base.WithValues("cluster", req.ClusterName.String(), "run", req.NamespacedName.String())
	}
}
