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
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// decision turns a verdict into the status that says it.
func decision(in Input, v verdict) Decision {
	d := Decision{RequeueAfter: v.requeueAfter, StopSandbox: v.stopSandbox}
	status := in.Run.Status.DeepCopy()
	switch {
	case v.keep:
	case v.conditionOnly:
		setSucceeded(in, v, status)
	default:
		applyVerdict(in, v, status)
	}
	if v.phase == agentv1alpha1.AgentRunFailed && !v.conditionOnly {
		d.Failure = &Failure{Reason: conditionReason(v.reason), Message: messageOf(v)}
		d.StopSandbox = atWork(in)
	}
	d.Status = *status
	return d
}

func applyVerdict(in Input, v verdict, status *agentv1alpha1.AgentRunStatus) {
	status.Phase = v.phase
	status.ObservedGeneration = in.Run.Generation
	if status.StartTime == nil {
		status.StartTime = v.start
	}
	setSucceeded(in, v, status)
	setQueued(in, status)
	setBackingOff(in, v, status)
	if finalPhase(v.phase) {
		complete(in, v, status)
	}
}

func setSucceeded(in Input, v verdict, status *agentv1alpha1.AgentRunStatus) {
	value := metav1.ConditionUnknown
	switch v.phase {
	case agentv1alpha1.AgentRunSucceeded:
		value = metav1.ConditionTrue
	case agentv1alpha1.AgentRunFailed:
		value = metav1.ConditionFalse
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               agentv1alpha1.ConditionSucceeded,
		Status:             value,
		Reason:             conditionReason(v.reason),
		Message:            messageOf(v),
		ObservedGeneration: in.Run.Generation,
		LastTransitionTime: metav1.NewTime(in.Now.Truncate(time.Second)),
	})
}

// setQueued remembers when scheduling gates released the pod.
func setQueued(in Input, status *agentv1alpha1.AgentRunStatus) {
	old := meta.FindStatusCondition(status.Conditions, agentv1alpha1.ConditionQueued)
	c := metav1.Condition{
		Type:               agentv1alpha1.ConditionQueued,
		ObservedGeneration: in.Run.Generation,
	}
	switch {
	case gated(in.Pod):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, corev1.PodReasonSchedulingGated, "the pod is held by scheduling gates"
		c.LastTransitionTime = metav1.NewTime(in.Now.Truncate(time.Second))
	case old != nil && old.Status == metav1.ConditionTrue:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Released", "no scheduling gates hold the run's pod"
		c.LastTransitionTime = metav1.NewTime(releasedAt(in, old).Truncate(time.Second))
	default:
		return
	}
	meta.SetStatusCondition(&status.Conditions, c)
}

// setBackingOff keeps the grace clock while it runs.
func setBackingOff(in Input, v verdict, status *agentv1alpha1.AgentRunStatus) {
	old := meta.FindStatusCondition(status.Conditions, agentv1alpha1.ConditionBackingOff)
	switch {
	case v.backingOff != nil:
		meta.RemoveStatusCondition(&status.Conditions, agentv1alpha1.ConditionBackingOff)
		status.Conditions = append(status.Conditions, *v.backingOff)
	case old != nil && old.Status == metav1.ConditionTrue && (finalPhase(v.phase) || graceOver(in, old)):
		stopped := *old
		stopped.Status, stopped.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(in.Now.Truncate(time.Second))
		meta.SetStatusCondition(&status.Conditions, stopped)
	}
}

func finalPhase(phase agentv1alpha1.AgentRunPhase) bool {
	return phase == agentv1alpha1.AgentRunSucceeded || phase == agentv1alpha1.AgentRunFailed
}

// complete stamps the end. Times on the wire are whole seconds.
func complete(in Input, v verdict, status *agentv1alpha1.AgentRunStatus) {
	end := metav1.NewTime(in.Now.Truncate(time.Second))
	if v.end != nil {
		end = metav1.NewTime(v.end.Truncate(time.Second))
	}
	start := in.Run.CreationTimestamp
	if status.StartTime != nil {
		start = *status.StartTime
	}
	seconds := max(0, int64(end.Sub(start.Time).Seconds()))
	status.CompletionTime, status.Duration = &end, &seconds
}

// ranFrom returns when the pod's first regular container began, or nil.
func ranFrom(pod *corev1.Pod) *metav1.Time {
	var first *metav1.Time
	for _, c := range containersOf(pod) {
		if c.init {
			continue
		}
		for _, t := range beginnings(c.status) {
			// Kubelet writes the epoch for a container that never began (StartError).
			if t.Unix() > 0 && (first == nil || t.Before(first)) {
				first = t.DeepCopy()
			}
		}
	}
	return first
}

func beginnings(s *corev1.ContainerStatus) []*metav1.Time {
	var times []*metav1.Time
	if s.State.Running != nil {
		times = append(times, &s.State.Running.StartedAt)
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil {
			times = append(times, &t.StartedAt)
		}
	}
	return times
}

// startedAt is ranFrom for a pod that is Running; now, when kubelet gives no time.
func startedAt(pod *corev1.Pod, now time.Time) *metav1.Time {
	if t := ranFrom(pod); t != nil {
		return t
	}
	t := metav1.NewTime(now.Truncate(time.Second))
	return &t
}

// endedAt returns when the pod's last container ended; now, when kubelet gives no
// time for one of them.
func endedAt(pod *corev1.Pod, now time.Time) *metav1.Time {
	var last metav1.Time
	for _, c := range containersOf(pod) {
		if t := c.status.State.Terminated; t != nil && last.Before(&t.FinishedAt) {
			last = t.FinishedAt
		}
	}
	if last.IsZero() {
		last = metav1.NewTime(now.Truncate(time.Second))
	}
	return notAfter(last, now)
}

func succeededCondition(run *agentv1alpha1.AgentRun) *metav1.Condition {
	return meta.FindStatusCondition(run.Status.Conditions, agentv1alpha1.ConditionSucceeded)
}

// maxReason is how long an Event's reason may be; a condition's may be longer.
const maxReason = 128

var conditionReasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// messageOf is the verdict's message; a reason that may not stand in a condition is
// kept in it, verbatim.
func messageOf(v verdict) string {
	if conditionReason(v.reason) == v.reason {
		return v.message
	}
	return fmt.Sprintf("reason %q: %s", clean(v.reason), v.message)
}

// conditionReason returns reason as it may stand in a condition. Kubelet's reasons
// always may; a container runtime's are foreign input.
func conditionReason(reason string) string {
	if reason == "" || len(reason) > maxReason || !conditionReasonPattern.MatchString(reason) {
		return "Other"
	}
	return reason
}
