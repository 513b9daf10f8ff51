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
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
)

// state is what is held in memory of one member.
type state struct {
	// pace is guarded by Rollup.mu.
	pace pace

	// changed says that a run has changed since the last count.
	changed atomic.Bool

	mu sync.Mutex
	// engagement is the member's connection in use, if there is one that has synced.
	engagement *engagement
	// ledger is the ID of the member's ledger, empty when there is none yet. Before it has
	// been looked for, runs that are no more are held in early.
	ledger types.UID
	looked bool
	early  []*agentv1alpha1.AgentRun
	// tally is the last count, nil before the first; tallyOf is the connection that it is
	// of, and counted are the runs in flight then.
	tally   *tally.Tally
	tallyOf *engagement
	counted []types.UID
	// evidence is what is known of the pods of runs in the tally.
	evidence map[types.UID]tally.Evidence

	book tally.Book
	// provedAt is when the book's proof was made, provingSince when the last one was begun.
	// After a failure it is not tried again before proveFrom, proveDelay later.
	provedAt, provingSince, proveFrom time.Time
	proveDelay                        time.Duration
	// reasons are those that the metrics have a series for.
	reasons []string
}

// engagement is one connection to a member, until ctx ends. Its address tells it from a
// later one.
type engagement struct {
	ctx     context.Context
	cluster cluster.Cluster
}

func (r *Rollup) state(name multicluster.ClusterName) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stateLocked(name)
}

func (r *Rollup) stateLocked(name multicluster.ClusterName) *state {
	if r.states[name] == nil {
		r.states[name] = &state{book: tally.Book{Writer: r.id}}
	}
	return r.states[name]
}

// Engage counts the member's runs, from when its cache has synced until ctx ends.
func (r *Rollup) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	if name.Empty() {
		return nil // the hub is no member
	}
	informer, err := cl.GetCache().GetInformer(ctx, &agentv1alpha1.AgentRun{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching AgentRuns of cluster %q: %w", name, err)
	}
	mine := &engagement{ctx: ctx, cluster: cl}
	registration, err := informer.AddEventHandler(r.runHandler(name, mine))
	if err != nil {
		return fmt.Errorf("watching AgentRuns of cluster %q: %w", name, err)
	}
	go func() {
		r.follow(name, mine, registration.HasSyncedChecker())
		if err := informer.RemoveEventHandler(registration); err != nil {
			log.FromContext(ctx).Error(err, "Cannot stop watching AgentRuns", "cluster", name)
		}
	}()
	return nil
}

// follow makes the connection the one to count from until ctx ends. A later
// connection of the same member takes its place, and is left alone by its end.
func (r *Rollup) follow(name multicluster.ClusterName, mine *engagement, synced toolscache.DoneChecker) {
	select {
	case <-mine.ctx.Done():
		return
	case <-synced.Done():
	}
	r.setEngagement(name, func(*engagement) *engagement { return mine })
	<-mine.ctx.Done()
	r.setEngagement(name, func(current *engagement) *engagement {
		if current == mine {
			return nil
		}
		return current
	})
}

func (r *Rollup) setEngagement(name multicluster.ClusterName, next func(current *engagement) *engagement) {
	r.mu.Lock() // or else forget may drop the state meanwhile
	s := r.stateLocked(name)
	s.mu.Lock()
	if after := next(s.engagement); after != s.engagement {
		s.engagement = after
		s.book.Doubt() // its cache may be behind
		s.proveDelay, s.proveFrom = 0, time.Time{}
	}
	s.mu.Unlock()
	r.mu.Unlock()
	r.runsChanged(name)
}

// runsChanged has the member counted anew.
func (r *Rollup) runsChanged(name multicluster.ClusterName) {
	r.state(name).changed.Store(true)
	r.queue.Add(clusterKey(name))
	// Mostly the member's object is written at once, and brings the summaries its totals.
	r.markFleetsAfter(ownWrite)
}

func (r *Rollup) runHandler(name multicluster.ClusterName, from *engagement) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.runsChanged(name) },
		DeleteFunc: func(o any) { r.runGone(name, from, o) },
		UpdateFunc: func(before, after any) {
			a, aRun := before.(*agentv1alpha1.AgentRun)
			b, bRun := after.(*agentv1alpha1.AgentRun)
			switch {
			case !aRun || !bRun:
			case a.UID != b.UID: // deleted and made anew while nobody watched
				r.runGone(name, from, before)
			case tally.RunOf(a, "") != tally.RunOf(b, ""), a.Mark() != b.Mark():
				r.runsChanged(name)
			}
		},
	}
}

// runGone: a connection that another has taken the place of may tell late, and of a run
// as it was long before.
func (r *Rollup) runGone(name multicluster.ClusterName, from *engagement, o any) {
	if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	if run, ok := o.(*agentv1alpha1.AgentRun); ok {
		r.state(name).lose(from, run)
	}
	r.runsChanged(name)
}

// count returns the member's tally, counted anew when a run, or the ledger or what is in
// flight there, has changed. It is false before the member's first sync. A lost member
// keeps its last count. The caller holds the state's mu.
func (r *Rollup) count(ctx context.Context, name multicluster.ClusterName, s *state, ledger fleetv1alpha1.FailureLedger) (tally.Tally, bool) {
	another := s.look(ledger.ID)
	if s.engagement != nil && (s.changed.Swap(false) || another || !slices.Equal(s.counted, ledger.InFlight)) {
		counted, uids, err := r.countRuns(ctx, s.engagement.cluster, ledger.ID, sets.New(ledger.InFlight...))
		if err != nil {
			s.changed.Store(true)
			r.queue.AddAfter(clusterKey(name), writeInterval)
			log.FromContext(ctx).Error(err, "Cannot count AgentRuns, trying again", "cluster", name)
		} else {
			s.take(counted, uids, ledger.InFlight)
		}
	}
	if s.tally == nil {
		return tally.Tally{}, false
	}
	return *s.tally, true
}

// take makes a count the last one. Over another connection than the one before, what had
// failed then and does not exist any more went while neither told of it.
func (s *state) take(counted tally.Tally, uids sets.Set[types.UID], inFlight []types.UID) {
	if s.tally != nil && s.tallyOf != s.engagement {
		for _, run := range s.tally.Unmarked {
			if !uids.Has(run.UID) {
				s.book.Vanish(run)
			}
		}
	}
	s.keepEvidence(counted)
	s.tally, s.tallyOf, s.counted = &counted, s.engagement, inFlight
}

// keepEvidence: the pod of a run that waits to be put on record may be gone meanwhile.
func (s *state) keepEvidence(counted tally.Tally) {
	before := s.evidence
	s.evidence = map[types.UID]tally.Evidence{}
	for i := range counted.Unmarked {
		run := &counted.Unmarked[i]
		run.Evidence = cmp.Or(run.Evidence, before[run.UID])
		if run.Evidence != (tally.Evidence{}) {
			s.evidence[run.UID] = run.Evidence
		}
	}
}

// forget drops what is held of a member that is gone. A connection is kept until it
// ends: it may be the first sign of a member that is about to appear.
func (r *Rollup) forget(name multicluster.ClusterName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[name]
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger, s.looked, s.early = "", false, nil
	s.tally, s.tallyOf, s.counted, s.evidence = nil, nil, nil, nil
	s.book.Forget()
	s.changed.Store(true)
	if s.engagement == nil {
		delete(r.states, name)
	}
}

// countRuns counts what the member's cache holds. The listed objects are the cache's
// own: they are read only.
func (r *Rollup) countRuns(ctx context.Context, cl cluster.Cluster, ledger types.UID, inFlight sets.Set[types.UID]) (tally.Tally, sets.Set[types.UID], error) {
	var list agentv1alpha1.AgentRunList
	if err := cl.GetCache().List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return tally.Tally{}, nil, err
	}
	runs := make([]tally.Run, len(list.Items))
	byUID := make(map[types.UID]*agentv1alpha1.AgentRun, len(list.Items))
	for i := range list.Items {
		runs[i] = tally.RunOf(&list.Items[i], ledger)
		byUID[list.Items[i].UID] = &list.Items[i]
	}
	counted := tally.Of(runs, inFlight)
	for i := range counted.Unmarked {
		counted.Unmarked[i].Version = byUID[counted.Unmarked[i].UID].ResourceVersion
	}
	for _, i := range tally.Newest(counted.Unmarked) {
		counted.Unmarked[i].Evidence = r.evidence(ctx, cl, byUID[counted.Unmarked[i].UID])
	}
	return counted, sets.KeySet(byUID), nil
}

// evidence looks at the run's pod, if there still is one.
func (r *Rollup) evidence(ctx context.Context, cl cluster.Cluster, run *agentv1alpha1.AgentRun) tally.Evidence {
	if r.options.PodOf == nil || r.options.Culprit == nil {
		return tally.Evidence{}
	}
	pod := r.options.PodOf(ctx, cl, run.DeepCopy())
	if pod == nil {
		return tally.Evidence{}
	}
	var e tally.Evidence
	e.Container, e.Image, e.Node = r.options.Culprit(pod, tally.RunOf(run, "").Reason)
	return e
}
