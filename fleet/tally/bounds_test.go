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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

func TestObserveWithoutRoomInFlight(t *testing.T) {
	var runs []Run
	for i := range fleetv1alpha1.MaxInFlight + 3 {
		runs = append(runs, failed(fmt.Sprintf("r%04d", i), "E", -i))
	}
	full := recordedOf(runs...)
	want := fleetv1alpha1.FailureCount{
		Reason: "E", Current: 1003, Total: 1000, LastHour: 1000, LastDay: 1000, LastFailureTime: metaAt(-3), LastRun: ref("r0003"),
	}
	if diff := cmp.Diff(want, full.Failures[0]); diff != "" {
		t.Errorf("the line (-want +got):\n%s", diff)
	}
	if full.Ledger.Waiting != 3 || full.TotalExact || full.Ledger.InFlight[0] != "r1002" {
		t.Errorf("%d wait, exact %v, first %s; want 3, not, the oldest",
			full.Ledger.Waiting, full.TotalExact, full.Ledger.InFlight[0])
	}

	for i := range 500 {
		runs[i] = marked(runs[i])
	}
	next := Observe(full, seen(Observation{MayCount: func(r Run) bool { return !r.Marked }}, full, runs...))
	// The last three are among the marked ones: somebody else has counted them.
	if next.Ledger.Waiting != 0 || !next.TotalExact || next.TotalFailures != 1000 || len(next.Ledger.InFlight) != 503 {
		t.Errorf("%d wait, exact %v, %d on record, %d in flight; want 0, exact, 1000, 503",
			next.Ledger.Waiting, next.TotalExact, next.TotalFailures, len(next.Ledger.InFlight))
	}
}

func TestObserveBoundsItsReasons(t *testing.T) {
	status := clusterStatus{}
	var runs []Run
	for i := range 45 {
		runs = append(runs, failed(fmt.Sprintf("r%02d", i), fmt.Sprintf("Reason%02d", 44-i), i))
		status = Observe(status, seen(Observation{MayCount: always}, status, runs...))
	}
	if len(status.Failures) != fleetv1alpha1.MaxFailureReasons || len(status.Ledger.Windows) != fleetv1alpha1.MaxFailureReasons {
		t.Errorf("%d reasons and %d windows, want 40 of each", len(status.Failures), len(status.Ledger.Windows))
	}
	want := fleetv1alpha1.FailureCount{
		Reason: "Other", Current: 6, Total: 6, LastHour: 6, LastDay: 6, LastFailureTime: metaAt(44), LastRun: ref("r44"),
	}
	if diff := cmp.Diff(want, status.Failures[0]); diff != "" {
		t.Errorf("Other (-want +got):\n%s", diff)
	}
	if status.ReasonsOmitted != 6 || status.TotalFailures != 45 {
		t.Errorf("%d reasons left out of %d failures, want 6 of 45", status.ReasonsOmitted, status.TotalFailures)
	}

	later := Observe(status, seen(Observation{Departed: func(types.UID) bool { return true }}, status, runs[44]))
	if later.ReasonsOmitted != 1 || later.TotalFailures != 45 || len(later.Failures) != fleetv1alpha1.MaxFailureReasons {
		t.Errorf("when all but one are gone: %d left out, %d on record for %d reasons, want 1, 45, 40",
			later.ReasonsOmitted, later.TotalFailures, len(later.Failures))
	}
}

func TestObserveBoundsRecentFailures(t *testing.T) {
	runs := []Run{{
		UID: "a", Namespace: "ns", Name: "a", Phase: agentv1alpha1.AgentRunFailed, Completed: at(100),
		Reason: "no word", Message: strings.Repeat("é\n", 300),
		Evidence: Evidence{Container: strings.Repeat("c", 99), Image: strings.Repeat("i", 999), Node: "n\x00"},
	}}
	for i := range 30 {
		runs = append(runs, failed(fmt.Sprintf("r%02d", i), "E", i))
	}
	got := recordedOf(runs...)
	want := []fleetv1alpha1.RecentFailure{{
		Namespace: "ns", Name: "a", Reason: "no word", Message: strings.Repeat("é ", 42) + "é…" + strings.Repeat(" é", 85), Time: metaAt(100),
		Container: strings.Repeat("c", 63), Image: strings.Repeat("i", 256), Node: "n",
	}}
	for i := range 19 {
		want = append(want, recent(fmt.Sprintf("r%02d", 29-i), "E", 29-i))
	}
	if diff := cmp.Diff(want, got.RecentFailures); diff != "" {
		t.Errorf("recent failures (-want +got):\n%s", diff)
	}
	if got.RecentFailuresOmitted != 11 {
		t.Errorf("%d left out, want 11", got.RecentFailuresOmitted)
	}
}
