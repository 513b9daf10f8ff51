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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestAMemberReturns: what happened in a member that was away is handled once, with the
// times at which it happened, and the hub's numbers stand meanwhile.
func TestAMemberReturns(t *testing.T) {
	for name, restart := range map[string]bool{"under a manager that runs on": false, "under a manager that was started meanwhile": true} {
		t.Run(name, func(t *testing.T) { memberReturns(t, restart) })
	}
}

func memberReturns(t *testing.T, restart bool) {
	t.Helper()
	f := newFleet(t, "away", "well")
	m, well := f.members["away"], f.members["well"]
	f.join("away", "well")
	f.start()
	f.namespace("work")
	m.populate(f, 0, "ImagePullBackOff", "InvalidImageName")
	well.populate(f, 1, "CrashLoopBackOff")
	for _, name := range []string{"succeeds", "crashes", "pulls"} {
		f.about(m, name)
	}
	const deadline = 15
	due := build.MakeAgentRun("due").StartupDeadline(deadline).Obj()
	f.WithT.Expect(m.CreateRun(t.Context(), due)).To(Succeed())
	f.WithT.Eventually(f.clusterStatus("away")).Should(HaveField("Status.Runs", HaveValue(
		Equal(fleetv1alpha1.RunCounts{Pending: 4, Active: 4, Failed: 2}))))
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status.Runs", Equal(fleetv1alpha1.RunCounts{Pending: 5, Active: 5, Failed: 3})))
	ofMember, ofFleet := recordCluster(f, "away"), recordFleet(f)

	left := time.Now()
	m.proxy.Pause()
	m.proxy.Reset()
	ended := metav1.NewTime(time.Now().Add(-time.Second).Truncate(time.Second))
	f.ends(m, "succeeds", corev1.PodSucceeded, "Completed", 0, ended)
	f.ends(m, "crashes", corev1.PodFailed, "Error", 3, ended)
	f.fail(m, "pulls")
	f.WithT.Eventually(f.clusterStatus("away")).Should(harness.HaveCondition("Connected", metav1.ConditionUnknown, "Unreachable"))
	passed := due.CreationTimestamp.Add(deadline * time.Second)
	f.WithT.Eventually(time.Now).Should(BeTemporally(">", passed))
	if restart {
		f.stop()
		f.start()
	}
	f.failOnce(well, "meanwhile", well.user) // the manager is at work, and the hub's numbers move
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status.Runs", Equal(
		fleetv1alpha1.RunCounts{Pending: 1, Active: 1, Failed: 4, Unknown: 4})))
	f.WithT.Expect(m.run(t.Context(), build.DefaultNamespace, "due")()).To(harness.HavePhase(agentv1alpha1.AgentRunPending))

	m.proxy.Resume()
	back := time.Now()
	outcomes := map[string]OmegaMatcher{
		"succeeds": And(harness.HavePhase(agentv1alpha1.AgentRunSucceeded), completedAt(ended.Time)),
		"crashes":  And(failedWith("Error"), completedAt(ended.Time)),
		"pulls":    failedWith("ImagePullBackOff"),
		"due":      And(failedWith("StartupDeadlineExceeded"), completedAt(passed)),
	}
	for run, outcome := range outcomes {
		f.WithT.Eventually(m.run(t.Context(), build.DefaultNamespace, run)).Should(outcome, run)
	}
	t.Logf("All were handled %s after the member's return", time.Since(back).Round(time.Millisecond))
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status.Runs", Equal(
		fleetv1alpha1.RunCounts{Pending: 1, Active: 1, Succeeded: 1, Failed: 7})))
	for run := range outcomes {
		f.WithT.Expect(f.writes(m, run, left, m.user)).To(HaveLen(1), run)
	}
	f.neverLess(ofMember, 2, 6)
	f.neverLessInAll(ofFleet, 3, 8)
}

func completedAt(at time.Time) OmegaMatcher {
	return HaveField("Status.CompletionTime.Time", BeTemporally("==", at))
}

// ends lets a run's pod end, at a time.
func (f *fleet) ends(m *member, name string, phase corev1.PodPhase, reason string, exitCode int32, at metav1.Time) {
	f.Helper()
	pod := labelled(build.MakeAgentRun(name).Obj()).Scheduled().Phase(phase).Terminated("main", reason, exitCode).Obj()
	pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt = at
	f.WithT.Expect(m.SetPodStatus(f.Context(), pod)).To(Succeed())
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
