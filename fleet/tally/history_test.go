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
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// history is a kind of random histories.
type history struct {
	// managers are how many there are at a time; a second one is there by mistake.
	managers int
	// onlyMarked says that no run is deleted before it has its mark, as the TTL does it.
	onlyMarked bool
	// calm says that managers and connections live for ever.
	calm bool
	// crowd is the number of runs that fail before their marks are granted.
	crowd int
	count int
}

// TestHistories plays random histories, HISTORIES times as many when that is set, with the numbers held to the truth after each
// write, and at the end.
func TestHistories(t *testing.T) {
	cases := map[string]history{
		"runs go once they are marked, managers come and go":                 {managers: 1, onlyMarked: true, count: 1000},
		"runs go once they are marked, two managers by mistake":              {managers: 2, onlyMarked: true, count: 1000},
		"runs go at any time, one manager stays":                             {managers: 1, calm: true, count: 1000},
		"runs go at any time, managers come and go":                          {managers: 1, count: 1000},
		"runs go at any time, two managers by mistake":                       {managers: 2, count: 1000},
		"more fail than there is room in flight, and managers come and go":   {managers: 2, onlyMarked: true, crowd: 1100, count: 5},
		"more fail than there is room in flight, and runs go at any time":    {managers: 1, calm: true, crowd: 1100, count: 5},
		"runs go once they are marked, and nothing else is out of the order": {managers: 1, onlyMarked: true, calm: true, count: 500},
	}
	times := 1
	if s := os.Getenv("HISTORIES"); s != "" {
		var err error
		if times, err = strconv.Atoi(s); err != nil {
			t.Fatalf("HISTORIES: %v", err)
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for i := range tc.count * times {
				seed := uint64(i)
				w := newWorld(t, rand.New(rand.NewPCG(seed, 4)))
				w.play(tc)
				w.settle()
				w.judge(tc)
				if t.Failed() {
					t.Fatalf("seed %d of this kind of history", seed)
				}
			}
		})
	}
}

// play is a history of up to 400 steps.
func (w *world) play(h history) {
	for i := range h.crowd {
		name := fmt.Sprint("crowd", i)
		w.create(name)
		w.fail(name)
	}
	w.marksRefused = h.crowd > 0
	for range h.managers {
		w.managers = append(w.managers, w.start())
	}
	for range w.rng.IntN(400) {
		m := w.managers[w.rng.IntN(len(w.managers))]
		switch w.rng.IntN(8) {
		case 0, 1:
			w.live(h)
		case 2, 3, 4:
			w.see(m)
		case 5, 6:
			w.work(m, h)
		default:
			if !h.calm {
				w.trouble(m)
			}
		}
	}
}

// live is something that happens in the member.
func (w *world) live(h history) {
	name := fmt.Sprint("r", w.rng.IntN(8))
	switch run, exists := w.member.runs[name]; w.rng.IntN(4) {
	case 0:
		w.create(name)
	case 1:
		w.fail(name)
	case 2:
		if exists && (run.Marked || !run.failed() || !h.onlyMarked) {
			w.member.remove(run)
		}
	default:
		w.now = w.now.Add(time.Duration(w.rng.IntN(1000)) * time.Second)
		switch w.rng.IntN(10) {
		case 0:
			w.now = w.now.Add(time.Duration(w.rng.IntN(40)) * time.Hour)
		case 1: // somebody edits something else in the hub's object
			w.versions = append(w.versions, w.versions[len(w.versions)-1])
		}
	}
}

// see is a manager that comes to see what happened.
func (w *world) see(m *modelManager) {
	switch w.rng.IntN(8) {
	case 0:
		m.relist()
	case 1, 2, 3:
		m.hubSeen = min(m.hubSeen+1+w.rng.IntN(3), len(w.versions)-1)
	default:
		if w.rng.IntN(m.pace) == 0 {
			m.deliver(1 + w.rng.IntN(6))
		}
	}
}

// work is something that a manager does.
func (w *world) work(m *modelManager, h history) {
	switch w.rng.IntN(6) {
	case 0:
		m.list()
		if w.rng.IntN(2) == 0 {
			m.proved()
		}
	case 1:
		m.proved()
	case 2:
		m.mark(1 + w.rng.IntN(3))
	default:
		becomes := []outcome{written, written, written, unknown, refused, killed}[w.rng.IntN(6)]
		if h.calm && becomes == killed {
			becomes = written
		}
		m.sync(becomes)
	}
}

// trouble is what need not happen.
func (w *world) trouble(m *modelManager) {
	switch w.rng.IntN(9) {
	case 0:
		*m = *w.start()
	case 1:
		m.disconnect()
	case 2:
		m.connect()
	case 3, 5, 6:
		m.deliverLate(1 + w.rng.IntN(8))
	case 4:
		w.marksRefused = !w.marksRefused
	}
}

// settle lets everything that can be done be done.
func (w *world) settle() {
	w.marksRefused = false
	for _, m := range w.managers {
		if !m.connected {
			m.connect()
		}
	}
	for range 40 {
		for _, m := range w.managers {
			m.deliver(len(w.member.changes))
			m.hubSeen = len(w.versions) - 1
			m.sync(written)
			m.list()
			m.proved()
			m.mark(len(m.cache))
		}
	}
}

// apply stores a write, and holds it to what is on record.
func (w *world) apply(stored, next fleetv1alpha1.AgentRunClusterStatusStatus) {
	w.versions = append(w.versions, next)
	before := sets.New(stored.Ledger.InFlight...)
	onRecord := sets.New[types.UID]()
	for _, run := range w.recorded {
		onRecord.Insert(run.UID)
	}
	for _, uid := range next.Ledger.InFlight {
		if before.Has(uid) {
			continue
		}
		if _, failed := w.failures[uid]; !failed || onRecord.Has(uid) {
			w.t.Errorf("run %s was put on record, which it is already, or has not failed", uid)
		}
		w.recorded = append(w.recorded, w.failures[uid])
	}
	if len(next.Ledger.InFlight) > fleetv1alpha1.MaxInFlight {
		w.t.Errorf("%d runs in flight", len(next.Ledger.InFlight))
	}
	later := w.now
	if w.rng.IntN(2) == 0 {
		later = later.Add(time.Duration(w.rng.IntN(30*3600)) * time.Second)
	}
	at := Observe(next, Observation{Now: later})
	if diff := cmp.Diff(naive(w.recorded, later, w.offset), naiveView(at)); diff != "" {
		w.t.Errorf("numbers at %v (-recount of what is on record +status):\n%s", later, diff)
	}
}

// judge holds the end of a history to the truth.
func (w *world) judge(h history) {
	end := w.versions[len(w.versions)-1]
	onRecord := sets.New[types.UID]()
	for _, run := range w.recorded {
		onRecord.Insert(run.UID)
	}
	missing := sets.KeySet(w.failures).Difference(onRecord)
	w.judgeExisting(onRecord)
	if h.onlyMarked && missing.Len() > 0 {
		w.t.Errorf("%d of %d failures are not on record", missing.Len(), len(w.failures))
	}
	if h.onlyMarked && h.calm && !end.TotalExact {
		w.t.Error("the totals are exact, and said not to be")
	}
	for _, m := range w.managers {
		w.judgeLost(m, h, missing, end)
	}
	if held := missing.Intersection(w.held); h.managers == 1 && held.Len() > 0 && end.TotalExact {
		w.t.Errorf("%v were held by managers that are no more, and the totals are said to be exact", held.UnsortedList())
	}
	if end.Ledger.Waiting != 0 {
		w.t.Errorf("%d failures wait at the end", end.Ledger.Waiting)
	}
}

func (w *world) judgeExisting(onRecord sets.Set[types.UID]) {
	for _, run := range w.member.runs {
		if run.failed() && (!onRecord.Has(run.UID) || !run.Marked) {
			w.t.Errorf("run %s exists: on record %v, marked %v", run.UID, onRecord.Has(run.UID), run.Marked)
		}
	}
}

// judgeLost holds that a manager which saw a failure and then its run go has counted it,
// or says that it could not.
func (w *world) judgeLost(m *modelManager, h history, missing sets.Set[types.UID], end fleetv1alpha1.AgentRunClusterStatusStatus) {
	missed := missing.Intersection(sets.KeySet(m.lost))
	if missed.Len() > 0 && end.TotalExact {
		w.t.Errorf("the failures of %v are lost, and the totals are said to be exact", missed.UnsortedList())
	}
	if !h.calm {
		return
	}
	if got := end.Ledger.Missed; got != int64(missed.Len()) {
		w.t.Errorf("%d failures are said to be missed, which %d are", got, missed.Len())
	}
	for uid := range missed {
		if m.lost[uid] {
			w.t.Errorf("the failure of %s is lost, though there was a proof when its run went", uid)
		}
	}
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
