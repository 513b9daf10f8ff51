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

package rollup

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
)

// +kubebuilder:rbac:groups=fleet.konveyor.io,resources=agentrunclusterstatuses,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=fleet.konveyor.io,resources=agentrunclusterstatuses/status,verbs=update
// +kubebuilder:rbac:groups=fleet.konveyor.io,resources=agentrunfleetstatuses,verbs=list;watch;create
// +kubebuilder:rbac:groups=fleet.konveyor.io,resources=agentrunfleetstatuses/status,verbs=update

const (
	// writeInterval is the least time between two writes of one object.
	writeInterval = time.Second
	// passInterval is the least time between two looks at one object. It bounds what
	// events that change nothing cost.
	passInterval = 100 * time.Millisecond
	// contactInterval is how far lastContactTime moves before it is written, unless
	// something else is.
	contactInterval = 30 * time.Second

	// ownWrite is how long summaries leave a member's object to be written first, so that
	// a failure and its total come to them together.
	ownWrite = 250 * time.Millisecond

	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second

	defaultWorkers = 4
)

// Options are what a Rollup can do without.
type Options struct {
	// PodOf finds a run's pod in the member's cache, or nil. It must ask no server.
	PodOf func(context.Context, cluster.Cluster, *agentv1alpha1.AgentRun) *corev1.Pod
	// Culprit says what in the pod a failure of that reason is about.
	Culprit func(pod *corev1.Pod, reason string) (container, image, node string)
	// Prove lists a member's runs live, for what that proves of its failures to the ledger
	// with that ID. None is ever put on record when nil.
	Prove func(context.Context, cluster.Cluster, types.UID) (tally.Proof, error)
	// Workers is the number of objects that are written at the same time; 4 when 0.
	Workers int
	// Clock is the real one when nil.
	Clock clock.WithTicker
}

// Rollup writes the hub's view of the fleet. Add it to the multicluster manager,
// which starts it and tells it of members.
type Rollup struct {
	hub     cluster.Cluster
	source  Members
	options Options
	clock   clock.WithTicker
	queue   workqueue.TypedRateLimitingInterface[key]
	// id tells this manager's writes of ledgers from those of others.
	id types.UID
	// proving has an entry for each proof that is being made.
	proving chan struct{}
	// onWantsMark are called with each run that comes to want its mark.
	onWantsMark []func(multicluster.ClusterName, types.NamespacedName)

	mu                sync.Mutex
	states            map[multicluster.ClusterName]*state
	fleets            map[string]*pace
	members           map[multicluster.ClusterName]Member // nil when they have changed
	membersAt         time.Time
	membersGeneration int
}

var _ mcmanager.Runnable = &Rollup{}

// key names an object to look at.
type key struct {
	kind kind
	name string
}

type kind int

const (
	clusterStatus kind = iota
	fleetStatus
)

func clusterKey(name multicluster.ClusterName) key { return key{clusterStatus, name.String()} }
func fleetKey(name string) key                     { return key{fleetStatus, name} }

// pace is when an object was last looked at, and written.
type pace struct{ pass, write time.Time }

// New returns a Rollup that writes to the hub.
func New(hub cluster.Cluster, members Members, o Options) *Rollup {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, lastRetry)
	return &Rollup{
		hub: hub, source: members, options: o, clock: o.Clock, id: uuid.NewUUID(),
		proving: make(chan struct{}, maxProving),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[key]{Name: "rollup", Clock: o.Clock}),
		states: map[multicluster.ClusterName]*state{},
		fleets: map[string]*pace{},
	}
}

// Start writes until ctx ends. It returns an error when the hub's kinds cannot be
// watched.
func (r *Rollup) Start(ctx context.Context) error {
	defer r.queue.ShutDown()
	if err := r.watchHub(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting is no failure
		}
		return err
	}
	r.source.Subscribe(r.memberChanged)
	for name := range r.roster() {
		r.queue.Add(clusterKey(name))
	}
	r.queue.Add(fleetKey(fleetv1alpha1.DefaultFleetStatusName))

	var workers sync.WaitGroup
	for range r.options.Workers {
		workers.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	workers.Wait()
	return nil
}

// next looks at one object that is due. It returns false when there will be no more.
func (r *Rollup) next(ctx context.Context) bool {
	k, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(k)
	if wait := r.wait(k); wait > 0 {
		r.queue.AddAfter(k, wait)
		return true
	}
	wrote, err := r.sync(ctx, k)
	r.done(k, wrote)
	r.retry(ctx, k, err)
	return true
}

func (r *Rollup) sync(ctx context.Context, k key) (wrote bool, err error) {
	if k.kind == fleetStatus {
		return r.syncFleet(ctx, k.name)
	}
	return r.syncCluster(ctx, multicluster.ClusterName(k.name))
}

// retry tries again after an error. That somebody else wrote first is none: what
// they wrote is on its way to the cache.
func (r *Rollup) retry(ctx context.Context, k key, err error) {
	switch {
	case err == nil || ctx.Err() != nil:
		r.queue.Forget(k)
		return
	case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
		log.FromContext(ctx).Error(err, "Cannot write the fleet's status, trying again", k.loggable()...)
	}
	r.queue.AddRateLimited(k)
}

func (k key) loggable() []any {
	if k.kind == fleetStatus {
		return []any{"agentRunFleetStatus", k.name}
	}
	return []any{"cluster", k.name}
}

// wait is how long it is until the object may be looked at.
func (r *Rollup) wait(k key) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pace(k)
	return max(writeInterval-r.clock.Since(p.write), passInterval-r.clock.Since(p.pass))
}

// done notes when the object was looked at and written.
func (r *Rollup) done(k key, wrote bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pace(k)
	p.pass = r.clock.Now()
	if wrote {
		p.write = p.pass
	}
}

// pace returns the object's pace, or a new one of no consequence when nothing is held
// of the object. The caller holds mu.
func (r *Rollup) pace(k key) *pace {
	if k.kind == fleetStatus {
		if p := r.fleets[k.name]; p != nil {
			return p
		}
	} else if s := r.states[multicluster.ClusterName(k.name)]; s != nil {
		return &s.pace
	}
	return &pace{}
}

// markFleets has every summary looked at.
func (r *Rollup) markFleets() { r.markFleetsAfter(0) }

func (r *Rollup) markFleetsAfter(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.fleets {
		r.queue.AddAfter(fleetKey(name), delay)
	}
}

func (r *Rollup) client() client.Client { return r.hub.GetClient() }
