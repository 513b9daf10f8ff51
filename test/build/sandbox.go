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

package build

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

const sandboxGroup = "agents.x-k8s.io"

// SandboxWrapper builds a Sandbox of agents.x-k8s.io. It is unstructured, since
// members serve different versions of it.
type SandboxWrapper struct{ sandbox unstructured.Unstructured }

// MakeSandbox starts a v1alpha1 Sandbox in DefaultNamespace.
func MakeSandbox(name string) *SandboxWrapper {
	w := &SandboxWrapper{unstructured.Unstructured{Object: map[string]any{}}}
	w.sandbox.SetName(name)
	return w.Version("v1alpha1").Namespace(DefaultNamespace)
}

// Obj returns a copy of the Sandbox as built so far.
func (w *SandboxWrapper) Obj() *unstructured.Unstructured { return w.sandbox.DeepCopy() }

// Version sets the API version: v1alpha1 or v1beta1.
func (w *SandboxWrapper) Version(version string) *SandboxWrapper {
	w.sandbox.SetGroupVersionKind(schema.GroupVersionKind{Group: sandboxGroup, Version: version, Kind: "Sandbox"})
	return w
}

// Namespace sets the namespace.
func (w *SandboxWrapper) Namespace(namespace string) *SandboxWrapper {
	w.sandbox.SetNamespace(namespace)
	return w
}

// UID sets the UID, which the API server would otherwise choose.
func (w *SandboxWrapper) UID(uid types.UID) *SandboxWrapper {
	w.sandbox.SetUID(uid)
	return w
}

// ForRun puts the Sandbox into the run's namespace and makes the run, which must
// be stored or have a UID, its controller.
func (w *SandboxWrapper) ForRun(run *agentv1alpha1.AgentRun) *SandboxWrapper {
	owner := *metav1.NewControllerRef(run, agentv1alpha1.GroupVersion.WithKind("AgentRun"))
	w.sandbox.SetOwnerReferences([]metav1.OwnerReference{owner})
	return w.Namespace(run.Namespace)
}

// PodTemplate takes the labels and spec of the Sandbox's pod from a pod.
func (w *SandboxWrapper) PodTemplate(pod *corev1.Pod) *SandboxWrapper {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
	if err != nil {
		panic(fmt.Sprintf("pod %s cannot be a template: %v", pod.Name, err))
	}
	template := map[string]any{"spec": spec}
	if len(pod.Labels) > 0 {
		labels := map[string]any{}
		for key, value := range pod.Labels {
			labels[key] = value
		}
		template["metadata"] = map[string]any{"labels": labels}
	}
	return w.set(template, "spec", "podTemplate")
}

// Condition adds a condition to the status.
func (w *SandboxWrapper) Condition(c metav1.Condition) *SandboxWrapper {
	condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
	if err != nil {
		panic(fmt.Sprintf("condition %s cannot be converted: %v", c.Type, err))
	}
	conditions, _, _ := unstructured.NestedSlice(w.sandbox.Object, "status", "conditions")
	return w.set(append(conditions, condition), "status", "conditions")
}

// Finished adds the condition by which a Sandbox says that its pod has ended,
// with reason PodSucceeded, PodFailed or SandboxExpired.
func (w *SandboxWrapper) Finished(reason, message string) *SandboxWrapper {
	return w.Condition(metav1.Condition{
		Type:    "Finished",
		Status:  metav1.ConditionTrue,
		Reason:  reason,
		Message: message,
		// The CRD requires a time.
		LastTransitionTime: metav1.Unix(0, 0),
	})
}

func (w *SandboxWrapper) set(value any, path ...string) *SandboxWrapper {
	if err := unstructured.SetNestedField(w.sandbox.Object, value, path...); err != nil {
		panic(fmt.Sprintf("Sandbox %s: %v", w.sandbox.GetName(), err))
	}
	return w
}
