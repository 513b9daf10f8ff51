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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// PodWrapper builds a Pod. Methods that set a container's state find the
// container by its name, and panic when the pod has none of that name.
type PodWrapper struct{ pod corev1.Pod }

// MakePod starts a pending pod without containers in DefaultNamespace, with
// restartPolicy Never as the pods of sandboxes have.
func MakePod(name string) *PodWrapper {
	return &PodWrapper{corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: name},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}}
}

// Obj returns a copy of the pod as built so far.
func (w *PodWrapper) Obj() *corev1.Pod { return w.pod.DeepCopy() }

// Namespace sets the namespace.
func (w *PodWrapper) Namespace(namespace string) *PodWrapper {
	w.pod.Namespace = namespace
	return w
}

// UID sets the UID, which the API server would otherwise choose.
func (w *PodWrapper) UID(uid types.UID) *PodWrapper {
	w.pod.UID = uid
	return w
}

// Created sets the creation time, which the API server would otherwise choose.
func (w *PodWrapper) Created(t time.Time) *PodWrapper {
	w.pod.CreationTimestamp = metav1.NewTime(t)
	return w
}

// Label sets a label.
func (w *PodWrapper) Label(key, value string) *PodWrapper {
	metav1.SetMetaDataLabel(&w.pod.ObjectMeta, key, value)
	return w
}

// ForRun puts the pod into the run's namespace and labels it as the run's.
func (w *PodWrapper) ForRun(run *agentv1alpha1.AgentRun) *PodWrapper {
	return w.Namespace(run.Namespace).Label(agentv1alpha1.AgentRunLabel, run.Name)
}

// OwnedBy makes the Sandbox, which must be stored or have a UID, the pod's
// controller.
func (w *PodWrapper) OwnedBy(sandbox *unstructured.Unstructured) *PodWrapper {
	w.pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(sandbox, sandbox.GroupVersionKind())}
	return w.Namespace(sandbox.GetNamespace())
}

// Container adds a container.
func (w *PodWrapper) Container(name, image string) *PodWrapper {
	w.pod.Spec.Containers = append(w.pod.Spec.Containers, corev1.Container{Name: name, Image: image})
	return w
}

// InitContainer adds an init container.
func (w *PodWrapper) InitContainer(name, image string) *PodWrapper {
	w.pod.Spec.InitContainers = append(w.pod.Spec.InitContainers, corev1.Container{Name: name, Image: image})
	return w
}

// Sidecar adds a native sidecar: an init container that is always restarted.
func (w *PodWrapper) Sidecar(name, image string) *PodWrapper {
	always := corev1.ContainerRestartPolicyAlways
	w.pod.Spec.InitContainers = append(w.pod.Spec.InitContainers, corev1.Container{Name: name, Image: image, RestartPolicy: &always})
	return w
}

// ImageVolume adds a volume that is an image.
func (w *PodWrapper) ImageVolume(name, image string) *PodWrapper {
	w.pod.Spec.Volumes = append(w.pod.Spec.Volumes, corev1.Volume{
		Name:         name,
		VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image}},
	})
	return w
}

// CPU has the first container request so much of it, such as "1000" to fit on no
// node.
func (w *PodWrapper) CPU(quantity string) *PodWrapper {
	w.pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: quantityOf(quantity)}
	return w
}

// SchedulingGate adds a gate that keeps the scheduler off the pod.
func (w *PodWrapper) SchedulingGate(name string) *PodWrapper {
	w.pod.Spec.SchedulingGates = append(w.pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
	return w
}

// Node puts the pod on a node.
func (w *PodWrapper) Node(name string) *PodWrapper {
	w.pod.Spec.NodeName = name
	return w
}

// Deleting marks the pod as being deleted since then.
func (w *PodWrapper) Deleting(t time.Time) *PodWrapper {
	w.pod.DeletionTimestamp = &metav1.Time{Time: t}
	return w
}
