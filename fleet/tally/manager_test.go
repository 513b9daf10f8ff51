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

package tally

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// outcome is what becomes of a write to the hub.
type outcome int

const (
	written outcome = iota
	// unknown is a write that succeeded, and is answered with an error.
	unknown
	refused
	// half is a write that only makes the object, if there was none, and else succeeds.
	half
	// killed is a write that succeeded, and the end of the manager.
	killed
)

// modelConnection is a connection to the member. Its cache shows the first seen changes of
// the runs in its namespaces.
type modelConnection struct {
	namespaces []string
	cache      map[string]*agentv1alpha1.AgentRun
	seen       int
}

// modelManager is what fleet/rollup and fleet/agentrun do with a Book.
type modelManager struct {
	w    *world
	hub  *modelHub
	book Book
	// hubSeen is the version of the hub's object that its cache shows.
	hubSeen int
	// connection is the one in use, nil when there is none; before is the one before it,
	// which ends late.
	connection, before *modelConnection
	// pace is how many looks at the member's changes it takes to see some.
	pace int

	// The rest is as in fleet/rollup's state.
	changed bool
	ledger  types.UID
	looked  bool
	early   []*agentv1alpha1.AgentRun
	tally   *Tally
	tallyOf *modelConnection
	counted []types.UID
	proving *modelProof

	// lost are the failed runs that it saw go, as it was told first.
	lost map[types.UID]loss
}

// modelProof is a proof that is being made.
type modelProof struct {
	of     *modelConnection
	ledger types.UID
	// listed is what the member has answered.
	listed *Proof
}

// loss says which ledger the manager knew of when it saw a run go, whether the run had its
// mark, and whether there was a proof from before it went, which holds as long as nobody
// else writes: this manager had done so last.
type loss struct {
	ledger         types.UID
	marked, proved bool
}

// start is a new process, whose caches may show what was some changes ago.
func (w *world) start(hub *modelHub) *modelManager {
	w.processes++
	m := &modelManager{
		w: w, hub: hub, pace: []int{1, 1, 30, 30}[w.rng.IntN(4)], lost: map[types.UID]loss{},
		book: Book{Writer: types.UID(fmt.Sprint("manager-", w.processes))},
	}
	m.hubSeen = w.recently(hub.last())
	m.connect()
	return m
}

func (m *modelManager) connect() {
	m.disconnect()
	next := &modelConnection{namespaces: m.hub.namespaces, seen: m.w.recently(len(m.w.member.changes))}
	next.cache = m.w.member.after(next.seen, next.namespaces)
	m.connection, m.changed = next, true
}

func (m *modelManager) disconnect() {
	if m.connection != nil {
		m.connection, m.before = nil, m.connection
	}
	m.book.Doubt()
}

// deliver lets the cache see up to n more changes.
func (m *modelManager) deliver(n int) {
	c := m.connection
	for ; c != nil && n > 0 && c.seen < len(m.w.member.changes); n-- {
		change := m.w.member.changes[c.seen]
		c.seen++
		if !watches(c.namespaces, change.run) {
			continue
		}
		m.changed = true
		if !change.deleted {
			c.cache[change.run.Name] = change.run
		} else if c.cache[change.run.Name] != nil {
			m.lose(change.run)
			delete(c.cache, change.run.Name)
		}
	}
}

// deliverLate lets the connection before tell of up to n more runs that went.
func (m *modelManager) deliverLate(n int) {
	c := m.before
	for ; c != nil && n > 0 && c.seen < len(m.w.member.changes); n-- {
		if change := m.w.member.changes[c.seen]; change.deleted && watches(c.namespaces, change.run) {
			m.lose(change.run)
		}
		c.seen++
	}
}

// relist is a watch that broke: what happened in between is not known.
func (m *modelManager) relist() {
	c := m.connection
	if c == nil {
		return
	}
	for name, run := range c.cache {
		if now := m.w.member.runs[name]; now == nil || now.UID != run.UID {
			m.lose(run)
		}
	}
	m.changed = true
	c.seen = len(m.w.member.changes)
	c.cache = m.w.member.after(c.seen, c.namespaces)
}

func (m *modelManager) lose(object *agentv1alpha1.AgentRun) {
	if m.looked {
		m.loseNow(object)
	} else {
		m.early = append(m.early, object)
	}
}

func (m *modelManager) loseNow(object *agentv1alpha1.AgentRun) {
	run := m.runOf(object)
	if _, known := m.lost[run.UID]; run.failed() && !known {
		proof := m.book.proof
		m.lost[run.UID] = loss{
			ledger: m.ledger,
			marked: run.Marked,
			proved: proof != nil && m.book.took && proof.Covers([]string{run.Namespace}) &&
				proof.isYounger(Run{Namespace: run.Namespace, Version: strconv.Itoa(m.w.member.removed[run.UID])}),
		}
	}
	m.book.Lose(run)
}

func (m *modelManager) runOf(object *agentv1alpha1.AgentRun) Run {
	run := RunOf(object, m.ledger)
	run.Version = object.ResourceVersion
	return run
}

// look takes note of which ledger there is. What went before the first look is judged now.
func (m *modelManager) look(ledger types.UID) (another bool) {
	another = m.ledger != ledger
	m.ledger = ledger
	if !m.looked && ledger != "" {
		for _, object := range m.early {
			m.loseNow(object)
		}
	}
	m.looked, m.early = true, nil
	return another
}

// count counts the cache for a ledger when something has changed.
func (m *modelManager) count(ledger fleetv1alpha1.FailureLedger) {
	another := m.look(ledger.ID)
	if m.connection == nil || !m.changed && !another && slices.Equal(m.counted, ledger.InFlight) {
		return
	}
	var runs []Run
	for _, object := range m.connection.cache {
		runs = append(runs, m.runOf(object))
	}
	if m.tally != nil && m.tallyOf != m.connection {
		m.vanish(uidsOf(runs))
	}
	t := Of(runs, sets.New(ledger.InFlight...))
	m.tally, m.tallyOf, m.counted, m.changed = &t, m.connection, ledger.InFlight, false
}

// vanish: what the connection before showed, and this one does not.
func (m *modelManager) vanish(shown sets.Set[types.UID]) {
	for _, run := range m.tally.Unmarked {
		if !shown.Has(run.UID) {
			m.book.Vanish(run)
		}
	}
}

// summarize looks at the member's object on the hub, and records nothing.
func (m *modelManager) summarize() {
	status, _ := m.hub.read(m.hubSeen)
	m.count(status.Ledger)
}

// sync is one look at the member's object on the hub.
func (m *modelManager) sync(becomes outcome) {
	status, version := m.hub.read(m.hubSeen)
	m.count(status.Ledger)
	if m.tally == nil {
		return
	}
	o := Observation{Tally: m.tally, Now: m.w.now, ClockOffset: m.w.offset}
	m.book.Read(status.Ledger, version)
	if m.book.Unsettled(*m.tally) && m.w.rng.IntN(4) == 0 { // after a while
		m.book.Doubt()
	}
	m.book.Complete(&o)
	if version != "" && m.connection != nil && m.book.NeedsProof(*m.tally) {
		m.book.ProofStarted()
		m.proving = &modelProof{of: m.connection, ledger: status.Ledger.ID}
	}
	next := Observe(status, o)
	if version == "" || WorthWriting(m.hub.versions[m.hubSeen].status, next) {
		m.write(next, becomes)
	}
}

// write is compare and swap. Where there is no object, it is made first.
func (m *modelManager) write(next fleetv1alpha1.AgentRunClusterStatusStatus, becomes outcome) {
	if becomes == refused || m.hubSeen != m.hub.last() {
		return
	}
	uid := m.hub.versions[m.hubSeen].uid
	if !m.hub.exists() {
		uid = m.hub.create()
		next.Ledger.ID = uid
		next.TotalExact = next.TotalExact && next.Counts().Failed == 0
		if becomes == half {
			return
		}
	}
	m.w.apply(m.hub, modelVersion{uid, next})
	if next.Ledger.Held > 0 {
		m.hold(m.hub.ledger(next.Ledger.ID))
	}
	switch becomes {
	case written, half:
		m.book.Wrote(next.Ledger)
	case killed:
		*m = *m.w.start(m.hub)
	}
}

// hold takes note of the runs that the manager said it held. One of which it has not seen
// that it went may be in a namespace that is not watched any more.
func (m *modelManager) hold(truth *modelLedger) {
	for uid, run := range m.book.gone {
		if !run.vanished || !m.w.limited {
			truth.held.Insert(uid)
		}
	}
}

// list has the member answer the live list of a proof that is being made; proved hands
// it in.
func (m *modelManager) list() {
	if p := m.proving; p != nil && p.of == m.connection {
		p.listed = m.w.member.proof(p.of.namespaces, p.ledger)
	}
}

func (m *modelManager) proved() {
	switch p := m.proving; {
	case p == nil:
		return
	case p.of != m.connection:
		m.book.ProofEnded(nil)
	case p.listed == nil:
		return
	default:
		m.book.ProofEnded(p.listed)
	}
	m.proving = nil
}

// mark patches up to n runs that want their mark, as far as the cache shows.
func (m *modelManager) mark(n int) {
	if m.connection == nil || m.w.marksRefused {
		return
	}
	ledger := m.book.Ledger()
	for _, name := range slices.Sorted(maps.Keys(m.connection.cache)) {
		run := m.connection.cache[name]
		if n == 0 || !m.book.InFlight(run.UID) || run.RecordedBy(ledger) {
			continue
		}
		if !m.hub.ledger(ledger).onRecord.Has(run.UID) {
			m.w.t.Errorf("run %s gets the mark of %s, which has not recorded it", run.UID, ledger)
		}
		m.w.member.mark(run, ledger)
		n--
	}
}
