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
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// The model: one member, the hub, and managers that see both late. All that is real is
// this package; the rest is as little as the API machinery promises.

// modelMember is a member's runs, and every change of them in order.
type modelMember struct {
	revision int
	runs     map[string]Run
	changes  []modelChange
	// removed is the revision at which each run went.
	removed map[types.UID]int
}

type modelChange struct {
	run     Run
	deleted bool
}

func (m *modelMember) store(run Run) {
	m.revision++
	run.Version = strconv.Itoa(m.revision)
	m.runs[run.Name] = run
	m.changes = append(m.changes, modelChange{run: run})
}

// remove deletes a run. The change has its last state, at the time of the deletion.
func (m *modelMember) remove(run Run) {
	m.revision++
	run.Version = strconv.Itoa(m.revision)
	delete(m.runs, run.Name)
	m.changes = append(m.changes, modelChange{run, true})
	m.removed[run.UID] = m.revision
}

// mark is a patch with the run's UID and resourceVersion.
func (m *modelMember) mark(run Run) {
	if now := m.runs[run.Name]; now.UID == run.UID && now.Version == run.Version {
		now.Marked = true
		m.store(now)
	}
}

func (m *modelMember) proof() *Proof {
	p := &Proof{Since: map[string]string{"": strconv.Itoa(m.revision)}, Open: sets.New[types.UID]()}
	for _, run := range m.runs {
		if !run.Marked {
			p.Open.Insert(run.UID)
		}
	}
	return p
}

// after is what there was after the first n changes.
func (m *modelMember) after(n int) map[string]Run {
	runs := map[string]Run{}
	for _, change := range m.changes[:n] {
		if change.deleted {
			delete(runs, change.run.Name)
		} else {
			runs[change.run.Name] = change.run
		}
	}
	return runs
}

// outcome is what becomes of a write to the hub.
type outcome int

const (
	written outcome = iota
	// unknown is a write that succeeded, and is answered with an error.
	unknown
	refused
	// killed is a write that succeeded, and the end of the manager.
	killed
)

// modelManager is what fleet/rollup and fleet/agentrun do with a Book.
type modelManager struct {
	w    *world
	book Book
	// cache shows the first seen changes of the member, and the hub's version hubSeen.
	cache         map[string]Run
	seen, hubSeen int
	// old is how much the connection before, which ends late, has shown.
	old int
	// pace is how many looks at the member's changes it takes to see some.
	pace       int
	connected  bool
	connection int
	changed    bool
	tally      *Tally
	tallyOn    int
	counted    []types.UID
	proving    bool
	provingOn  int
	listed     *Proof
	// lost are the failures without a mark whose runs it saw go, with whether it had a
	// proof from before they went.
	lost map[types.UID]bool
}

// start is a new process, whose caches may show what was some changes ago.
func (w *world) start() *modelManager {
	w.processes++
	m := &modelManager{
		w: w, pace: []int{1, 1, 30}[w.rng.IntN(3)], lost: map[types.UID]bool{},
		book: Book{Writer: types.UID(fmt.Sprint("manager-", w.processes))},
	}
	m.hubSeen = w.recently(len(w.versions) - 1)
	m.connect()
	m.old = math.MaxInt // there was none before
	return m
}

func (m *modelManager) connect() {
	m.old = m.seen
	m.seen = m.w.recently(len(m.w.member.changes))
	m.cache = m.w.member.after(m.seen)
	m.connected, m.changed = true, true
	m.connection++
	m.book.Doubt()
}

func (m *modelManager) disconnect() {
	m.connected = false
	m.book.Doubt()
}

// deliver lets the cache see up to n more changes.
func (m *modelManager) deliver(n int) {
	for ; m.connected && n > 0 && m.seen < len(m.w.member.changes); n-- {
		change := m.w.member.changes[m.seen]
		m.seen++
		m.changed = true
		_, known := m.cache[change.run.Name]
		if !change.deleted {
			m.cache[change.run.Name] = change.run
		} else if known {
			m.lose(change.run)
			delete(m.cache, change.run.Name)
		}
	}
}

// deliverLate lets the connection before tell of up to n more runs that went.
func (m *modelManager) deliverLate(n int) {
	for ; n > 0 && m.old < len(m.w.member.changes); n-- {
		if change := m.w.member.changes[m.old]; change.deleted {
			m.lose(change.run)
		}
		m.old++
	}
}

// relist is a watch that broke: what happened in between is not known.
func (m *modelManager) relist() {
	if !m.connected {
		return
	}
	for name, run := range m.cache {
		if m.w.member.runs[name].UID != run.UID {
			m.lose(run)
		}
	}
	m.seen, m.changed = len(m.w.member.changes), true
	m.cache = maps.Clone(m.w.member.runs)
}

func (m *modelManager) lose(run Run) {
	m.book.Lose(run)
	if _, known := m.lost[run.UID]; run.failed() && !run.Marked && !known {
		proof := m.book.proof
		m.lost[run.UID] = proof != nil && proof.Since[""] < strconv.Itoa(m.w.member.removed[run.UID])
	}
}

// sync is one look at the member's object on the hub.
func (m *modelManager) sync(becomes outcome) {
	stored := m.w.versions[m.hubSeen]
	if m.connected && (m.changed || !slices.Equal(m.counted, stored.Ledger.InFlight)) {
		t := Of(slices.Collect(maps.Values(m.cache)), sets.New(stored.Ledger.InFlight...))
		if m.tally != nil && m.tallyOn != m.connection { // as fleet/rollup's state.take
			uids := sets.New[types.UID]()
			for _, run := range m.cache {
				uids.Insert(run.UID)
			}
			for _, run := range m.tally.Unmarked {
				if !uids.Has(run.UID) {
					m.book.Vanish(run)
				}
			}
		}
		m.tallyOn = m.connection
		m.tally, m.counted, m.changed = &t, stored.Ledger.InFlight, false
	}
	if m.tally == nil {
		return
	}
	o := Observation{Tally: m.tally, Now: m.w.now, ClockOffset: m.w.offset}
	m.book.Read(stored.Ledger, versionOf(m.hubSeen))
	m.book.Complete(&o)
	if m.connected && m.book.NeedsProof(*m.tally) {
		m.book.ProofStarted()
		m.proving, m.provingOn, m.listed = true, m.connection, nil
	}
	if next := Observe(stored, o); WorthWriting(stored, next) {
		m.write(stored, next, becomes)
	}
}

func (m *modelManager) write(stored, next fleetv1alpha1.AgentRunClusterStatusStatus, becomes outcome) {
	if becomes == refused || m.hubSeen != len(m.w.versions)-1 { // compare and swap
		return
	}
	m.w.apply(stored, next)
	if next.Ledger.Held > 0 {
		m.w.held = m.w.held.Union(sets.KeySet(m.book.gone))
	}
	switch becomes {
	case written:
		m.book.Wrote(next.Ledger)
	case killed:
		*m = *m.w.start()
	}
}

// list has the member answer the live list of a proof that is being made; proved hands
// it in.
func (m *modelManager) list() {
	if m.proving && m.connected && m.connection == m.provingOn {
		m.listed = m.w.member.proof()
	}
}

func (m *modelManager) proved() {
	if !m.proving || (m.listed == nil && m.connection == m.provingOn && m.connected) {
		return
	}
	if m.connection != m.provingOn || !m.connected {
		m.listed = nil
	}
	m.book.ProofEnded(m.listed)
	m.proving = false
}

// mark patches up to n runs that want their mark, as far as the cache shows.
func (m *modelManager) mark(n int) {
	for _, name := range slices.Sorted(maps.Keys(m.cache)) {
		run := m.cache[name]
		if n > 0 && m.connected && !m.w.marksRefused && !run.Marked && m.book.InFlight(run.UID) {
			m.w.member.mark(run)
			n--
		}
	}
}

// world is the model as a whole, and the truth that the numbers are held to.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Time
	offset time.Duration
	member modelMember
	// versions are the hub's object, every version that was.
	versions     []fleetv1alpha1.AgentRunClusterStatusStatus
	managers     []*modelManager
	processes    int
	marksRefused bool
	// held are the runs that went and that a manager said it held in memory.
	held sets.Set[types.UID]
	// failures are all that happened, recorded those that were put on record.
	failures map[types.UID]Run
	recorded []Run
	uids     int
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	t.Helper()
	return &world{
		t: t, rng: rng, now: epoch, offset: time.Duration(rng.IntN(1200)-600) * time.Second,
		member:   modelMember{revision: 10_000, runs: map[string]Run{}, removed: map[types.UID]int{}},
		versions: make([]fleetv1alpha1.AgentRunClusterStatusStatus, 1),
		failures: map[types.UID]Run{}, held: sets.New[types.UID](),
	}
}

// versionOf is the resourceVersion of one of the hub's versions.
func versionOf(index int) string { return strconv.Itoa(index + 1) }

// recently is a number that was n a while ago, which is mostly now.
func (w *world) recently(n int) int {
	if w.rng.IntN(4) == 0 {
		return max(0, n-w.rng.IntN(30))
	}
	return max(0, n-max(0, w.rng.IntN(8)-4))
}

// create makes a run, unless there is one of the name.
func (w *world) create(name string) {
	if _, exists := w.member.runs[name]; !exists {
		w.uids++
		w.member.store(Run{
			UID: types.UID(fmt.Sprint("u", w.uids)), Namespace: "ns", Name: name, Phase: agentv1alpha1.AgentRunPending,
		})
	}
}

// fail ends a run, some time ago by the member's clock.
func (w *world) fail(name string) {
	run, exists := w.member.runs[name]
	if !exists || run.failed() {
		return
	}
	run.Phase, run.Reason = agentv1alpha1.AgentRunFailed, fmt.Sprint("Reason", w.rng.IntN(5))
	run.Completed = w.now.Add(w.offset).Add(-time.Duration(w.rng.IntN(100)) * time.Second)
	if w.rng.IntN(4) == 0 { // it is seen late
		run.Completed = run.Completed.Add(-time.Duration(w.rng.IntN(30*3600)) * time.Second)
	}
	w.member.store(run)
	w.failures[run.UID] = w.member.runs[name]
}
