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
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

const (
	// ttlNode is where the pods of these tests run.
	ttlNode = "node-1"
	// outcomeLabel says to the Stages of test/demo how a pod ends.
	outcomeLabel = "demo.agentrun-fleet/outcome"
	holdPod      = "example.com/hold"
)

// TestTTL has the member's own programs make, run and collect what belongs to a run: the
// agent-sandbox controller, KWOK for kubelet, and kube-controller-manager.
func TestTTL(t *testing.T) {
	t.Parallel()
	f := newTTLFleet(t)
	f.join("alpha")
	f.start("--agentrun-ttl-after-finished=2s", "--agentrun-failed-ttl=0")
	t.Run("a run stays until its Sandbox and pod are gone", func(t *testing.T) { f.on(t).goesWithItsPod() })
	t.Run("a pod that the run controls itself goes with it", func(t *testing.T) { f.on(t).goesWithoutASandbox() })
	t.Run("a Sandbox that a run merely names stays", func(t *testing.T) { f.on(t).namedSandboxStays() })
	t.Run("0 in the spec means at once, and more means later", func(t *testing.T) { f.on(t).specWins() })
	t.Run("failed runs have their own TTL", func(t *testing.T) { f.on(t).failedStay() })
}

func newTTLFleet(t *testing.T) *fleet {
	t.Helper()
	g := harness.NewGomega(t)
	crd, err := harness.SandboxCRDPath(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	root, err := harness.RepoRoot()
	g.Expect(err).NotTo(HaveOccurred())
	f := newFleetWith(t, []harness.Option{harness.WithCRDs(crd), harness.WithControllerManager}, "alpha")
	m := f.members["alpha"]
	g.Expect(m.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ttlNode}})).To(Succeed())
	g.Expect(harness.StartKWOK(t.Context(), m.ControlPlane, filepath.Join(root, "test", "demo", "stages.yaml"))).To(Succeed())
	g.Expect(harness.StartAgentSandbox(t.Context(), m.ControlPlane)).To(Succeed())
	return f
}

// ending is a pod that runs on the node and ends as the outcome says.
func ending(outcome string) *build.PodWrapper {
	return agentPod().Node(ttlNode).Label(outcomeLabel, outcome)
}

// lookup returns a function that fetches an object anew, for Eventually.
func (m *member) lookup(f *fleet, o client.Object) func() error {
	return func() error { return m.Client.Get(f.Context(), client.ObjectKeyFromObject(o), o) }
}

var notFound = WithTransform(apierrors.IsNotFound, BeTrue())

func (f *fleet) goesWithItsPod() {
	m := f.members["alpha"]
	ns := f.namespace("ttl-sandbox")
	run := build.MakeAgentRun("run").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), run)).To(Succeed())
	sandbox := build.MakeSandbox("run").ForRun(run).PodTemplate(ending("Completed").Obj()).Obj()
	f.WithT.Expect(m.create(f.Context(), sandbox)).To(Succeed())
	pod := f.podOf(m, sandbox)
	held := pod.DeepCopy()
	held.Finalizers = append(held.Finalizers, holdPod)
	f.WithT.Expect(m.Client.Patch(f.Context(), held, client.MergeFrom(pod))).To(Succeed())

	f.WithT.Eventually(m.run(f.Context(), ns, "run")).Should(harness.HavePhase(agentv1alpha1.AgentRunSucceeded))
	f.WithT.Eventually(m.run(f.Context(), ns, "run")).Should(And(
		HaveField("DeletionTimestamp", Not(BeNil())),
		HaveField("Finalizers", ContainElement(metav1.FinalizerDeleteDependents))))
	deleting, err := m.run(f.Context(), ns, "run")()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(deleting.DeletionTimestamp.Sub(deleting.Status.CompletionTime.Time)).To(BeNumerically(">=", 2*time.Second))
	f.WithT.Eventually(func() (*metav1.Time, error) {
		return pod.DeletionTimestamp, m.Client.Get(f.Context(), client.ObjectKeyFromObject(pod), pod)
	}).ShouldNot(BeNil(), "the pod is being deleted")
	f.WithT.Consistently(m.run(f.Context(), ns, "run"), time.Second).Should(HaveField("UID", run.UID), "the run waits for its pod")

	released := pod.DeepCopy()
	released.Finalizers = nil
	f.WithT.Expect(m.Client.Patch(f.Context(), released, client.MergeFrom(pod))).To(Succeed())
	for _, o := range []client.Object{pod, sandbox, run} {
		f.WithT.Eventually(m.lookup(f, o)).Should(notFound)
	}
	f.WithT.Expect(m.Requests(harness.ByUser(m.user), harness.OnObject(ns, "run"), harness.WithVerb("delete"))).To(HaveLen(1))
	f.WithT.Eventually(func() ([]eventsv1.Event, error) {
		list := &eventsv1.EventList{}
		return list.Items, m.Client.List(f.Context(), list, client.InNamespace(ns))
	}).Should(ContainElement(And(
		HaveField("Reason", "TTLExpired"), HaveField("Regarding.Name", "run"), HaveField("Note", ContainSubstring("its TTL of 2s is over")))))
}

func (f *fleet) goesWithoutASandbox() {
	m := f.members["alpha"]
	ns := f.namespace("ttl-pod")
	run := build.MakeAgentRun("run").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), run)).To(Succeed())
	pod := build.MakePod("its-own").ForRun(run).Container("main", "registry.example/agent:1").Node(ttlNode).Label(outcomeLabel, "Completed").Obj()
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(run, agentv1alpha1.GroupVersion.WithKind("AgentRun"))}
	f.WithT.Expect(m.Client.Create(f.Context(), pod)).To(Succeed())
	for _, o := range []client.Object{pod, run} {
		f.WithT.Eventually(m.lookup(f, o)).Should(notFound)
	}
}

func (f *fleet) namedSandboxStays() {
	m := f.members["alpha"]
	ns := f.namespace("ttl-named")
	sandbox := build.MakeSandbox("somebodys").Namespace(ns).PodTemplate(ending("Completed").Obj()).Obj()
	f.WithT.Expect(m.create(f.Context(), sandbox)).To(Succeed())
	run := build.MakeAgentRun("run").Namespace(ns).SandboxName("somebodys").Obj()
	f.WithT.Expect(m.CreateRun(f.Context(), run)).To(Succeed())
	f.WithT.Eventually(m.lookup(f, run)).Should(notFound)
	stays := &unstructured.Unstructured{}
	stays.SetGroupVersionKind(sandbox.GroupVersionKind())
	f.WithT.Expect(m.Client.Get(f.Context(), client.ObjectKeyFromObject(sandbox), stays)).To(Succeed())
	f.WithT.Expect(stays.GetDeletionTimestamp()).To(BeNil())
}

func (f *fleet) specWins() {
	m := f.members["alpha"]
	ns := f.namespace("ttl-spec")
	now := time.Now().Truncate(time.Second)
	ended := func(name string, ttl int32) *agentv1alpha1.AgentRun {
		run := build.MakeAgentRun(name).Namespace(ns).TTLAfterFinished(ttl).Phase(agentv1alpha1.AgentRunSucceeded).Completed(now).Obj()
		f.WithT.Expect(m.CreateRun(f.Context(), run)).To(Succeed())
		return run
	}
	kept, atOnce := ended("kept", 3600), ended("at-once", 0)
	f.WithT.Eventually(m.lookup(f, atOnce)).Should(notFound)
	f.WithT.Expect(m.run(f.Context(), ns, kept.Name)()).To(HaveField("DeletionTimestamp", BeNil()))
}

func (f *fleet) failedStay() {
	m := f.members["alpha"]
	ns := f.namespace("ttl-failed")
	kept := build.MakeAgentRun("kept").Namespace(ns).Obj()
	expired := build.MakeAgentRun("expired").Namespace(ns).TTLAfterFinished(0).Obj()
	ended := build.MakeAgentRun("ended").Namespace(ns).Obj()
	f.WithT.Expect(m.create(f.Context(), kept, expired, ended)).To(Succeed())
	for run, outcome := range map[*agentv1alpha1.AgentRun]string{kept: "OOMKilled", expired: "OOMKilled", ended: "Completed"} {
		pod := ending(outcome).Obj()
		f.WithT.Expect(m.create(f.Context(), build.MakeSandbox(run.Name).ForRun(run).PodTemplate(pod).Obj())).To(Succeed())
	}
	f.WithT.Eventually(m.run(f.Context(), ns, "kept")).Should(failedWith("OOMKilled"))
	f.WithT.Eventually(m.run(f.Context(), ns, "kept")).Should(HaveField("Recorded()", BeTrue()))
	for _, o := range []client.Object{ended, expired} {
		f.WithT.Eventually(m.lookup(f, o)).Should(notFound)
	}
	// What is gone stays in the total, and nothing is counted twice.
	f.WithT.Eventually(f.clusterStatus("alpha")).Should(HaveField("Status.Failures", ConsistOf(And(
		HaveField("Reason", "OOMKilled"), HaveField("Current", int32(1)), HaveField("Total", HaveValue(Equal(int64(2))))))))
	f.WithT.Consistently(m.run(f.Context(), ns, "kept")).Should(HaveField("DeletionTimestamp", BeNil()))
}
