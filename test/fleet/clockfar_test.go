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

package fleet

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// allowed is the deadline, and the TTL, of the runs below.
const allowed = 10 * time.Minute

// TestWhatAMemberHoldsIsJudgedByItsClock: of the runs that a member holds when the manager starts,
// those whose deadline or TTL is over by the member's clock are failed or deleted, and no others.
// None of these clocks would leave them alone if it were taken for the hub's for a moment.
func TestWhatAMemberHoldsIsJudgedByItsClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	f := newFleet(t, "behind", "two-days-behind", "a-year-ahead")
	members := map[string]*dated{}
	for name, ahead := range map[string]time.Duration{"behind": -10 * time.Minute, "two-days-behind": -48 * time.Hour, "a-year-ahead": year} {
		m := &dated{fleet: f, member: f.members[name], name: name, ahead: ahead, created: map[string]time.Time{}}
		f.putFront(m.member).ShiftDate(ahead)
		for i := range 100 {
			m.hold(fmt.Sprint("kept-", i), fmt.Sprint("waits-", i), 0)
		}
		m.hold("over", "due", allowed+time.Minute)
		f.join(name)
		members[name] = m
	}
	for _, when := range []string{"at the first start", "at the next"} {
		f.start()
		for name, m := range members {
			f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
			f.WithT.Eventually(func() error { _, err := m.status("over")(); return err }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"), name)
			f.WithT.Eventually(m.status("due")).Should(And(
				failedWith("StartupDeadlineExceeded"), completed(BeTemporally("==", m.created["due"].Add(allowed)))), name)
			// Each pending run is written to once, when it is first decided on.
			f.WithT.Eventually(m.phases).Should(Equal(map[agentv1alpha1.AgentRunPhase]int{
				agentv1alpha1.AgentRunPending: 100, agentv1alpha1.AgentRunSucceeded: 100, agentv1alpha1.AgentRunFailed: 1}), name)
			deletions, err := m.Requests(harness.ByUser(m.user), harness.OnResource("agentruns"), harness.WithVerb("delete"))
			f.WithT.Expect(err).NotTo(HaveOccurred())
			f.WithT.Expect(deletions).To(HaveLen(1), "%s %s", name, when)
		}
		f.stop()
	}
}

// hold stores a run that succeeded some time ago by the member's clock, and one that has been pending
// since then. Nothing but time is left to decide of them.
func (m *dated) hold(ended, pending string, ago time.Duration) {
	m.Helper()
	at, seconds := m.now().Add(-ago), int32(allowed.Seconds())
	m.created[pending] = at
	m.WithT.Expect(m.Store(m.Context(),
		build.MakeAgentRun(ended).Created(at).TTLAfterFinished(seconds).Phase(agentv1alpha1.AgentRunSucceeded).Completed(at).Obj(),
		build.MakeAgentRun(pending).Created(at).StartupDeadline(seconds).Obj(),
	)).To(Succeed())
}

// phases counts the runs of each phase that are not being deleted.
func (m *dated) phases() (map[agentv1alpha1.AgentRunPhase]int, error) {
	runs := &agentv1alpha1.AgentRunList{}
	err := m.Client.List(m.Context(), runs, client.InNamespace(build.DefaultNamespace))
	counts := map[agentv1alpha1.AgentRunPhase]int{}
	for i := range runs.Items {
		counts[runs.Items[i].Status.Phase]++
	}
	return counts, err
}
