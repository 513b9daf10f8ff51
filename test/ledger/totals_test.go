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

package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// totals are failures by reason, truth those that have been, by member.
type (
	totals map[string]int64
	truth  map[string]totals
)

func (t totals) sum() (sum int64) {
	for _, n := range t {
		sum += n
	}
	return sum
}

// all are the totals over all members.
func (t truth) all() totals {
	sums := totals{}
	for _, member := range t {
		for reason, n := range member {
			sums[reason] += n
		}
	}
	return sums
}

// numbers are what an object says of failures.
type numbers struct {
	Totals totals
	Sum    int64
	// History is the sum of the last 24 hours, in which all tests fall.
	History int64
	Exact   bool
	// InFlight, Waiting and Missed are zero of a summary.
	InFlight, Waiting int
	Missed            int64
}

// exactly are the numbers where all is recorded, and so many runs are without their mark.
func (t totals) exactly(inFlight int) numbers {
	return numbers{Totals: t, Sum: t.sum(), History: t.sum(), Exact: true, InFlight: inFlight}
}

func numbersOf(o client.Object) numbers {
	switch o := o.(type) {
	case *fleetv1alpha1.AgentRunClusterStatus:
		return memberNumbers(o)
	case *fleetv1alpha1.AgentRunFleetStatus:
		return summaryNumbers(o)
	}
	return numbers{}
}

func memberNumbers(o *fleetv1alpha1.AgentRunClusterStatus) numbers {
	n := numbers{
		Totals: totals{}, Sum: o.Status.TotalFailures, History: sumOf(o.Status.History), Exact: o.Status.TotalExact,
		InFlight: len(o.Status.Ledger.InFlight), Waiting: int(o.Status.Ledger.Waiting), Missed: o.Status.Ledger.Missed,
	}
	for _, line := range o.Status.Failures {
		n.Totals[line.Reason] = line.Total
	}
	return n
}

func summaryNumbers(o *fleetv1alpha1.AgentRunFleetStatus) numbers {
	n := numbers{Totals: totals{}, Sum: o.Status.TotalFailures, History: sumOf(o.Status.History), Exact: o.Status.TotalExact}
	for _, line := range o.Status.Failures {
		n.Totals[line.Reason] = line.Total
	}
	return n
}

func sumOf(history []int64) (sum int64) {
	for _, n := range history {
		sum += n
	}
	return sum
}

// clusterStatus fetches what the hub knows of a member.
func (f *fleet) clusterStatus(name string) (*fleetv1alpha1.AgentRunClusterStatus, error) {
	status := &fleetv1alpha1.AgentRunClusterStatus{}
	return status, f.hub.Client.Get(f.Context(), client.ObjectKey{Namespace: clusters, Name: name}, status)
}

// known is clusterStatus for Eventually.
func (f *fleet) known(name string) func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
	return func() (*fleetv1alpha1.AgentRunClusterStatus, error) { return f.clusterStatus(name) }
}

// summary fetches the summary over all members.
func (f *fleet) summary() (*fleetv1alpha1.AgentRunFleetStatus, error) {
	status := &fleetv1alpha1.AgentRunFleetStatus{}
	return status, f.hub.Client.Get(f.Context(), client.ObjectKey{Name: fleetv1alpha1.DefaultFleetStatusName}, status)
}

// recorded returns a function that says how the hub's numbers differ from the truth. In
// the end nothing may be in flight.
func (f *fleet) recorded(want truth) func() error {
	return func() error {
		var errs []error
		for name := range want {
			errs = append(errs, f.recordedOf(name, want[name].exactly(0)))
		}
		sums, err := f.summary()
		return errors.Join(append(errs, err, differs("the summary", want.all().exactly(0), summaryNumbers(sums)))...)
	}
}

func (f *fleet) recordedOf(name string, want numbers) error {
	status, err := f.clusterStatus(name)
	if err != nil {
		return err
	}
	return differs(name, want, memberNumbers(status))
}

func differs(what string, want, got any) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s (-want +got):\n%s", what, diff)
	}
	return nil
}

// counted returns a function that says how the totals differ from the truth, whatever is
// still in flight, which may be so for half a minute.
func (f *fleet) counted(want truth) func() error {
	return func() error {
		got := truth{}
		for name := range want {
			status, err := f.clusterStatus(name)
			if err != nil {
				return err
			}
			got[name] = memberNumbers(status).Totals
		}
		return differs("the totals", want, got)
	}
}

// comesTo waits until the hub's numbers are the truth, and sees that they stay it.
func (f *fleet) comesTo(want truth) {
	f.Helper()
	f.Eventually(f.recorded(want)).WithTimeout(settled).WithPolling(settlePolled).Should(Succeed())
	f.Consistently(f.recorded(want)).WithPolling(settlePolled).Should(Succeed())
}

// unmarked counts the failed runs of a member that have no mark, and all runs.
func (m *member) unmarked(ctx context.Context) (unmarked, all int, err error) {
	list := &agentv1alpha1.AgentRunList{}
	if err := m.Client.List(ctx, list); err != nil {
		return 0, 0, err
	}
	for i := range list.Items {
		if run := &list.Items[i]; run.Status.Phase == agentv1alpha1.AgentRunFailed && !run.Recorded() {
			unmarked++
		}
	}
	return unmarked, len(list.Items), nil
}

// empty waits until every run is deleted.
func (f *fleet) empty() {
	f.Helper()
	for _, name := range f.names {
		f.Eventually(func() (int, error) {
			_, all, err := f.members[name].unmarked(f.Context())
			return all, err
		}).WithTimeout(settled).WithPolling(settlePolled).Should(BeZero(), "runs in %s", name)
	}
}

// connected waits until the members are.
func (f *fleet) connected(names ...string) {
	f.Helper()
	for _, name := range names {
		f.Eventually(f.known(name)).Should(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", fleetv1alpha1.ConditionConnected), HaveField("Status", metav1.ConditionTrue)))), name)
	}
}
