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
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// sums adds failures up by reason. The order of the additions does not matter.
type sums map[string]*sum

type sum struct {
	fleetv1alpha1.FailureCount
	clusters sets.Set[string]
}

// add adds failures of one reason in one member.
func (s sums) add(cluster string, f fleetv1alpha1.FailureCount) {
	reason := Bounded(f.Reason)
	if s[reason] == nil {
		s[reason] = &sum{clusters: sets.New[string]()}
		s[reason].Reason = reason
	}
	s[reason].merge(f)
	if f.Current > 0 || f.LastDay > 0 {
		s[reason].clusters.Insert(cluster)
	}
}

// bounded returns the sums, most first. Where there is no room for a line for each reason,
// those that had one before keep it, so that no total shrinks, and the last of the others
// are summed under ReasonOther; it says how many they are.
func (s sums) bounded(before sets.Set[string]) (kept []*sum, omitted int) {
	other := s[fleetv1alpha1.ReasonOther]
	for _, one := range slices.SortedFunc(maps.Values(s), keptFirst(before)) {
		switch {
		case one.Reason == fleetv1alpha1.ReasonOther:
		case len(kept) < fleetv1alpha1.MaxFailureReasons-1:
			kept = append(kept, one)
		default:
			omitted++
			if other == nil {
				other = &sum{clusters: sets.New[string]()}
				other.Reason = fleetv1alpha1.ReasonOther
			}
			other.merge(one.FailureCount)
			other.clusters = other.clusters.Union(one.clusters)
		}
	}
	if other != nil {
		kept = append(kept, other)
	}
	slices.SortFunc(kept, func(a, b *sum) int { return mostFirst(a.FailureCount, b.FailureCount) })
	return kept, omitted
}

// keptFirst orders the reasons that had a line before the others, and else most first.
func keptFirst(before sets.Set[string]) func(a, b *sum) int {
	rank := func(s *sum) int {
		if before.Has(s.Reason) {
			return 0
		}
		return 1
	}
	return func(a, b *sum) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), mostFirst(a.FailureCount, b.FailureCount))
	}
}

// merge adds the numbers of f, and takes its last run when it is the later one.
func (s *sum) merge(f fleetv1alpha1.FailureCount) {
	s.Current += f.Current
	s.Total = plus(s.Total, f.Total)
	s.LastHour += f.LastHour
	s.LastDay += f.LastDay
	if laterRun(f, s.FailureCount) {
		s.LastFailureTime, s.LastRun = f.LastFailureTime, f.LastRun
	}
}

// plus adds without overflow: an edited status must not make sums that are refused.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// laterRun says whether a's last run shall stand rather than b's. Of two at the same
// time it is the one that comes first by name, so that any order gives the same.
func laterRun(a, b fleetv1alpha1.FailureCount) bool {
	if a.LastRun == nil || b.LastRun == nil {
		return b.LastRun == nil
	}
	return cmp.Or(
		compareTimes(b.LastFailureTime, a.LastFailureTime),
		cmp.Compare(a.LastRun.Cluster, b.LastRun.Cluster),
		cmp.Compare(a.LastRun.Namespace, b.LastRun.Namespace),
		cmp.Compare(a.LastRun.Name, b.LastRun.Name),
	) < 0
}

// mostFirst orders reasons by their runs that exist now, then by their failures in the
// last day, then by those on record; the name makes the order total.
func mostFirst(a, b fleetv1alpha1.FailureCount) int {
	return cmp.Or(
		cmp.Compare(b.Current, a.Current),
		cmp.Compare(b.LastDay, a.LastDay),
		cmp.Compare(b.Total, a.Total),
		cmp.Compare(a.Reason, b.Reason),
	)
}
