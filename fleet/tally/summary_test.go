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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// member is one that is observed and holds the runs, whose failures are on record.
func member(name string, runs ...Run) Member {
	m := Member{Name: name, Status: recordedOf(runs...)}
	m.Status.Conditions = connected(metav1.ConditionTrue, "Connected")
	return m
}

func lost(m Member, status metav1.ConditionStatus, reason string) Member {
	m.Status.Conditions = connected(status, reason)
	return m
}

func refIn(cluster, name string) *fleetv1alpha1.RunReference {
	return &fleetv1alpha1.RunReference{Cluster: cluster, Namespace: "ns", Name: name}
}

func notReady(reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: message}}
}

func TestSummary(t *testing.T) {
	cases := map[string]struct {
		members []Member
		want    fleetv1alpha1.AgentRunFleetStatusStatus
	}{
		"no member is nothing, and not ready": {
			want: fleetv1alpha1.AgentRunFleetStatusStatus{
				Clusters:   fleetv1alpha1.ClusterCounts{Ratio: "0/0"},
				TotalExact: true,
				Conditions: notReady("NoMembers",
					"no member is selected: register one with a kubeconfig Secret, or widen spec.clusterSelector"),
			},
		},
		"members that are all observed are summed up, most failed first, and ready": {
			members: []Member{
				member("f/a", append(inPhase("Pending", "Running", "Succeeded"), failed("x", "E", 1))...),
				member("f/b", failed("y", "E", 2), failed("z", "F", 1)),
			},
			want: fleetv1alpha1.AgentRunFleetStatusStatus{
				Conditions: []metav1.Condition{{
					Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllMembersObserved", Message: "2 of 2 members observed",
				}},
				Clusters: fleetv1alpha1.ClusterCounts{Total: 2, Observed: 2, Ratio: "2/2"},
				Runs:     fleetv1alpha1.RunCounts{Pending: 1, Running: 1, Active: 2, Succeeded: 1, Failed: 3},
				Failures: []fleetv1alpha1.FleetFailureCount{
					{FailureCount: fleetv1alpha1.FailureCount{
						Reason: "E", Current: 2, Total: 2, LastHour: 2, LastDay: 2, LastFailureTime: metaAt(2), LastRun: refIn("f/b", "y"),
					}, Clusters: 2},
					{FailureCount: fleetv1alpha1.FailureCount{
						Reason: "F", Current: 1, Total: 1, LastHour: 1, LastDay: 1, LastFailureTime: metaAt(1), LastRun: refIn("f/b", "z"),
					}, Clusters: 1},
				},
				LastFailureTime: metaAt(2),
				TotalFailures:   3,
				TotalExact:      true,
				History:         hourly(3),
				HistoryTime:     metaClock(3, 0),
				ClusterSummaries: []fleetv1alpha1.ClusterSummary{
					{Name: "f/b", Connected: "True", Reason: "Connected", Failed: 2, TotalFailures: 2, TopReason: "E"},
					{Name: "f/a", Connected: "True", Reason: "Connected", Active: 2, Failed: 1, TotalFailures: 1, TopReason: "E"},
				},
			},
		},
		"active runs of members that are not observed are unknown, whatever is stored, and these members come first": {
			members: []Member{
				member("f/a", failed("x", "E", 1)),
				lost(member("f/b", inPhase("Pending", "Running")...), metav1.ConditionUnknown, "Unreachable"),
				lost(member("f/c", inPhase("Running", "Succeeded")...), metav1.ConditionFalse, "Forbidden"),
				{Name: "f/d"},
			},
			want: fleetv1alpha1.AgentRunFleetStatusStatus{
				Conditions: notReady("MembersNotObserved",
					"3 of 4 members not observed: f/b (Unreachable), f/c (Forbidden), f/d (not tried yet)"),
				Clusters: fleetv1alpha1.ClusterCounts{Total: 4, Observed: 1, Ratio: "1/4"},
				Runs:     fleetv1alpha1.RunCounts{Succeeded: 1, Failed: 1, Unknown: 3},
				Failures: []fleetv1alpha1.FleetFailureCount{{FailureCount: fleetv1alpha1.FailureCount{
					Reason: "E", Current: 1, Total: 1, LastHour: 1, LastDay: 1, LastFailureTime: metaAt(1), LastRun: refIn("f/a", "x"),
				}, Clusters: 1}},
				LastFailureTime: metaAt(1),
				TotalFailures:   1,
				History:         hourly(1),
				HistoryTime:     metaClock(3, 0),
				ClusterSummaries: []fleetv1alpha1.ClusterSummary{
					{Name: "f/b", Connected: "Unknown", Reason: "Unreachable", Unknown: 2},
					{Name: "f/c", Connected: "False", Reason: "Forbidden", Unknown: 1},
					{Name: "f/d", Connected: "Unknown"},
					{Name: "f/a", Connected: "True", Reason: "Connected", Failed: 1, TotalFailures: 1, TopReason: "E"},
				},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Summary(fleetStatus{}, tc.members, at(600))); diff != "" {
				t.Errorf("Summary (-want +got):\n%s", diff)
			}
		})
	}
}

// hourly is a history whose last hours had so many failures.
func hourly(counts ...int64) []int64 {
	return append(make([]int64, fleetv1alpha1.HistoryHours-len(counts)), counts...)
}

func TestSummaryCountsWindowsToNow(t *testing.T) {
	early, late := member("f/early", failed("x", "E", 0)), member("f/late")
	late.Status = Observe(late.Status, seen(Observation{Now: at(2 * 3600), MayCount: always}, late.Status, failed("y", "E", 2*3600)))
	late.Status.Conditions = connected(metav1.ConditionTrue, "Connected")
	cases := map[string]struct {
		now              time.Time
		members          []Member
		wantHour         int64
		wantDay          int64
		wantClusters     int32
		wantHistory      []int64
		wantHistoryStart *metav1.Time
	}{
		"what was stored hours apart is put in the same hours": {
			now: at(2 * 3600), members: []Member{early, late},
			wantHour: 1, wantDay: 2, wantClusters: 2, wantHistory: hourly(1, 0, 1), wantHistoryStart: metaClock(5, 0),
		},
		"in whatever order": {
			now: at(3 * 3600), members: []Member{late, early},
			wantDay: 2, wantClusters: 2, wantHistory: hourly(1, 0, 1, 0), wantHistoryStart: metaClock(6, 0),
		},
		"a member without failures is in no history": {
			now: at(3 * 3600), members: []Member{late, {Name: "f/new"}},
			wantDay: 1, wantClusters: 1, wantHistory: hourly(1, 0), wantHistoryStart: metaClock(6, 0),
		},
		"a day later members count that hold failed runs": {
			now: at(26 * 3600), members: []Member{early, gone(late)}, wantClusters: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Summary(fleetStatus{}, tc.members, tc.now)
			f := got.Failures[0]
			if f.LastHour != tc.wantHour || f.LastDay != tc.wantDay || f.Clusters != tc.wantClusters {
				t.Errorf("%d in the last hour and %d in the last day in %d members, want %d, %d, %d",
					f.LastHour, f.LastDay, f.Clusters, tc.wantHour, tc.wantDay, tc.wantClusters)
			}
			if diff := cmp.Diff(tc.wantHistory, got.History); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantHistoryStart, got.HistoryTime); diff != "" {
				t.Errorf("history's time (-want +got):\n%s", diff)
			}
		})
	}
}

// gone is the member without its runs.
func gone(m Member) Member {
	none := Of(nil, nil)
	m.Status = Observe(m.Status, Observation{Tally: &none, Now: at(26 * 3600)})
	return m
}

func TestSummaryOfStaleMembers(t *testing.T) {
	contact := func(m Member, seconds int) Member {
		m.Status.LastContactTime = metaAt(seconds)
		return m
	}
	seenAt := func(seconds int) Member { return contact(member(fmt.Sprint("f/seen", seconds)), seconds) }
	lostAt := func(seconds int) Member {
		return contact(lost(member(fmt.Sprint("f/lost", seconds)), metav1.ConditionUnknown, "Unreachable"), seconds)
	}
	waiting := member("f/waiting")
	waiting.Status.TotalExact = false
	cases := map[string]struct {
		members    []Member
		wantOldest *metav1.Time
		wantExact  bool
	}{
		"no contact is old when all are observed":                      {[]Member{seenAt(1), seenAt(2)}, nil, true},
		"the oldest contact is of those that are not observed":         {[]Member{seenAt(1), lostAt(5), lostAt(3), lostAt(4)}, metaAt(3), true},
		"members that never answered have none, and are not exact":     {[]Member{{Name: "f/new"}, lostAt(3)}, metaAt(3), false},
		"totals are exact only when those of every member are":         {[]Member{seenAt(1), waiting}, nil, false},
		"a member that is not observed keeps its totals, and is exact": {[]Member{lostAt(1)}, metaAt(1), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Summary(fleetStatus{}, tc.members, at(600))
			if diff := cmp.Diff(tc.wantOldest, got.Clusters.OldestContactTime); diff != "" {
				t.Errorf("oldest contact (-want +got):\n%s", diff)
			}
			if got.TotalExact != tc.wantExact {
				t.Errorf("exact %v, want %v", got.TotalExact, tc.wantExact)
			}
		})
	}
}

// TestSummaryLeavesMembersAlone holds that statuses from a shared cache stay as they are.
func TestSummaryLeavesMembersAlone(t *testing.T) {
	m := lost(member("f/a", failed("x", "E", 1), inPhase("Running")[0]), metav1.ConditionUnknown, "Unreachable")
	before := m.Status.DeepCopy()
	Summary(fleetStatus{}, []Member{m}, at(3*3600))
	if diff := cmp.Diff(*before, m.Status); diff != "" {
		t.Errorf("the member's status (-before +after):\n%s", diff)
	}
}

func TestSummaryBoundsItsLists(t *testing.T) {
	var members []Member
	for i := range 70 {
		m := member(fmt.Sprintf("f/%02d", i), failed("r", fmt.Sprintf("Reason%02d", i), i))
		if i < 7 {
			m = lost(m, metav1.ConditionUnknown, "Unreachable")
		}
		members = append(members, m)
	}
	got := Summary(fleetStatus{}, members, at(600))
	if len(got.ClusterSummaries) != fleetv1alpha1.MaxClusterSummaries || got.ClusterSummariesOmitted != 20 {
		t.Errorf("%d members listed and %d left out, want 50 and 20", len(got.ClusterSummaries), got.ClusterSummariesOmitted)
	}
	if got.ReasonsOmitted != 31 || got.TotalFailures != 70 {
		t.Errorf("%d reasons left out of %d failures, want 31 of 70", got.ReasonsOmitted, got.TotalFailures)
	}
	if len(got.Failures) != fleetv1alpha1.MaxFailureReasons || got.Failures[0].Clusters != 31 || got.Failures[0].Current != 31 {
		t.Errorf("%d reasons, the first %+v, want 40 and 31 failures in 31 members", len(got.Failures), got.Failures[0])
	}
	want := "7 of 70 members not observed: f/00 (Unreachable), f/01 (Unreachable), f/02 (Unreachable), " +
		"f/03 (Unreachable), f/04 (Unreachable) and 2 more"
	if diff := cmp.Diff(want, got.Conditions[0].Message); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

// TestSummaryEqualsARecount plays random histories and counts the fleet's runs anew,
// without tally, after each.
func TestSummaryEqualsARecount(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var members []Member
		want := map[string]int{}
		for i := range rng.IntN(6) {
			runs := play(rng)
			m := member(fmt.Sprint("f/", i), runs...)
			observed := rng.IntN(3) > 0
			if !observed {
				m = lost(m, metav1.ConditionUnknown, "Unreachable")
			}
			members = append(members, m)
			recount(want, runs, observed)
		}
		summary := Summary(fleetStatus{}, members, at(600))
		if diff := cmp.Diff(want, numbers(summary)); diff != "" {
			t.Fatalf("numbers (-recount +Summary):\n%s", diff)
		}
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if diff := cmp.Diff(summary, Summary(fleetStatus{}, members, at(600))); diff != "" {
			t.Fatalf("Summary depends on the order (-before +after):\n%s", diff)
		}
	}
}

// TestSummaryTotalsGrow: with more reasons than lines, those that have one keep it.
func TestSummaryTotalsGrow(t *testing.T) {
	var old, young []Run
	for i := range fleetv1alpha1.MaxFailureReasons - 1 {
		old = append(old, failed(fmt.Sprint("o", i), fmt.Sprintf("Old%02d", i), i))
	}
	for i := range 3 {
		young = append(young, failed(fmt.Sprint("y", i), fmt.Sprintf("Young%02d", i), i))
	}
	first := Summary(fleetStatus{}, []Member{member("f/a", old...)}, at(600))
	for i := range 5 {
		young = append(young, failed(fmt.Sprint("z", i), "Young02", i))
	}
	then := Summary(first, []Member{member("f/a", old...), member("f/b", young...)}, at(600))
	got := map[string]int64{}
	for _, f := range then.Failures {
		got[f.Reason] = f.Total
	}
	want := map[string]int64{fleetv1alpha1.ReasonOther: 8}
	for _, run := range old {
		want[run.Reason] = 1
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("totals by reason (-want +got):\n%s", diff)
	}
	if then.ReasonsOmitted != 3 {
		t.Errorf("%d reasons are said to be left out, want 3", then.ReasonsOmitted)
	}
}

// play is a history of runs that are created, move on and are deleted; names are
// used again.
func play(rng *rand.Rand) []Run {
	runs := map[string]Run{}
	for step := range rng.IntN(60) {
		name := fmt.Sprint("r", rng.IntN(12))
		run, exists := runs[name]
		switch {
		case !exists:
			runs[name] = Run{UID: types.UID(fmt.Sprint(name, "-", step)), Namespace: "ns", Name: name, Phase: agentv1alpha1.AgentRunPending}
		case run.Phase == agentv1alpha1.AgentRunFailed || run.Phase == agentv1alpha1.AgentRunSucceeded:
			delete(runs, name)
		default:
			run.Phase = []agentv1alpha1.AgentRunPhase{"Running", "Succeeded", "Failed"}[rng.IntN(3)]
			if run.failed() {
				run.Reason, run.Completed = fmt.Sprint("Reason", rng.IntN(4)), at(rng.IntN(9))
			}
			runs[name] = run
		}
	}
	var out []Run
	for _, run := range runs {
		out = append(out, run)
	}
	return out
}

func recount(into map[string]int, runs []Run, observed bool) {
	for _, run := range runs {
		switch {
		case run.Phase == "Failed":
			into[run.Reason]++
			into["total "+run.Reason]++
			into["total"]++
			into["Failed"]++
		case run.Phase == "Succeeded" || observed:
			into[string(run.Phase)]++
		default:
			into["Unknown"]++
		}
	}
}

func numbers(s fleetv1alpha1.AgentRunFleetStatusStatus) map[string]int {
	all := map[string]int{
		"Pending": int(s.Runs.Pending), "Running": int(s.Runs.Running), "Succeeded": int(s.Runs.Succeeded),
		"Failed": int(s.Runs.Failed), "Unknown": int(s.Runs.Unknown), "total": int(s.TotalFailures),
	}
	for _, f := range s.Failures {
		all[f.Reason] += int(f.Current)
		all["total "+f.Reason] += int(f.Total)
	}
	for key, n := range all {
		if n == 0 {
			delete(all, key)
		}
	}
	return all
}
