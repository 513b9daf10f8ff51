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

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

func TestChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*snapshot)
		want   []string // the checks that fail
	}{
		"what is expected passes": {
			change: func(*snapshot) {},
		},
		"a member that is not observed": {
			change: func(s *snapshot) {
				s.fleet.Status.Clusters.Ratio = "2/3"
				s.fleet.Status.Conditions[0].Status = metav1.ConditionFalse
			},
			want: []string{"fleet: clusters", "fleet: Ready"},
		},
		"one failure too many in the summary": {
			change: func(s *snapshot) { s.fleet.Status.Failures[0].Current++ },
			want:   []string{"fleet: failures"},
		},
		"a reason that nobody expects": {
			change: func(s *snapshot) {
				s.fleet.Status.Failures = append(s.fleet.Status.Failures, fleetv1alpha1.FleetFailureCount{
					FailureCount: fleetv1alpha1.FailureCount{Reason: "Evicted", Current: 1}, Clusters: 1,
				})
			},
			want: []string{"fleet: failures"},
		},
		"a failure that is not on record": {
			change: func(s *snapshot) { s.fleet.Status.Failures[0].Total--; s.fleet.Status.TotalExact = false },
			want:   []string{"fleet: failures", "fleet: totalExact"},
		},
		"failures counted in too few members": {
			change: func(s *snapshot) { s.fleet.Status.Failures[0].Clusters-- },
			want:   []string{"fleet: failures"},
		},
		"a run that did not fail": {
			change: func(s *snapshot) {
				run := s.runs[west]["bad-image-name"]
				run.Status.Phase = agentv1alpha1.AgentRunRunning
				s.runs[west]["bad-image-name"] = run
			},
			want: []string{"west: runs as the member has them", "west: failures as the member has them", "west: AgentRun bad-image-name"},
		},
		"a run that failed for another reason": {
			change: func(s *snapshot) {
				run := s.runs[east]["crash-loop"]
				run.Status.Conditions[0].Reason = "Error"
			},
			want: []string{"east: failures as the member has them", "east: AgentRun crash-loop"},
		},
		"a member whose status is missing": {
			change: func(s *snapshot) { delete(s.clusters, edge) },
			want: []string{
				"edge: Connected", "edge: runs", "edge: failures",
				"edge: runs as the member has them", "edge: failures as the member has them",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(settled, initialRuns)
			tc.change(s)
			var got []string
			for _, c := range failed(s.checks(settled, initialRuns)) {
				got = append(got, c.what)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Failed checks (-want +got):\n%s", diff)
			}
		})
	}
}

// snapshotOf is what the API servers say when everything is as it has to be.
func snapshotOf(want expectation, created map[string][]demoRun) *snapshot {
	s := &snapshot{
		clusters: map[string]fleetv1alpha1.AgentRunClusterStatus{},
		runs:     map[string]map[string]agentv1alpha1.AgentRun{},
	}
	s.fleet.Status.Clusters.Ratio = want.ratio
	s.fleet.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionStatus(want.ready)}}
	s.fleet.Status.Runs = want.runs
	s.fleet.Status.TotalExact = true
	for reason, f := range want.failures {
		count := fleetv1alpha1.FailureCount{Reason: reason, Current: f.Current, Total: f.Total}
		s.fleet.Status.Failures = append(s.fleet.Status.Failures, fleetv1alpha1.FleetFailureCount{FailureCount: count, Clusters: f.Clusters})
	}
	for name, m := range want.members {
		status := fleetv1alpha1.AgentRunClusterStatusStatus{Runs: m.runs.DeepCopy()}
		status.Conditions = []metav1.Condition{{Type: "Connected", Status: metav1.ConditionStatus(m.connected)}}
		for reason, count := range m.failures {
			status.Failures = append(status.Failures, fleetv1alpha1.FailureCount{Reason: reason, Current: count})
		}
		s.clusters[name] = fleetv1alpha1.AgentRunClusterStatus{Status: status}
		s.runs[name] = map[string]agentv1alpha1.AgentRun{}
		for _, r := range created[name] {
			run := build.MakeAgentRun(r.name).Condition(metav1.Condition{Type: agentv1alpha1.ConditionSucceeded, Reason: r.reason})
			s.runs[name][r.name] = *run.Phase(r.phase).Obj()
		}
	}
	return s
}

func TestAlign(t *testing.T) {
	titles := []string{"NAME", "FAILED", "TOP REASON", "COUNT"}
	for name, tc := range map[string]struct {
		cells []string
		want  string
	}{
		"the titles":           {titles, "NAME    FAILED   TOP REASON                   COUNT"},
		"a row":                {[]string{"x", "1", "ImagePullBackOff", "1"}, "x       1        ImagePullBackOff             1"},
		"a row without reason": {[]string{"x", "0", ""}, "x       0"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, align(titles, tc.cells)); diff != "" {
				t.Errorf("Row (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithoutAges(t *testing.T) {
	for name, tc := range map[string]struct{ row, want string }{
		"an age at the end":   {"fleet   3/3   18   12s", "fleet 3/3 18"},
		"an age of two units": {"fleet   3/3   2m5s   True", "fleet 3/3 True"},
		"counts are kept":     {"fleet   3/3   8   18", "fleet 3/3 8 18"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, withoutAges(tc.row)); diff != "" {
				t.Errorf("Row (-want +got):\n%s", diff)
			}
		})
	}
}
