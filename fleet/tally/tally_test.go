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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

func failed(name, reason string, seconds int) Run {
	return Run{
		UID: types.UID(name), Namespace: "ns", Name: name,
		Phase: agentv1alpha1.AgentRunFailed, Reason: reason, Completed: at(seconds),
	}
}

func inPhase(phases ...agentv1alpha1.AgentRunPhase) []Run {
	var runs []Run
	for i, phase := range phases {
		runs = append(runs, Run{Namespace: "ns", Name: fmt.Sprint("p", i), Phase: phase})
	}
	return runs
}

func ref(name string) *fleetv1alpha1.RunReference {
	return &fleetv1alpha1.RunReference{Namespace: "ns", Name: name}
}

func recent(name, reason string, seconds int) fleetv1alpha1.RecentFailure {
	return fleetv1alpha1.RecentFailure{Namespace: "ns", Name: name, Reason: reason, Time: metaAt(seconds)}
}

func TestOf(t *testing.T) {
	cases := map[string]struct {
		runs []Run
		want Tally
	}{
		"no runs count nothing": {},
		"runs are counted by phase; pending and running are active; a strange phase is unknown": {
			runs: inPhase("Pending", "Running", "Running", "Succeeded", "Paused"),
			want: Tally{Runs: fleetv1alpha1.RunCounts{Pending: 1, Running: 2, Active: 3, Succeeded: 1, Unknown: 1}},
		},
		"failures are counted most first, ties by reason, each with its latest run": {
			runs: []Run{
				failed("a", "ErrImagePull", 1), failed("b", "Zebra", 5), failed("c", "ErrImagePull", 3), failed("d", "Ant", 4),
			},
			want: Tally{
				Runs: fleetv1alpha1.RunCounts{Failed: 4},
				Failures: []fleetv1alpha1.FailureCount{
					{Reason: "ErrImagePull", Current: 2, LastFailureTime: metaAt(3), LastRun: ref("c")},
					{Reason: "Ant", Current: 1, LastFailureTime: metaAt(4), LastRun: ref("d")},
					{Reason: "Zebra", Current: 1, LastFailureTime: metaAt(5), LastRun: ref("b")},
				},
				LastFailureTime: metaAt(5),
				RecentFailures: []fleetv1alpha1.RecentFailure{
					recent("b", "Zebra", 5), recent("d", "Ant", 4), recent("c", "ErrImagePull", 3), recent("a", "ErrImagePull", 1),
				},
			},
		},
		"of two failures at the same time the first by name is the last run": {
			runs: []Run{failed("b", "E", 1), failed("a", "E", 1)},
			want: Tally{
				Runs:            fleetv1alpha1.RunCounts{Failed: 2},
				Failures:        []fleetv1alpha1.FailureCount{{Reason: "E", Current: 2, LastFailureTime: metaAt(1), LastRun: ref("a")}},
				LastFailureTime: metaAt(1),
				RecentFailures:  []fleetv1alpha1.RecentFailure{recent("a", "E", 1), recent("b", "E", 1)},
			},
		},
		"a reason that is no word is counted as Other and shown verbatim": {
			runs: []Run{failed("a", "no word", 1)},
			want: Tally{
				Runs:            fleetv1alpha1.RunCounts{Failed: 1},
				Failures:        []fleetv1alpha1.FailureCount{{Reason: "Other", Current: 1, LastFailureTime: metaAt(1), LastRun: ref("a")}},
				LastFailureTime: metaAt(1),
				RecentFailures:  []fleetv1alpha1.RecentFailure{recent("a", "no word", 1)},
			},
		},
		"a failure whose time is not known, or cannot be stored, has none and is counted": {
			runs: []Run{
				{Namespace: "ns", Name: "a", Phase: "Failed", Reason: "E"},
				{Namespace: "ns", Name: "b", Phase: "Failed", Reason: "E", Completed: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
			},
			want: Tally{
				Runs:     fleetv1alpha1.RunCounts{Failed: 2},
				Failures: []fleetv1alpha1.FailureCount{{Reason: "E", Current: 2, LastRun: ref("a")}},
				RecentFailures: []fleetv1alpha1.RecentFailure{
					{Namespace: "ns", Name: "b", Reason: "E"}, {Namespace: "ns", Name: "a", Reason: "E"},
				},
			},
		},
		"evidence and message are cut to what the API accepts": {
			runs: []Run{{
				Namespace: "ns", Name: "a", Phase: "Failed", Reason: "E", Message: strings.Repeat("é\n", 300),
				Evidence: Evidence{Container: strings.Repeat("c", 99), Image: strings.Repeat("i", 999), Node: "n\x00"},
			}},
			want: Tally{
				Runs:     fleetv1alpha1.RunCounts{Failed: 1},
				Failures: []fleetv1alpha1.FailureCount{{Reason: "E", Current: 1, LastRun: ref("a")}},
				RecentFailures: []fleetv1alpha1.RecentFailure{{
					Namespace: "ns", Name: "a", Reason: "E", Message: strings.Repeat("é ", 128),
					Container: strings.Repeat("c", 63), Image: strings.Repeat("i", 256), Node: "n",
				}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Of(tc.runs)); diff != "" {
				t.Errorf("Of (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfKeepsSumsExactBeyondTheBounds(t *testing.T) {
	var runs []Run
	for reason := range 60 {
		for i := range reason + 1 {
			runs = append(runs, failed(fmt.Sprintf("r%d-%d", reason, i), fmt.Sprintf("Reason%02d", reason), reason))
		}
	}
	runs = append(runs, failed("other", "no word", 1000))

	got := Of(runs)
	if len(got.Failures) != fleetv1alpha1.MaxFailureReasons {
		t.Errorf("%d reasons listed, want %d", len(got.Failures), fleetv1alpha1.MaxFailureReasons)
	}
	if sum := current(got.Failures); sum != len(runs) {
		t.Errorf("failures sum up to %d, want %d", sum, len(runs))
	}
	// Reasons 0 to 20 have no room: 1+2+...+21 runs, and the one that is no word.
	want := fleetv1alpha1.FailureCount{
		Reason: "Other", Current: 21*22/2 + 1, LastFailureTime: metaAt(1000), LastRun: ref("other"),
	}
	if diff := cmp.Diff(want, got.Failures[0]); diff != "" {
		t.Errorf("Other (-want +got):\n%s", diff)
	}
	if len(got.RecentFailures) != fleetv1alpha1.MaxRecentFailures || got.RecentFailures[0].Name != "other" {
		t.Errorf("%d recent failures, first %q, want %d, first other",
			len(got.RecentFailures), got.RecentFailures[0].Name, fleetv1alpha1.MaxRecentFailures)
	}
}

func TestOfDoesNotDependOnOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		runs := randomRuns(rng, rng.IntN(80))
		want := Of(runs)
		rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		if diff := cmp.Diff(want, Of(runs)); diff != "" {
			t.Fatalf("Of depends on the order (-before +after):\n%s", diff)
		}
	}
}

func TestApplyToLeavesTheRestAlone(t *testing.T) {
	status := fleetv1alpha1.AgentRunClusterStatusStatus{Endpoint: "https://x", RecentFailures: make([]fleetv1alpha1.RecentFailure, 1)}
	tally := Of([]Run{failed("a", "E", 1)})
	tally.ApplyTo(&status)
	want := fleetv1alpha1.AgentRunClusterStatusStatus{
		Endpoint: "https://x", Runs: &tally.Runs, Failures: tally.Failures,
		LastFailureTime: tally.LastFailureTime, RecentFailures: tally.RecentFailures,
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("ApplyTo (-want +got):\n%s", diff)
	}
}

func TestUnobserved(t *testing.T) {
	failures := []fleetv1alpha1.FailureCount{{Reason: "E", Current: 4}}
	observed := fleetv1alpha1.AgentRunClusterStatusStatus{
		Runs:     &fleetv1alpha1.RunCounts{Pending: 1, Running: 2, Active: 3, Succeeded: 3, Failed: 4, Unknown: 5},
		Failures: failures,
	}
	want := fleetv1alpha1.AgentRunClusterStatusStatus{
		Runs:     &fleetv1alpha1.RunCounts{Succeeded: 3, Failed: 4, Unknown: 8},
		Failures: failures,
	}
	once := Unobserved(observed)
	if diff := cmp.Diff(want, once); diff != "" {
		t.Errorf("once (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, Unobserved(once)); diff != "" {
		t.Errorf("twice (-want +got):\n%s", diff)
	}
	if never := Unobserved(fleetv1alpha1.AgentRunClusterStatusStatus{}); never.Runs != nil {
		t.Errorf("a member that has never been observed got counts %v", never.Runs)
	}
	if observed.Runs.Pending != 1 {
		t.Error("the caller's status was changed")
	}
}

func TestKnownEvidence(t *testing.T) {
	evidence := Evidence{Container: "agent", Image: "x:1", Node: "n"}
	before := failed("a", "E", 1)
	before.Evidence = evidence
	known := Of([]Run{before}).RecentFailures

	cases := map[string]struct {
		run  Run
		want Evidence
	}{
		"the same failure keeps its evidence":                        {failed("a", "E", 1), evidence},
		"another run has none":                                       {failed("b", "E", 1), Evidence{}},
		"another failure of a run made anew under the name has none": {failed("a", "E", 2), Evidence{}},
		"another reason has none":                                    {failed("a", "F", 1), Evidence{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, KnownEvidence(tc.run, known)); diff != "" {
				t.Errorf("KnownEvidence (-want +got):\n%s", diff)
			}
		})
	}
}

func current(failures []fleetv1alpha1.FailureCount) int {
	sum := 0
	for _, f := range failures {
		sum += int(f.Current)
	}
	return sum
}

// randomRuns makes runs of every phase, with times that are often equal.
func randomRuns(rng *rand.Rand, n int) []Run {
	phases := []agentv1alpha1.AgentRunPhase{"Pending", "Running", "Succeeded", "Failed", "Failed", "Failed"}
	var runs []Run
	for i := range n {
		run := Run{Namespace: fmt.Sprint("ns", rng.IntN(3)), Name: fmt.Sprint("r", i), Phase: phases[rng.IntN(len(phases))]}
		if run.failed() {
			run.Reason = fmt.Sprint("Reason", rng.IntN(60))
			run.Completed = at(rng.IntN(5))
		}
		runs = append(runs, run)
	}
	return runs
}

func connected(status metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: fleetv1alpha1.ConditionConnected, Status: status, Reason: reason}}
}
