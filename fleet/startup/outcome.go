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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// Conditions and reasons of a Sandbox. Source: agent-sandbox v0.4.6, api/v1alpha1;
// v1beta1 keeps them.
const (
	sandboxReady         = "Ready"
	sandboxFinished      = "Finished"
	sandboxPodSucceeded  = "PodSucceeded"
	sandboxReasonExpired = "SandboxExpired"
)

// podLag is how long the end of a pod may take to be seen after its Sandbox's. They are
// two watches of one server.
const podLag = 5 * time.Second

// finished: the pod or the Sandbox has ended, and no clock that has run out
// meanwhile changes how.
func finished(in Input) (verdict, bool) {
	if podEnded(in.Pod) {
		return podOutcome(in), true
	}
	return sandboxOutcome(in)
}

func podEnded(pod *corev1.Pod) bool {
	return pod != nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// podOutcome is how the pod ended. A pod that was made to end is not the agent's
// own success, though an agent that exits 0 on SIGTERM makes it say Succeeded.
func podOutcome(in Input) verdict {
	pod := in.Pod
	v := verdict{start: ranFrom(pod), end: endedAt(pod, in.Now)}
	if reason, message, ok := disruption(in); ok {
		v.phase, v.reason, v.message = agentv1alpha1.AgentRunFailed, reason, message
		return v
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		v.phase, v.reason, v.message = agentv1alpha1.AgentRunSucceeded, ReasonCompleted, "the pod succeeded"
		if v.start == nil {
			v.start = v.end
		}
		return v
	}
	v.phase = agentv1alpha1.AgentRunFailed
	v.reason, v.message = failureOf(in)
	return v
}

// failureOf is why a Failed pod failed. The pod's own reason is set by kubelet when
// it ended the pod as a whole (DeadlineExceeded, Evicted, OutOfcpu, NodeAffinity);
// how a container then took its SIGTERM is the consequence and comes second.
func failureOf(in Input) (reason, message string) {
	pod := in.Pod
	failed := firstFailed(pod)
	switch {
	case pod.Status.Reason != "":
		return pod.Status.Reason, clean(orDefault(pod.Status.Message, "the pod failed"))
	case failed != nil:
		t := failed.status.State.Terminated
		return orDefault(t.Reason, "Error"), failed.describe() + exitText(t)
	default:
		if c := condition(in.Sandbox, sandboxFinished); c != nil && c.Reason != "" {
			return c.Reason, clean(orDefault(c.Message, "the sandbox failed"))
		}
		return "Error", "the pod failed; nothing on it says why"
	}
}

func exitText(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf(" ended with exit code %d", t.ExitCode)
	if t.Signal != 0 {
		text += fmt.Sprintf(" (signal %d)", t.Signal)
	}
	if t.Message != "" {
		text += ": " + clean(t.Message)
	}
	return text
}

// firstFailed returns the first container that ended with an error, init containers
// first. A native sidecar is stopped after the others and speaks only when no other
// container failed.
func firstFailed(pod *corev1.Pod) *container {
	var sidecar *container
	for _, c := range containersOf(pod) {
		t := c.status.State.Terminated
		if t == nil || t.ExitCode == 0 {
			continue
		}
		if !c.sidecar {
			return &c
		}
		if sidecar == nil {
			sidecar = &c
		}
	}
	return sidecar
}

// disruption says by whom the pod was ended from outside, if it was: the
// DisruptionTarget condition (preemption, eviction, taint manager, pod GC), or a
// deletion that came before its containers ended.
func disruption(in Input) (reason, message string, ok bool) {
	pod := in.Pod
	if c := podCondition(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue && !endedBefore(pod, c.LastTransitionTime.Time) {
		return orDefault(pod.Status.Reason, c.Reason), clean(orDefault(pod.Status.Message, orDefault(c.Message, "the pod was disrupted"))), true
	}
	if pod.DeletionTimestamp == nil || endedBefore(pod, deletionRequested(pod)) {
		return "", "", false
	}
	if c := condition(in.Sandbox, sandboxReady); c != nil && c.Reason == sandboxReasonExpired {
		return c.Reason, clean(orDefault(c.Message, "the sandbox expired")), true
	}
	return orDefault(pod.Status.Reason, ReasonDeleted), clean(orDefault(pod.Status.Message, "the pod was deleted before its containers ended")), true
}

// deletionRequested is when somebody asked for the deletion; deletionTimestamp is
// that plus the grace period, and stays so when the grace period is shortened.
func deletionRequested(pod *corev1.Pod) time.Time {
	var grace int64
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

// endedBefore says whether every regular container had ended by itself before t.
// Times on the wire are whole seconds; within the same second the disruption is
// taken to be the cause.
func endedBefore(pod *corev1.Pod, t time.Time) bool {
	if len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	for i := range pod.Status.ContainerStatuses {
		term := pod.Status.ContainerStatuses[i].State.Terminated
		if term == nil || term.FinishedAt.IsZero() || !term.FinishedAt.Time.Before(t.Truncate(time.Second)) {
			return false
		}
	}
	return true
}

// sandboxOutcome is how the Sandbox says its pod ended, for when the pod is gone. The
// Sandbox may be seen before its pod, which tells more, so a pod in view is given a
// moment to be seen as it ended.
func sandboxOutcome(in Input) (verdict, bool) {
	if c := condition(in.Sandbox, sandboxFinished); c != nil && c.Status == metav1.ConditionTrue {
		if wait := c.LastTransitionTime.Add(podLag).Sub(in.Now); in.Pod != nil && wait > 0 {
			return verdict{keep: true, requeueAfter: wait}, true
		}
		v := verdict{
			phase:   agentv1alpha1.AgentRunFailed,
			reason:  c.Reason,
			message: clean(orDefault(c.Message, "the sandbox finished")),
			start:   ranFrom(in.Pod),
			end:     notAfter(c.LastTransitionTime, in.Now),
		}
		if reason, message, ok := disruptionOf(in); ok {
			v.reason, v.message = reason, message
		} else if c.Reason == sandboxPodSucceeded {
			v.phase = agentv1alpha1.AgentRunSucceeded
		}
		return v, true
	}
	if c := condition(in.Sandbox, sandboxReady); c != nil && c.Reason == sandboxReasonExpired && in.Pod == nil {
		return verdict{
			phase:   agentv1alpha1.AgentRunFailed,
			reason:  c.Reason,
			message: clean(orDefault(c.Message, "the sandbox expired")),
			end:     notAfter(c.LastTransitionTime, in.Now),
		}, true
	}
	return verdict{}, false
}

// disruptionOf is disruption for a pod that may be gone.
func disruptionOf(in Input) (reason, message string, ok bool) {
	if in.Pod == nil {
		return "", "", false
	}
	return disruption(in)
}

// notAfter is t, or now when t lies ahead.
func notAfter(t metav1.Time, now time.Time) *metav1.Time {
	if t.After(now) {
		t = metav1.NewTime(now.Truncate(time.Second))
	}
	return &t
}

func condition(s *Sandbox, conditionType string) *metav1.Condition {
	if s == nil {
		return nil
	}
	return meta.FindStatusCondition(s.Conditions, conditionType)
}
