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
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

type (
	clusterStatus = fleetv1alpha1.AgentRunClusterStatusStatus
	fleetStatus   = fleetv1alpha1.AgentRunFleetStatusStatus
)

func always(Run) bool { return true }
func never(Run) bool  { return false }

func only(uids ...types.UID) func(types.UID) bool { return sets.New(uids...).Has }

func marked(run Run) Run {
	run.Marked = true
	return run
}

// seen is an observation, ten minutes after the epoch, of a member that has these runs.
func seen(o Observation, status clusterStatus, runs ...Run) Observation {
	t := Of(runs, sets.New(status.Ledger.InFlight...))
	o.Tally, o.Record = &t, true
	if o.Now.IsZero() {
		o.Now = at(600)
	}
	return o
}

// recordedOf is the status of a member whose failures are on record, and exist.
func recordedOf(runs ...Run) clusterStatus {
	return Observe(clusterStatus{}, seen(Observation{MayCount: always}, clusterStatus{}, runs...))
}

// counts are what a test says of a status in short.
type counts struct {
	Lines    map[string]string // reason: current/total/lastHour/lastDay
	Total    int64
	InFlight []types.UID
	Waiting  int32
	Missed   int64
	Exact    bool
}

func countsOf(s clusterStatus) counts {
	c := counts{
		Lines: map[string]string{}, Total: s.TotalFailures, Exact: s.TotalExact,
		InFlight: s.Ledger.InFlight, Waiting: s.Ledger.Waiting, Missed: s.Ledger.Missed,
	}
	for _, f := range s.Failures {
		c.Lines[f.Reason] = fmt.Sprintf("%d/%d/%d/%d", f.Current, f.Total, f.LastHour, f.LastDay)
	}
	return c
}

func TestObserveCountsEachFailureOnce(t *testing.T) {
	e, f := failed("e", "E", 1), failed("f", "F", 2)
	one := recordedOf(e)
	oneExists := counts{Lines: map[string]string{"E": "1/1/1/1"}, Total: 1, InFlight: []types.UID{"e"}, Exact: true}
	oneIsGone := counts{Lines: map[string]string{"E": "0/1/1/1"}, Total: 1, Exact: true}
	cases := map[string]struct {
		stored clusterStatus
		o      Observation
		runs   []Run
		want   counts
	}{
		"nothing is nothing, and exact": {want: counts{Exact: true}},
		"failures are counted, and in flight, oldest first": {
			o: Observation{MayCount: always}, runs: []Run{f, e},
			want: counts{
				Lines: map[string]string{"E": "1/1/1/1", "F": "1/1/1/1"}, Total: 2,
				InFlight: []types.UID{"e", "f"}, Exact: true,
			},
		},
		"what is in flight is not counted again": {
			stored: one, o: Observation{MayCount: always}, runs: []Run{e}, want: oneExists,
		},
		"a failure with its mark is on record, and leaves the ones in flight": {
			stored: one, o: Observation{MayCount: always}, runs: []Run{marked(e)},
			want: counts{Lines: map[string]string{"E": "1/1/1/1"}, Total: 1, Exact: true},
		},
		"a failure with its mark that is not in flight stays on record": {
			o: Observation{MayCount: always}, runs: []Run{marked(e)},
			want: counts{Lines: map[string]string{"E": "1/0/0/0"}, Exact: true},
		},
		"a run in flight that is not seen stays in flight, since it may be on its way to the cache": {
			stored: one, o: Observation{MayCount: always},
			want: counts{Lines: map[string]string{"E": "0/1/1/1"}, Total: 1, InFlight: []types.UID{"e"}, Exact: true},
		},
		"a run in flight that is gone leaves it": {
			stored: one, o: Observation{Departed: only("e")}, want: oneIsGone,
		},
		"a run in flight that is seen stays in it, though it is said to be gone": {
			stored: one, o: Observation{Departed: only("e")}, runs: []Run{e}, want: oneExists,
		},
		"a run in flight that is gone leaves it, and is not counted again though its failure is still in hand": {
			stored: one, o: Observation{MayCount: always, Departed: only("e"), Gone: []Run{e}}, want: oneIsGone,
		},
		"a failure whose run is gone is counted, and goes through the ones in flight": {
			o:    Observation{Gone: []Run{e}},
			want: counts{Lines: map[string]string{"E": "0/1/1/1"}, Total: 1, InFlight: []types.UID{"e"}, Exact: true},
		},
		"a run that is gone and still in a tally of before is counted once": {
			o: Observation{Gone: []Run{e}}, runs: []Run{e}, want: oneExists,
		},
		"a run made anew under the name is another run": {
			stored: one, o: Observation{MayCount: always, Departed: only("e")}, runs: []Run{renamed(failed("e2", "E", 3), "e")},
			want: counts{Lines: map[string]string{"E": "1/2/2/2"}, Total: 2, InFlight: []types.UID{"e2"}, Exact: true},
		},
		"a failure that may be on record already is not counted, and waits": {
			o: Observation{MayCount: never}, runs: []Run{e},
			want: counts{Lines: map[string]string{"E": "1/0/0/0"}, Waiting: 1},
		},
		"one that is gone and of which there is no telling yet waits too": {
			o: Observation{MayCount: always, Pending: 1}, want: counts{Waiting: 1},
		},
		"one whose reason is not settled waits for that": {
			o: Observation{MayCount: always}, runs: []Run{unsettled(e)},
			want: counts{Lines: map[string]string{"E": "1/0/0/0"}, Waiting: 1},
		},
		"unless nobody will settle it soon": {
			o: Observation{MayCount: always, Provisional: true}, runs: []Run{unsettled(e)}, want: oneExists,
		},
		"or its run is gone": {
			o:    Observation{Gone: []Run{unsettled(e)}},
			want: counts{Lines: map[string]string{"E": "0/1/1/1"}, Total: 1, InFlight: []types.UID{"e"}, Exact: true},
		},
		"failures of which there is no telling wait": {
			stored: one, runs: []Run{e, f},
			want: counts{
				Lines: map[string]string{"E": "1/1/1/1", "F": "1/0/0/0"}, Total: 1,
				InFlight: []types.UID{"e"}, Waiting: 1,
			},
		},
		"what was missed makes the totals inexact for ever": {
			stored: clusterStatus{Ledger: fleetv1alpha1.FailureLedger{Missed: 2}}, o: Observation{MayCount: always, Missed: 3},
			want: counts{Missed: 5},
		},
		"a reason that is no word is counted as Other": {
			o: Observation{MayCount: always}, runs: []Run{failed("a", "no word", 1)},
			want: counts{Lines: map[string]string{"Other": "1/1/1/1"}, Total: 1, InFlight: []types.UID{"a"}, Exact: true},
		},
		"a run in flight that is not failed any more keeps its place in the totals": {
			stored: one, o: Observation{MayCount: always},
			runs: []Run{{UID: "e", Namespace: "ns", Name: "e", Phase: agentv1alpha1.AgentRunRunning}},
			want: counts{Lines: map[string]string{"E": "0/1/1/1"}, Total: 1, InFlight: []types.UID{"e"}, Exact: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.stored.DeepCopy()
			got := Observe(tc.stored, seen(tc.o, tc.stored, tc.runs...))
			if diff := cmp.Diff(tc.want, countsOf(got), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Observe (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(*before, tc.stored); diff != "" {
				t.Errorf("what was stored has been changed (-before +after):\n%s", diff)
			}
		})
	}
}

func unsettled(run Run) Run {
	run.Unsettled = true
	return run
}

// The namespaces that the runs in flight may be of are known until there are none.
func TestObserveKeepsTheScopeOfWhatIsInFlight(t *testing.T) {
	stored := func(namespaces ...string) clusterStatus {
		return clusterStatus{Ledger: fleetv1alpha1.FailureLedger{InFlight: []types.UID{"old"}, Namespaces: namespaces}}
	}
	var many []string
	for i := range maxScope {
		many = append(many, fmt.Sprintf("n%03d", i))
	}
	cases := map[string]struct {
		stored clusterStatus
		o      Observation
		runs   []Run
		want   []string
	}{
		"the first in flight are of those that are watched": {
			o: Observation{MayCount: always, Scope: []string{"a"}}, runs: []Run{failed("e", "E", 1)}, want: []string{"a"},
		},
		"while there are some, those are added": {
			stored: stored("a", "b"), o: Observation{MayCount: always, Scope: []string{"b", "c"}}, want: []string{"a", "b", "c"},
		},
		"all and some are all":       {stored: stored(), o: Observation{MayCount: always, Scope: []string{"a"}}},
		"some and all are all":       {stored: stored("a"), o: Observation{MayCount: always}},
		"too many to name are all":   {stored: stored(many...), o: Observation{MayCount: always, Scope: []string{"a"}}},
		"none in flight are of none": {stored: stored("a"), o: Observation{MayCount: always, Scope: []string{"a"}, Departed: only("old")}},
		"without a proof nothing is added": {
			stored: stored("a"), o: Observation{Scope: []string{"b"}}, want: []string{"a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Observe(tc.stored, seen(tc.o, tc.stored, tc.runs...)).Ledger.Namespaces
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("namespaces (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the CRD lets somebody write by hand, what is made of it can be stored.
func TestObserveBearsEditedStatuses(t *testing.T) {
	var lines clusterStatus
	for i := range fleetv1alpha1.MaxFailureReasons {
		lines.Failures = append(lines.Failures, fleetv1alpha1.FailureCount{Reason: fmt.Sprintf("R%02d", i), Total: 1})
	}
	got := Observe(lines, seen(Observation{MayCount: always}, lines, failed("e", "New", 1)))
	if n := len(got.Failures); n != fleetv1alpha1.MaxFailureReasons {
		t.Errorf("%d lines, want %d", n, fleetv1alpha1.MaxFailureReasons)
	}
	if diff := cmp.Diff("1/2/1/1", countsOf(got).Lines[fleetv1alpha1.ReasonOther]); diff != "" {
		t.Errorf("Other (-want +got):\n%s", diff)
	}

	full := clusterStatus{
		TotalFailures: math.MaxInt64,
		Failures:      []fleetv1alpha1.FailureCount{{Reason: "E", Total: math.MaxInt64}},
		Ledger: fleetv1alpha1.FailureLedger{
			WindowTime: metaAt(600), Windows: []fleetv1alpha1.FailureWindow{{Reason: "E", FiveMinutes: full32(12), Hours: full32(24)}},
		},
	}
	got = Observe(full, seen(Observation{MayCount: always}, full, failed("e", "E", 600)))
	want := fmt.Sprintf("1/%d/%d/%d", int64(math.MaxInt64), 12*int64(math.MaxInt32), 24*int64(math.MaxInt32))
	if diff := cmp.Diff(want, countsOf(got).Lines["E"]); diff != "" || got.TotalFailures != math.MaxInt64 {
		t.Errorf("total %d, line (-want +got):\n%s", got.TotalFailures, diff)
	}
	sum := Summary(fleetStatus{}, []Member{{Name: "a/a", Status: got}, {Name: "b/b", Status: got}}, at(600))
	if sum.TotalFailures != math.MaxInt64 || sum.Failures[0].Total != math.MaxInt64 {
		t.Errorf("the sum is %d, of the reason %d; want the largest number", sum.TotalFailures, sum.Failures[0].Total)
	}
}

func full32(n int) []int32 {
	row := make([]int32, n)
	for i := range row {
		row[i] = math.MaxInt32
	}
	return row
}

// Two managers whose views differ in what waits do not write in turn.
func TestWorthWritingOfAnothersView(t *testing.T) {
	stored := clusterStatus{TotalExact: true, Ledger: fleetv1alpha1.FailureLedger{Writer: "you"}}
	waits := clusterStatus{Ledger: fleetv1alpha1.FailureLedger{Writer: "me", Waiting: 1}}
	if WorthWriting(stored, waits) {
		t.Error("what waits in one manager's view is written over another's")
	}
	waits.Ledger.Writer = "you"
	if !WorthWriting(stored, waits) {
		t.Error("what waits in a manager's own view is not written")
	}
}

func renamed(run Run, name string) Run {
	run.Name = name
	return run
}

func TestObserveOnlyWhatExists(t *testing.T) {
	e, f := failed("e", "E", 1), failed("f", "F", 2)
	stored := recordedOf(e)
	o := seen(Observation{MayCount: always, Departed: only("e")}, stored, f)
	o.Record = false
	want := counts{
		Lines: map[string]string{"E": "0/1/1/1", "F": "1/0/0/0"}, Total: 1, InFlight: []types.UID{"e"}, Exact: true,
	}
	if diff := cmp.Diff(want, countsOf(Observe(stored, o))); diff != "" {
		t.Errorf("Observe (-want +got):\n%s", diff)
	}
}

func TestObserveOnlyTime(t *testing.T) {
	stored := recordedOf(failed("e", "E", 1))
	cases := map[string]struct {
		after time.Duration
		want  string
	}{
		"nothing is different a minute later":   {time.Minute, "1/1/1/1"},
		"an hour later it is in the day alone":  {time.Hour, "1/1/0/1"},
		"two days later it is in no window":     {48 * time.Hour, "1/1/0/0"},
		"a hundred years later it is on record": {100 * 365 * 24 * time.Hour, "1/1/0/0"},
		"a clock that went back changes none":   {-30 * time.Minute, "1/1/1/1"},
		"one that went back for years neither":  {-100 * 365 * 24 * time.Hour, "1/1/1/1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Observe(stored, Observation{Now: at(600).Add(tc.after)})
			want := counts{Lines: map[string]string{"E": tc.want}, Total: 1, InFlight: []types.UID{"e"}, Exact: true}
			if diff := cmp.Diff(want, countsOf(got)); diff != "" {
				t.Errorf("Observe (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(stored.Runs, got.Runs); diff != "" {
				t.Errorf("runs (-before +after):\n%s", diff)
			}
			kept := cmp.Equal(stored.Ledger, got.Ledger)
			if same := cmp.Equal(stored.Failures, got.Failures) && cmp.Equal(stored.HistoryTime, got.HistoryTime); same != kept {
				t.Errorf("the numbers are the same: %v; the stored windows are left alone: %v", same, kept)
			}
		})
	}
}

func TestObserveTimes(t *testing.T) {
	ahead := 10 * time.Minute
	cases := map[string]struct {
		completed time.Time
		offset    time.Duration
		wantTime  time.Time
		// wantBucket is how many buckets of five minutes ago it was; the hub's time is
		// 03:14:05.
		wantBucket int
	}{
		"a failure is in the bucket of its end":                    {completed: at(0), wantTime: at(0), wantBucket: 2},
		"one in the future happened now":                           {completed: at(3600), wantTime: at(600)},
		"one without a time happened now":                          {wantTime: at(600)},
		"a member's clock that is ahead is seen through":           {completed: at(600), offset: ahead, wantTime: at(0), wantBucket: 2},
		"one in the future of a clock that is ahead happened now":  {completed: at(1201), offset: ahead, wantTime: at(600)},
		"a member's clock that is behind is seen through":          {completed: at(-300), offset: -ahead, wantTime: at(300), wantBucket: 1},
		"one in the future of a clock that is behind happened now": {completed: at(1), offset: -ahead, wantTime: at(600)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := failed("e", "E", 0)
			run.Completed = tc.completed
			got := Observe(clusterStatus{}, seen(Observation{MayCount: always, ClockOffset: tc.offset}, clusterStatus{}, run))
			if at := got.RecentFailures[0].Time; !at.Time.Equal(tc.wantTime) || !at.Equal(got.LastFailureTime) || !at.Equal(got.Failures[0].LastFailureTime) {
				t.Errorf("times %v, %v, %v, want %v", at, got.LastFailureTime, got.Failures[0].LastFailureTime, tc.wantTime)
			}
			if diff := cmp.Diff(buckets(12, tc.wantBucket), got.Ledger.Windows[0].FiveMinutes); diff != "" {
				t.Errorf("five minutes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObserveATimeThatCannotBeStored(t *testing.T) {
	run := failed("e", "E", 0)
	run.Completed = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)
	want := clusterStatus{
		Failures:       []fleetv1alpha1.FailureCount{{Reason: "E", Current: 1, Total: 1, LastRun: ref("e")}},
		RecentFailures: []fleetv1alpha1.RecentFailure{{Namespace: "ns", Name: "e", Reason: "E"}},
		Runs:           &fleetv1alpha1.RunCounts{Failed: 1},
		TotalFailures:  1, TotalExact: true, Ledger: inFlight("e"),
	}
	if diff := cmp.Diff(want, recordedOf(run)); diff != "" {
		t.Errorf("Observe (-want +got):\n%s", diff)
	}
}

// TestObserveDoesNotDependOnOrder records the same failures in any order and batches.
func TestObserveDoesNotDependOnOrder(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var runs []Run
		for i := range rng.IntN(60) {
			run := failed(fmt.Sprint("u", i), fmt.Sprint("Reason", rng.IntN(38)), -rng.IntN(5*3600))
			run.Name = fmt.Sprint("r", rng.IntN(30))
			runs = append(runs, run)
		}
		want := recordedOf(runs...)
		rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		got := clusterStatus{}
		for n := 0; n < len(runs); {
			n = min(len(runs), n+1+rng.IntN(9))
			got = Observe(got, seen(Observation{MayCount: always}, got, runs[:n]...))
		}
		if len(runs) == 0 {
			got = recordedOf()
		}
		slices.Sort(want.Ledger.InFlight)
		slices.Sort(got.Ledger.InFlight)
		if !equality.Semantic.DeepEqual(want, got) {
			t.Fatalf("seed %d: batches make a difference (-at once +in batches):\n%s", seed, cmp.Diff(want, got))
		}
	}
}

// buckets is a row with one in each of the buckets, of which 0 is the last.
func buckets(length int, ago ...int) []int32 {
	row := make([]int32, length)
	for _, n := range ago {
		row[length-1-n]++
	}
	return row
}
