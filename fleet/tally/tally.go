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
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// Tally is what is counted of one member's runs.
type Tally struct {
	// Runs counts them by phase.
	Runs fleetv1alpha1.RunCounts
	// Current counts the failed ones by reason, bounded.
	Current map[string]int32
	// Unmarked are the failed runs without a mark, and those in flight without one.
	Unmarked []Run
	// Marked are the runs in flight that have their mark.
	Marked sets.Set[types.UID]
}

// Of counts the runs of one member, of which those in flight are in the totals.
func Of(runs []Run, inFlight sets.Set[types.UID]) Tally {
	t := Tally{Current: map[string]int32{}, Marked: sets.New[types.UID]()}
	for _, run := range runs {
		count(&t.Runs, run.Phase)
		if run.failed() {
			t.Current[Bounded(run.Reason)]++
		}
		switch {
		case !run.Marked && (run.failed() || inFlight.Has(run.UID)):
			t.Unmarked = append(t.Unmarked, run)
		case run.Marked && inFlight.Has(run.UID):
			t.Marked.Insert(run.UID)
		}
	}
	return t
}

// Newest returns the indices of the runs that failed last, newest first, at most
// MaxRecentFailures. Those are the runs whose Evidence is of use.
func Newest(runs []Run) []int {
	var failed []int
	for i, run := range runs {
		if run.failed() {
			failed = append(failed, i)
		}
	}
	slices.SortFunc(failed, func(a, b int) int { return newestFirst(runs[a], runs[b]) })
	return failed[:min(len(failed), fleetv1alpha1.MaxRecentFailures)]
}

// Unobserved returns the status as it must read while the member is not observed:
// what was pending or running is unknown, what had ended has ended. Doing it twice
// is doing it once.
func Unobserved(status fleetv1alpha1.AgentRunClusterStatusStatus) fleetv1alpha1.AgentRunClusterStatusStatus {
	if status.Runs == nil {
		return status
	}
	runs := *status.Runs
	runs.Unknown += runs.Pending + runs.Running
	runs.Pending, runs.Running, runs.Active = 0, 0, 0
	status.Runs = &runs
	return status
}

// count adds one run to its phase. A phase that is none of the four says nothing,
// so its run is unknown; the sum of the phases stays the number of runs.
func count(runs *fleetv1alpha1.RunCounts, phase agentv1alpha1.AgentRunPhase) {
	switch phase {
	case agentv1alpha1.AgentRunPending:
		runs.Pending++
		runs.Active++
	case agentv1alpha1.AgentRunRunning:
		runs.Running++
		runs.Active++
	case agentv1alpha1.AgentRunSucceeded:
		runs.Succeeded++
	case agentv1alpha1.AgentRunFailed:
		runs.Failed++
	default:
		runs.Unknown++
	}
}

func recentFailureOf(run Run, at time.Time) fleetv1alpha1.RecentFailure {
	return fleetv1alpha1.RecentFailure{
		Namespace: text.Clip(run.Namespace, maxNamespace),
		Name:      text.Clip(run.Name, maxName),
		Reason:    text.Clip(run.Reason, maxReason),
		Message:   text.Shorten(run.Message, maxMessage),
		Container: text.Clip(run.Evidence.Container, maxContainer),
		Image:     text.Clip(run.Evidence.Image, maxImage),
		Node:      text.Clip(run.Evidence.Node, maxNode),
		Time:      timeOf(at),
	}
}

// newestFirst orders runs by their end; the names make the order total.
func newestFirst(a, b Run) int {
	return cmp.Or(
		b.Completed.Compare(a.Completed),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID),
	)
}

// timeOf cuts to whole seconds, as the API server stores them, so that computed and
// stored times compare equal. A time that RFC 3339 cannot express in UTC, which an
// offset can hide in a member, is no time: the hub's API server would refuse it.
func timeOf(t time.Time) *metav1.Time {
	if year := t.UTC().Year(); t.IsZero() || year < 1 || year > 9999 {
		return nil
	}
	out := metav1.NewTime(t.Truncate(time.Second))
	return &out
}

// later returns the later of two times, of which each may be nil.
func later(a, b *metav1.Time) *metav1.Time {
	if compareTimes(a, b) < 0 {
		return b
	}
	return a
}

// earlier returns the earlier of two times; nil is none.
func earlier(a, b *metav1.Time) *metav1.Time {
	if a == nil || (b != nil && b.Before(a)) {
		return b
	}
	return a
}

// compareTimes orders times; nil comes before any.
func compareTimes(a, b *metav1.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return a.Compare(b.Time)
}
