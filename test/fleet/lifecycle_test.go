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
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestMembersComeAndGo: members join, leave and rejoin under a running manager, one is
// dead from the start, and after each step the hub's numbers are those of the members.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha", "beta", "dead")
	// The dead member comes first, and takes connections without ever answering.
	f.members["dead"].proxy.Pause()
	f.join("dead")
	f.start()
	f.step("a dead member alone: ready, and nothing is known", truth{}, []string{"dead"})

	f.namespace("work")
	f.members["alpha"].populate(f, 2, "ImagePullBackOff", "ImagePullBackOff", "InvalidImageName")
	f.members["beta"].populate(f, 1, "CrashLoopBackOff", "ImagePullBackOff")
	f.join("alpha")
	f.step("a member joins and brings its runs", truth{
		pending: 2, failed: 3, reasons: map[string]int32{"ImagePullBackOff": 2, "InvalidImageName": 1},
	}, []string{"dead"}, "alpha")
	f.join("beta")
	f.step("another joins", truth{
		pending: 3, failed: 5, reasons: map[string]int32{"ImagePullBackOff": 3, "InvalidImageName": 1, "CrashLoopBackOff": 1},
	}, []string{"dead"}, "alpha", "beta")

	due := f.aboutToBeDue("alpha")
	f.leave("alpha")
	f.goneInTime("alpha")
	f.step("a member leaves and takes its numbers with it", truth{
		pending: 1, failed: 2, reasons: map[string]int32{"ImagePullBackOff": 1, "CrashLoopBackOff": 1},
	}, []string{"dead"}, "beta")
	f.leftAlone("alpha", due)
	f.join("alpha")
	f.step("it rejoins, and what failed meanwhile counts once", truth{
		pending: 3, failed: 6, reasons: map[string]int32{"ImagePullBackOff": 3, "InvalidImageName": 2, "CrashLoopBackOff": 1},
	}, []string{"dead"}, "alpha", "beta")

	f.members["dead"].populate(f, 0, "CreateContainerConfigError")
	f.members["dead"].proxy.Resume()
	f.step("the dead member comes alive, without a restart of anything", truth{
		pending: 3, failed: 7, reasons: map[string]int32{"ImagePullBackOff": 3, "InvalidImageName": 2, "CrashLoopBackOff": 1, "CreateContainerConfigError": 1},
	}, nil, "alpha", "beta", "dead")

	f.members["beta"].proxy.Pause()
	f.members["beta"].proxy.Reset()
	f.step("a member is lost: its failures stand, its pending run is unknown", truth{
		pending: 2, unknown: 1, failed: 7, reasons: map[string]int32{"ImagePullBackOff": 3, "InvalidImageName": 2, "CrashLoopBackOff": 1, "CreateContainerConfigError": 1},
	}, []string{"beta"}, "alpha", "dead")
	took := f.stop()
	t.Logf("The manager ended in %s with one member not answering", took)

	f.start()
	f.step("after a restart the same objects give the same numbers, the lost member's included", truth{
		pending: 2, unknown: 1, failed: 7, reasons: map[string]int32{"ImagePullBackOff": 3, "InvalidImageName": 2, "CrashLoopBackOff": 1, "CreateContainerConfigError": 1},
	}, []string{"beta"}, "alpha", "dead")
	f.members["beta"].proxy.Resume()
	f.step("and the lost member comes back", truth{
		pending: 3, failed: 7, reasons: map[string]int32{"ImagePullBackOff": 3, "InvalidImageName": 2, "CrashLoopBackOff": 1, "CreateContainerConfigError": 1},
	}, nil, "alpha", "beta", "dead")

	f.members["dead"].proxy.Pause()
	f.members["dead"].proxy.Reset()
	f.leave("dead")
	f.goneInTime("dead")
	f.step("a member that does not answer leaves", truth{
		pending: 3, failed: 6, reasons: map[string]int32{"ImagePullBackOff": 3, "InvalidImageName": 2, "CrashLoopBackOff": 1},
	}, nil, "alpha", "beta")
}

// goneWithin is how soon after its Secret nothing on the hub may tell of a member.
const goneWithin = 5 * time.Second

// goneInTime: the status and the metrics of a member that has left are gone, and stay so.
func (f *fleet) goneInTime(name string) {
	f.Helper()
	traces := func() ([]string, error) {
		metrics, err := f.manager.Metrics(f.Context())
		if err != nil {
			return nil, err
		}
		found := regexp.MustCompile(`(?m)^.*\b`+regexp.QuoteMeta(clusters+"/"+name)+`\b.*$`).FindAllString(metrics, -1)
		status, err := f.clusterStatus(name)()
		if err == nil {
			found = append(found, "AgentRunClusterStatus "+status.Name)
		}
		return found, client.IgnoreNotFound(err)
	}
	f.WithT.Eventually(traces).WithTimeout(goneWithin).Should(BeEmpty(), name)
	f.WithT.Consistently(traces).Should(BeEmpty(), name)
}

// deadline is that of a run whose member leaves before.
const deadline = 12 * time.Second

// aboutToBeDue has a run with a deadline be observed in a member. It returns when it is due.
func (f *fleet) aboutToBeDue(name string) time.Time {
	f.Helper()
	m := f.members[name]
	run := build.MakeAgentRun("due").Namespace("work").StartupDeadline(int32(deadline / time.Second)).Obj()
	f.WithT.Expect(m.create(f.Context(), run)).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), "work", "due")).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))
	metrics, err := f.manager.Metrics(f.Context())
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(metrics).To(ContainSubstring(fmt.Sprintf(`agentrunfleet_failures_total{cluster="%s/%s"`, clusters, name)))
	return run.CreationTimestamp.Add(deadline)
}

// truth is what the hub must say.
type truth struct {
	pending, running, succeeded, failed, unknown int32
	reasons                                      map[string]int32
}

// populate gives a member pending runs and one run for each reason that is about to
// fail for it. They are numbered, so that it may be called again.
func (m *member) populate(f *fleet, pending int, reasons ...string) {
	f.Helper()
	for i := range pending {
		run := build.MakeAgentRun(fmt.Sprintf("pending-%d", i)).Namespace("work").Obj()
		f.WithT.Expect(m.create(f.Context(), run, labelled(run).Unschedulable("no node").Obj())).To(Succeed())
	}
	for _, reason := range reasons {
		m.failing++
		run := build.MakeAgentRun(fmt.Sprintf("failing-%d", m.failing)).Namespace("work").Obj()
		f.WithT.Expect(m.create(f.Context(), run, labelled(run).Scheduled().Waiting("main", reason, "because").Obj())).To(Succeed())
	}
}

// leftAlone: one of a left member's pending runs gets a pod that can never start, another
// comes to its deadline, and nothing comes of it, nor of anything else.
func (f *fleet) leftAlone(name string, due time.Time) {
	f.Helper()
	m := f.members[name]
	since := time.Now()
	f.WithT.Expect(since).To(BeTemporally("<", due), "the deadline is over before the member has left")
	run := build.MakeAgentRun("pending-0").Namespace("work").Obj()
	f.WithT.Expect(m.SetPodStatus(f.Context(), labelled(run).Scheduled().Waiting("main", "InvalidImageName", "").Obj())).To(Succeed())
	f.WithT.Eventually(time.Now).Should(BeTemporally(">", due.Add(time.Second)))
	f.WithT.Consistently(func() ([]harness.Request, error) {
		return m.Requests(harness.ByUser(m.user), harness.ReceivedAfter(since))
	}).Should(BeEmpty())
	for _, untouched := range []string{"pending-0", "due"} {
		f.WithT.Expect(m.run(f.Context(), "work", untouched)()).To(harness.HavePhase(agentv1alpha1.AgentRunPending))
	}
	f.WithT.Expect(m.Client.Delete(f.Context(), build.MakeAgentRun("due").Namespace("work").Obj())).To(Succeed())
	replacement := build.MakeAgentRun("pending-again").Namespace("work").Obj()
	f.WithT.Expect(m.create(f.Context(), replacement, labelled(replacement).Unschedulable("no node").Obj())).To(Succeed())
}

// step waits until the summary says the truth of the named members, and checks that
// each member's own status does, against what its API server holds.
func (f *fleet) step(story string, want truth, lost []string, observed ...string) {
	f.Helper()
	f.Log(story)
	total := int32(len(observed) + len(lost))
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status", And(
		HaveField("Clusters", And(
			HaveField("Total", total),
			HaveField("Observed", int32(len(observed))),
			HaveField("Ratio", fmt.Sprintf("%d/%d", len(observed), total)),
			WithTransform(func(c fleetv1alpha1.ClusterCounts) bool { return c.OldestContactTime == nil || len(lost) > 0 }, BeTrue()),
		)),
		HaveField("Runs", fleetv1alpha1.RunCounts{
			Pending: want.pending, Running: want.running, Active: want.pending + want.running,
			Succeeded: want.succeeded, Failed: want.failed, Unknown: want.unknown,
		}),
		WithTransform(currentByReason, Equal(nonNil(want.reasons))),
	)), story)
	for _, name := range observed {
		f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"), story)
		f.WithT.Eventually(func() (fleetv1alpha1.RunCounts, error) {
			status, err := f.clusterStatus(name)()
			return status.Status.Counts(), err
		}).Should(Equal(f.members[name].count(f)), story)
	}
	for _, name := range lost {
		f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionUnknown, "Unreachable"), story)
	}
}

func currentByReason(s fleetv1alpha1.AgentRunFleetStatusStatus) map[string]int32 {
	current := map[string]int32{}
	for _, f := range s.Failures {
		if f.Current > 0 { // or else it is on record alone
			current[f.Reason] = f.Current
		}
	}
	return current
}

func nonNil(m map[string]int32) map[string]int32 {
	if m == nil {
		return map[string]int32{}
	}
	return m
}

// count counts the runs that the member's API server holds.
func (m *member) count(f *fleet) fleetv1alpha1.RunCounts {
	f.Helper()
	list := &agentv1alpha1.AgentRunList{}
	f.WithT.Expect(m.Client.List(f.Context(), list)).To(Succeed())
	var c fleetv1alpha1.RunCounts
	for i := range list.Items {
		switch list.Items[i].Status.Phase {
		case agentv1alpha1.AgentRunRunning:
			c.Running++
		case agentv1alpha1.AgentRunSucceeded:
			c.Succeeded++
		case agentv1alpha1.AgentRunFailed:
			c.Failed++
		default:
			c.Pending++
		}
	}
	c.Active = c.Pending + c.Running
	return c
}

// TestOutcomeBeatsDeadline: a pod ended and the deadline passed while the manager was
// away; the same pass sees both, and the pod's outcome counts.
func TestOutcomeBeatsDeadline(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha")
	m := f.members["alpha"]
	f.join("alpha")
	done := build.MakeAgentRun("done").StartupDeadline(1).Obj()
	stuck := build.MakeAgentRun("stuck").Obj() // the flag's deadline
	free := build.MakeAgentRun("free").StartupDeadline(0).Obj()
	f.WithT.Expect(m.create(t.Context(), done, stuck, free,
		labelled(done).Scheduled().Phase(corev1.PodSucceeded).Terminated("main", "Completed", 0).Obj())).To(Succeed())
	stored := &agentv1alpha1.AgentRun{}
	f.WithT.Expect(m.Client.Get(t.Context(), client.ObjectKeyFromObject(stuck), stored)).To(Succeed())
	f.WithT.Eventually(time.Now).Should(BeTemporally(">", stored.CreationTimestamp.Add(3*time.Second)))

	f.start("--agentrun-startup-deadline=2s")
	f.WithT.Eventually(m.run(t.Context(), build.DefaultNamespace, "done")).Should(harness.HavePhase(agentv1alpha1.AgentRunSucceeded))
	f.WithT.Eventually(m.run(t.Context(), build.DefaultNamespace, "stuck")).Should(And(
		failedWith("StartupDeadlineExceeded", "not running after 2s: sandbox not created"),
		// With its own time, though it was seen later.
		HaveField("Status.CompletionTime.Time", BeTemporally("==", stored.CreationTimestamp.Add(2*time.Second))),
	))
	f.WithT.Eventually(m.run(t.Context(), build.DefaultNamespace, "free")).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))
	f.WithT.Consistently(m.run(t.Context(), build.DefaultNamespace, "free")).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))
}
