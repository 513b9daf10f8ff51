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
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestSandboxes runs the real agent-sandbox controller in the member: it makes the pods.
func TestSandboxes(t *testing.T) {
	t.Parallel()
	crd, err := harness.SandboxCRDPath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := newFleetWith(t, []harness.Option{harness.WithCRDs(crd)}, "alpha")
	f.WithT.Expect(harness.StartAgentSandbox(t.Context(), f.members["alpha"].ControlPlane)).To(Succeed())
	f.join("alpha")
	f.start()
	t.Run("a pod without the run's label is found through its Sandbox", func(t *testing.T) { f.on(t).unlabelledPod() })
	t.Run("a Sandbox named only by the run's status is its Sandbox", func(t *testing.T) { f.on(t).namedSandbox() })
	t.Run("a pod that starts after the run was given up is stopped", func(t *testing.T) { f.on(t).lateStart() })
	t.Run("a pod deleted while it runs is no success", func(t *testing.T) { f.on(t).deletedWhileRunning() })
	t.Run("the Sandbox of an earlier run of the name is not the run's", func(t *testing.T) { f.on(t).earlierSandbox() })
}

// podOf waits for the pod that the agent-sandbox controller makes for a Sandbox.
func (f *fleet) podOf(m *member, sandbox *unstructured.Unstructured) *corev1.Pod {
	f.Helper()
	pod := &corev1.Pod{}
	f.WithT.Eventually(func() error {
		return m.Client.Get(f.Context(), client.ObjectKeyFromObject(sandbox), pod)
	}).Should(Succeed())
	return pod
}

// kubelet writes the status of a pod of that name.
func (f *fleet) kubelet(m *member, pod *corev1.Pod, status *build.PodWrapper) {
	f.Helper()
	update := status.Obj()
	update.Namespace, update.Name = pod.Namespace, pod.Name
	f.WithT.Expect(m.SetPodStatus(f.Context(), update)).To(Succeed())
}

func agentPod() *build.PodWrapper {
	return build.MakePod("template").Container("main", "registry.example/agent:1")
}

func (f *fleet) unlabelledPod() {
	m := f.members["alpha"]
	ns := f.namespace("unlabelled")
	run := build.MakeAgentRun("run").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), run)).To(Succeed())
	sandbox := build.MakeSandbox("made-by-konveyor").ForRun(run).PodTemplate(agentPod().Obj()).Obj()
	f.WithT.Expect(m.create(f.Context(), sandbox)).To(Succeed())
	pod := f.podOf(m, sandbox)
	f.WithT.Expect(pod.Labels).NotTo(HaveKey(agentv1alpha1.AgentRunLabel))
	f.kubelet(m, pod, agentPod().Scheduled().Waiting("main", "ImagePullBackOff", "no such tag"))
	f.WithT.Eventually(m.run(f.Context(), ns, "run")).Should(failedWith("ImagePullBackOff", "no such tag"))
}

func (f *fleet) namedSandbox() {
	m := f.members["alpha"]
	ns := f.namespace("named")
	sandbox := build.MakeSandbox("somebodys").Namespace(ns).PodTemplate(agentPod().Obj()).Obj()
	f.WithT.Expect(m.create(f.Context(), sandbox)).To(Succeed())
	f.kubelet(m, f.podOf(m, sandbox), agentPod().Scheduled().Waiting("main", "InvalidImageName", ""))
	f.WithT.Expect(m.CreateRun(f.Context(), build.MakeAgentRun("run").Namespace(ns).SandboxName("somebodys").Obj())).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "run")).Should(failedWith("InvalidImageName"))
}

func (f *fleet) lateStart() {
	m := f.members["alpha"]
	ns := f.namespace("late")
	run := build.MakeAgentRun("run").Namespace(ns).StartupDeadline(2).Obj()
	f.WithT.Expect(m.create(f.Context(), run)).To(Succeed())
	sandbox := build.MakeSandbox("run").ForRun(run).PodTemplate(agentPod().Obj()).Obj()
	f.WithT.Expect(m.create(f.Context(), sandbox)).To(Succeed())
	pod := f.podOf(m, sandbox)
	f.WithT.Eventually(m.run(f.Context(), ns, "run")).Should(failedWith("StartupDeadlineExceeded"))

	f.kubelet(m, pod, agentPod().Scheduled().Phase(corev1.PodRunning).Running("main"))
	// The agent-sandbox controller takes the pod away; the Sandbox stays, to be looked at.
	f.WithT.Eventually(func() error {
		current := &corev1.Pod{}
		if err := m.Client.Get(f.Context(), client.ObjectKeyFromObject(pod), current); err != nil {
			return err
		}
		if current.DeletionTimestamp != nil {
			return apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
		}
		return nil
	}).Should(WithTransform(apierrors.IsNotFound, BeTrue()))
	f.WithT.Expect(m.Client.Get(f.Context(), client.ObjectKeyFromObject(sandbox), sandbox)).To(Succeed())
	f.WithT.Expect(m.run(f.Context(), ns, "run")()).To(failedWith("StartupDeadlineExceeded"))
	patches, err := m.Requests(harness.ByUser(m.user), harness.OnResource("sandboxes"), harness.WithVerb("patch"))
	f.WithT.Expect(err).NotTo(HaveOccurred())
	// One that lost against the Sandbox's own controller is tried again, one that won is not.
	stored := slices.DeleteFunc(patches, func(r harness.Request) bool { return r.Code == http.StatusConflict })
	f.WithT.Expect(stored).To(HaveLen(1))
}

func (f *fleet) deletedWhileRunning() {
	m := f.members["alpha"]
	ns := f.namespace("deleted")
	run := build.MakeAgentRun("run").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), run)).To(Succeed())
	sandbox := build.MakeSandbox("run").ForRun(run).PodTemplate(agentPod().Obj()).Obj()
	f.WithT.Expect(m.create(f.Context(), sandbox)).To(Succeed())
	pod := f.podOf(m, sandbox)
	// A node keeps the pod until kubelet has ended it.
	bound := pod.DeepCopy()
	bound.Finalizers = append(bound.Finalizers, "example.com/hold")
	f.WithT.Expect(m.Client.Patch(f.Context(), bound, client.MergeFrom(pod))).To(Succeed())
	f.kubelet(m, pod, agentPod().Scheduled().Phase(corev1.PodRunning).Running("main"))
	f.WithT.Eventually(m.run(f.Context(), ns, "run")).Should(harness.HavePhase(agentv1alpha1.AgentRunRunning))
	f.WithT.Expect(m.Client.Delete(f.Context(), bound)).To(Succeed())
	f.kubelet(m, pod, agentPod().Scheduled().Phase(corev1.PodSucceeded).Terminated("main", "Completed", 0))
	f.WithT.Eventually(m.run(f.Context(), ns, "run")).Should(failedWith("Deleted"))
	f.WithT.Expect(m.Client.Get(f.Context(), client.ObjectKeyFromObject(pod), bound)).To(Succeed())
	held := bound.DeepCopy()
	bound.Finalizers = nil
	f.WithT.Expect(m.Client.Patch(f.Context(), bound, client.MergeFrom(held))).To(Succeed())
}

func (f *fleet) earlierSandbox() {
	m := f.members["alpha"]
	ns := f.namespace("earlier")
	first := build.MakeAgentRun("same").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), first)).To(Succeed())
	sandbox := build.MakeSandbox("same").ForRun(first).PodTemplate(agentPod().Label(agentv1alpha1.AgentRunLabel, "same").Obj()).Obj()
	f.WithT.Expect(m.create(f.Context(), sandbox)).To(Succeed())
	pod := f.podOf(m, sandbox)
	// Nothing collects garbage here, so the Sandbox and its pod outlive their run.
	f.WithT.Expect(m.Client.Delete(f.Context(), first)).To(Succeed())
	f.WithT.Expect(m.create(f.Context(), build.MakeAgentRun("same").Namespace(ns).Obj())).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), ns, "same")).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))
	f.kubelet(m, pod, agentPod().Scheduled().Waiting("main", "ImagePullBackOff", ""))
	f.WithT.Consistently(m.run(f.Context(), ns, "same"), 3*time.Second).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))
}
