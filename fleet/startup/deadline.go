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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// deadlineOf returns how long startup may take: the run's own wish before the
// policy's; 0 means for ever in both.
func deadlineOf(in Input) time.Duration {
	if s := in.Run.Spec.StartupDeadlineSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return in.Policy.Deadline
}

// startupTimeLeft returns how much of the startup deadline is left; it is negative
// once the deadline has passed. ok is false when no clock runs: there is no
// deadline, or the pod is held by scheduling gates.
func startupTimeLeft(in Input) (left time.Duration, ok bool) {
	deadline := deadlineOf(in)
	if deadline <= 0 || gated(in.Pod) {
		return 0, false
	}
	return startupBegan(in).Add(deadline).Sub(in.Now), true
}

// gated says whether the pod waits behind scheduling gates. Such a pod is queued,
// not stuck. Source: PodScheduled=False, reason SchedulingGated, since Kubernetes 1.30.
func gated(pod *corev1.Pod) bool {
	c := podCondition(pod, corev1.PodScheduled)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonSchedulingGated
}

// startupBegan is when the startup clock started: when the run was created, or when
// scheduling gates last let a pod of it go. Nothing on a pod tells the latter, so the
// Queued condition remembers it.
func startupBegan(in Input) time.Time {
	queued := meta.FindStatusCondition(in.Run.Status.Conditions, agentv1alpha1.ConditionQueued)
	if queued == nil {
		return in.Run.CreationTimestamp.Time
	}
	return releasedAt(in, queued)
}

// releasedAt returns when the pod's gates were first seen gone; the scheduler's own
// stamp is used where it is earlier, for a manager that was away.
func releasedAt(in Input, queued *metav1.Condition) time.Time {
	if queued.Status == metav1.ConditionFalse {
		return queued.LastTransitionTime.Time
	}
	if c := podCondition(in.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue && c.LastTransitionTime.Time.Before(in.Now) {
		return c.LastTransitionTime.Time
	}
	return in.Now
}
