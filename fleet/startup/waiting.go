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
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// pullThrottled is what kubelet says when it holds back a pull to keep its own rate
// (registryPullQPS, 5/s with burst 10 by default). Source: pkg/kubelet/images/helpers.go,
// throttledImageService.PullImage; recordings sq10-qps-*.
const pullThrottled = "pull QPS exceeded"

// waitingOnFatalReason: a container waits on a reason that will not go away by
// itself. It is looked for before the pod's phase, since a container can wait in
// CrashLoopBackOff in a pod that is Running. What a pod on its way out waits on says
// nothing of whether it would have started.
func waitingOnFatalReason(in Input) (verdict, bool) {
	if in.Pod == nil || in.Pod.DeletionTimestamp != nil {
		return verdict{}, false
	}
	var graces []verdict
	for _, c := range containersOf(in.Pod) {
		v, ok := judgeWaiting(in, c)
		if !ok {
			continue
		}
		if v.phase == agentv1alpha1.AgentRunFailed {
			return v, true
		}
		graces = append(graces, v)
	}
	if len(graces) == 0 {
		return verdict{}, false
	}
	return inGrace(in, oneClock(in, graces))
}

// oneClock picks the grace clock to keep, since a run has room for one: that which runs
// already, though its container is up for a moment, else the first in pod order. When
// it is over the next one starts.
func oneClock(in Input, graces []verdict) verdict {
	old := meta.FindStatusCondition(in.Run.Status.Conditions, agentv1alpha1.ConditionBackingOff)
	if old == nil || old.Status != metav1.ConditionTrue || graceOver(in, old) {
		return graces[0]
	}
	for _, v := range graces {
		if v.backingOff.Message == old.Message {
			return v
		}
	}
	return verdict{backingOff: old.DeepCopy()}
}

// judgeWaiting says whether container c waits on a fatal reason: Failed when it is
// settled, else the grace clock that runs.
func judgeWaiting(in Input, c container) (verdict, bool) {
	w := c.status.State.Waiting
	if w == nil || (c.sidecar && regularStarted(in.Pod)) || strings.Contains(w.Message, pullThrottled) {
		return verdict{}, false
	}
	class := classOf(w.Reason)
	grace, fatal := in.Policy.Fatal[class]
	if !fatal || (grace == 0 && w.Reason != class) {
		return verdict{}, false
	}
	failed := verdict{
		phase:   agentv1alpha1.AgentRunFailed,
		reason:  class,
		message: c.describe() + textOf(w.Message),
	}
	if grace == 0 {
		return failed, true
	}
	clock := graceClock(in, c, w.Reason)
	left := clock.LastTransitionTime.Add(grace).Sub(in.Now)
	if left <= 0 && clock.Reason == class {
		return failed, true
	}
	return verdict{backingOff: &clock, requeueAfter: max(left, 0)}, true
}

// classOf maps a waiting reason to the one it shares a grace clock with. A failing
// pull alternates between ErrImagePull and ImagePullBackOff for ever, and the first
// alone is never fatal: it is what kubelet says before it has retried.
func classOf(reason string) string {
	if reason == ReasonErrImagePull {
		return ReasonImagePullBackOff
	}
	return reason
}

// graceClock returns the BackingOff condition for container c: the run's own when it
// already times this container, else one that starts now. Its reason becomes the
// class once kubelet has reported it.
func graceClock(in Input, c container, reason string) metav1.Condition {
	subject := c.subject()
	clock := metav1.Condition{
		Type:               agentv1alpha1.ConditionBackingOff,
		Status:             metav1.ConditionTrue,
		Reason:             reason,
		Message:            subject,
		LastTransitionTime: metav1.NewTime(in.Now.Truncate(time.Second)),
		ObservedGeneration: in.Run.Generation,
	}
	old := meta.FindStatusCondition(in.Run.Status.Conditions, agentv1alpha1.ConditionBackingOff)
	if old == nil || old.Status != metav1.ConditionTrue || old.Message != subject || classOf(old.Reason) != classOf(reason) {
		return clock
	}
	if classOf(reason) == ReasonCrashLoopBackOff && recoveredSince(in, c, old.LastTransitionTime.Time) {
		return clock
	}
	clock.LastTransitionTime = old.LastTransitionTime
	if old.Reason == classOf(reason) {
		clock.Reason = old.Reason
	}
	return clock
}

// subject names what a grace clock times: a container of one pod.
func (c container) subject() string {
	return fmt.Sprintf("%s of pod %s (UID %s)", c.title(), c.pod.Name, c.pod.UID)
}

// graceOver says whether what the clock times has recovered. A pull has when its
// container has run. A crash loop shows its container running at each attempt, so it
// has only when the container ran for as long as the grace. A container that is said
// to be created again has not: kubelet shows that for a while after its own restart.
func graceOver(in Input, clock *metav1.Condition) bool {
	for _, c := range containersOf(in.Pod) {
		if c.subject() != clock.Message {
			continue
		}
		state := c.status.State
		class := classOf(clock.Reason)
		switch {
		case state.Waiting != nil && !inCreation(state.Waiting.Reason) && classOf(state.Waiting.Reason) != class:
			return true // it waits on something else by now
		case class == ReasonCrashLoopBackOff:
			return recoveredSince(in, c, clock.LastTransitionTime.Time)
		default:
			return state.Waiting == nil
		}
	}
	return in.Pod != nil
}

// recoveredSince says whether the container has run for as long as the grace of a
// crash loop in one go, in its present run or in its last, since the given time.
func recoveredSince(in Input, c container, since time.Time) bool {
	var from, to time.Time
	last := c.status.State.Terminated
	if last == nil {
		last = c.status.LastTerminationState.Terminated
	}
	switch {
	case c.status.State.Running != nil:
		from, to = c.status.State.Running.StartedAt.Time, in.Now
	case last != nil:
		from, to = last.StartedAt.Time, last.FinishedAt.Time
	}
	return to.After(since) && to.Sub(from) >= in.Policy.Fatal[ReasonCrashLoopBackOff]
}

// inGrace is Pending (Running, when the pod is) with a grace clock, unless the
// startup deadline comes first.
func inGrace(in Input, grace verdict) (verdict, bool) {
	base, ok := running(in)
	if !ok {
		if base, ok = startupDeadlineExceeded(in); ok {
			return base, true
		}
		base, _ = pending(in)
	}
	base.backingOff = grace.backingOff
	base.requeueAfter = Sooner(base.requeueAfter, grace.requeueAfter)
	return base, true
}

// Sooner returns the smaller of two delays, where 0 means never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
