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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestAMemberReturns: what happened in a member that was away for hours is handled once, with
// the times at which it happened, and the hub's numbers stand meanwhile.
func TestAMemberReturns(t *testing.T) {
	for name, restart := range map[string]bool{"under a manager that runs on": false, "under a manager that was started meanwhile": true} {
		t.Run(name, func(t *testing.T) { memberReturns(t, restart) })
	}
}

func memberReturns(t *testing.T, restart bool) {
	t.Helper()
	f := newFleet(t, "away", "well")
	m, well := f.members["away"], f.members["well"]
	f.setsClock()
	f.join("away", "well")
	f.start()
	f.namespace("work")
	m.populate(f, 0, "ImagePullBackOff", "InvalidImageName")
	well.populate(f, 1, "CrashLoopBackOff")
	for _, name := range []string{"succeeds", "crashes", "pulls"} {
		f.about(m, name)
	}
	const hours, deadline = 3, 2 * time.Hour
	due := build.MakeAgentRun("due").StartupDeadline(int32(deadline.Seconds())).Obj()
	patient := build.MakeAgentRun("patient").StartupDeadline(2 * int32(deadline.Seconds())).Obj()
	f.WithT.Expect(m.create(t.Context(), due, patient)).To(Succeed())
	f.WithT.Eventually(f.clusterStatus("away")).Should(HaveField("Status.Runs", HaveValue(
		Equal(fleetv1alpha1.RunCounts{Pending: 5, Active: 5, Failed: 2}))))
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status.Runs", Equal(fleetv1alpha1.RunCounts{Pending: 6, Active: 6, Failed: 3})))
	ofMember, ofFleet := recordCluster(f, "away"), recordFleet(f)

	left := time.Now()
	m.proxy.Pause()
	m.proxy.Reset()
	f.WithT.Eventually(f.clusterStatus("away")).Should(harness.HaveCondition("Connected", metav1.ConditionUnknown, "Unreachable"))
	lost, err := f.clusterStatus("away")()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	for hour := range hours {
		f.setClock(time.Duration(hour+1) * time.Hour)
		if restart && hour == 1 {
			f.stop()
			f.start()
		}
		// The manager is at work, and the hub's numbers move.
		f.failOnce(well, fmt.Sprintf("hour-%d", hour), well.user)
	}
	ended := left.Add(time.Hour).Truncate(time.Second)
	f.ends(m, "succeeds", corev1.PodSucceeded, "Completed", 0, ended)
	f.ends(m, "crashes", corev1.PodFailed, "Error", 3, ended)
	f.fail(m, "pulls")
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status.Runs", Equal(
		fleetv1alpha1.RunCounts{Pending: 1, Active: 1, Failed: 3 + hours, Unknown: 5})))
	f.WithT.Expect(m.run(t.Context(), build.DefaultNamespace, "due")()).To(harness.HavePhase(agentv1alpha1.AgentRunPending))
	f.WithT.Expect(f.clusterStatus("away")()).To(lostSince(lost))

	m.proxy.Resume()
	back := f.now()
	outcomes := map[string]OmegaMatcher{
		"succeeds": And(harness.HavePhase(agentv1alpha1.AgentRunSucceeded), completed(BeTemporally("==", ended))),
		"crashes":  And(failedWith("Error"), completed(BeTemporally("==", ended))),
		// Kubelet does not say since when.
		"pulls": And(failedWith("ImagePullBackOff"), completed(BeTemporally("~", back, harness.EventuallyTimeout))),
		"due":   And(failedWith("StartupDeadlineExceeded"), completed(BeTemporally("==", due.CreationTimestamp.Add(deadline)))),
	}
	for run, outcome := range outcomes {
		f.WithT.Eventually(m.run(t.Context(), build.DefaultNamespace, run)).Should(outcome, run)
	}
	t.Logf("All were handled %s after the member's return", f.now().Sub(back).Round(time.Millisecond))
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status.Runs", Equal(
		fleetv1alpha1.RunCounts{Pending: 2, Active: 2, Succeeded: 1, Failed: 6 + hours})))
	f.WithT.Expect(m.run(t.Context(), build.DefaultNamespace, "patient")()).To(harness.HavePhase(agentv1alpha1.AgentRunPending))
	for run := range outcomes {
		f.WithT.Expect(f.writes(m, run, left, m.user)).To(HaveLen(1), run)
	}
	f.WithT.Expect(f.writes(m, "patient", left, m.user)).To(BeEmpty())
	f.WithT.Expect(f.failureEvents(m)).To(And(HaveKey("due"), HaveEach(1)))
	f.neverLess(ofMember, 2, 7)
	f.neverLessInAll(ofFleet, 3, 9)
}

// lostSince matches a member's status that says it was lost when it was, and not later.
func lostSince(first *fleetv1alpha1.AgentRunClusterStatus) OmegaMatcher {
	connected := meta.FindStatusCondition(first.Status.Conditions, "Connected")
	return And(
		HaveField("Status.LastContactTime", Equal(first.Status.LastContactTime)),
		HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", connected.Type), HaveField("Status", connected.Status),
			HaveField("LastTransitionTime", Equal(connected.LastTransitionTime)),
		))),
	)
}

func completed(at OmegaMatcher) OmegaMatcher {
	return HaveField("Status.CompletionTime.Time", at)
}

// ends lets a run's pod end, at a time.
func (f *fleet) ends(m *member, name string, phase corev1.PodPhase, reason string, exitCode int32, at time.Time) {
	f.Helper()
	pod := labelled(build.MakeAgentRun(name).Obj()).Scheduled().Phase(phase).Terminated("main", reason, exitCode).FinishedAt("main", at)
	f.WithT.Expect(m.SetPodStatus(f.Context(), pod.Obj())).To(Succeed())
}

// neverLess: no version of a member's status has fewer failed runs, or fewer in all.
func (f *fleet) neverLess(r *recording[*fleetv1alpha1.AgentRunClusterStatus], failed, all int32) {
	f.Helper()
	for i, s := range r.all() {
		f.WithT.Expect(s.Status.Runs).NotTo(BeNil(), "version %d of the member's status has no numbers", i)
		f.notLess(fmt.Sprintf("version %d of the member's status", i), *s.Status.Runs, failed, all)
	}
}

// neverLessInAll is neverLess of the summary.
func (f *fleet) neverLessInAll(r *recording[*fleetv1alpha1.AgentRunFleetStatus], failed, all int32) {
	f.Helper()
	f.WithT.Expect(len(r.all())).To(BeNumerically(">", 2))
	for i, s := range r.all() {
		f.notLess(fmt.Sprintf("version %d of the summary", i), s.Status.Runs, failed, all)
	}
}

func (f *fleet) notLess(what string, c fleetv1alpha1.RunCounts, failed, all int32) {
	f.Helper()
	f.WithT.Expect(c.Failed).To(BeNumerically(">=", failed), what)
	f.WithT.Expect(c.Pending+c.Running+c.Succeeded+c.Failed+c.Unknown).To(BeNumerically(">=", all), what)
}
