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

package startup

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// MaxText bounds what is taken over of kubelet's, the scheduler's and other
// controllers' messages, in characters.
const MaxText = 1024

// Detail says in one line what a run that is not running waits on. It is the same
// whether or not a deadline is set, and the deadline's message ends with it.
func Detail(in Input) string {
	switch {
	case in.Pod == nil:
		return noPodDetail(in)
	case in.Pod.DeletionTimestamp != nil:
		return "the pod is being deleted"
	case gated(in.Pod):
		return "scheduling gated" + textOf(podCondition(in.Pod, corev1.PodScheduled).Message)
	case in.Pod.Spec.NodeName == "":
		return unscheduledDetail(in.Pod)
	}
	if detail := waitingDetail(in.Pod); detail != "" {
		return detail
	}
	return fmt.Sprintf("waiting for kubelet on node %q", in.Pod.Spec.NodeName)
}

func noPodDetail(in Input) string {
	if in.Sandbox == nil {
		// The member's controller says on Ready what keeps it from making one.
		if c := meta.FindStatusCondition(in.Run.Status.Conditions, agentv1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
			return "sandbox not created (" + conditionReason(c.Reason) + textOf(c.Message) + ")"
		}
		return "sandbox not created"
	}
	text := fmt.Sprintf("sandbox %q has no pod", in.Sandbox.Name)
	if c := condition(in.Sandbox, sandboxReady); c != nil && c.Status == metav1.ConditionFalse {
		text += textOf(c.Message)
	}
	return text
}

// goneDetail says what became of the pod of a run that has started.
func goneDetail(in Input) string {
	if in.Pod == nil && in.Sandbox == nil {
		return "started; neither its pod nor its Sandbox is in view"
	}
	return "started, but no pod of it is running: " + Detail(in)
}

func unscheduledDetail(pod *corev1.Pod) string {
	c := podCondition(pod, corev1.PodScheduled)
	if c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		return "unschedulable" + textOf(c.Message)
	}
	return "waiting for the scheduler"
}

// waitingDetail describes a container that is not up, or nothing when all are: first
// one whose reason tells something, then one that ended, then one that is being made.
func waitingDetail(pod *corev1.Pod) string {
	for _, describe := range []func(container) string{holdUp, endDetail, creationDetail} {
		for _, c := range containersOf(pod) {
			if text := describe(c); text != "" {
				return text
			}
		}
	}
	return ""
}

// holdUp describes a container that says itself what the pod waits on.
func holdUp(c container) string {
	state := c.status.State
	switch {
	case state.Waiting != nil && !inCreation(state.Waiting.Reason):
		return c.describe() + " waits: " + state.Waiting.Reason + textOf(state.Waiting.Message)
	case state.Running != nil && c.init && !c.sidecar:
		return c.title() + " is running"
	case state.Running != nil && c.sidecar && c.status.Started != nil && !*c.status.Started:
		return c.title() + " has not passed its startup probe"
	default:
		return ""
	}
}

// endDetail describes a container that ended with an error, in a pod that has not.
func endDetail(c container) string {
	t := c.status.State.Terminated
	if t == nil || t.ExitCode == 0 {
		return ""
	}
	return c.describe() + exitText(t) + " (" + orDefault(t.Reason, "Error") + ")"
}

// creationDetail tells volumes and the pod's sandbox from a pull: kubelet sets
// PodReadyToStartContainers (on by default since Kubernetes 1.29) when the former
// are ready; the words for them are only in Events.
func creationDetail(c container) string {
	w := c.status.State.Waiting
	if w == nil {
		return ""
	}
	ready := podCondition(c.pod, corev1.PodReadyToStartContainers)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		return fmt.Sprintf("volumes not mounted or network not ready on node %q (%s)", c.pod.Spec.NodeName, w.Reason)
	}
	return "image pulling: " + c.describe()
}

func inCreation(reason string) bool {
	return reason == reasonContainerCreating || reason == reasonPodInitializing || reason == ""
}

// pendingReason is kubelet's or the scheduler's word for what a pending run waits on.
func pendingReason(in Input) string {
	for _, c := range containersOf(in.Pod) {
		if w := c.status.State.Waiting; w != nil && w.Reason != "" && w.Reason != reasonPodInitializing {
			return conditionReason(w.Reason)
		}
	}
	if c := podCondition(in.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason != "" {
		return conditionReason(c.Reason)
	}
	return ReasonPending
}

func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	if pod == nil {
		return nil
	}
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == conditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// textOf is ": message", or nothing when there is no message.
func textOf(message string) string {
	if message = clean(message); message == "" {
		return ""
	}
	return ": " + message
}

// clean makes foreign text fit for a status.
func clean(s string) string { return text.Shorten(s, MaxText) }

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
