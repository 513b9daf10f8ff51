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

package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// failed are lives that failed, by reason.
type failed struct {
	// marked bear the mark of the ledger that is kept now: each is counted once.
	marked map[string]int64
	// others may be counted: they were deleted before they failed, or before they were
	// marked, or counted by a ledger that has gone with the member's Secret.
	others map[string]int64
}

// totals says what of the failures on record is not as the members have it. A run that still
// exists is marked, or else it is not at rest.
func (f *fleet) totals(ctx context.Context) error {
	sums := map[string]int64{}
	var errs []error
	for _, m := range f.members {
		known, err := m.known(ctx)
		if err != nil {
			return err
		}
		totals := totalsOf(known.Status.Failures)
		for reason, n := range totals {
			sums[reason] += n
		}
		errs = append(errs, m.unmarked(ctx, known.Status.Ledger.ID), m.failed(known.Status.Ledger.ID).allow(m.Name, totals))
	}
	all, allTotals := &fleetv1alpha1.AgentRunFleetStatus{}, map[string]int64{}
	if err := f.hub.Client.Get(ctx, client.ObjectKey{Name: fleetv1alpha1.DefaultFleetStatusName}, all); err != nil {
		return err
	}
	for _, failure := range all.Status.Failures {
		allTotals[failure.Reason] = failure.Total
	}
	return errors.Join(append(errs, differs("totals of all members", sums, allTotals))...)
}

// logTotals says how close the members' totals are known.
func (f *fleet) logTotals(t *testing.T) {
	t.Helper()
	for _, m := range f.members {
		known, err := m.known(t.Context())
		if err != nil {
			t.Error(err)
			continue
		}
		lives := m.failed(known.Status.Ledger.ID)
		t.Logf("%s: %d failures on record, of which %d are marked; %d others may have been",
			m.Name, sum(totalsOf(known.Status.Failures)), sum(lives.marked), sum(lives.others))
	}
}

// known is what the hub says of the member.
func (m *member) known(ctx context.Context) (*fleetv1alpha1.AgentRunClusterStatus, error) {
	status := &fleetv1alpha1.AgentRunClusterStatus{}
	return status, m.hub.Client.Get(ctx, client.ObjectKey{Namespace: clusters, Name: m.Name}, status)
}

// unmarked tells of failed runs that do not bear the ledger's mark.
func (m *member) unmarked(ctx context.Context, ledger types.UID) error {
	runs := &agentv1alpha1.AgentRunList{}
	if err := m.Client.List(ctx, runs); err != nil {
		return err
	}
	for i := range runs.Items {
		if run := &runs.Items[i]; run.Status.Phase == agentv1alpha1.AgentRunFailed && !run.RecordedBy(ledger) {
			return fmt.Errorf("%s: failed run %s is not recorded by ledger %s", m.Name, run.Name, ledger)
		}
	}
	return nil
}

// failed are the member's lives that ledger may have counted.
func (m *member) failed(ledger types.UID) failed {
	m.recorder.mu.Lock()
	defer m.recorder.mu.Unlock()
	lives := failed{marked: map[string]int64{}, others: map[string]int64{}}
	for uid, l := range m.lives {
		seen := m.recorder.runs[uid]
		end := endings[l.ending]
		switch {
		case end.phase != agentv1alpha1.AgentRunFailed:
		case seen != nil && recordedBy(uid, seen.mark, ledger):
			lives.marked[end.reason]++
		default:
			lives.others[end.reason]++
		}
	}
	return lives
}

func recordedBy(uid types.UID, mark string, ledger types.UID) bool {
	run := agentv1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{
		UID: uid, Annotations: map[string]string{agentv1alpha1.RecordedAnnotation: mark},
	}}
	return run.RecordedBy(ledger)
}

// allow says which totals are not possible.
func (l failed) allow(member string, totals map[string]int64) error {
	var errs []error
	for reason, total := range totals {
		if marked, most := l.marked[reason], l.marked[reason]+l.others[reason]; total < marked || total > most {
			errs = append(errs, fmt.Errorf("%s: %d failures for %s on record, of which %d are marked, and there were %d", member, total, reason, marked, most))
		}
	}
	for reason, marked := range l.marked {
		if _, ok := totals[reason]; !ok {
			errs = append(errs, fmt.Errorf("%s: no failure for %s is on record, and %d are marked", member, reason, marked))
		}
	}
	return errors.Join(errs...)
}

func totalsOf(failures []fleetv1alpha1.FailureCount) map[string]int64 {
	totals := map[string]int64{}
	for _, failure := range failures {
		if failure.Total > 0 {
			totals[failure.Reason] = failure.Total
		}
	}
	return totals
}

// sum is of all reasons.
func sum(by map[string]int64) (n int64) {
	for _, count := range by {
		n += count
	}
	return n
}
