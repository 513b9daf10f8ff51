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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// exact is how right a deadline is in a member whose clock is off.
const exact = 2 * time.Second

// dated is a member whose API server dates its answers and what it stores by a clock that
// is ahead by so much.
type dated struct {
	*fleet
	*member
	name    string
	ahead   time.Duration
	created map[string]time.Time
}

// TestMembersWhoseClocksAreOff: deadlines are right to 2 s, from the first decision on, and
// all times are those of the member.
func TestMembersWhoseClocksAreOff(t *testing.T) {
	f := newFleet(t, "ahead", "right", "behind")
	var members []*dated
	for name, ahead := range map[string]time.Duration{"ahead": 10 * time.Minute, "right": 0, "behind": -10 * time.Minute} {
		m := &dated{fleet: f, member: f.members[name], name: name, ahead: ahead, created: map[string]time.Time{}}
		f.putFront(m.member).ShiftDate(ahead)
		members = append(members, m)
	}
	each := func(do func(m *dated)) {
		t.Helper()
		for _, m := range members {
			do(m)
		}
	}
	const early, late = 20 * time.Second, 5 * time.Second
	each(func(m *dated) {
		m.store("early", early, labelled(build.MakeAgentRun("early").Obj()).Unschedulable("no node fits"))
		f.join(m.name)
	})
	f.start()
	each(func(m *dated) {
		f.WithT.Eventually(f.clusterStatus(m.name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
		m.store("late", late, labelled(build.MakeAgentRun("late").Obj()).Unschedulable("no node fits"))
		m.store("gated", late, labelled(build.MakeAgentRun("gated").Obj()).SchedulingGate("example.com/quota").SchedulingGated())
		m.store("pulls", 0, labelled(build.MakeAgentRun("pulls").Obj()).Scheduled().Waiting("main", "ImagePullBackOff", ""))
		m.store("ends", 0, labelled(build.MakeAgentRun("ends").Obj()).Scheduled().Phase(corev1.PodSucceeded).Terminated("main", "Completed", 0).FinishedAt("main", m.now()))
	})
	each(func(m *dated) {
		f.WithT.Eventually(m.status("pulls")).Should(And(failedWith("ImagePullBackOff"), completed(BeTemporally("~", m.created["pulls"], exact))), m.name)
		f.WithT.Eventually(m.status("ends")).Should(And(harness.HavePhase(agentv1alpha1.AgentRunSucceeded), completed(BeTemporally("~", m.created["ends"], time.Second))), m.name)
		m.failsInTime("late", m.created["late"], late)
	})
	// Their deadlines would be over by now, had the gates not held them.
	released := map[string]time.Time{}
	each(func(m *dated) {
		f.WithT.Expect(m.status("gated")()).To(harness.HaveCondition("Queued", metav1.ConditionTrue, "SchedulingGated"), m.name)
		released[m.name] = m.release("gated")
	})
	each(func(m *dated) { m.failsInTime("gated", released[m.name], late) })
	each(func(m *dated) { m.failsInTime("early", m.created["early"], early) })
}

// now is the member's time, in whole seconds as it is stored.
func (m *dated) now() time.Time { return time.Now().Add(m.ahead).Truncate(time.Second) }

// status returns a function that fetches a run, for Eventually.
func (m *dated) status(name string) func() (*agentv1alpha1.AgentRun, error) {
	return m.run(m.Context(), build.DefaultNamespace, name)
}

// store stores a run and its pod as created now by the member's clock. A deadline of 0
// means none.
func (m *dated) store(name string, deadline time.Duration, pod *build.PodWrapper) {
	m.Helper()
	m.created[name] = m.now()
	run := build.MakeAgentRun(name).StartupDeadline(int32(deadline.Seconds())).Created(m.created[name]).Obj()
	m.WithT.Expect(m.Store(m.Context(), run, pod.Created(m.created[name]).Obj())).To(Succeed())
}

// release takes the gate off a run's pod and has the scheduler find it a node. It returns
// when that was, by the member's clock.
func (m *dated) release(name string) time.Time {
	m.Helper()
	run := build.MakeAgentRun(name).Obj()
	pod := labelled(run).Obj()
	m.WithT.Expect(m.Client.Get(m.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	at := m.now()
	pod.Spec.SchedulingGates = nil
	m.WithT.Expect(m.Client.Update(m.Context(), pod)).To(Succeed())
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}
	m.WithT.Expect(m.SetPodStatus(m.Context(), labelled(run).Condition(scheduled).Waiting("main", "ContainerCreating", "").Obj())).To(Succeed())
	return at
}

// failsInTime: a run fails a deadline after a moment of the member's clock, to the second
// as it is told, and to 2 s as the API server received it.
func (m *dated) failsInTime(name string, from time.Time, deadline time.Duration) {
	m.Helper()
	m.WithT.Eventually(m.status(name)).Should(And(
		failedWith("StartupDeadlineExceeded"), completed(BeTemporally("==", from.Add(deadline)))), "%s in %s", name, m.name)
	writes := m.writes(m.member, name, time.Time{}, m.user)
	m.WithT.Expect(writes).NotTo(BeEmpty())
	late := writes[len(writes)-1].Received.Sub(from.Add(deadline - m.ahead))
	m.Logf("The deadline of %s in the member %s was exact to %s", name, m.name, late.Round(time.Millisecond))
	m.WithT.Expect(late).To(BeNumerically("~", 0, exact), "%s in %s", name, m.name)
}
