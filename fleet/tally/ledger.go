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
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// maxScope bounds ledger.namespaces, as its marker says. More count as all.
const maxScope = 100

// Observation is what is seen of one member at one moment.
type Observation struct {
	// Tally counts the runs that exist; nil when they have not been counted.
	Tally *Tally
	// Record says that failures are put on record; else only what exists is counted.
	Record bool
	// Writer is who records.
	Writer types.UID
	// Gone are failures of runs that do not exist any more, of which it is certain that
	// they are not on record unless they are in flight.
	Gone []Run
	// MayCount says of a failure without a mark, that is not in flight, whether it is
	// certain not to be on record. Nil when there is no telling.
	MayCount func(Run) bool
	// Departed says whether a run that the tally does not show is certain to be gone.
	// Nil when of none that is certain.
	Departed func(types.UID) bool
	// Pending is how many failed runs are gone of which there is no telling yet.
	Pending int32
	// Scope are the namespaces that the member is limited to; nil stands for all. It is
	// of use with MayCount.
	Scope []string
	// Provisional says that failures are recorded though the reason is not settled yet:
	// nobody will settle it soon.
	Provisional bool
	// Missed are failures that were seen and can be counted no more.
	Missed int64
	// Now is the hub's time; the member's clock is ahead of it by ClockOffset.
	Now         time.Time
	ClockOffset time.Duration
}

// Observe returns the member's status with what is observed counted into it: the runs
// as they are, and every failure that is not on record yet. Counting it again changes
// nothing, since what is in the totals is in flight until its run is marked or gone.
func Observe(status fleetv1alpha1.AgentRunClusterStatusStatus, o Observation) fleetv1alpha1.AgentRunClusterStatusStatus {
	r := openRecord(status, o)
	news := false
	if o.Record && o.Tally != nil {
		known := sets.New(status.Ledger.InFlight...)
		r.release()
		news = r.recordAll(known)
		r.ledger.Writer = o.Writer
		r.ledger.Namespaces = r.scope(status.Ledger)
		status.TotalExact = r.ledger.Waiting == 0 && r.ledger.Missed == 0
	}
	r.countCurrent(&status)
	r.close(&status, news)
	return status
}

// WorthWriting says whether a status is to be stored in place of another. That another
// manager wrote the ledger before is no reason alone, nor what waits in its view, or two
// managers would write in turn without end. Nor is that runs are no longer in flight:
// this goes with the next write, unless room is getting short.
func WorthWriting(stored, status fleetv1alpha1.AgentRunClusterStatusStatus) bool {
	if 2*len(stored.Ledger.InFlight) < fleetv1alpha1.MaxInFlight && len(status.Ledger.InFlight) < len(stored.Ledger.InFlight) {
		status.Ledger.InFlight, status.Ledger.Namespaces = stored.Ledger.InFlight, stored.Ledger.Namespaces
	}
	if status.Ledger.Writer != stored.Ledger.Writer {
		status.Ledger.Writer = stored.Ledger.Writer
		status.Ledger.Waiting, status.Ledger.Held = stored.Ledger.Waiting, stored.Ledger.Held
		status.TotalExact = stored.TotalExact
	}
	return !equality.Semantic.DeepEqual(stored, status)
}

// record is a member's record of failures while it is being written.
type record struct {
	Observation
	ledger  fleetv1alpha1.FailureLedger
	lines   map[string]*fleetv1alpha1.FailureCount
	windows *windows
	recent  []fleetv1alpha1.RecentFailure
	total   int64
}

func openRecord(status fleetv1alpha1.AgentRunClusterStatusStatus, o Observation) *record {
	r := &record{
		Observation: o,
		ledger:      status.Ledger,
		lines:       map[string]*fleetv1alpha1.FailureCount{},
		windows:     windowsAt(status.Ledger, o.Now),
		recent:      slices.Clone(status.RecentFailures),
		total:       status.TotalFailures,
	}
	r.ledger.Missed += o.Missed
	for _, line := range status.Failures {
		if o.Tally != nil {
			line.Current = 0
		}
		if line.Total > 0 || line.Current > 0 {
			r.lines[line.Reason] = &line
		}
	}
	r.makeRoom(status.Failures)
	r.windows.keep(func(reason string) bool { return r.lines[reason] != nil })
	return r
}

// makeRoom keeps room for Other where somebody else has written a line too many.
func (r *record) makeRoom(lines []fleetv1alpha1.FailureCount) {
	if len(r.lines) < fleetv1alpha1.MaxFailureReasons || r.lines[fleetv1alpha1.ReasonOther] != nil {
		return
	}
	last := r.lines[lines[len(lines)-1].Reason]
	delete(r.lines, last.Reason)
	last.Reason = fleetv1alpha1.ReasonOther
	r.lines[last.Reason] = last
}

// release takes out of flight what has its mark or is gone.
func (r *record) release() {
	present := uidsOf(r.Tally.Unmarked)
	r.ledger.InFlight = slices.DeleteFunc(slices.Clone(r.ledger.InFlight), func(uid types.UID) bool {
		if present.Has(uid) {
			return false
		}
		return r.Tally.Marked.Has(uid) || (r.Departed != nil && r.Departed(uid))
	})
}

func uidsOf(runs []Run) sets.Set[types.UID] {
	uids := sets.New[types.UID]()
	for i := range runs {
		uids.Insert(runs[i].UID)
	}
	return uids
}

// scope is what the runs in flight may be of: the namespaces that the member was limited
// to since there were none.
func (r *record) scope(stored fleetv1alpha1.FailureLedger) []string {
	switch {
	case len(r.ledger.InFlight) == 0:
		return nil
	case r.MayCount == nil: // none has been added
		return stored.Namespaces
	case len(stored.InFlight) == 0:
		return r.Scope
	case len(stored.Namespaces) == 0 || len(r.Scope) == 0:
		return nil
	}
	if all := sets.New(stored.Namespaces...).Insert(r.Scope...); all.Len() <= maxScope {
		return sets.List(all)
	}
	return nil
}

// recordAll counts the failures that are not on record yet, oldest first, as long as
// there is room in flight. Those that are known, in flight before this observation, are
// on record though they have been released. It says whether it counted any.
func (r *record) recordAll(known sets.Set[types.UID]) (news bool) {
	r.ledger.Waiting, r.ledger.Held = r.Pending, r.Pending
	gone := uidsOf(r.Gone)
	for _, run := range r.unrecorded(known) {
		if len(r.ledger.InFlight) >= fleetv1alpha1.MaxInFlight {
			r.ledger.Waiting++
			if gone.Has(run.UID) {
				r.ledger.Held++
			}
			continue
		}
		r.ledger.InFlight = append(r.ledger.InFlight, run.UID)
		r.add(run)
		news = true
	}
	return news
}

// unrecorded returns the failures that are certain not to be on record, oldest first.
// Those of which there is no telling wait.
func (r *record) unrecorded(known sets.Set[types.UID]) []Run {
	var out []Run
	take := func(run Run) {
		known.Insert(run.UID)
		out = append(out, run)
	}
	for _, run := range r.Gone {
		if !known.Has(run.UID) {
			take(run)
		}
	}
	for _, run := range r.Tally.Unmarked {
		switch {
		case known.Has(run.UID):
		case !run.failed(): // any more
		case r.MayCount == nil, !r.MayCount(run), run.Unsettled && !r.Provisional:
			r.ledger.Waiting++
		default:
			take(run)
		}
	}
	slices.SortFunc(out, func(a, b Run) int { return newestFirst(b, a) })
	return out
}

// add puts one failure on record, by the hub's clock. One that is said to be in the
// future, or to have no time, happened now.
func (r *record) add(run Run) {
	at := r.Now
	if completed := run.Completed.Add(-r.ClockOffset); !run.Completed.IsZero() && completed.Before(at) {
		at = completed
	}
	line := r.line(Bounded(run.Reason))
	line.Total = plus(line.Total, 1)
	r.total = plus(r.total, 1)
	r.windows.add(line.Reason, at)
	this := fleetv1alpha1.FailureCount{
		LastFailureTime: timeOf(at),
		LastRun: &fleetv1alpha1.RunReference{
			Namespace: text.Clip(run.Namespace, maxNamespace),
			Name:      text.Clip(run.Name, maxName),
		},
	}
	if laterRun(this, *line) {
		line.LastFailureTime, line.LastRun = this.LastFailureTime, this.LastRun
	}
	r.recent = append(r.recent, recentFailureOf(run, at))
}

// line returns the reason's line. The first reasons have one each for ever, so that no
// total shrinks; when there is no room for another, its failures are ReasonOther's.
func (r *record) line(reason string) *fleetv1alpha1.FailureCount {
	if line := r.lines[reason]; line != nil {
		return line
	}
	others := len(r.lines)
	if r.lines[fleetv1alpha1.ReasonOther] != nil {
		others--
	}
	if reason != fleetv1alpha1.ReasonOther && others >= fleetv1alpha1.MaxFailureReasons-1 {
		return r.line(fleetv1alpha1.ReasonOther)
	}
	r.lines[reason] = &fleetv1alpha1.FailureCount{Reason: reason}
	return r.lines[reason]
}

// countCurrent sets what exists now.
func (r *record) countCurrent(status *fleetv1alpha1.AgentRunClusterStatusStatus) {
	if r.Tally == nil {
		return
	}
	status.Runs = r.Tally.Runs.DeepCopy()
	status.ReasonsOmitted = 0
	for _, reason := range slices.Sorted(maps.Keys(r.Tally.Current)) {
		line := r.line(reason)
		line.Current += r.Tally.Current[reason]
		if line.Reason != reason {
			status.ReasonsOmitted++
		}
	}
}

// close puts the record into the status. What only time has changed in the windows is
// left as it was unless a number that follows from it has changed.
func (r *record) close(status *fleetv1alpha1.AgentRunClusterStatusStatus, news bool) {
	before := *status
	status.Failures = nil
	status.LastFailureTime = nil
	for _, line := range r.lines {
		line.LastHour, line.LastDay = r.windows.of(line.Reason)
		status.LastFailureTime = later(status.LastFailureTime, line.LastFailureTime)
		status.Failures = append(status.Failures, *line)
	}
	slices.SortFunc(status.Failures, mostFirst)
	status.History, status.HistoryTime = r.windows.history()
	if news || !sameNumbers(before, *status) {
		r.windows.store(&r.ledger)
	}
	slices.SortStableFunc(r.recent, latestFirst)
	status.RecentFailures = r.recent[:min(len(r.recent), fleetv1alpha1.MaxRecentFailures)]
	status.TotalFailures = r.total
	status.RecentFailuresOmitted = max(0, r.total-int64(len(status.RecentFailures)))
	status.Ledger = r.ledger
}

func sameNumbers(a, b fleetv1alpha1.AgentRunClusterStatusStatus) bool {
	return equality.Semantic.DeepEqual(a.Failures, b.Failures) &&
		equality.Semantic.DeepEqual(a.History, b.History) &&
		equality.Semantic.DeepEqual(a.HistoryTime, b.HistoryTime)
}

// latestFirst orders failures by time; the rest makes the order total.
func latestFirst(a, b fleetv1alpha1.RecentFailure) int {
	return cmp.Or(
		compareTimes(b.Time, a.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.Message, b.Message),
	)
}
