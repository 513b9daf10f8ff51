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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
)

const (
	// proveTimeout bounds one live list of a member's runs, and maxProving how many are
	// made at a time: each may hold a large page.
	proveTimeout = time.Minute
	maxProving   = 4
	// firstProveAgain and lastProveAgain are when a list that failed is repeated.
	firstProveAgain, lastProveAgain = 5 * time.Second, 5 * time.Minute
	// holdBack is how long a proof that is being made holds back a write upon another
	// manager's: that would make the other doubt its own, and so on in turn.
	holdBack = 10 * time.Second
	// maxEarly bounds the runs that are held before it is known whose marks are the ledger's.
	maxEarly = 1000
	// proofAge is when a proof is made again that does not settle a failure.
	proofAge = 30 * time.Second
)

// WantedMark returns the ID of the member's ledger when that counts the failure of the run
// with that UID and does not know yet that the run bears its mark; else nothing.
func (r *Rollup) WantedMark(name multicluster.ClusterName, uid types.UID) (ledger types.UID) {
	r.mu.Lock()
	s := r.states[name] // none is made for a member that is gone
	r.mu.Unlock()
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.book.InFlight(uid) {
		return ""
	}
	return s.book.Ledger() // s.ledger may be of an object that the book has not read yet
}

// OnWantsMark has f called with each run that comes to want its mark. f must not block,
// nor call the Rollup. It is to be called before Start.
func (r *Rollup) OnWantsMark(f func(cluster multicluster.ClusterName, run types.NamespacedName)) {
	r.onWantsMark = append(r.onWantsMark, f)
}

// keepBook brings the book up to the ledger that is stored as version, and has it say
// what may be counted. The caller holds the state's mu.
func (r *Rollup) keepBook(ctx context.Context, m Member, s *state,
	ledger fleetv1alpha1.FailureLedger, version string, o *tally.Observation,
) {
	s.book.Read(ledger, version)
	if s.book.Unsettled(*o.Tally) {
		if r.clock.Since(s.provedAt) >= proofAge {
			s.book.Doubt()
		}
		r.queue.AddAfter(clusterKey(m.Name), proofAge)
	}
	o.Provisional = m.Paused
	s.book.Complete(o)
	if version != "" && observed(m) && r.mayProve(s) && s.book.NeedsProof(*o.Tally) {
		s.book.ProofStarted()
		s.provingSince = r.clock.Now()
		// Not waited for: a member may be slow to answer.
		go r.prove(log.FromContext(ctx), m.Name, s, s.engagement, ledger.ID)
	}
	for _, run := range s.book.ToMark(*o.Tally) {
		for _, f := range r.onWantsMark {
			f(m.Name, types.NamespacedName{Namespace: run.Namespace, Name: run.Name})
		}
	}
}

func (r *Rollup) mayProve(s *state) bool {
	return r.options.Prove != nil && s.engagement != nil && !r.clock.Now().Before(s.proveFrom)
}

// prove makes the proof that the member's book waits for.
func (r *Rollup) prove(logger logr.Logger, name multicluster.ClusterName, s *state, from *engagement, ledger types.UID) {
	proof, err := r.proofOf(from, ledger)

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.engagement != from:
		s.book.ProofEnded(nil)
		r.queue.Add(clusterKey(name))
	case err != nil:
		s.book.ProofEnded(nil)
		s.proveDelay = min(max(2*s.proveDelay, firstProveAgain), lastProveAgain)
		s.proveFrom = r.clock.Now().Add(s.proveDelay)
		r.queue.AddAfter(clusterKey(name), s.proveDelay)
	default:
		s.book.ProofEnded(&proof)
		s.proveDelay, s.provedAt = 0, r.clock.Now()
		r.queue.Add(clusterKey(name))
	}
	if err != nil && from.ctx.Err() == nil {
		logger.Error(err, "Cannot tell which failures are on record, trying again", "cluster", name)
	}
}

// holdsBack says whether a write upon what is stored waits for a proof, whose end has the
// member looked at again.
func (r *Rollup) holdsBack(name multicluster.ClusterName, stored *fleetv1alpha1.AgentRunClusterStatus) bool {
	if stored == nil || stored.Status.Ledger.Writer == r.id {
		return false
	}
	s := r.state(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.book.Proving() {
		return false
	}
	left := holdBack - r.clock.Since(s.provingSince)
	if left > 0 {
		r.queue.AddAfter(clusterKey(name), left)
	}
	return left > 0
}

// wroteLedger takes note of a write of the member's object.
func (r *Rollup) wroteLedger(name multicluster.ClusterName, ledger fleetv1alpha1.FailureLedger) {
	s := r.state(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Wrote(ledger)
}

// proofOf lists the member's runs when it is its turn.
func (r *Rollup) proofOf(from *engagement, ledger types.UID) (tally.Proof, error) {
	select {
	case r.proving <- struct{}{}:
		defer func() { <-r.proving }()
	case <-from.ctx.Done():
		return tally.Proof{}, from.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(from.ctx, proveTimeout)
	defer cancel()
	return r.options.Prove(ctx, from.cluster, ledger)
}

// lose notes a failed run that is no more, as the connection in use tells.
func (s *state) lose(from *engagement, object *agentv1alpha1.AgentRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.engagement != from:
	case !s.looked && len(s.early) < maxEarly:
		s.early = append(s.early, object)
	default:
		s.loseNow(object)
	}
}

func (s *state) loseNow(object *agentv1alpha1.AgentRun) {
	run := tally.RunOf(object, s.ledger)
	run.Version, run.Evidence = object.ResourceVersion, s.evidence[run.UID]
	s.book.Lose(run)
}

// look takes note of which ledger the member has, and says whether it is another one. What
// went before the first look is judged now; what went before there was a ledger is not its.
func (s *state) look(ledger types.UID) (another bool) {
	another = s.ledger != ledger
	s.ledger = ledger
	if !s.looked && ledger != "" {
		for _, object := range s.early {
			s.loseNow(object)
		}
	}
	s.looked, s.early = true, nil
	return another
}
