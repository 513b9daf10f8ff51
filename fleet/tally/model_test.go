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
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// The model: one member, the hubs that count its failures, and managers that see all of
// them late. All that is real is this package and the marks of runs; the rest is as little
// as the API machinery promises.

// modelMember is a member's runs, and every change of them in order. A run that is stored
// is never changed: another takes its place.
type modelMember struct {
	revision int
	runs     map[string]*agentv1alpha1.AgentRun
	changes  []modelChange
	// removed is the revision at which each run went.
	removed map[types.UID]int
}

type modelChange struct {
	run     *agentv1alpha1.AgentRun
	deleted bool
}

func (m *modelMember) store(run *agentv1alpha1.AgentRun) {
	m.revision++
	run.ResourceVersion = strconv.Itoa(m.revision)
	m.runs[run.Name] = run
	m.changes = append(m.changes, modelChange{run: run})
}

// update stores a changed copy of a run.
func (m *modelMember) update(run *agentv1alpha1.AgentRun, change func(*agentv1alpha1.AgentRun)) {
	next := run.DeepCopy()
	change(next)
	m.store(next)
}

// remove deletes a run. The change has its last state, at the time of the deletion.
func (m *modelMember) remove(run *agentv1alpha1.AgentRun) {
	m.revision++
	delete(m.runs, run.Name)
	last := run.DeepCopy()
	last.ResourceVersion = strconv.Itoa(m.revision)
	m.changes = append(m.changes, modelChange{last, true})
	m.removed[run.UID] = m.revision
}

// mark is a patch with the run's resourceVersion, unless the run has no room for the mark.
func (m *modelMember) mark(run *agentv1alpha1.AgentRun, ledgers ...types.UID) {
	if m.runs[run.Name] != run || run.Mark(ledgers...) == run.Mark() {
		return
	}
	m.update(run, func(run *agentv1alpha1.AgentRun) {
		run.Annotations = map[string]string{agentv1alpha1.RecordedAnnotation: run.Mark(ledgers...)}
	})
}

// proof is what fleet/agentrun's Prove makes of a list of the runs in namespaces.
func (m *modelMember) proof(namespaces []string, ledger types.UID) *Proof {
	p := &Proof{Since: map[string]string{}, Open: sets.New[types.UID]()}
	if len(namespaces) == 0 {
		p.Since[""] = strconv.Itoa(m.revision)
	}
	for _, namespace := range namespaces {
		p.Since[namespace] = strconv.Itoa(m.revision)
	}
	for _, run := range m.runs {
		if watches(namespaces, run) && !run.RecordedBy(ledger) {
			p.Open.Insert(run.UID)
		}
	}
	return p
}

// after is what there was in namespaces after the first n changes.
func (m *modelMember) after(n int, namespaces []string) map[string]*agentv1alpha1.AgentRun {
	runs := map[string]*agentv1alpha1.AgentRun{}
	for _, change := range m.changes[:n] {
		switch {
		case !watches(namespaces, change.run):
		case change.deleted:
			delete(runs, change.run.Name)
		default:
			runs[change.run.Name] = change.run
		}
	}
	return runs
}

// watches says whether a run is of one of the namespaces, of which none stand for all.
func watches(namespaces []string, run *agentv1alpha1.AgentRun) bool {
	return len(namespaces) == 0 || slices.Contains(namespaces, run.Namespace)
}

// modelHub is one hub's object for the member, every version that was, and the truth about
// the ledgers that were begun in it.
type modelHub struct {
	name     string
	versions []modelVersion
	begun    int
	ledgers  map[types.UID]*modelLedger
	// namespaces are those that the hub limits the member to; none stand for all.
	namespaces []string
}

// modelVersion is a version of a hub's object. Without a UID there is none.
type modelVersion struct {
	uid    types.UID
	status fleetv1alpha1.AgentRunClusterStatusStatus
}

// modelLedger is the truth about one ledger.
type modelLedger struct {
	// recorded are the failures that were put on record, onRecord their UIDs.
	recorded []Run
	onRecord sets.Set[types.UID]
	// held are the runs that went and that a manager said it held in memory.
	held sets.Set[types.UID]
	// restored says that the ledger was away for a while: what was in memory then is lost.
	restored bool
}

func newHub(name string) *modelHub {
	return &modelHub{name: name, versions: make([]modelVersion, 1), ledgers: map[types.UID]*modelLedger{}}
}

// read is what fleet/rollup reads of a version: its status with the ledger's ID, and its
// resourceVersion.
func (h *modelHub) read(index int) (status fleetv1alpha1.AgentRunClusterStatusStatus, version string) {
	stored := h.versions[index]
	if stored.uid == "" {
		return stored.status, ""
	}
	if stored.status.Ledger.ID == "" {
		stored.status.Ledger.ID = stored.uid
	}
	return stored.status, strconv.Itoa(index + 1)
}

func (h *modelHub) last() int { return len(h.versions) - 1 }

func (h *modelHub) exists() bool { return h.versions[h.last()].uid != "" }

// create makes the object, and so begins a ledger.
func (h *modelHub) create() types.UID {
	h.begun++
	uid := types.UID(fmt.Sprintf("%s-%d", h.name, h.begun))
	h.versions = append(h.versions, modelVersion{uid: uid})
	return uid
}

// remove deletes the object.
func (h *modelHub) remove() { h.versions = append(h.versions, modelVersion{}) }

// restore makes the object with the last status of one of the ledgers that were.
func (h *modelHub) restore(n int) {
	ids := slices.Sorted(maps.Keys(h.ledgers))
	if len(ids) == 0 {
		return
	}
	id := ids[n%len(ids)]
	for _, stored := range slices.Backward(h.versions) {
		if stored.status.Ledger.ID == id {
			h.create()
			h.versions[h.last()].status = stored.status
			h.ledgers[id].restored = true
			return
		}
	}
}

// touch is somebody's edit of something else in the object.
func (h *modelHub) touch() { h.versions = append(h.versions, h.versions[h.last()]) }

func (h *modelHub) ledger(id types.UID) *modelLedger {
	if h.ledgers[id] == nil {
		h.ledgers[id] = &modelLedger{onRecord: sets.New[types.UID](), held: sets.New[types.UID]()}
	}
	return h.ledgers[id]
}

// world is the model as a whole, and the truth that the numbers are held to.
type world struct {
	history

	t         *testing.T
	rng       *rand.Rand
	now       time.Time
	offset    time.Duration
	member    modelMember
	hubs      []*modelHub
	managers  []*modelManager
	processes int
	// marksRefused says that the managers may not mark runs now.
	marksRefused bool
	// failures are all that happened.
	failures        map[types.UID]Run
	uids, strangers int
}

func newWorld(t *testing.T, h history, seed uint64) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 4))
	w := &world{
		history: h, t: t, rng: rng, now: epoch, offset: time.Duration(rng.IntN(1200)-600) * time.Second,
		member:   modelMember{revision: 10_000, runs: map[string]*agentv1alpha1.AgentRun{}, removed: map[types.UID]int{}},
		failures: map[types.UID]Run{},
	}
	for i := range max(1, h.hubs) {
		w.hubs = append(w.hubs, newHub(fmt.Sprint("hub", i)))
	}
	return w
}

// recently is a number that was n a while ago, which is mostly now.
func (w *world) recently(n int) int {
	if w.rng.IntN(4) == 0 || w.revived {
		return max(0, n-w.rng.IntN(30))
	}
	return max(0, n-max(0, w.rng.IntN(8)-4))
}

// create makes a run, unless there is one of the name.
func (w *world) create(name string) {
	if w.member.runs[name] != nil {
		return
	}
	w.uids++
	w.member.store(&agentv1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: []string{"a", "b"}[name[len(name)-1]%2], Name: name, UID: types.UID(fmt.Sprint("u", w.uids)),
		},
		Status: agentv1alpha1.AgentRunStatus{Phase: agentv1alpha1.AgentRunPending},
	})
}

// fail ends a run, some time ago by the member's clock. One that failed before, and was
// moved to another phase, is moved back.
func (w *world) fail(name string) {
	run := w.member.runs[name]
	if run == nil || hasFailed(run) {
		return
	}
	reason, ago := fmt.Sprint("Reason", w.rng.IntN(5)), w.rng.IntN(100)
	if w.rng.IntN(4) == 0 { // it is seen late
		ago += w.rng.IntN(30 * 3600)
	}
	w.member.update(run, func(run *agentv1alpha1.AgentRun) {
		run.Status.Phase = agentv1alpha1.AgentRunFailed
		if run.Status.CompletionTime == nil {
			end := metav1.NewTime(w.now.Add(w.offset).Add(-time.Duration(ago) * time.Second))
			run.Status.CompletionTime = &end
			run.Status.Conditions = []metav1.Condition{{
				Type: agentv1alpha1.ConditionSucceeded, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: end,
			}}
		}
		w.failures[run.UID] = RunOf(run, "")
	})
}

// revive moves a failed run to another phase, which only somebody by hand does.
func (w *world) revive(run *agentv1alpha1.AgentRun) {
	w.member.update(run, func(run *agentv1alpha1.AgentRun) { run.Status.Phase = agentv1alpha1.AgentRunRunning })
}

// markByStrangers is ledgers that the model does not play marking a run.
func (w *world) markByStrangers(run *agentv1alpha1.AgentRun) {
	var ledgers []types.UID
	for range agentv1alpha1.MaxLedgers / 2 {
		w.strangers++
		ledgers = append(ledgers, types.UID(fmt.Sprint("stranger", w.strangers)))
	}
	w.member.mark(run, ledgers...)
}

func hasFailed(run *agentv1alpha1.AgentRun) bool {
	return run.Status.Phase == agentv1alpha1.AgentRunFailed
}
