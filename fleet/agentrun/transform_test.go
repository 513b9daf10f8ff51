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

package agentrun

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/test/build"
)

// strippedRun is the most that a run may cost the hub beside its status, in bytes of JSON.
// Names take up to 253 and 63 of them.
const strippedRun = 1 << 10

// TestStrippedRunIsSmall: whoever may make runs in a member decides how large they are, and
// the hub holds all of them.
func TestStrippedRunIsSmall(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	hostile := build.MakeAgentRun(strings.Repeat("n", 253)).Namespace(strings.Repeat("s", 63)).
		UID("0e3eab6c-7b0f-4d5c-9a6d-1c2b3a495867").Created(time.Unix(1, 0)).Agent(large).StartupDeadline(1).TTLAfterFinished(2).Obj()
	hostile.GenerateName = large
	hostile.ResourceVersion, hostile.Generation = "123456789012", 7
	hostile.DeletionTimestamp, hostile.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Unix(2, 0))), new(int64(30))
	hostile.Labels, hostile.Annotations = map[string]string{}, markedBy(hostile, ledgerID)
	for i := range 1000 {
		hostile.Labels[fmt.Sprintf("l-%060d", i)] = strings.Repeat("v", 63)
		hostile.Annotations[fmt.Sprintf("a-%060d", i)] = strings.Repeat("v", 63)
		hostile.Finalizers = append(hostile.Finalizers, fmt.Sprintf("example.com/%050d", i))
		hostile.OwnerReferences = append(hostile.OwnerReferences, metav1.OwnerReference{Name: fmt.Sprintf("%0200d", i)})
	}
	hostile.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: large}}
	hostile.Spec.Gateway, hostile.Spec.Instructions = large, large
	hostile.Spec.Params = []agentv1alpha1.AgentRunParam{{Name: "p", Value: large}}
	hostile.Spec.Env = []corev1.EnvVar{{Name: "E", Value: large}}
	hostile.Spec.EnvFrom = []corev1.EnvFromSource{{Prefix: large}}
	hostile.Spec.GitConfig = &agentv1alpha1.GitConfig{UserName: large}
	want := &agentv1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: hostile.Namespace, Name: hostile.Name, UID: hostile.UID, ResourceVersion: hostile.ResourceVersion,
			Generation: 7, CreationTimestamp: hostile.CreationTimestamp, DeletionTimestamp: hostile.DeletionTimestamp,
			Annotations: markedBy(hostile, ledgerID),
		},
		Spec: agentv1alpha1.AgentRunSpec{StartupDeadlineSeconds: new(int32(1)), TTLSecondsAfterFinished: new(int32(2))},
	}

	got, err := stripRun(hostile)
	if err != nil {
		t.Fatal(err)
	}
	held, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if len(held) > strippedRun {
		t.Errorf("a run costs %d bytes, want at most %d", len(held), strippedRun)
	}
	if diff := cmp.Diff(want, got); diff != "" && len(held) <= strippedRun {
		t.Errorf("the stripped run (-want +got):\n%s", diff)
	}
}

// strippedPod is the most that a pod of one container may cost the hub, in bytes of JSON,
// whatever kubelet, a scheduler or a webhook wrote on it.
const strippedPod = 24 << 10

// TestStrippedPodIsSmall: texts are cut to what fleet/startup reads of them, so that it
// decides as on the whole pod, and once is enough.
func TestStrippedPodIsSmall(t *testing.T) {
	long := strings.Repeat("why ", 100_000) + "end"
	run := build.MakeAgentRun("a").Obj()
	tests := map[string]*build.PodWrapper{
		"waits":         build.MakePod("p").Container("main", "i").Waiting("main", "ImagePullBackOff", long),
		"ended":         build.MakePod("p").Container("main", "i").Phase(corev1.PodFailed).TerminatedMessage("main", "Error", long, 1),
		"as a whole":    build.MakePod("p").Container("main", "i").PodFailed("Evicted", long),
		"disrupted":     build.MakePod("p").Container("main", "i").Phase(corev1.PodFailed).Disrupted("Evicted", long),
		"unschedulable": build.MakePod("p").Container("main", "i").Unschedulable(long),
		"a long image":  build.MakePod("p").Container("main", long).Waiting("main", "InvalidImageName", long),
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := tc.ForRun(run).Obj()
			once := stripped(t, pod)
			if held, err := json.Marshal(once); err != nil || len(held) > strippedPod {
				t.Errorf("a pod costs %d bytes, want at most %d (%v)", len(held), strippedPod, err)
			}
			if diff := cmp.Diff(once, stripped(t, once)); diff != "" {
				t.Errorf("stripped again (-once +twice):\n%s", diff)
			}
			policy, now := startup.Policy{Fatal: startup.DefaultFatal()}, time.Unix(1000, 0)
			want := startup.Decide(startup.Input{Run: run, Pod: pod, Policy: policy, Now: now})
			got := startup.Decide(startup.Input{Run: run, Pod: once, Policy: policy, Now: now})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the decision (-on the whole pod +on the stripped one):\n%s", diff)
			}
		})
	}
}

func stripped(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	out, err := stripPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return out.(*corev1.Pod)
}

func TestStrippedSandboxIsSmall(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	sandbox := newSandbox(sandboxResource("v1alpha1").GroupVersion().WithKind("Sandbox"))
	sandbox.SetName("s")
	sandbox.SetOwnerReferences([]metav1.OwnerReference{{Name: long}, {APIVersion: "konveyor.io/v1alpha1", Kind: "AgentRun", Name: "a", UID: "u", Controller: new(true)}})
	sandbox.Object["spec"] = map[string]any{"shutdownTime": "2026-01-02T03:04:05Z", "podTemplate": long}
	condition := map[string]any{"type": "Ready", "status": "False", "reason": "SandboxExpired", "message": "it expired", "odd": long}
	sandbox.Object["status"] = map[string]any{"odd": long, "conditions": []any{condition, map[string]any{"type": "Odd", "message": long}, long}}
	out, err := stripSandbox(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	again, err := stripSandbox(out)
	if diff := cmp.Diff(out, again); diff != "" || err != nil {
		t.Errorf("stripped again (-once +twice), %v:\n%s", err, diff)
	}
	if held, err := json.Marshal(out); err != nil || len(held) > 2<<10 {
		t.Errorf("a Sandbox costs %d bytes (%v)", len(held), err)
	}
	view := sandboxView(out.(*unstructured.Unstructured), time.Now())
	if !view.Stopped || len(view.Conditions) != 3 || view.Conditions[0].Reason != "SandboxExpired" || view.Conditions[0].Message != "it expired" {
		t.Errorf("got %+v", view)
	}
	if owner := metav1.GetControllerOf(out.(*unstructured.Unstructured)); owner == nil || owner.UID != "u" {
		t.Errorf("its controller is %v", owner)
	}
}
