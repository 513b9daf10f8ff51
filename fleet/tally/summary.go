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
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// maxNamed is the number of members that a condition's message names.
const maxNamed = 5

// Member is what was last reported of one member.
type Member struct {
	// Name is the member's, as namespace/name. Names are unique.
	Name   string
	Status fleetv1alpha1.AgentRunClusterStatusStatus
}

// Observed says whether the member's numbers are current: its Connected condition
// is there and True.
func (m Member) Observed() bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, fleetv1alpha1.ConditionConnected)
}

// Summary sums up the members as of now, which their windows are counted to. A reason that
// has a line in the summary before keeps it. The Ready condition has no times: whoever
// stores it knows when it last changed.
func Summary(before fleetv1alpha1.AgentRunFleetStatusStatus, members []Member, now time.Time) fleetv1alpha1.AgentRunFleetStatusStatus {
	out := fleetv1alpha1.AgentRunFleetStatusStatus{TotalExact: true}
	failures := sums{}
	for _, m := range members {
		if m.Observed() {
			out.Clusters.Observed++
		} else {
			m.Status = Unobserved(m.Status)
			out.Clusters.OldestContactTime = earlier(out.Clusters.OldestContactTime, m.Status.LastContactTime)
		}
		addRuns(&out.Runs, m.Status.Counts())
		addFailures(&out, failures, m, now)
		out.ClusterSummaries = append(out.ClusterSummaries, summaryOf(m))
	}
	kept, omitted := failures.bounded(reasonsOf(before))
	for _, s := range kept {
		out.Failures = append(out.Failures, fleetv1alpha1.FleetFailureCount{
			FailureCount: s.FailureCount, Clusters: count32(s.clusters.Len()),
		})
	}
	out.ReasonsOmitted = count32(omitted)
	out.Clusters.Total = count32(len(members))
	out.Clusters.Ratio = fmt.Sprintf("%d/%d", out.Clusters.Observed, out.Clusters.Total)
	out.Conditions = []metav1.Condition{ready(out.ClusterSummaries)}
	boundSummaries(&out)
	return out
}

func reasonsOf(status fleetv1alpha1.AgentRunFleetStatusStatus) sets.Set[string] {
	reasons := sets.New[string]()
	for _, f := range status.Failures {
		reasons.Insert(f.Reason)
	}
	return reasons
}

func count32(n int) int32 { return int32(n) } //nolint:gosec // counts of members, far below 2^31

func addRuns(sum *fleetv1alpha1.RunCounts, runs fleetv1alpha1.RunCounts) {
	sum.Pending += runs.Pending
	sum.Running += runs.Running
	sum.Succeeded += runs.Succeeded
	sum.Failed += runs.Failed
	sum.Active += runs.Active
	sum.Unknown += runs.Unknown
}

// addFailures adds what is on record of a member, and of its windows what is left now.
func addFailures(out *fleetv1alpha1.AgentRunFleetStatusStatus, failures sums, m Member, now time.Time) {
	recent := windowsAt(m.Status.Ledger, now)
	for _, f := range m.Status.Failures {
		if f.LastRun != nil {
			run := *f.LastRun
			run.Cluster = m.Name
			f.LastRun = &run
		}
		f.LastHour, f.LastDay = recent.of(f.Reason)
		failures.add(m.Name, f)
	}
	hours, at := recent.history()
	out.History = addRows(out.History, hours)
	out.HistoryTime = later(out.HistoryTime, at)
	out.LastFailureTime = later(out.LastFailureTime, m.Status.LastFailureTime)
	out.TotalFailures = plus(out.TotalFailures, m.Status.TotalFailures)
	out.TotalExact = out.TotalExact && m.Status.TotalExact
}

func summaryOf(m Member) fleetv1alpha1.ClusterSummary {
	runs := m.Status.Counts()
	out := fleetv1alpha1.ClusterSummary{
		Name:      m.Name,
		Connected: metav1.ConditionUnknown,
		Active:    runs.Active,
		Failed:    runs.Failed,
		Unknown:   runs.Unknown,

		TotalFailures: m.Status.TotalFailures,
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, fleetv1alpha1.ConditionConnected); c != nil {
		out.Reason = text.Clip(c.Reason, maxReason)
		if c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse {
			out.Connected = c.Status
		}
	}
	if len(m.Status.Failures) > 0 {
		out.TopReason = Bounded(m.Status.Failures[0].Reason)
	}
	return out
}

// boundSummaries puts the worst members first and leaves out, and counts, what the
// list has no room for.
func boundSummaries(out *fleetv1alpha1.AgentRunFleetStatusStatus) {
	slices.SortFunc(out.ClusterSummaries, worstFirst)
	if omitted := len(out.ClusterSummaries) - fleetv1alpha1.MaxClusterSummaries; omitted > 0 {
		out.ClusterSummaries = slices.Clone(out.ClusterSummaries[:fleetv1alpha1.MaxClusterSummaries])
		out.ClusterSummariesOmitted = count32(omitted)
	}
}

// worstFirst puts members that are not connected first, then those with most
// failures; names make the order total.
func worstFirst(a, b fleetv1alpha1.ClusterSummary) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(b.Failed, a.Failed),
		cmp.Compare(a.Name, b.Name),
	)
}

func rank(s fleetv1alpha1.ClusterSummary) int {
	if s.Connected == metav1.ConditionTrue {
		return 1
	}
	return 0
}

// ready is the Ready condition: the numbers are complete only when there are members
// and every one is observed.
func ready(members []fleetv1alpha1.ClusterSummary) metav1.Condition {
	out := metav1.Condition{Type: fleetv1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	var missing []string
	for _, m := range members {
		if m.Connected != metav1.ConditionTrue {
			missing = append(missing, fmt.Sprintf("%s (%s)", m.Name, cmp.Or(m.Reason, "not tried yet")))
		}
	}
	switch {
	case len(members) == 0:
		out.Reason = fleetv1alpha1.ReasonNoMembers
		out.Message = "no member is selected: register one with a kubeconfig Secret, or widen spec.clusterSelector"
	case len(missing) > 0:
		out.Reason = fleetv1alpha1.ReasonMembersNotObserved
		out.Message = fmt.Sprintf("%d of %d members not observed: %s", len(missing), len(members), named(missing))
	default:
		out.Status = metav1.ConditionTrue
		out.Reason = fleetv1alpha1.ReasonAllMembersObserved
		out.Message = fmt.Sprintf("%d of %d members observed", len(members), len(members))
	}
	return out
}

// named lists up to maxNamed names in order and says how many more there are.
func named(names []string) string {
	slices.Sort(names)
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}
