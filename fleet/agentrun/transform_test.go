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

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
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
