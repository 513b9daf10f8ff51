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
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase sets the pod's phase.
func (w *PodWrapper) Phase(phase corev1.PodPhase) *PodWrapper {
	w.pod.Status.Phase = phase
	return w
}

// Waiting has a container wait for a reason.
func (w *PodWrapper) Waiting(container, reason, message string) *PodWrapper {
	return w.state(container, corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
	})
}

// Running has a container run. The pod's phase is left alone.
func (w *PodWrapper) Running(container string) *PodWrapper {
	return w.state(container, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

// Terminated has a container ended. The pod's phase is left alone.
func (w *PodWrapper) Terminated(container, reason string, exitCode int32) *PodWrapper {
	return w.state(container, corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: exitCode},
	})
}

// TerminatedMessage is Terminated with the message that the container left.
func (w *PodWrapper) TerminatedMessage(container, reason, message string, exitCode int32) *PodWrapper {
	return w.state(container, corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: message, ExitCode: exitCode},
	})
}

// FinishedAt sets when a container ended that is Terminated.
func (w *PodWrapper) FinishedAt(container string, t time.Time) *PodWrapper {
	w.status(container).State.Terminated.FinishedAt = metav1.NewTime(t)
	return w
}

// Restarts sets how often a container that has a state was started again.
func (w *PodWrapper) Restarts(container string, count int32) *PodWrapper {
	w.status(container).RestartCount = count
	return w
}

// Scheduled says that the scheduler has found a node.
func (w *PodWrapper) Scheduled() *PodWrapper {
	return w.Condition(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
}

// Unschedulable says that the scheduler finds no node, in its words.
func (w *PodWrapper) Unschedulable(message string) *PodWrapper {
	return w.Condition(corev1.PodCondition{
		Type:    corev1.PodScheduled,
		Status:  corev1.ConditionFalse,
		Reason:  corev1.PodReasonUnschedulable,
		Message: message,
	})
}

// SchedulingGated says, as the API server does, that a gate holds the pod.
func (w *PodWrapper) SchedulingGated() *PodWrapper {
	return w.Condition(corev1.PodCondition{
		Type:    corev1.PodScheduled,
		Status:  corev1.ConditionFalse,
		Reason:  corev1.PodReasonSchedulingGated,
		Message: "Scheduling is blocked due to non-empty scheduling gates",
	})
}

// Disrupted says that the pod is ended for another cause than its own, such as
// EvictionByEvictionAPI or PreemptionByScheduler.
func (w *PodWrapper) Disrupted(reason, message string) *PodWrapper {
	return w.Condition(corev1.PodCondition{
		Type:    corev1.DisruptionTarget,
		Status:  corev1.ConditionTrue,
		Reason:  reason,
		Message: message,
	})
}

// PodFailed makes the pod Failed with a reason of its own, such as Evicted. The
// reason is empty when a container's is to be found.
func (w *PodWrapper) PodFailed(reason, message string) *PodWrapper {
	w.pod.Status.Reason, w.pod.Status.Message = reason, message
	return w.Phase(corev1.PodFailed)
}

// Condition sets a condition of the pod.
func (w *PodWrapper) Condition(c corev1.PodCondition) *PodWrapper {
	same := func(other corev1.PodCondition) bool { return other.Type == c.Type }
	w.pod.Status.Conditions = append(slices.DeleteFunc(w.pod.Status.Conditions, same), c)
	return w
}

func (w *PodWrapper) state(container string, state corev1.ContainerState) *PodWrapper {
	status := w.status(container)
	started := state.Running != nil
	status.State, status.Ready, status.Started = state, started, &started
	return w
}

// status finds or adds a container's status.
func (w *PodWrapper) status(container string) *corev1.ContainerStatus {
	if image, ok := imageOf(w.pod.Spec.Containers, container); ok {
		return statusIn(&w.pod.Status.ContainerStatuses, container, image)
	}
	if image, ok := imageOf(w.pod.Spec.InitContainers, container); ok {
		return statusIn(&w.pod.Status.InitContainerStatuses, container, image)
	}
	panic(fmt.Sprintf("pod %s has no container %q", w.pod.Name, container))
}

func imageOf(containers []corev1.Container, name string) (string, bool) {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return "", false
	}
	return containers[i].Image, true
}

func statusIn(statuses *[]corev1.ContainerStatus, name, image string) *corev1.ContainerStatus {
	i := slices.IndexFunc(*statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		i = len(*statuses)
		*statuses = append(*statuses, corev1.ContainerStatus{Name: name, Image: image})
	}
	return &(*statuses)[i]
}

func quantityOf(s string) resource.Quantity { return resource.MustParse(s) }
