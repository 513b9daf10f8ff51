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

// Waiting reasons as kubelet spells them; k8s.io/kubernetes pkg/kubelet/images
// and pkg/kubelet/kuberuntime are where they are set.
const (
	ReasonImagePullBackOff           = "ImagePullBackOff"
	ReasonErrImagePull               = "ErrImagePull"
	ReasonInvalidImageName           = "InvalidImageName"
	ReasonCreateContainerConfigError = "CreateContainerConfigError"
	ReasonCrashLoopBackOff           = "CrashLoopBackOff"

	reasonContainerCreating = "ContainerCreating"
	reasonPodInitializing   = "PodInitializing"
)

// Reasons that are this package's own, where kubelet has no word.
const (
	// ReasonStartupDeadlineExceeded means that the pod was not Running in time.
	ReasonStartupDeadlineExceeded = "StartupDeadlineExceeded"
	// ReasonDeleted means that the pod was deleted under the run, and that nothing
	// on it says by whom.
	ReasonDeleted = "Deleted"
	// ReasonPending and ReasonRunning are the reasons of the Succeeded condition
	// while it is Unknown and the pod names no better one.
	ReasonPending = "Pending"
	ReasonRunning = "Running"
	// ReasonPodNotRunning means that a run has started and no pod of it runs now.
	ReasonPodNotRunning = "PodNotRunning"
	// ReasonCompleted is the reason of a Succeeded condition that is True.
	ReasonCompleted = "Completed"
	// ReasonFailed means that another controller failed the run and does not say why.
	ReasonFailed = "Failed"
)

// Policy is what a platform team configures.
type Policy struct {
	// Deadline is how long startup may take where the run's spec does not say; 0
	// means for ever.
	Deadline time.Duration
	// Fatal maps the waiting reasons that fail a run to their grace: how long the
	// reason is waited on before it does. 0 fails at once.
	Fatal map[string]time.Duration
}

// DefaultFatal returns the waiting reasons that fail a run by default, all at
// once. See docs/reasons.md for what else kubelet reports, and why it is not here.
func DefaultFatal() map[string]time.Duration {
	return map[string]time.Duration{
		ReasonImagePullBackOff:           0,
		ReasonInvalidImageName:           0,
		ReasonCreateContainerConfigError: 0,
		ReasonCrashLoopBackOff:           0,
	}
}

// Sandbox is what matters of the run's agents.x-k8s.io Sandbox.
type Sandbox struct {
	// Name is the Sandbox's name.
	Name string
	// Conditions are its status conditions.
	Conditions []metav1.Condition
	// Stopped says that it is being deleted, or that its shutdown time has come.
	Stopped bool
}

// Input is everything a decision depends on.
type Input struct {
	// Run is the run to decide on. It is not modified.
	Run *agentv1alpha1.AgentRun
	// Pod is the run's pod (see PodOf); nil when there is none.
	Pod *corev1.Pod
	// Sandbox is the run's Sandbox; nil when there is none.
	Sandbox *Sandbox
	// Policy is the configured policy.
	Policy Policy
	// Now is the member's time.
	Now time.Time
}

// Failure says why a run failed, in parts.
type Failure struct {
	// Reason is kubelet's word, verbatim; Other, with the word in the message, where
	// it may not stand in a condition.
	Reason string
	// Message is for people.
	Message string
}

// Decision is what to do about a run.
type Decision struct {
	// Status is what the run's status should be; it equals the run's own when there
	// is nothing to write. Conditions of other controllers are carried over.
	Status agentv1alpha1.AgentRunStatus
	// Failure is set when this decision fails the run.
	Failure *Failure
	// RequeueAfter is when to decide again though nothing changes; 0 means never.
	RequeueAfter time.Duration
	// StopSandbox asks to shut the Sandbox down: the run was failed for not
	// starting, and its pod is at work after all.
	StopSandbox bool
}

// verdict is what a rule says of a run: where it is and why.
type verdict struct {
	phase   agentv1alpha1.AgentRunPhase
	reason  string
	message string
	// start and end are when the run started and ended, as far as known.
	start, end *metav1.Time
	// requeueAfter is when the verdict may change by time alone; 0 means never.
	requeueAfter time.Duration
	// backingOff is the grace clock that runs, if one does.
	backingOff *metav1.Condition
	// stopSandbox asks to shut the Sandbox down.
	stopSandbox bool
	// keep leaves the status as it is.
	keep bool
	// conditionOnly leaves all but the Succeeded condition as it is.
	conditionOnly bool
}

// rules are tried in this order; the first that answers decides.
var rules = []func(Input) (verdict, bool){
	alreadyTerminal,
	endedByOthers,
	finished,
	waitingOnFatalReason,
	running,
	startupDeadlineExceeded,
	pending,
}

// Decide says what a run's status should be. in.Run must be set.
func Decide(in Input) Decision {
	for _, rule := range rules {
		if v, ok := rule(in); ok {
			return decision(in, v)
		}
	}
	// pending answers always.
	return Decision{Status: *in.Run.Status.DeepCopy()}
}

// alreadyTerminal: what has ended stays as it ended. All that is left to see to is
// that the Sandbox of a failed run is not at work unseen.
func alreadyTerminal(in Input) (verdict, bool) {
	if !in.Run.Terminal() || !conditionSettled(in.Run) {
		return verdict{}, false
	}
	return verdict{keep: true, stopSandbox: in.Run.Status.Phase == agentv1alpha1.AgentRunFailed && atWork(in)}, true
}

// endedByOthers: another controller ended the run and did not say so in the Succeeded
// condition, or wrote over it. The condition is completed, with the best reason there
// is; nothing else of an ended run is touched.
func endedByOthers(in Input) (verdict, bool) {
	if !in.Run.Terminal() {
		return verdict{}, false
	}
	v := verdict{phase: in.Run.Status.Phase, conditionOnly: true}
	switch theirs := meta.FindStatusCondition(in.Run.Status.Conditions, agentv1alpha1.ConditionReady); {
	case v.phase == agentv1alpha1.AgentRunSucceeded:
		v.reason, v.message = ReasonCompleted, "another controller ended the run"
	case podEnded(in.Pod):
		outcome := podOutcome(in)
		v.reason, v.message = outcome.reason, outcome.message
		if outcome.phase == agentv1alpha1.AgentRunSucceeded {
			v.reason, v.message = ReasonFailed, "another controller failed the run though its pod succeeded"
		}
	case theirs != nil && theirs.Status == metav1.ConditionFalse:
		v.reason, v.message = theirs.Reason, clean(theirs.Message)
	default:
		v.reason, v.message = ReasonFailed, "another controller failed the run"
	}
	return v, true
}

// conditionSettled says whether the Succeeded condition says how the run ended.
func conditionSettled(run *agentv1alpha1.AgentRun) bool {
	c := succeededCondition(run)
	return c != nil && c.Status != metav1.ConditionUnknown
}

// atWork says whether the Sandbox runs a pod and has not been told to stop.
func atWork(in Input) bool {
	if in.Sandbox == nil || in.Sandbox.Stopped {
		return false
	}
	c := condition(in.Sandbox, sandboxFinished)
	return (c == nil || c.Status != metav1.ConditionTrue) && anyRunning(in.Pod)
}

// running: the pod runs, so startup is over for good. A run that has started keeps its
// phase when its pod is gone or another has been made: no clock is known by which to
// fail it, but what it waits on is said.
func running(in Input) (verdict, bool) {
	if in.Pod == nil || in.Pod.Status.Phase != corev1.PodRunning {
		return verdict{phase: agentv1alpha1.AgentRunRunning, reason: ReasonPodNotRunning, message: goneDetail(in)}, started(in.Run)
	}
	message := "the pod is running"
	if detail := waitingDetail(in.Pod); detail != "" {
		message += "; " + detail
	}
	return verdict{
		phase:   agentv1alpha1.AgentRunRunning,
		reason:  ReasonRunning,
		message: message,
		start:   startedAt(in.Pod, in.Now),
	}, true
}

// startupDeadlineExceeded: the time for startup has run out.
func startupDeadlineExceeded(in Input) (verdict, bool) {
	left, ok := startupTimeLeft(in)
	if !ok || left > 0 {
		return verdict{}, false
	}
	end := metav1.NewTime(in.Now.Add(left))
	return verdict{
		phase:   agentv1alpha1.AgentRunFailed,
		reason:  ReasonStartupDeadlineExceeded,
		message: "not running after " + deadlineOf(in).String() + ": " + Detail(in),
		end:     &end,
	}, true
}

// pending: not running yet.
func pending(in Input) (verdict, bool) {
	left, _ := startupTimeLeft(in)
	return verdict{
		phase:        agentv1alpha1.AgentRunPending,
		reason:       pendingReason(in),
		message:      Detail(in),
		requeueAfter: left,
	}, true
}

// started says whether the run has ever been Running.
func started(run *agentv1alpha1.AgentRun) bool {
	return run.Status.StartTime != nil || run.Status.Phase == agentv1alpha1.AgentRunRunning
}
