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
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// apply stores a write, and holds it to what is on record.
func (w *world) apply(hub *modelHub, next modelVersion) {
	stored, _ := hub.read(hub.last())
	hub.versions = append(hub.versions, next)
	truth := hub.ledger(next.status.Ledger.ID)
	before, after := sets.New(stored.Ledger.InFlight...), sets.New(next.status.Ledger.InFlight...)
	for _, uid := range next.status.Ledger.InFlight {
		if before.Has(uid) {
			continue
		}
		if _, failed := w.failures[uid]; !failed || truth.onRecord.Has(uid) {
			w.t.Errorf("run %s was put on record, which it is already, or has not failed", uid)
		}
		truth.onRecord.Insert(uid)
		truth.recorded = append(truth.recorded, w.failures[uid])
	}
	for _, run := range w.member.runs {
		if before.Has(run.UID) && !after.Has(run.UID) && !run.RecordedBy(next.status.Ledger.ID) {
			w.t.Errorf("run %s is not in flight any more, and exists without the mark", run.UID)
		}
	}
	if after.Len() > fleetv1alpha1.MaxInFlight {
		w.t.Errorf("%d runs in flight", after.Len())
	}
	w.judgeNumbers(truth, next.status)
}

// judgeNumbers holds what a status says, now or later, to a recount of what is on record.
func (w *world) judgeNumbers(truth *modelLedger, status fleetv1alpha1.AgentRunClusterStatusStatus) {
	later := w.now
	if w.rng.IntN(2) == 0 {
		later = later.Add(time.Duration(w.rng.IntN(30*3600)) * time.Second)
	}
	want, got := naive(truth.recorded, later, w.offset), naiveView(Observe(status, Observation{Now: later}))
	if w.clockBack { // when a failure happened depends on what the clock said then
		want, got = want.sums(), got.sums()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("numbers at %v (-recount of what is on record +status):\n%s", later, diff)
	}
}

// judge holds the end of a history to the truth.
func (w *world) judge() {
	for _, hub := range w.hubs {
		end, _ := hub.read(hub.last())
		truth := hub.ledger(end.Ledger.ID)
		missing := sets.KeySet(w.failures).Difference(truth.onRecord)
		w.judgeExisting(truth, end.Ledger)
		if alone := len(w.hubs) == 1 && !w.begunAgain; w.onlyMarked && alone {
			if missing.Len() > 0 {
				w.t.Errorf("%d of %d failures are not on record", missing.Len(), len(w.failures))
			}
			if w.calm && !end.TotalExact {
				w.t.Error("the totals are exact, and said not to be")
			}
		}
		if held := missing.Intersection(truth.held); w.history.managers == 1 && held.Len() > 0 && end.TotalExact && !truth.restored {
			w.t.Errorf("%v were held by managers that are no more, and the totals are said to be exact", held.UnsortedList())
		}
		if end.Ledger.Waiting != 0 {
			w.t.Errorf("%d failures wait at the end", end.Ledger.Waiting)
		}
	}
	for _, m := range w.managers {
		w.judgeLost(m)
	}
}

// judgeExisting holds that the failures of runs that exist are on record, and that what is,
// is in flight only where the run has no room for the mark.
func (w *world) judgeExisting(truth *modelLedger, ledger fleetv1alpha1.FailureLedger) {
	inFlight := sets.New(ledger.InFlight...)
	for _, run := range w.member.runs {
		if hasFailed(run) && !truth.onRecord.Has(run.UID) {
			w.t.Errorf("run %s exists and is not on record", run.UID)
		}
		waits := run.Mark(ledger.ID) == run.Mark() && inFlight.Has(run.UID)
		if truth.onRecord.Has(run.UID) && !run.RecordedBy(ledger.ID) && !waits {
			w.t.Errorf("run %s is on record and has no mark, in flight %v", run.UID, inFlight.Has(run.UID))
		}
	}
}

// judgeLost holds that a manager which saw a failure and then its run go has counted it, if
// not in a ledger before, or says that it could not.
func (w *world) judgeLost(m *modelManager) {
	end, _ := m.hub.read(m.hub.last())
	missed := m.missed(end.Ledger.ID)
	if len(missed) > 0 && end.TotalExact && !m.hub.ledger(end.Ledger.ID).restored {
		w.t.Errorf("%s: the failures of %v are lost, and the totals are said to be exact", m.book.Writer, missed)
	}
	if !w.calm || w.limited || w.begunAgain {
		return
	}
	if end.Ledger.Missed != int64(len(missed)) {
		w.t.Errorf("%s: %d failures are said to be missed, which %d are", m.book.Writer, end.Ledger.Missed, len(missed))
	}
	for _, uid := range missed {
		if m.lost[uid].proved {
			w.t.Errorf("%s: the failure of %s is lost, though there was a proof when its run went", m.book.Writer, uid)
		}
	}
}

// missed are the failures that the manager saw go, in the time of a ledger, and that are not
// on record.
func (m *modelManager) missed(ledger types.UID) (uids []types.UID) {
	for uid, loss := range m.lost {
		its := loss.ledger == ledger || loss.ledger == "" && !m.w.begunAgain
		if its && !loss.marked && !m.hub.everRecorded(uid) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// everRecorded says whether one of the hub's ledgers has the run's failure on record.
func (h *modelHub) everRecorded(uid types.UID) bool {
	for _, ledger := range h.ledgers {
		if ledger.onRecord.Has(uid) {
			return true
		}
	}
	return false
}

// view is what follows from a list of failures alone.
type view struct {
	Total    map[string]int64
	LastHour map[string]int64
	LastDay  map[string]int64
	// History is by the start of the hour.
	History map[string]int64
	Sum     int64
	LastRun map[string]string
	Recent  []string
	Omitted int64
}

// sums is what of a view is the same whatever the time.
func (v view) sums() view { return view{Total: v.Total, Sum: v.Sum, Omitted: v.Omitted} }

func newView() view {
	return view{
		Total: map[string]int64{}, LastHour: map[string]int64{}, LastDay: map[string]int64{}, LastRun: map[string]string{},
		History: map[string]int64{},
	}
}

// naive counts failures from the list of them.
func naive(failures []Run, now time.Time, offset time.Duration) view {
	v := newView()
	failures = slices.Clone(failures)
	slices.SortFunc(failures, newestFirst)
	for _, run := range failures {
		at := run.Completed.Add(-offset)
		v.Total[run.Reason]++
		v.Sum++
		if at.Truncate(5 * time.Minute).After(now.Truncate(5 * time.Minute).Add(-time.Hour)) {
			v.LastHour[run.Reason]++
		}
		if at.Truncate(time.Hour).After(now.Truncate(time.Hour).Add(-24 * time.Hour)) {
			v.LastDay[run.Reason]++
			v.History[at.UTC().Truncate(time.Hour).String()]++
		}
		if v.LastRun[run.Reason] == "" {
			v.LastRun[run.Reason] = run.Name
		}
		if len(v.Recent) < 20 {
			v.Recent = append(v.Recent, fmt.Sprint(run.Name, at.UTC().Truncate(time.Second)))
		} else {
			v.Omitted++
		}
	}
	return v
}

// naiveView is what a status says of the same. Numbers that are zero are left out.
func naiveView(s fleetv1alpha1.AgentRunClusterStatusStatus) view {
	v := newView()
	for _, f := range s.Failures {
		put(v.Total, f.Reason, f.Total)
		put(v.LastHour, f.Reason, f.LastHour)
		put(v.LastDay, f.Reason, f.LastDay)
		if f.LastRun != nil {
			v.LastRun[f.Reason] = f.LastRun.Name
		}
	}
	for i, count := range s.History {
		hour := s.HistoryTime.Add(time.Duration(i+1-len(s.History)) * time.Hour)
		put(v.History, hour.UTC().String(), count)
	}
	for _, f := range s.RecentFailures {
		v.Recent = append(v.Recent, fmt.Sprint(f.Name, f.Time.UTC()))
	}
	v.Sum, v.Omitted = s.TotalFailures, s.RecentFailuresOmitted
	return v
}

func put(in map[string]int64, key string, n int64) {
	if n != 0 {
		in[key] = n
	}
}
