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

package harness

import (
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	"github.com/konveyor/agentrun-fleet/test/build"
)

func TestSchedulerSaysThatAPodFitsNowhere(t *testing.T) {
	g := NewGomega(t)
	pod := build.MakePod("nowhere").Container("main", "image:1").CPU("1000").Obj()
	g.Expect(member.Client.Create(t.Context(), pod)).To(gomega.Succeed())
	g.Eventually(komega.New(member.Client).WithContext(t.Context()).Object(pod)).Should(
		gomega.HaveField("Status.Conditions", gomega.ContainElement(gomega.And(
			gomega.HaveField("Type", corev1.PodScheduled),
			gomega.HaveField("Reason", corev1.PodReasonUnschedulable),
		))))
}

func TestControllerManagerCollectsGarbage(t *testing.T) {
	g := NewGomega(t)
	run := build.MakeAgentRun("owner").Obj()
	g.Expect(member.Client.Create(t.Context(), run)).To(gomega.Succeed())
	sandbox := build.MakeSandbox("owned").ForRun(run).PodTemplate(gatedPod("unused").Obj()).Obj()
	g.Expect(member.Client.Create(t.Context(), sandbox)).To(gomega.Succeed())
	g.Expect(member.Client.Delete(t.Context(), run)).To(gomega.Succeed())
	g.Eventually(func() error {
		return member.Client.Get(t.Context(), client.ObjectKeyFromObject(sandbox), sandbox.DeepCopy())
	}).Should(gomega.MatchError(gomega.ContainSubstring("not found")))
}

func TestAgentSandboxMakesThePodAndReportsItsEnd(t *testing.T) {
	g := NewGomega(t)
	ctx := t.Context()
	options, err := MemberOptions("sandboxed", WithCRDs(sandboxCRDs(t)))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	cp := NewControlPlanes(t, options)[0]
	g.Expect(StartAgentSandbox(ctx, cp)).To(gomega.Succeed())

	run := build.MakeAgentRun("r").Obj()
	g.Expect(cp.Client.Create(ctx, run)).To(gomega.Succeed())
	template := build.MakePod("template").ForRun(run).Container("main", "image:1")
	sandbox := build.MakeSandbox("s").ForRun(run).PodTemplate(template.Obj()).Obj()
	g.Expect(cp.Client.Create(ctx, sandbox)).To(gomega.Succeed())

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}
	k := komega.New(cp.Client).WithContext(ctx)
	g.Eventually(k.Get(pod)).Should(gomega.Succeed())
	g.Expect(metav1.IsControlledBy(pod, sandbox)).To(gomega.BeTrue(), "the pod belongs to the Sandbox")

	pod.Status = template.Terminated("main", "Error", 1).PodFailed("", "").Obj().Status
	g.Expect(cp.SetPodStatus(ctx, pod)).To(gomega.Succeed())
	g.Eventually(k.Object(sandbox)).Should(gomega.WithTransform(conditionReasons, gomega.HaveKeyWithValue("Finished", "PodFailed")))
}

func gatedPod(name string) *build.PodWrapper {
	return build.MakePod(name).Container("main", "image:1").SchedulingGate("test/hold")
}

func sandboxCRDs(t *testing.T) string {
	t.Helper()
	path, err := SandboxCRDPath(t.Context())
	must(t, err)
	return path
}

func conditionReasons(object client.Object) map[string]string {
	reasons := map[string]string{}
	conditions, _, _ := unstructured.NestedSlice(object.(*unstructured.Unstructured).Object, "status", "conditions")
	for _, c := range conditions {
		condition := c.(map[string]any)
		reasons[condition["type"].(string)] = condition["reason"].(string)
	}
	return reasons
}
