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
	"context"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

const (
	pollInterval = 250 * time.Millisecond
	// settleLimit is how long any number may take to become right on a slow machine,
	// the detection of an outage included.
	settleLimit = 90 * time.Second
)

// check is one comparison of what is with what has to be.
type check struct {
	what string
	diff string // empty when they are equal
}

func checkEqual(what string, want, got any) check {
	return check{what, cmp.Diff(want, got)}
}

func checkWord(what, want, got string) check {
	if want == got {
		return check{what: what}
	}
	return check{what, fmt.Sprintf("want %s, got %s", want, got)}
}

// snapshot is what all API servers say at one moment.
type snapshot struct {
	fleet    fleetv1alpha1.AgentRunFleetStatus
	clusters map[string]fleetv1alpha1.AgentRunClusterStatus
	runs     map[string]map[string]agentv1alpha1.AgentRun // by member and name
}

func (f *fleet) observe(ctx context.Context) (*snapshot, error) {
	s := &snapshot{
		clusters: map[string]fleetv1alpha1.AgentRunClusterStatus{},
		runs:     map[string]map[string]agentv1alpha1.AgentRun{},
	}
	key := types.NamespacedName{Name: fleetv1alpha1.DefaultFleetStatusName}
	if err := f.hub.Client.Get(ctx, key, &s.fleet); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading AgentRunFleetStatus %s: %w", key.Name, err)
	}
	var clusters fleetv1alpha1.AgentRunClusterStatusList
	if err := f.hub.Client.List(ctx, &clusters); err != nil {
		return nil, fmt.Errorf("listing AgentRunClusterStatuses: %w", err)
	}
	for _, c := range clusters.Items {
		s.clusters[c.Name] = c
	}
	for name, cp := range f.members {
		var list agentv1alpha1.AgentRunList
		if err := cp.Client.List(ctx, &list, client.InNamespace(runsNamespace)); err != nil {
			return nil, fmt.Errorf("listing the AgentRuns of %s: %w", name, err)
		}
		s.runs[name] = map[string]agentv1alpha1.AgentRun{}
		for _, run := range list.Items {
			s.runs[name][run.Name] = run
		}
	}
	return s, nil
}

// checks compares the snapshot with what is expected of the hub, with what is expected
// of each run, and the hub's numbers with those of the members themselves.
func (s *snapshot) checks(want expectation, created map[string][]demoRun) []check {
	checks := s.fleetChecks(want)
	for _, name := range memberNames {
		checks = append(checks, s.memberChecks(name, want.members[name])...)
		if want.members[name].connected == string(metav1.ConditionTrue) {
			checks = append(checks, s.truthChecks(name)...)
			checks = append(checks, s.runChecks(name, created[name])...)
		}
	}
	return checks
}

func (s *snapshot) fleetChecks(want expectation) []check {
	got := s.fleet.Status
	failures := map[string]fleetFailures{}
	for _, f := range got.Failures {
		failures[f.Reason] = fleetFailures{Current: f.Current, Clusters: f.Clusters, Total: f.Total}
	}
	return []check{
		checkWord("fleet: clusters", want.ratio, got.Clusters.Ratio),
		checkWord("fleet: Ready", want.ready, conditionStatus(got.Conditions, fleetv1alpha1.ConditionReady)),
		checkEqual("fleet: runs", want.runs, got.Runs),
		checkEqual("fleet: failures", want.failures, failures),
		checkEqual("fleet: totalExact", true, got.TotalExact),
	}
}

func (s *snapshot) memberChecks(name string, want memberExpectation) []check {
	got := s.clusters[name].Status
	return []check{
		checkWord(name+": Connected", want.connected, conditionStatus(got.Conditions, fleetv1alpha1.ConditionConnected)),
		checkEqual(name+": runs", want.runs, got.Counts()),
		checkEqual(name+": failures", want.failures, currentFailures(got.Failures)),
	}
}

// truthChecks compares the hub's numbers of a member with the member's own runs.
func (s *snapshot) truthChecks(name string) []check {
	var counts fleetv1alpha1.RunCounts
	reasons := map[string]int32{}
	for _, run := range s.runs[name] {
		switch run.Status.Phase {
		case agentv1alpha1.AgentRunRunning:
			counts.Running++
			counts.Active++
		case agentv1alpha1.AgentRunSucceeded:
			counts.Succeeded++
		case agentv1alpha1.AgentRunFailed:
			counts.Failed++
			reasons[reasonOf(run)]++
		default:
			counts.Pending++
			counts.Active++
		}
	}
	got := s.clusters[name].Status
	return []check{
		checkEqual(name+": runs as the member has them", counts, got.Counts()),
		checkEqual(name+": failures as the member has them", reasons, currentFailures(got.Failures)),
	}
}

func (s *snapshot) runChecks(name string, created []demoRun) []check {
	checks := make([]check, 0, 1+len(created))
	checks = append(checks, checkEqual(name+": number of runs", len(created), len(s.runs[name])))
	for _, want := range created {
		run := s.runs[name][want.name]
		got := want // what is not looked at is as wanted
		got.phase = run.Status.Phase
		if want.reason != "" {
			got.reason = reasonOf(run)
		}
		checks = append(checks, checkWord(name+": AgentRun "+want.name,
			fmt.Sprint(want.phase, " ", want.reason), fmt.Sprint(got.phase, " ", got.reason)))
	}
	return checks
}

func currentFailures(failures []fleetv1alpha1.FailureCount) map[string]int32 {
	counts := map[string]int32{}
	for _, f := range failures {
		if f.Current > 0 { // or else it is on record alone
			counts[f.Reason] = f.Current
		}
	}
	return counts
}

func conditionStatus(conditions []metav1.Condition, conditionType string) string {
	if c := meta.FindStatusCondition(conditions, conditionType); c != nil {
		return string(c.Status)
	}
	return ""
}

func reasonOf(run agentv1alpha1.AgentRun) string {
	if c := meta.FindStatusCondition(run.Status.Conditions, agentv1alpha1.ConditionSucceeded); c != nil {
		return c.Reason
	}
	return ""
}

func failed(checks []check) []check {
	var wrong []check
	for _, c := range checks {
		if c.diff != "" {
			wrong = append(wrong, c)
		}
	}
	return wrong
}

// await polls until done says so. It gives up after settleLimit, which is no error: the
// checks that follow say what is missing.
func await(ctx context.Context, done func() (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-limited.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
