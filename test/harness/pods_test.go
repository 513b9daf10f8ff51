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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

func TestStoredStatusesAreThoseThatWereBuilt(t *testing.T) {
	g := NewGomega(t)
	g.Expect(member.EnsureNamespace(t.Context(), "kubelet")).To(gomega.Succeed())
	pod := func(name string) *build.PodWrapper {
		return build.MakePod(name).Namespace("kubelet").
			InitContainer("setup", "init:1").Sidecar("proxy", "proxy:1").Container("main", "image:1").
			SchedulingGate("test/hold")
	}
	// The controller manager takes back what was said more than two minutes ago.
	disrupted := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "drained",
		LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
	cases := map[string]*build.PodWrapper{
		"a container waits":                pod("waits").Waiting("main", "ErrImagePull", "no such image"),
		"an init container waits":          pod("init-waits").Waiting("setup", "InvalidImageName", ""),
		"an init container failed":         pod("init-failed").Terminated("setup", "Error", 2).Waiting("main", "PodInitializing", ""),
		"a sidecar crash-loops":            pod("sidecar").Restarts("proxy", 4).Waiting("proxy", "CrashLoopBackOff", "back-off"),
		"a container runs":                 pod("runs").Phase(corev1.PodRunning).Running("main"),
		"a container ended with a note":    pod("note").TerminatedMessage("main", "OOMKilled", "out", 137).PodFailed("", ""),
		"the scheduler finds no node":      pod("nowhere").Unschedulable("0/0 nodes are available"),
		"the pod is gated":                 pod("gated").SchedulingGated(),
		"the pod was evicted":              pod("evicted").PodFailed("Evicted", "low on memory"),
		"the pod is evicted while it runs": pod("disrupted").Running("main").Condition(disrupted),
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewGomega(t)
			want := tc.Obj()
			g.Expect(member.CreatePod(t.Context(), tc.Obj())).To(gomega.Succeed())
			stored := &corev1.Pod{}
			g.Expect(member.Client.Get(t.Context(), client.ObjectKeyFromObject(want), stored)).To(gomega.Succeed())
			stored.Status.QOSClass, stored.Status.ObservedGeneration = "", 0
			if diff := cmp.Diff(want.Status, stored.Status); diff != "" {
				t.Errorf("Status (-built +stored):\n%s", diff)
			}
		})
	}
}

func TestMatchers(t *testing.T) {
	g := NewGomega(t)
	run := build.MakeAgentRun("r").Failed("ErrImagePull", "no", time.Unix(0, 0)).Obj()
	g.Expect(run).To(HavePhase(agentv1alpha1.AgentRunFailed))
	g.Expect(run).NotTo(HavePhase(agentv1alpha1.AgentRunRunning))
	g.Expect(run).To(HaveCondition("Succeeded", metav1.ConditionFalse, "ErrImagePull"))
	g.Expect(run).To(HaveCondition("Succeeded", metav1.ConditionFalse, ""))
	g.Expect(run).NotTo(HaveCondition("Succeeded", metav1.ConditionFalse, "ImagePullBackOff"))
	g.Expect(run).NotTo(HaveCondition("Succeeded", metav1.ConditionTrue, ""))
	g.Expect(run).NotTo(HaveCondition("Queued", metav1.ConditionFalse, ""))
	_, err := HavePhase(agentv1alpha1.AgentRunFailed).Match(&corev1.Pod{})
	g.Expect(err).To(gomega.HaveOccurred(), "a pod has no such phase")
}
