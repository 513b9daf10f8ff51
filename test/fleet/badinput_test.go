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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// badInput is one way in which a member's Secret can be wrong.
type badInput struct {
	kubeconfig []byte
	noKey      bool
	status     metav1.ConditionStatus
	reason     string
	message    []string // what a person needs to act on it
}

// TestBadInput: each bad kubeconfig leaves the good member working, says on its own
// AgentRunClusterStatus what to do, and recovers when mended, without a restart.
func TestBadInput(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "good", "other")
	good, other := f.members["good"], f.members["other"]
	mended := f.kubeconfig("good")
	other.populate(f, 0)
	cases := f.badInputs(mended)
	for name, c := range cases {
		secret := harness.MemberSecret(clusters, name, c.kubeconfig)
		if c.noKey {
			secret.Data = map[string][]byte{"kubeconfig": c.kubeconfig}
		}
		f.WithT.Expect(f.hub.Client.Create(t.Context(), secret)).To(Succeed())
	}
	f.join("other")
	f.start()
	run := build.MakeAgentRun("run").Obj()
	f.WithT.Expect(other.create(t.Context(), run, labelled(run).Scheduled().Waiting("main", "ImagePullBackOff", "").Obj())).To(Succeed())
	f.WithT.Eventually(other.run(t.Context(), build.DefaultNamespace, "run")).Should(failedWith("ImagePullBackOff"))

	for name, c := range cases {
		f.WithT.Eventually(f.clusterStatus(name)).Should(And(
			harness.HaveCondition(fleetv1alpha1.ConditionConnected, c.status, c.reason),
			WithTransform(connectedMessage, And(containAll(c.message), Not(BeEmpty()))),
		), name)
	}
	for name := range cases {
		f.mend(name, mended)
	}
	for name := range cases {
		f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"), name)
	}
	late := build.MakeAgentRun("late").Obj()
	f.WithT.Expect(good.create(t.Context(), late, labelled(late).Scheduled().Waiting("main", "InvalidImageName", "").Obj())).To(Succeed())
	f.WithT.Eventually(good.run(t.Context(), build.DefaultNamespace, "late")).Should(failedWith("InvalidImageName"))
}

func (f *fleet) badInputs(mended []byte) map[string]badInput {
	good := f.members["good"]
	wrongCA, err := good.AddUser("wrong-ca", "system:masters")
	f.WithT.Expect(err).NotTo(HaveOccurred())
	wrongCA.CAData = f.members["other"].Config.CAData
	expired, err := good.ServiceAccountUntil(f.Context(), "default", "expired", time.Now().Add(-time.Hour))
	f.WithT.Expect(err).NotTo(HaveOccurred())
	unknown := *expired
	unknown.BearerToken = "a-token-that-nobody-issued"
	powerless, err := good.AddUser("powerless")
	f.WithT.Expect(err).NotTo(HaveOccurred())
	nowhere, err := good.AddUser("nowhere", "system:masters")
	f.WithT.Expect(err).NotTo(HaveOccurred())
	return map[string]badInput{
		"not-yaml": {kubeconfig: []byte("\tthis: is: not YAML"), status: "False", reason: "InvalidKubeconfig", message: []string{"clusters/not-yaml-kubeconfig", `"value"`}},
		"empty":    {kubeconfig: []byte{}, status: "False", reason: "InvalidKubeconfig", message: []string{"clusters/empty-kubeconfig", `"value"`}},
		"no-key":   {kubeconfig: mended, noKey: true, status: "False", reason: "InvalidKubeconfig", message: []string{"clusters/no-key-kubeconfig", `"value"`}},
		"nowhere":  {kubeconfig: harness.Kubeconfig(nowhere, "https://127.0.0.1:1"), status: "Unknown", reason: "Unreachable", message: []string{"refused"}},
		"wrong-ca": {kubeconfig: harness.Kubeconfig(wrongCA, good.URL()), status: "False", reason: "InvalidKubeconfig", message: []string{"certificate-authority-data"}},
		"expired":  {kubeconfig: harness.Kubeconfig(expired, good.URL()), status: "False", reason: "Unauthorized", message: []string{"401"}},
		"unknown":  {kubeconfig: harness.Kubeconfig(&unknown, good.URL()), status: "False", reason: "Unauthorized", message: []string{"401"}},
		"no-rbac":  {kubeconfig: harness.Kubeconfig(powerless, good.URL()), status: "False", reason: "Forbidden", message: []string{"agentruns.konveyor.io", "list"}},
	}
}

// mend gives a member's Secret a kubeconfig that works.
func (f *fleet) mend(name string, kubeconfig []byte) {
	f.Helper()
	secret := harness.MemberSecret(clusters, name, kubeconfig)
	f.WithT.Expect(f.hub.Client.Update(f.Context(), secret)).To(Succeed())
}

func connectedMessage(s *fleetv1alpha1.AgentRunClusterStatus) string {
	for _, c := range s.Status.Conditions {
		if c.Type == fleetv1alpha1.ConditionConnected {
			return c.Message
		}
	}
	return ""
}

func containAll(parts []string) OmegaMatcher {
	matchers := make([]OmegaMatcher, len(parts))
	for i, part := range parts {
		matchers[i] = ContainSubstring(part)
	}
	return And(matchers...)
}

// TestMemberWithoutCRD: a member that does not know AgentRuns says so, and is taken in
// once the CRD is installed there.
func TestMemberWithoutCRD(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "other")
	bare := harness.NewControlPlanes(t, harness.Options{Name: "bare"})[0]
	user, err := bare.AddUser("fleet", "system:masters")
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(f.hub.Client.Create(t.Context(), harness.MemberSecret(clusters, "bare", harness.Kubeconfig(user, "")))).To(Succeed())
	f.join("other")
	f.start()
	f.WithT.Eventually(f.clusterStatus("bare")).Should(And(
		harness.HaveCondition("Connected", metav1.ConditionFalse, "CRDNotInstalled"),
		WithTransform(connectedMessage, ContainSubstring("agentruns.konveyor.io"))))
	f.WithT.Eventually(f.clusterStatus("other")).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	f.WithT.Eventually(f.fleetStatus).Should(And(
		harness.HaveCondition("Ready", metav1.ConditionFalse, fleetv1alpha1.ReasonMembersNotObserved),
		HaveField("Status.Clusters.Ratio", "1/2")))

	path, err := harness.MemberCRDPath()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	_, err = envtest.InstallCRDs(bare.Config, envtest.CRDInstallOptions{Scheme: bare.Scheme, Paths: []string{path}})
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Eventually(f.clusterStatus("bare")).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	run := build.MakeAgentRun("run").StartupDeadline(1).Obj()
	f.WithT.Expect(bare.CreateRun(t.Context(), run)).To(Succeed())
	f.WithT.Eventually(func() (*agentv1alpha1.AgentRun, error) {
		return run, bare.Client.Get(t.Context(), client.ObjectKeyFromObject(run), run)
	}).Should(failedWith("StartupDeadlineExceeded"))
	f.WithT.Eventually(f.fleetStatus).Should(harness.HaveCondition("Ready", metav1.ConditionTrue, fleetv1alpha1.ReasonAllMembersObserved))
}
