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
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// noticedWithin is how long it may take the manager to see that a member serves
// Sandboxes: the interval, a probe and a connection.
const noticedWithin = 60 * time.Second

// TestSandboxesInstalledLater: agent-sandbox comes to a member that is already connected.
func TestSandboxesInstalledLater(t *testing.T) {
	t.Parallel()
	crd, err := harness.SandboxCRDPath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, "alpha")
	f.join("alpha")
	f.start()
	m := f.members["alpha"]
	ns := f.namespace("later")
	run := build.MakeAgentRun("run").Namespace(ns).Obj()
	f.WithT.Expect(m.create(t.Context(), run)).To(Succeed())
	f.WithT.Eventually(m.run(t.Context(), ns, "run")).Should(harness.HavePhase(agentv1alpha1.AgentRunPending))

	_, err = envtest.InstallCRDs(m.Config, envtest.CRDInstallOptions{Scheme: m.Scheme, Paths: []string{crd}})
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(harness.StartAgentSandbox(t.Context(), m.ControlPlane)).To(Succeed())
	sandbox := build.MakeSandbox("made-by-konveyor").ForRun(run).PodTemplate(agentPod().Obj()).Obj()
	f.WithT.Expect(m.create(t.Context(), sandbox)).To(Succeed())
	pod := f.podOf(m, sandbox)
	f.WithT.Expect(pod.Labels).NotTo(HaveKey(agentv1alpha1.AgentRunLabel))
	f.kubelet(m, pod, agentPod().Scheduled().Waiting("main", "ImagePullBackOff", "no such tag"))
	f.WithT.Eventually(m.run(t.Context(), ns, "run")).WithTimeout(noticedWithin).Should(
		failedWith("ImagePullBackOff", "no such tag"))
}
