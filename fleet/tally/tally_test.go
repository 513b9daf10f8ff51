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
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

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
	marked := failed("m", "E", 1)
	marked.Marked = true
	revived := Run{UID: "v", Namespace: "ns", Name: "v", Phase: agentv1alpha1.AgentRunRunning}
	cases := map[string]struct {
		runs     []Run
		inFlight []types.UID
		want     Tally
	}{
		"no runs count nothing": {},
		"runs are counted by phase; pending and running are active; a strange phase is unknown": {
			runs: inPhase("Pending", "Running", "Running", "Succeeded", "Paused"),
			want: Tally{Runs: fleetv1alpha1.RunCounts{Pending: 1, Running: 2, Active: 3, Succeeded: 1, Unknown: 1}},
		},
		"failures are counted by reason; one that is no word is Other's": {
			runs: []Run{failed("a", "E", 1), failed("b", "no word", 1), failed("c", "E", 3)},
			want: Tally{
				Runs:     fleetv1alpha1.RunCounts{Failed: 3},
				Current:  map[string]int32{"E": 2, "Other": 1},
				Unmarked: []Run{failed("a", "E", 1), failed("b", "no word", 1), failed("c", "E", 3)},
			},
		},
		"a failure with its mark is counted, and is done with": {
			runs: []Run{marked},
			want: Tally{Runs: fleetv1alpha1.RunCounts{Failed: 1}, Current: map[string]int32{"E": 1}},
		},
		"a run in flight is marked, or wants its mark whatever its phase is by now": {
			runs:     []Run{marked, failed("a", "E", 1), revived},
			inFlight: []types.UID{"m", "a", "v", "gone"},
			want: Tally{
				Runs:     fleetv1alpha1.RunCounts{Failed: 2, Running: 1, Active: 1},
				Current:  map[string]int32{"E": 2},
				Unmarked: []Run{failed("a", "E", 1), revived},
				Marked:   sets.New[types.UID]("m"),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Of(tc.runs, sets.New(tc.inFlight...))
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Of (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewest(t *testing.T) {
	runs := inPhase("Pending", "Succeeded")
	for i := range 30 {
		runs = append(runs, failed(fmt.Sprintf("r%02d", i), "E", i/2))
	}
	got := Newest(runs)
	// Of two at the same time the first by name comes first; two runs have not failed.
	if diff := cmp.Diff([]int{30, 31, 28, 29}, got[:4]); diff != "" {
		t.Errorf("first of Newest (-want +got):\n%s", diff)
	}
	if len(got) != fleetv1alpha1.MaxRecentFailures {
		t.Errorf("%d runs, want %d", len(got), fleetv1alpha1.MaxRecentFailures)
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

func connected(status metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: fleetv1alpha1.ConditionConnected, Status: status, Reason: reason}}
}
