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
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestStartup goes through what can keep a run from starting, on one hub with three
// members. Its subtests share the manager, and each has a namespace of its own.
func TestStartup(t *testing.T) {
	f := newFleet(t, "alpha", "beta", "gamma")
	f.join("alpha", "beta", "gamma")
	f.start("--agentrun-startup-deadline=1h", "--zap-log-level=debug")
	for name := range f.members {
		f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	}
	// Each of these is in no hurry with the others: they only share the processes.
	t.Run("fatal reasons", func(t *testing.T) { f.on(t).fatalReasons() })
	t.Run("one write and no read", func(t *testing.T) { f.on(t).oneWriteNoRead() })
	t.Run("outcomes", func(t *testing.T) { f.on(t).outcomes() })
	t.Run("pending detail and deadline", func(t *testing.T) { f.on(t).deadlines() })
	t.Run("terminal is final", func(t *testing.T) { f.on(t).terminalIsFinal() })
	t.Run("made anew under the same name", func(t *testing.T) { f.on(t).madeAnew() })
	t.Run("scheduling gates", func(t *testing.T) { f.on(t).gates() })
	t.Run("events", func(t *testing.T) { f.on(t).events() })
	t.Run("stops in time", func(t *testing.T) {
		if took := f.on(t).stop(); took > stopLimit {
			t.Errorf("the manager took %s to end", took)
		}
	})
}

// on is the fleet for a subtest.
func (f *fleet) on(t *testing.T) *fleet {
	t.Helper()
	sub := *f
	sub.T, sub.WithT = t, harness.NewGomega(t)
	return &sub
}

func (f *fleet) fatalReasons() {
	ns := f.namespace("fatal")
	message := "kubelet's own words"
	var told []OmegaMatcher
	for _, reason := range []string{"ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CrashLoopBackOff"} {
		onMain := build.MakeAgentRun("main-" + strings.ToLower(reason)).Namespace(ns).Obj()
		onInit := build.MakeAgentRun("init-" + strings.ToLower(reason)).Namespace(ns).Obj()
		phase := corev1.PodPending
		if reason == "CrashLoopBackOff" {
			phase = corev1.PodRunning // where kubelet shows it on a main container
		}
		f.WithT.Expect(f.members["alpha"].create(f.Context(), onMain, onInit,
			labelled(onMain).Node("node-1").Scheduled().Phase(phase).Waiting("main", reason, message).Obj(),
			labelled(onInit).Node("node-2").InitContainer("loader", "registry.example/loader:1").Scheduled().Phase(corev1.PodPending).
				Waiting("loader", reason, message).Waiting("main", "PodInitializing", "").Obj(),
		)).To(Succeed())
		f.WithT.Eventually(f.members["alpha"].run(f.Context(), ns, onMain.Name)).Should(failedWith(reason, `container "main"`, "registry.example/agent:1", message))
		f.WithT.Eventually(f.members["alpha"].run(f.Context(), ns, onInit.Name)).Should(failedWith(reason, `init container "loader"`, "registry.example/loader:1", message))
		told = append(told,
			tellsWhere(onMain, reason, "main", "registry.example/agent:1", "node-1"),
			tellsWhere(onInit, reason, "loader", "registry.example/loader:1", "node-2"))
	}
	f.WithT.Eventually(f.clusterStatus("alpha")).Should(And(told...))
	f.WithT.Expect(f.members["alpha"].Client.DeleteAllOf(f.Context(), &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0))).To(Succeed())
	// What happened before this has been seen when this is.
	after := build.MakeAgentRun("when-pods-are-gone").Namespace(ns).Obj()
	f.WithT.Expect(f.members["alpha"].create(f.Context(), after, labelled(after).Scheduled().Waiting("main", "InvalidImageName", "").Obj())).To(Succeed())
	f.WithT.Eventually(f.clusterStatus("alpha")).Should(HaveField("Status.RecentFailures", ContainElement(HaveField("Name", after.Name))))
	f.WithT.Expect(f.clusterStatus("alpha")()).To(And(told...))
}

// tellsWhere matches a member's status that says which container of which image failed a run,
// and on which node.
func tellsWhere(run *agentv1alpha1.AgentRun, reason, container, image, node string) OmegaMatcher {
	return HaveField("Status.RecentFailures", ContainElement(And(
		HaveField("Namespace", run.Namespace), HaveField("Name", run.Name), HaveField("Reason", reason),
		HaveField("Container", container), HaveField("Image", image), HaveField("Node", node),
	)))
}

// oneWriteNoRead: to fail a run costs the member one write and no read, and to mark it as
// recorded one more, as the member's API server counts.
func (f *fleet) oneWriteNoRead() {
	ns := f.namespace("one-write")
	m := f.members["beta"]
	const runs = 20
	for i := range runs {
		run := build.MakeAgentRun(fmt.Sprintf("r%d", i)).Namespace(ns).Obj()
		f.WithT.Expect(m.create(f.Context(), run, labelled(run).Scheduled().Waiting("main", "ContainerCreating", "").Obj())).To(Succeed())
	}
	for i := range runs {
		f.WithT.Eventually(m.run(f.Context(), ns, fmt.Sprintf("r%d", i))).Should(harness.HaveCondition("Succeeded", metav1.ConditionUnknown, "ContainerCreating"))
	}
	// With a connection's first failure the manager lists the member's runs once, to learn
	// which are on record already.
	first := build.MakeAgentRun("first").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), first, labelled(first).Scheduled().Waiting("main", "ImagePullBackOff", "").Obj())).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "first")).Should(HaveField("Recorded()", BeTrue()))
	since := time.Now()
	for i := range runs {
		run := build.MakeAgentRun(fmt.Sprintf("r%d", i)).Namespace(ns).Obj()
		f.WithT.Expect(m.SetPodStatus(f.Context(), labelled(run).Scheduled().Waiting("main", "ImagePullBackOff", "").Obj())).To(Succeed())
	}
	for i := range runs {
		f.WithT.Eventually(m.run(f.Context(), ns, fmt.Sprintf("r%d", i))).Should(And(
			failedWith("ImagePullBackOff"), HaveField("Recorded()", BeTrue())))
	}
	writes := map[string]int{}
	requests, err := m.Requests(harness.ByUser(m.user), harness.ReceivedAfter(since))
	f.WithT.Expect(err).NotTo(HaveOccurred())
	for _, r := range requests {
		switch {
		case r.Verb == "get" && r.Resource == "": // the provider's probe of the server
		case r.Verb == "create" && r.Resource == "selfsubjectaccessreviews": // and its look at what is served, now and then
		case r.Verb == "create" && r.Resource == "events": // tells of the write, after it
		default:
			writes[fmt.Sprintf("%s %s %s", r.Verb, r.Resource, r.Name)]++
		}
	}
	want := map[string]int{}
	for i := range runs {
		want[fmt.Sprintf("patch agentruns/status r%d", i)] = 1
		want[fmt.Sprintf("patch agentruns r%d", i)] = 1
	}
	f.WithT.Expect(writes).To(Equal(want))
}

func (f *fleet) outcomes() {
	ns := f.namespace("outcomes")
	m := f.members["gamma"]
	good := build.MakeAgentRun("good").Namespace(ns).Obj()
	bad := build.MakeAgentRun("bad").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), good, bad,
		labelled(good).Scheduled().Phase(corev1.PodSucceeded).Terminated("main", "Completed", 0).Obj(),
		labelled(bad).Scheduled().Phase(corev1.PodFailed).Terminated("main", "OOMKilled", 137).Obj(),
	)).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "good")).Should(And(
		harness.HavePhase(agentv1alpha1.AgentRunSucceeded),
		harness.HaveCondition("Succeeded", metav1.ConditionTrue, "Completed")))
	f.WithT.Eventually(m.run(f.Context(), ns, "bad")).Should(failedWith("OOMKilled", "exit code 137"))
}

func (f *fleet) deadlines() {
	ns := f.namespace("deadlines")
	m := f.members["alpha"]
	const scheduler = "0/3 nodes are available: 3 Insufficient cpu."
	timed := build.MakeAgentRun("timed").Namespace(ns).StartupDeadline(2).Obj()
	untimed := build.MakeAgentRun("untimed").Namespace(ns).StartupDeadline(0).Obj()
	f.WithT.Expect(m.create(f.Context(), timed, untimed,
		labelled(timed).Unschedulable(scheduler).Obj(),
		labelled(untimed).Unschedulable(scheduler).Obj(),
	)).To(Succeed())
	// The run's own 2 s beat the flag's hour, and nothing happens to the pod meanwhile.
	f.WithT.Eventually(m.run(f.Context(), ns, "timed")).Should(failedWith("StartupDeadlineExceeded", "unschedulable: "+scheduler))
	run, err := m.run(f.Context(), ns, "timed")()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(run.Status.CompletionTime.Sub(run.CreationTimestamp.Time)).To(Equal(2 * time.Second))
	f.WithT.Expect(m.run(f.Context(), ns, "untimed")()).To(And(
		harness.HavePhase(agentv1alpha1.AgentRunPending),
		WithTransform(func(r *agentv1alpha1.AgentRun) string { return succeeded(r).Message }, Equal("unschedulable: "+scheduler))))
}

func (f *fleet) terminalIsFinal() {
	ns := f.namespace("terminal")
	m := f.members["beta"]
	run := build.MakeAgentRun("once").Namespace(ns).Obj()
	pod := labelled(run).Scheduled().Waiting("main", "ImagePullBackOff", "")
	f.WithT.Expect(m.create(f.Context(), run, pod.Obj())).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "once")).Should(And(failedWith("ImagePullBackOff"), HaveField("Recorded()", BeTrue())))
	before, err := m.run(f.Context(), ns, "once")()
	f.WithT.Expect(err).NotTo(HaveOccurred())

	for _, later := range []*build.PodWrapper{
		labelled(run).Scheduled().Phase(corev1.PodRunning).Running("main"),
		labelled(run).Scheduled().Phase(corev1.PodSucceeded).Terminated("main", "Completed", 0),
	} {
		f.WithT.Expect(m.SetPodStatus(f.Context(), later.Obj())).To(Succeed())
	}
	// A later run of the same member is seen, so the pod's events have been, too.
	barrier := build.MakeAgentRun("barrier").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), barrier)).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "barrier")).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))
	f.WithT.Consistently(m.run(f.Context(), ns, "once")).Should(HaveField("ResourceVersion", before.ResourceVersion))
}

// madeAnew: a run deleted and made anew under the same name does not get the end of
// the earlier one, whose pod is still there.
func (f *fleet) madeAnew() {
	ns := f.namespace("anew")
	m := f.members["gamma"]
	first := build.MakeAgentRun("same").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), first)).To(Succeed())
	sandboxless := labelled(first).Scheduled().Waiting("main", "ImagePullBackOff", "").Obj()
	sandboxless.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(first, agentv1alpha1.GroupVersion.WithKind("AgentRun"))}
	f.WithT.Expect(m.create(f.Context(), sandboxless)).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "same")).Should(failedWith("ImagePullBackOff"))
	f.WithT.Expect(m.Client.Delete(f.Context(), first)).To(Succeed())

	second := build.MakeAgentRun("same").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), second)).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "same")).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))
	f.WithT.Consistently(m.run(f.Context(), ns, "same")).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))
}

// gates: time behind scheduling gates does not count.
func (f *fleet) gates() {
	ns := f.namespace("gates")
	m := f.members["alpha"]
	run := build.MakeAgentRun("gated").Namespace(ns).StartupDeadline(2).Obj()
	f.WithT.Expect(m.create(f.Context(), run, labelled(run).SchedulingGate("example.com/quota").SchedulingGated().Obj())).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "gated")).Should(harness.HaveCondition("Queued", metav1.ConditionTrue, "SchedulingGated"))
	witness := build.MakeAgentRun("witness").Namespace(ns).StartupDeadline(3).Obj()
	f.WithT.Expect(m.create(f.Context(), witness)).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "witness")).Should(failedWith("StartupDeadlineExceeded", "sandbox not created"))
	f.WithT.Expect(m.run(f.Context(), ns, "gated")()).To(harness.HavePhase(agentv1alpha1.AgentRunPending))

	pod := &corev1.Pod{}
	f.WithT.Expect(m.Client.Get(f.Context(), client.ObjectKey{Namespace: ns, Name: "gated-pod"}, pod)).To(Succeed())
	pod.Spec.SchedulingGates = nil
	f.WithT.Expect(m.Client.Update(f.Context(), pod)).To(Succeed())
	f.WithT.Expect(m.SetPodStatus(f.Context(), labelled(run).Unschedulable("no node fits").Obj())).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "gated")).Should(failedWith("StartupDeadlineExceeded", "unschedulable: no node fits"))
}

func (f *fleet) events() {
	ns := f.namespace("events")
	m := f.members["beta"]
	fatal := build.MakeAgentRun("fatal").Namespace(ns).Obj()
	late := build.MakeAgentRun("late").Namespace(ns).StartupDeadline(1).Obj()
	f.WithT.Expect(m.create(f.Context(), fatal, late, labelled(fatal).Scheduled().Waiting("main", "InvalidImageName", "bad name").Obj())).To(Succeed())
	for name, reason := range map[string]string{"fatal": "InvalidImageName", "late": "StartupDeadlineExceeded"} {
		f.WithT.Eventually(func() ([]eventsv1.Event, error) {
			list := &eventsv1.EventList{}
			return list.Items, m.Client.List(f.Context(), list, client.InNamespace(ns))
		}).Should(ContainElement(And(
			HaveField("Regarding.Name", name), HaveField("Regarding.Kind", "AgentRun"), HaveField("Reason", reason),
			HaveField("Type", corev1.EventTypeWarning), HaveField("ReportingController", "agentrun-fleet"),
		)))
	}
}
