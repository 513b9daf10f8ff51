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
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// epoch is when the runs of these tests are created.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second))
}

func atPtr(seconds int) *metav1.Time { t := at(seconds); return &t }

// newRun makes a run created at epoch.
func newRun(edits ...func(*agentv1alpha1.AgentRun)) *agentv1alpha1.AgentRun {
	run := &agentv1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "ns", UID: "run-uid", CreationTimestamp: at(0), Generation: 1}}
	for _, edit := range edits {
		edit(run)
	}
	return run
}

func specDeadline(seconds int32) func(*agentv1alpha1.AgentRun) {
	return func(r *agentv1alpha1.AgentRun) { r.Spec.StartupDeadlineSeconds = new(seconds) }
}

func withStatus(s agentv1alpha1.AgentRunStatus) func(*agentv1alpha1.AgentRun) {
	return func(r *agentv1alpha1.AgentRun) { r.Status = s }
}

func withCondition(c metav1.Condition) func(*agentv1alpha1.AgentRun) {
	return func(r *agentv1alpha1.AgentRun) { r.Status.Conditions = append(r.Status.Conditions, c) }
}

// newPod makes a pending pod on a node with one container, made a second after the run.
func newPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "pod-uid", CreationTimestamp: at(1)},
		Spec: corev1.PodSpec{
			NodeName:      "node-a",
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "registry.example/agent:1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func unscheduled(pod *corev1.Pod) { pod.Spec.NodeName = "" }

func extraContainer(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "registry.example/" + name + ":1"})
	}
}

func initContainer(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, Image: "registry.example/" + name + ":1"})
	}
}

func proxySidecar(pod *corev1.Pod) {
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
		Name: "proxy", Image: "registry.example/proxy:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
	})
}

// state sets the state of a container; kubelet sorts statuses by name, so the order
// here is not the pod's.
func state(name string, s corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		status := corev1.ContainerStatus{Name: name, State: s}
		for _, c := range pod.Spec.InitContainers {
			if c.Name == name {
				pod.Status.InitContainerStatuses = append([]corev1.ContainerStatus{status}, pod.Status.InitContainerStatuses...)
				return
			}
		}
		pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{status}, pod.Status.ContainerStatuses...)
	}
}

func waits(name, reason, message string) func(*corev1.Pod) {
	return state(name, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func runs(name string, since int) func(*corev1.Pod) {
	return state(name, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(since)}})
}

func ended(name, reason string, code int32, from, to int) func(*corev1.Pod) {
	return state(name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: reason, ExitCode: code, StartedAt: at(from), FinishedAt: at(to),
	}})
}

func podCond(t corev1.PodConditionType, s corev1.ConditionStatus, reason, message string, since int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: t, Status: s, Reason: reason, Message: message, LastTransitionTime: at(since)})
	}
}

// deleted marks the pod as deleted at a second with the usual grace period.
func deleted(requested int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = atPtr(requested+30), ptr.To[int64](30)
	}
}

func podReason(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Reason, pod.Status.Message = reason, message }
}

func newSandbox(conditions ...metav1.Condition) *Sandbox {
	return &Sandbox{Name: "sb", Conditions: conditions}
}

func sandboxCond(t string, s metav1.ConditionStatus, reason, message string, since int) metav1.Condition {
	return metav1.Condition{Type: t, Status: s, Reason: reason, Message: message, LastTransitionTime: at(since)}
}

// outcome is the part of a decision that the tables below state.
type outcome struct {
	Phase        agentv1alpha1.AgentRunPhase
	Reason       string // of the Succeeded condition
	Message      string // of the Succeeded condition
	Start, End   *metav1.Time
	Duration     *int64
	RequeueAfter time.Duration
	Failed       bool
	StopSandbox  bool
}

func outcomeOf(d Decision) outcome {
	o := outcome{
		Phase: d.Status.Phase, Start: d.Status.StartTime, End: d.Status.CompletionTime, Duration: d.Status.Duration,
		RequeueAfter: d.RequeueAfter, Failed: d.Failure != nil, StopSandbox: d.StopSandbox,
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, agentv1alpha1.ConditionSucceeded); c != nil {
		o.Reason, o.Message = c.Reason, c.Message
	}
	return o
}

const (
	isPending   = agentv1alpha1.AgentRunPending
	isRunning   = agentv1alpha1.AgentRunRunning
	isSucceeded = agentv1alpha1.AgentRunSucceeded
	isFailed    = agentv1alpha1.AgentRunFailed
)

func TestDecide(t *testing.T) {
	backOff := `Back-off pulling image "registry.example/agent:1"`
	cases := map[string]struct {
		run     *agentv1alpha1.AgentRun
		pod     *corev1.Pod
		sandbox *Sandbox
		policy  *Policy // nil: the default
		now     int     // seconds after the run's creation
		want    outcome
	}{
		// Rule 2: outcomes.
		"a pod that succeeded is the run's success, with the pod's own times": {
			pod: newPod(phase(corev1.PodSucceeded), ended("main", "Completed", 0, 5, 65)), now: 70,
			want: outcome{Phase: isSucceeded, Reason: "Completed", Message: "the pod succeeded", Start: atPtr(5), End: atPtr(65), Duration: ptr.To[int64](60)},
		},
		"an outcome wins over a deadline that has run out in the same pass": {
			run: newRun(specDeadline(10)), pod: newPod(phase(corev1.PodSucceeded), ended("main", "Completed", 0, 5, 8)), now: 70,
			want: outcome{Phase: isSucceeded, Reason: "Completed", Message: "the pod succeeded", Start: atPtr(5), End: atPtr(8), Duration: ptr.To[int64](3)},
		},
		"a failed pod carries its container's reason verbatim": {
			pod: newPod(phase(corev1.PodFailed), ended("main", "OOMKilled", 137, 5, 6)), now: 7,
			want: outcome{Phase: isFailed, Reason: "OOMKilled", Failed: true, Start: atPtr(5), End: atPtr(6), Duration: ptr.To[int64](1),
				Message: `container "main", image "registry.example/agent:1" ended with exit code 137`},
		},
		"the first init container that failed is the reason, not a later one and not the main container": {
			pod: newPod(initContainer("a"), initContainer("b"), phase(corev1.PodFailed),
				ended("a", "Completed", 0, 1, 2), ended("b", "Error", 3, 2, 3), waits("main", "PodInitializing", "")), now: 7,
			want: outcome{Phase: isFailed, Reason: "Error", Failed: true, End: atPtr(3), Duration: ptr.To[int64](3),
				Message: `init container "b", image "registry.example/b:1" ended with exit code 3`},
		},
		"a sidecar stopped at the end is not the reason when the main container failed": {
			pod: newPod(proxySidecar, phase(corev1.PodFailed), ended("proxy", "Error", 143, 1, 9), ended("main", "Error", 2, 2, 8)), now: 10,
			want: outcome{Phase: isFailed, Reason: "Error", Failed: true, Start: atPtr(2), End: atPtr(9), Duration: ptr.To[int64](7),
				Message: `container "main", image "registry.example/agent:1" ended with exit code 2`},
		},
		"a sidecar that alone failed is the reason": {
			pod: newPod(proxySidecar, phase(corev1.PodFailed), ended("proxy", "Error", 1, 1, 9), ended("main", "Completed", 0, 2, 8)), now: 10,
			want: outcome{Phase: isFailed, Reason: "Error", Failed: true, Start: atPtr(2), End: atPtr(9), Duration: ptr.To[int64](7),
				Message: `sidecar init container "proxy", image "registry.example/proxy:1" ended with exit code 1`},
		},
		"the pod's own reason comes before how a container took its SIGTERM": {
			pod: newPod(phase(corev1.PodFailed), podReason("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"), ended("main", "Error", 1, 5, 25)), now: 26,
			want: outcome{Phase: isFailed, Reason: "DeadlineExceeded", Failed: true, Start: atPtr(5), End: atPtr(25), Duration: ptr.To[int64](20),
				Message: "Pod was active on the node longer than the specified deadline"},
		},
		"a pod that kubelet did not admit has its own reason and no containers": {
			pod: newPod(phase(corev1.PodFailed), podReason("OutOfcpu", "Node didn't have enough resource: cpu")), now: 2,
			want: outcome{Phase: isFailed, Reason: "OutOfcpu", Failed: true, End: atPtr(2), Duration: ptr.To[int64](2), Message: "Node didn't have enough resource: cpu"},
		},
		"a failed pod that says nothing falls back on the Sandbox": {
			pod: newPod(phase(corev1.PodFailed)), sandbox: newSandbox(sandboxCond("Finished", "True", "PodFailed", "Pod failed", 3)), now: 4,
			want: outcome{Phase: isFailed, Reason: "PodFailed", Failed: true, End: atPtr(4), Duration: ptr.To[int64](4), Message: "Pod failed"},
		},
		"a failed pod that says nothing and has no Sandbox is an Error": {
			pod: newPod(phase(corev1.PodFailed)), now: 4,
			want: outcome{Phase: isFailed, Reason: "Error", Failed: true, End: atPtr(4), Duration: ptr.To[int64](4), Message: "the pod failed; nothing on it says why"},
		},
		"a pod deleted while running is no success though it exits 0": {
			pod: newPod(phase(corev1.PodSucceeded), deleted(10), ended("main", "Completed", 0, 5, 10)), now: 11,
			want: outcome{Phase: isFailed, Reason: "Deleted", Failed: true, Start: atPtr(5), End: atPtr(10), Duration: ptr.To[int64](5),
				Message: "the pod was deleted before its containers ended"},
		},
		"a pod deleted after it had succeeded is a success": {
			pod: newPod(phase(corev1.PodSucceeded), deleted(20), ended("main", "Completed", 0, 5, 10)), now: 21,
			want: outcome{Phase: isSucceeded, Reason: "Completed", Message: "the pod succeeded", Start: atPtr(5), End: atPtr(10), Duration: ptr.To[int64](5)},
		},
		"a preempted pod that exits 0 is failed with the disruption's reason": {
			pod: newPod(phase(corev1.PodSucceeded), podCond(corev1.DisruptionTarget, "True", "PreemptionByScheduler", "preempting for a higher priority", 9), ended("main", "Completed", 0, 5, 10)), now: 11,
			want: outcome{Phase: isFailed, Reason: "PreemptionByScheduler", Failed: true, Start: atPtr(5), End: atPtr(10), Duration: ptr.To[int64](5), Message: "preempting for a higher priority"},
		},
		"an evicted pod says Evicted, kubelet's word on the pod": {
			pod: newPod(phase(corev1.PodFailed), podReason("Evicted", "The node was low on resource: memory."), podCond(corev1.DisruptionTarget, "True", "TerminationByKubelet", "", 9), ended("main", "Error", 137, 5, 10)), now: 11,
			want: outcome{Phase: isFailed, Reason: "Evicted", Failed: true, Start: atPtr(5), End: atPtr(10), Duration: ptr.To[int64](5), Message: "The node was low on resource: memory."},
		},
		"a pod that was refused and is deleted for it keeps kubelet's words": {
			pod: newPod(phase(corev1.PodFailed), podReason("OutOfcpu", "Node didn't have enough resource: cpu"), deleted(2)), now: 3,
			want: outcome{Phase: isFailed, Reason: "OutOfcpu", Failed: true, End: atPtr(3), Duration: ptr.To[int64](3), Message: "Node didn't have enough resource: cpu"},
		},
		"a pod lost with its node is failed by pod GC, its containers still said to run": {
			pod: newPod(phase(corev1.PodFailed), podCond(corev1.DisruptionTarget, "True", "DeletionByPodGC", "node not found", 50), runs("main", 5)), now: 51,
			want: outcome{Phase: isFailed, Reason: "DeletionByPodGC", Failed: true, Start: atPtr(5), End: atPtr(51), Duration: ptr.To[int64](46), Message: "node not found"},
		},
		"the pod is gone and the Sandbox says it succeeded": {
			sandbox: newSandbox(sandboxCond("Finished", "True", "PodSucceeded", "Pod completed successfully", 30)), now: 31,
			want: outcome{Phase: isSucceeded, Reason: "PodSucceeded", Message: "Pod completed successfully", End: atPtr(30), Duration: ptr.To[int64](30)},
		},
		"the Sandbox has finished and the pod's own end is about to be seen: it tells more": {
			pod:     newPod(phase(corev1.PodRunning), runs("main", 5)),
			sandbox: newSandbox(sandboxCond("Finished", "True", "PodFailed", "Pod failed", 30)), now: 31,
			want: outcome{RequeueAfter: 4 * time.Second},
		},
		"a pod that was deleted is no success, whatever its Sandbox says first": {
			pod:     newPod(phase(corev1.PodRunning), deleted(29), runs("main", 5)),
			sandbox: newSandbox(sandboxCond("Finished", "True", "PodSucceeded", "Pod completed successfully", 30)), now: 35,
			want: outcome{Phase: isFailed, Reason: "Deleted", Failed: true, Message: "the pod was deleted before its containers ended",
				Start: atPtr(5), End: atPtr(30), Duration: ptr.To[int64](25)},
		},
		"the Sandbox's clock may run ahead, an end does not": {
			sandbox: newSandbox(sandboxCond("Finished", "True", "PodSucceeded", "Pod completed successfully", 500)), now: 31,
			want: outcome{Phase: isSucceeded, Reason: "PodSucceeded", Message: "Pod completed successfully", End: atPtr(31), Duration: ptr.To[int64](31)},
		},
		"the Sandbox has finished and the pod's own end was never seen": {
			pod:     newPod(phase(corev1.PodRunning), runs("main", 5)),
			sandbox: newSandbox(sandboxCond("Finished", "True", "PodFailed", "Pod failed", 30)), now: 35,
			want: outcome{Phase: isFailed, Reason: "PodFailed", Failed: true, Message: "Pod failed", Start: atPtr(5), End: atPtr(30), Duration: ptr.To[int64](25)},
		},
		"the Sandbox expired and took its pod with it": {
			sandbox: newSandbox(sandboxCond("Ready", "False", "SandboxExpired", "Sandbox has expired", 30)), now: 31,
			want: outcome{Phase: isFailed, Reason: "SandboxExpired", Failed: true, Message: "Sandbox has expired", End: atPtr(30), Duration: ptr.To[int64](30)},
		},
		"a pod deleted because its Sandbox expired says so": {
			pod:     newPod(phase(corev1.PodFailed), deleted(30), ended("main", "Error", 143, 5, 31)),
			sandbox: newSandbox(sandboxCond("Ready", "False", "SandboxExpired", "", 30)), now: 31,
			want: outcome{Phase: isFailed, Reason: "SandboxExpired", Failed: true, Message: "the sandbox expired", Start: atPtr(5), End: atPtr(31), Duration: ptr.To[int64](26)},
		},

		// Rule 3: fatal waiting reasons.
		"an image that cannot be pulled fails the run at once": {
			pod: newPod(waits("main", "ImagePullBackOff", backOff)), now: 12,
			want: outcome{Phase: isFailed, Reason: "ImagePullBackOff", Failed: true, End: atPtr(12), Duration: ptr.To[int64](12),
				Message: `container "main", image "registry.example/agent:1": ` + backOff},
		},
		"the reason decides though kubelet gives no message": {
			pod: newPod(waits("main", "InvalidImageName", "")), now: 2,
			want: outcome{Phase: isFailed, Reason: "InvalidImageName", Failed: true, End: atPtr(2), Duration: ptr.To[int64](2), Message: `container "main", image "registry.example/agent:1"`},
		},
		"an init container is named as one": {
			pod: newPod(initContainer("loader"), waits("loader", "CreateContainerConfigError", `secret "k" not found`), waits("main", "PodInitializing", "")), now: 2,
			want: outcome{Phase: isFailed, Reason: "CreateContainerConfigError", Failed: true, End: atPtr(2), Duration: ptr.To[int64](2),
				Message: `init container "loader", image "registry.example/loader:1": secret "k" not found`},
		},
		"of two fatal containers the first in pod order is named, init containers first": {
			pod: newPod(extraContainer("aaa"), initContainer("z"), waits("aaa", "InvalidImageName", ""), waits("main", "ImagePullBackOff", ""), waits("z", "ImagePullBackOff", "")), now: 2,
			want: outcome{Phase: isFailed, Reason: "ImagePullBackOff", Failed: true, End: atPtr(2), Duration: ptr.To[int64](2),
				Message: `init container "z", image "registry.example/z:1"`},
		},
		"CrashLoopBackOff fails a run whose pod is Running": {
			run: newRun(withStatus(agentv1alpha1.AgentRunStatus{Phase: isRunning, StartTime: atPtr(3)})),
			pod: newPod(phase(corev1.PodRunning), waits("main", "CrashLoopBackOff", "back-off 10s restarting failed container")), now: 15,
			want: outcome{Phase: isFailed, Reason: "CrashLoopBackOff", Failed: true, Start: atPtr(3), End: atPtr(15), Duration: ptr.To[int64](12),
				Message: `container "main", image "registry.example/agent:1": back-off 10s restarting failed container`},
		},
		"a run failed while another container is at work stops its Sandbox": {
			pod: newPod(extraContainer("bad"), runs("main", 2), waits("bad", "ImagePullBackOff", "")), sandbox: newSandbox(), now: 15,
			want: outcome{Phase: isFailed, Reason: "ImagePullBackOff", Failed: true, StopSandbox: true, End: atPtr(15), Duration: ptr.To[int64](15),
				Message: `container "bad", image "registry.example/bad:1"`},
		},
		"a sidecar that crash-loops before any regular container has started is fatal": {
			pod: newPod(proxySidecar, waits("proxy", "CrashLoopBackOff", ""), waits("main", "PodInitializing", "")), now: 15,
			want: outcome{Phase: isFailed, Reason: "CrashLoopBackOff", Failed: true, End: atPtr(15), Duration: ptr.To[int64](15),
				Message: `sidecar init container "proxy", image "registry.example/proxy:1"`},
		},
		"a sidecar that crash-loops beside a running main container is detail": {
			pod: newPod(proxySidecar, phase(corev1.PodRunning), waits("proxy", "CrashLoopBackOff", "back-off"), runs("main", 4)), now: 15,
			want: outcome{Phase: isRunning, Reason: "Running", Start: atPtr(4),
				Message: `the pod is running; sidecar init container "proxy", image "registry.example/proxy:1" waits: CrashLoopBackOff: back-off`},
		},
		"a back-off for kubelet's own pull throttle is waited on": {
			pod: newPod(waits("main", "ImagePullBackOff", backOff+": ErrImagePull: pull QPS exceeded")), now: 18,
			want: outcome{Phase: isPending, Reason: "ImagePullBackOff",
				Message: `container "main", image "registry.example/agent:1" waits: ImagePullBackOff: ` + backOff + ": ErrImagePull: pull QPS exceeded"},
		},
		"a first failed pull is not fatal": {
			pod: newPod(waits("main", "ErrImagePull", "not found")), now: 2,
			want: outcome{Phase: isPending, Reason: "ErrImagePull", Message: `container "main", image "registry.example/agent:1" waits: ErrImagePull: not found`},
		},
		"a reason that is not configured as fatal is detail": {
			pod: newPod(waits("main", "ErrImageNeverPull", "absent")), now: 2,
			want: outcome{Phase: isPending, Reason: "ErrImageNeverPull", Message: `container "main", image "registry.example/agent:1" waits: ErrImageNeverPull: absent`},
		},
		"and fails the run when it is": {
			pod: newPod(waits("main", "ErrImageNeverPull", "absent")), now: 2, policy: &Policy{Fatal: map[string]time.Duration{"ErrImageNeverPull": 0}},
			want: outcome{Phase: isFailed, Reason: "ErrImageNeverPull", Failed: true, End: atPtr(2), Duration: ptr.To[int64](2), Message: `container "main", image "registry.example/agent:1": absent`},
		},
		"ephemeral containers are never looked at": {
			pod: newPod(phase(corev1.PodRunning), runs("main", 4), func(pod *corev1.Pod) {
				pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debug", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
			}), now: 15,
			want: outcome{Phase: isRunning, Reason: "Running", Start: atPtr(4), Message: "the pod is running"},
		},

		// Rule 4: running.
		"a running pod starts the run, at kubelet's own time": {
			pod: newPod(phase(corev1.PodRunning), runs("main", 4)), now: 9,
			want: outcome{Phase: isRunning, Reason: "Running", Start: atPtr(4), Message: "the pod is running"},
		},
		"a running pod without a container time starts the run now": {
			pod: newPod(phase(corev1.PodRunning)), now: 9,
			want: outcome{Phase: isRunning, Reason: "Running", Start: atPtr(9), Message: "the pod is running"},
		},
		"a running pod ends the startup clock for good": {
			run: newRun(specDeadline(5), withStatus(agentv1alpha1.AgentRunStatus{Phase: isRunning, StartTime: atPtr(3)})),
			pod: newPod(phase(corev1.PodPending)), now: 60,
			want: outcome{Phase: isRunning, Reason: "PodNotRunning", Start: atPtr(3), Message: `started, but no pod of it is running: waiting for kubelet on node "node-a"`},
		},
		"a started run whose pod is not in view stays Running, and says so": {
			run: newRun(withStatus(agentv1alpha1.AgentRunStatus{Phase: isRunning, StartTime: atPtr(3)})), now: 60,
			want: outcome{Phase: isRunning, Reason: "PodNotRunning", Start: atPtr(3), Message: "started; neither its pod nor its Sandbox is in view"},
		},
		"a started run whose Sandbox has lost its pod": {
			run: newRun(withStatus(agentv1alpha1.AgentRunStatus{Phase: isRunning, StartTime: atPtr(3)})), sandbox: newSandbox(), now: 60,
			want: outcome{Phase: isRunning, Reason: "PodNotRunning", Start: atPtr(3), Message: `started, but no pod of it is running: sandbox "sb" has no pod`},
		},

		// Rule 5: pending and the deadline.
		"no sandbox yet": {now: 1, want: outcome{Phase: isPending, Reason: "Pending", Message: "sandbox not created"}},
		"a sandbox without a pod, and why": {
			sandbox: newSandbox(sandboxCond("Ready", "False", "ReconcilerError", "Error seen: pods is forbidden", 1)), now: 2,
			want: outcome{Phase: isPending, Reason: "Pending", Message: `sandbox "sb" has no pod: Error seen: pods is forbidden`},
		},
		"an unschedulable pod says what the scheduler says": {
			pod: newPod(unscheduled, podCond(corev1.PodScheduled, "False", "Unschedulable", "0/3 nodes are available", 1)), now: 2,
			want: outcome{Phase: isPending, Reason: "Unschedulable", Message: "unschedulable: 0/3 nodes are available"},
		},
		"a pod the scheduler has not looked at": {
			pod: newPod(unscheduled), now: 2, want: outcome{Phase: isPending, Reason: "Pending", Message: "waiting for the scheduler"},
		},
		"a pod that kubelet has not looked at": {
			pod: newPod(), now: 2, want: outcome{Phase: isPending, Reason: "Pending", Message: `waiting for kubelet on node "node-a"`},
		},
		"volumes or network come before the image": {
			pod: newPod(podCond(corev1.PodReadyToStartContainers, "False", "", "", 1), waits("main", "ContainerCreating", "")), now: 2,
			want: outcome{Phase: isPending, Reason: "ContainerCreating", Message: `volumes not mounted or network not ready on node "node-a" (ContainerCreating)`},
		},
		"then the image is pulled": {
			pod: newPod(podCond(corev1.PodReadyToStartContainers, "True", "", "", 1), waits("main", "ContainerCreating", "")), now: 2,
			want: outcome{Phase: isPending, Reason: "ContainerCreating", Message: `image pulling: container "main", image "registry.example/agent:1"`},
		},
		"an init container at work is what the run waits on": {
			pod: newPod(initContainer("loader"), podCond(corev1.PodReadyToStartContainers, "True", "", "", 1), runs("loader", 2), waits("main", "PodInitializing", "")), now: 3,
			want: outcome{Phase: isPending, Reason: "Pending", Message: `init container "loader" is running`},
		},
		"an init container that ended with an error, before the pod is said to have failed": {
			pod: newPod(initContainer("loader"), ended("loader", "Error", 1, 2, 3), waits("main", "PodInitializing", "")), now: 3,
			want: outcome{Phase: isPending, Reason: "Pending", Message: `init container "loader", image "registry.example/loader:1" ended with exit code 1 (Error)`},
		},
		"a pod on its way out": {
			pod: newPod(deleted(1), waits("main", "ContainerCreating", "")), now: 2,
			want: outcome{Phase: isPending, Reason: "ContainerCreating", Message: "the pod is being deleted"},
		},
		"the flag's deadline is come back to exactly when it runs out": {
			policy: &Policy{Deadline: time.Minute}, now: 20,
			want: outcome{Phase: isPending, Reason: "Pending", Message: "sandbox not created", RequeueAfter: 40 * time.Second},
		},
		"and fails the run then, with the same detail": {
			policy: &Policy{Deadline: time.Minute}, now: 60,
			want: outcome{Phase: isFailed, Reason: "StartupDeadlineExceeded", Failed: true, End: atPtr(60), Duration: ptr.To[int64](60),
				Message: "not running after 1m0s: sandbox not created"},
		},
		"a deadline that passed while nobody looked is stamped with its own time": {
			policy: &Policy{Deadline: time.Minute}, now: 7200,
			want: outcome{Phase: isFailed, Reason: "StartupDeadlineExceeded", Failed: true, End: atPtr(60), Duration: ptr.To[int64](60),
				Message: "not running after 1m0s: sandbox not created"},
		},
		"the run's own deadline beats the flag's": {
			run: newRun(specDeadline(10)), policy: &Policy{Deadline: time.Hour}, now: 10,
			want: outcome{Phase: isFailed, Reason: "StartupDeadlineExceeded", Failed: true, End: atPtr(10), Duration: ptr.To[int64](10),
				Message: "not running after 10s: sandbox not created"},
		},
		"0 in the spec disables the flag's": {
			run: newRun(specDeadline(0)), policy: &Policy{Deadline: time.Second}, now: 3600,
			want: outcome{Phase: isPending, Reason: "Pending", Message: "sandbox not created"},
		},
		"an unschedulable pod runs out of time with the scheduler's words": {
			run: newRun(specDeadline(30)), pod: newPod(unscheduled, podCond(corev1.PodScheduled, "False", "Unschedulable", "0/3 nodes are available", 1)), now: 30,
			want: outcome{Phase: isFailed, Reason: "StartupDeadlineExceeded", Failed: true, End: atPtr(30), Duration: ptr.To[int64](30),
				Message: "not running after 30s: unschedulable: 0/3 nodes are available"},
		},
		"a fatal reason comes before a deadline that has also run out": {
			run: newRun(specDeadline(5)), pod: newPod(waits("main", "ImagePullBackOff", "")), now: 12,
			want: outcome{Phase: isFailed, Reason: "ImagePullBackOff", Failed: true, End: atPtr(12), Duration: ptr.To[int64](12),
				Message: `container "main", image "registry.example/agent:1"`},
		},
		"the clock does not run while the pod is gated": {
			run: newRun(specDeadline(30)), pod: newPod(unscheduled, podCond(corev1.PodScheduled, "False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", 1)), now: 3600,
			want: outcome{Phase: isPending, Reason: "SchedulingGated", Message: "scheduling gated: Scheduling is blocked due to non-empty scheduling gates"},
		},
		"the deadline counts from when the gates have opened": {
			run: newRun(specDeadline(30), withCondition(metav1.Condition{Type: "Queued", Status: "False", Reason: "Released", LastTransitionTime: at(101)})),
			pod: newPod(unscheduled), now: 110,
			// The deadline counts from the release at 101, so 131 is the end.
			want: outcome{Phase: isPending, Reason: "Pending", Message: "waiting for the scheduler", RequeueAfter: 21 * time.Second},
		},
		"gates that opened while nobody looked end with the scheduler's stamp": {
			run: newRun(specDeadline(30), withCondition(metav1.Condition{Type: "Queued", Status: "True", Reason: "SchedulingGated", LastTransitionTime: at(1)})),
			pod: newPod(podCond(corev1.PodScheduled, "True", "", "", 51)), now: 60,
			want: outcome{Phase: isPending, Reason: "Pending", Message: `waiting for kubelet on node "node-a"`, RequeueAfter: 21 * time.Second},
		},
		"a pod that takes the place of one that was gated has the time that was left": {
			run: newRun(specDeadline(600), withCondition(metav1.Condition{Type: "Queued", Status: "False", Reason: "Released", LastTransitionTime: at(3600)})),
			pod: newPod(unscheduled, func(pod *corev1.Pod) { pod.CreationTimestamp = at(3610) }), now: 3620,
			want: outcome{Phase: isPending, Reason: "Pending", Message: "waiting for the scheduler", RequeueAfter: 580 * time.Second},
		},
		"a gated pod that was deleted does not hold the clock for ever": {
			run:  newRun(specDeadline(600), withCondition(metav1.Condition{Type: "Queued", Status: "True", Reason: "SchedulingGated", LastTransitionTime: at(1)})),
			now:  3600,
			want: outcome{Phase: isPending, Reason: "Pending", Message: "sandbox not created", RequeueAfter: 600 * time.Second},
		},
		"the member's controller says why there is no sandbox": {
			run: newRun(withCondition(metav1.Condition{Type: "Ready", Status: "False", Reason: "AgentNotReady", Message: "Agent \"coder\" is not Ready"})), now: 2,
			want: outcome{Phase: isPending, Reason: "Pending", Message: `sandbox not created (AgentNotReady: Agent "coder" is not Ready)`},
		},
		"what a pod on its way out waits on does not fail the run": {
			pod: newPod(deleted(5), waits("main", "CreateContainerConfigError", "configmap not found")), now: 6,
			want: outcome{Phase: isPending, Reason: "CreateContainerConfigError", Message: "the pod is being deleted"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := Input{Run: tc.run, Pod: tc.pod, Sandbox: tc.sandbox, Policy: Policy{Fatal: DefaultFatal()}, Now: at(tc.now).Time}
			if in.Run == nil {
				in.Run = newRun()
			}
			if tc.policy != nil {
				in.Policy = *tc.policy
			}
			before := in.Run.DeepCopy()
			d := Decide(in)
			if diff := cmp.Diff(tc.want, outcomeOf(d)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, in.Run); diff != "" {
				t.Errorf("Decide modified the run (-before +after):\n%s", diff)
			}
		})
	}
}

func TestTerminalIsFinal(t *testing.T) {
	failed := agentv1alpha1.AgentRunStatus{Phase: isFailed, CompletionTime: atPtr(12), Conditions: []metav1.Condition{
		{Type: "Succeeded", Status: "False", Reason: "StartupDeadlineExceeded"},
	}}
	failedItself := *failed.DeepCopy()
	failedItself.Conditions[0].Reason = "Error"
	succeeded := agentv1alpha1.AgentRunStatus{Phase: isSucceeded, CompletionTime: atPtr(12), Conditions: []metav1.Condition{
		{Type: "Succeeded", Status: "True", Reason: "Completed"},
	}}
	busy := newPod(phase(corev1.PodRunning), runs("main", 20))
	stopped := newSandbox()
	stopped.Stopped = true
	cases := map[string]struct {
		status   agentv1alpha1.AgentRunStatus
		pod      *corev1.Pod
		sandbox  *Sandbox
		wantStop bool
	}{
		"a failed run whose pod runs later stays failed, and its Sandbox is stopped": {status: failed, pod: busy, sandbox: newSandbox(), wantStop: true},
		"once is enough": {status: failed, pod: busy, sandbox: stopped},
		"a run whose pod failed, and whose Sandbox made another":       {status: failedItself, pod: busy, sandbox: newSandbox(), wantStop: true},
		"a pod on its way out needs no stopping":                       {status: failed, pod: newPod(deleted(19), phase(corev1.PodRunning), runs("main", 20)), sandbox: newSandbox()},
		"a succeeded run whose pod still runs is not either":           {status: succeeded, pod: busy, sandbox: newSandbox()},
		"without a Sandbox there is nothing to stop":                   {status: failed, pod: busy},
		"a pod that has ended needs no stopping":                       {status: failed, pod: newPod(phase(corev1.PodFailed), runs("main", 20)), sandbox: newSandbox()},
		"a succeeded run is not failed by what its pod waits on later": {status: succeeded, pod: newPod(waits("main", "ImagePullBackOff", "")), sandbox: newSandbox()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Decide(Input{Run: newRun(specDeadline(1), withStatus(tc.status)), Pod: tc.pod, Sandbox: tc.sandbox, Policy: Policy{Fatal: DefaultFatal()}, Now: at(500).Time})
			if diff := cmp.Diff(tc.status, d.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if d.StopSandbox != tc.wantStop {
				t.Errorf("StopSandbox = %v, want %v", d.StopSandbox, tc.wantStop)
			}
			if d.Failure != nil || d.RequeueAfter != 0 {
				t.Errorf("a terminal run gave Failure %v, RequeueAfter %v", d.Failure, d.RequeueAfter)
			}
		})
	}
}

// TestEndedByOthers: a run that another controller ended gets the Succeeded condition that
// it lacks, and keeps all else.
func TestEndedByOthers(t *testing.T) {
	theirs := metav1.Condition{Type: "Ready", Status: "False", Reason: "AgentNotFound", Message: `Agent "coder" not found`}
	overwritten := metav1.Condition{Type: "Succeeded", Status: "Unknown", Reason: "ContainerCreating", Message: "image pulling", LastTransitionTime: at(1)}
	killed := newPod(phase(corev1.PodFailed), ended("main", "OOMKilled", 137, 5, 6))
	cases := map[string]struct {
		phase      agentv1alpha1.AgentRunPhase
		conditions []metav1.Condition
		pod        *corev1.Pod
		status     metav1.ConditionStatus
		reason     string
		message    string
	}{
		"the pod tells best":                              {isFailed, []metav1.Condition{theirs, overwritten}, killed, "False", "OOMKilled", `container "main", image "registry.example/agent:1" ended with exit code 137`},
		"else the other controller's own words":           {isFailed, []metav1.Condition{theirs}, nil, "False", "AgentNotFound", `Agent "coder" not found`},
		"else nothing is known":                           {isFailed, nil, nil, "False", "Failed", "another controller failed the run"},
		"a pod that succeeded does not speak for it":      {isFailed, nil, newPod(phase(corev1.PodSucceeded), ended("main", "Completed", 0, 2, 3)), "False", "Failed", "another controller failed the run though its pod succeeded"},
		"a run that succeeded":                            {isSucceeded, []metav1.Condition{overwritten}, nil, "True", "Completed", "another controller ended the run"},
		"and what its pod waits on later does not matter": {isSucceeded, nil, newPod(waits("main", "ImagePullBackOff", "")), "True", "Completed", "another controller ended the run"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := agentv1alpha1.AgentRunStatus{Phase: tc.phase, CompletionTime: atPtr(9), Conditions: tc.conditions}
			in := Input{Run: newRun(specDeadline(1), withStatus(*before.DeepCopy())), Pod: tc.pod, Policy: Policy{Fatal: DefaultFatal()}, Now: at(500).Time}
			d := Decide(in)
			got := meta.FindStatusCondition(d.Status.Conditions, "Succeeded")
			want := &metav1.Condition{Type: "Succeeded", Status: tc.status, Reason: tc.reason, Message: tc.message, ObservedGeneration: 1, LastTransitionTime: at(500)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Succeeded (-want +got):\n%s", diff)
			}
			meta.RemoveStatusCondition(&before.Conditions, "Succeeded")
			after := d.Status.DeepCopy()
			meta.RemoveStatusCondition(&after.Conditions, "Succeeded")
			if diff := cmp.Diff(before, *after, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the rest of the status (-before +after):\n%s", diff)
			}
			in.Run = newRun(withStatus(d.Status))
			if diff := cmp.Diff(d.Status, Decide(in).Status); diff != "" || d.Failure != nil {
				t.Errorf("Failure %v, and deciding again changes (-first +second):\n%s", d.Failure, diff)
			}
		})
	}
}

func TestDecideIsIdempotentAndKeepsForeignConditions(t *testing.T) {
	foreign := metav1.Condition{Type: "Ready", Status: "False", Reason: "SandboxCreated", Message: "theirs", LastTransitionTime: at(1)}
	pods := map[string]*corev1.Pod{
		"none": nil, "pending": newPod(), "running": newPod(phase(corev1.PodRunning), runs("main", 4)),
		"fatal":     newPod(waits("main", "ImagePullBackOff", "x")),
		"succeeded": newPod(phase(corev1.PodSucceeded), ended("main", "Completed", 0, 2, 3)),
		"gated":     newPod(unscheduled, podCond(corev1.PodScheduled, "False", "SchedulingGated", "", 1)),
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			in := Input{Run: newRun(withCondition(foreign)), Pod: pod, Policy: Policy{Fatal: DefaultFatal()}, Now: at(10).Time}
			first := Decide(in)
			if diff := cmp.Diff(&foreign, meta.FindStatusCondition(first.Status.Conditions, "Ready")); diff != "" {
				t.Errorf("foreign condition (-want +got):\n%s", diff)
			}
			again := in
			again.Run = newRun(withStatus(first.Status))
			again.Now = at(20).Time
			if diff := cmp.Diff(first.Status, Decide(again).Status); diff != "" {
				t.Errorf("deciding again changed the status (-first +second):\n%s", diff)
			}
		})
	}
}

func TestGrace(t *testing.T) {
	policy := Policy{Fatal: map[string]time.Duration{ReasonImagePullBackOff: time.Minute, ReasonCreateContainerConfigError: 30 * time.Second, ReasonCrashLoopBackOff: 40 * time.Second}}
	pull := func(reason string) *corev1.Pod { return newPod(waits("main", reason, "no such tag")) }
	crashed := func(from, to int) *corev1.Pod {
		return newPod(phase(corev1.PodRunning), waits("main", ReasonCrashLoopBackOff, ""), func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{StartedAt: at(from), FinishedAt: at(to), ExitCode: 1}
		})
	}
	twoBackOff := func(first string) *corev1.Pod {
		up := runs("main", 20)
		if first != "" {
			up = waits("main", first, "")
		}
		return newPod(phase(corev1.PodRunning), extraContainer("other"), up, waits("other", ReasonImagePullBackOff, ""))
	}
	config := newPod(waits("main", ReasonCreateContainerConfigError, "configmap not found"))
	creating := newPod(waits("main", reasonContainerCreating, ""))
	other := pull(ReasonImagePullBackOff)
	other.UID = "another-pod"
	type step struct {
		now     int
		pod     *corev1.Pod
		want    agentv1alpha1.AgentRunPhase
		requeue time.Duration
	}
	cases := map[string]struct {
		run   *agentv1alpha1.AgentRun
		steps []step
	}{
		"flips between the two pull reasons neither reset the clock nor double it": {steps: []step{
			{2, pull(ReasonErrImagePull), isPending, time.Minute},
			{12, pull(ReasonImagePullBackOff), isPending, 50 * time.Second},
			{25, pull(ReasonErrImagePull), isPending, 37 * time.Second},
			{61, pull(ReasonErrImagePull), isPending, time.Second},
			{62, pull(ReasonErrImagePull), isFailed, 0},
		}},
		"a back-off that has never come does not fail the run, the first to come does": {steps: []step{
			{2, pull(ReasonErrImagePull), isPending, time.Minute},
			{63, pull(ReasonErrImagePull), isPending, 0},
			{64, pull(ReasonImagePullBackOff), isFailed, 0},
		}},
		"a restart of kubelet, which shows ContainerCreating, gives no new grace": {steps: []step{
			{2, pull(ReasonImagePullBackOff), isPending, time.Minute},
			{20, creating, isPending, 0},
			{63, creating, isPending, 0},
			{64, pull(ReasonImagePullBackOff), isFailed, 0},
		}},
		"a cause mended within the grace lets the run start": {steps: []step{
			{2, config, isPending, 30 * time.Second},
			{31, newPod(phase(corev1.PodRunning), runs("main", 31)), isRunning, 0},
		}},
		"another cause has a clock of its own": {steps: []step{
			{2, pull(ReasonImagePullBackOff), isPending, time.Minute},
			{40, config, isPending, 30 * time.Second},
			{69, config, isPending, time.Second},
			{70, config, isFailed, 0},
		}},
		"two containers that back off share the clock of the first: it is not put back by the other": {steps: []step{
			{10, twoBackOff("CrashLoopBackOff"), isRunning, 40 * time.Second},
			{20, twoBackOff(""), isRunning, 0}, // the first is up for a moment
			{30, twoBackOff("CrashLoopBackOff"), isRunning, 20 * time.Second},
			{50, twoBackOff("CrashLoopBackOff"), isFailed, 0},
		}},
		"another pod has a clock of its own": {steps: []step{
			{2, pull(ReasonImagePullBackOff), isPending, time.Minute},
			{50, other, isPending, time.Minute},
			{110, other, isFailed, 0},
		}},
		"the startup deadline does not wait for a longer grace": {run: newRun(specDeadline(20)), steps: []step{
			{2, pull(ReasonImagePullBackOff), isPending, 18 * time.Second},
			{20, pull(ReasonImagePullBackOff), isFailed, 0},
		}},
		"a crash loop shows its container running at each attempt, and that is no recovery": {steps: []step{
			{10, crashed(8, 9), isRunning, 40 * time.Second},
			{20, newPod(phase(corev1.PodRunning), runs("main", 20)), isRunning, 0},
			{22, crashed(20, 21), isRunning, 28 * time.Second},
			{50, crashed(40, 41), isFailed, 0},
		}},
		"a container that ran for as long as the grace has recovered, and a new loop has a new grace": {steps: []step{
			{10, crashed(8, 9), isRunning, 40 * time.Second},
			{3600, crashed(20, 3599), isRunning, 40 * time.Second},
			{3610, crashed(20, 3599), isRunning, 30 * time.Second},
			{3640, crashed(3620, 3621), isFailed, 0},
		}},
		"a failing pull in a running pod may have a grace too": {steps: []step{
			{2, newPod(phase(corev1.PodRunning), extraContainer("side"), runs("main", 1), waits("side", ReasonImagePullBackOff, "")), isRunning, time.Minute},
			{62, newPod(phase(corev1.PodRunning), extraContainer("side"), runs("main", 1), waits("side", ReasonImagePullBackOff, "")), isFailed, 0},
		}},
		"a started run whose new pod backs off keeps its phase within the grace": {
			run: newRun(withStatus(agentv1alpha1.AgentRunStatus{Phase: isRunning, StartTime: atPtr(1)})), steps: []step{
				{2, pull(ReasonImagePullBackOff), isRunning, time.Minute},
				{62, pull(ReasonImagePullBackOff), isFailed, 0},
			}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := tc.run
			if run == nil {
				run = newRun()
			}
			for i, s := range tc.steps {
				// Only the status is carried on, as across a restart of the manager.
				d := Decide(Input{Run: run, Pod: s.pod, Policy: policy, Now: at(s.now).Time})
				if d.Status.Phase != s.want || d.RequeueAfter != s.requeue {
					t.Fatalf("step %d at %d s: phase %s, requeue %s; want %s, %s", i, s.now, d.Status.Phase, d.RequeueAfter, s.want, s.requeue)
				}
				run = run.DeepCopy()
				run.Status = d.Status
			}
		})
	}
}

func TestForeignTextIsMadeFit(t *testing.T) {
	d := Decide(Input{
		Run: newRun(), Policy: Policy{Fatal: DefaultFatal()}, Now: at(3).Time,
		Pod: newPod(phase(corev1.PodFailed), ended("main", "not a word!", 1, 1, 2), func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State.Terminated.Message = "bad\x00\nbytes \xff \u202eturned" + strings.Repeat("ä", 5000)
		}),
	})
	c := meta.FindStatusCondition(d.Status.Conditions, agentv1alpha1.ConditionSucceeded)
	if c.Reason != "Other" || !strings.HasPrefix(c.Message, `reason "not a word!": `) {
		t.Errorf("reason %q, message %.60q: a reason that may not stand in a condition must be kept in the message", c.Reason, c.Message)
	}
	if !utf8.ValidString(c.Message) || strings.ContainsAny(c.Message, "\x00\n\u202e") || len([]rune(c.Message)) > MaxText+200 {
		t.Errorf("message of %d characters is not fit: %.80q", len([]rune(c.Message)), c.Message)
	}
}
