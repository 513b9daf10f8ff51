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

package v1alpha1

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AgentRunLabel is carried by a run's pod; its value is the run's name. Pods
// without it are reached through the run's Sandbox, or not at all.
const AgentRunLabel = "konveyor.io/agent-run"

// RecordedAnnotation is on a run whose failure stands in a hub's totals. Its value is the
// run's own UID and the IDs of the ledgers that count it (status.ledger.id of an
// AgentRunClusterStatus), each after a slash. Without it a failed run is not deleted for
// its TTL.
const RecordedAnnotation = "fleet.konveyor.io/recorded"

// MaxLedgers bounds the ledgers that RecordedAnnotation names. One more is not named, and
// keeps the run in flight: in another's place it would have that one count the run again.
const MaxLedgers = 32

// maxLedgerID is the length of a UID, of which a ledger's ID is one.
const maxLedgerID = 36

// Condition types that agentrun-fleet writes on an AgentRun.
const (
	// ConditionSucceeded is Unknown while the run is in progress, True when it
	// succeeded and False when it failed. Its reason is the word kubelet or the
	// scheduler used, verbatim.
	ConditionSucceeded = "Succeeded"
	// ConditionQueued is True while the run's pod is held by scheduling gates.
	// When it turns False its lastTransitionTime says when the pod was released, and
	// the startup clock starts from there.
	ConditionQueued = "Queued"
	// ConditionBackingOff is True while a container waits on a fatal reason that
	// has been given a grace. Its lastTransitionTime starts the grace clock, so
	// that neither a flip between two reasons nor a restart of the manager
	// starts it anew.
	ConditionBackingOff = "BackingOff"
)

// ConditionReady is where the konveyor controller says what a run waits on, and why
// it failed the run.
const ConditionReady = "Ready"

// AgentRunPhase is a one-word summary of where a run is in its life.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
type AgentRunPhase string

// The phases of an AgentRun.
const (
	AgentRunPending   AgentRunPhase = "Pending"
	AgentRunRunning   AgentRunPhase = "Running"
	AgentRunSucceeded AgentRunPhase = "Succeeded"
	AgentRunFailed    AgentRunPhase = "Failed"
)

// AgentRunParam supplies a value for one parameter that the Agent declares.
type AgentRunParam struct {
	// name is the parameter's name, as the Agent declares it.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`

	// value is the parameter's value.
	// +required
	Value string `json:"value"`
}

// GitConfig is the identity that the agent commits with.
type GitConfig struct {
	// userName is git's user.name for the agent's commits.
	// +kubebuilder:validation:MinLength=1
	// +optional
	UserName string `json:"userName,omitempty"`

	// userEmail is git's user.email for the agent's commits.
	// +kubebuilder:validation:MinLength=1
	// +optional
	UserEmail string `json:"userEmail,omitempty"`
}

// AgentRunSpec says which agent to run and with what. It is immutable: delete the
// run and create another to change it.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable; delete the AgentRun and create it again to change it"
type AgentRunSpec struct {
	// agentRef is the name of the Agent to execute, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +required
	AgentRef string `json:"agentRef"`

	// gateway selects one of the Agent's gateways, that is, a provider and a model.
	// +kubebuilder:validation:MinLength=1
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// params supplies values for the parameters that the Agent declares.
	// +listType=map
	// +listMapKey=name
	// +optional
	Params []AgentRunParam `json:"params,omitempty"`

	// instructions are what this run is to do, in addition to the Agent's prompt.
	// +optional
	Instructions string `json:"instructions,omitempty"`

	// env is a list of additional environment variables for the agent's container.
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// envFrom is a list of sources of environment variables for the agent's container.
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// gitConfig overrides the Agent's git identity for this run.
	// +optional
	GitConfig *GitConfig `json:"gitConfig,omitempty"`

	// startupDeadlineSeconds is how long, in seconds from the run's creation, its
	// pod may take to be Running. When that time is over the run is Failed with
	// reason StartupDeadlineExceeded. The clock does not run while scheduling gates hold
	// the pod, and starts anew when they let it go.
	// 0 disables the deadline for this run; when absent, the manager's
	// --agentrun-startup-deadline applies.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StartupDeadlineSeconds *int32 `json:"startupDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is how long, in seconds from its completion by the
	// member's clock, a finished run is kept. Then it is deleted with the Sandbox and
	// the pod that it controls; a failed run not before the hub has recorded its failure.
	// 0 means at once; when absent, the manager's --agentrun-ttl-after-finished applies,
	// or for a failed run its --agentrun-failed-ttl where that is given.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// AgentRunStatus is what has been observed of a run.
type AgentRunStatus struct {
	// phase is where the run is in its life: Pending, Running, Succeeded or Failed.
	// The last two are final.
	// +kubebuilder:default=Pending
	// +optional
	Phase AgentRunPhase `json:"phase,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// sandboxName is the name of the Sandbox that owns the run's pod.
	// +optional
	SandboxName string `json:"sandboxName,omitempty"`

	// startTime is when the first container of the run's pod began, or when the pod was
	// first seen Running where kubelet does not say.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the run became Succeeded or Failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// duration is the time from startTime (from the run's creation, when it never
	// started) to completionTime, in whole seconds.
	// +optional
	Duration *int64 `json:"duration,omitempty"`

	// secretKeyRef names the Secret that holds the key for talking to the agent.
	// +optional
	SecretKeyRef *corev1.LocalObjectReference `json:"secretKeyRef,omitempty"`

	// conditions are the latest observations of the run. Known types are
	// Succeeded, Queued and BackingOff; other controllers add their own.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentRun is one execution of an agent in a sandbox pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ar
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agentRef`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Duration",type=integer,JSONPath=`.status.duration`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`,priority=1
type AgentRun struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which agent to run and with what.
	// +required
	Spec AgentRunSpec `json:"spec"`
	// status is what has been observed of the run.
	// +optional
	Status AgentRunStatus `json:"status,omitempty"`
}

// Terminal says whether the run has reached a phase that is never left again.
func (r *AgentRun) Terminal() bool {
	return r.Status.Phase == AgentRunSucceeded || r.Status.Phase == AgentRunFailed
}

// Recorded says whether the run's failure stands in the totals of any ledger.
func (r *AgentRun) Recorded() bool { return len(r.ledgers()) > 0 }

// RecordedBy says whether the run's failure stands in the totals of the ledger with that ID.
func (r *AgentRun) RecordedBy(ledger types.UID) bool {
	return slices.Contains(r.ledgers(), string(ledger))
}

// Mark returns the value of RecordedAnnotation by which the run is recorded by these
// ledgers too. It is empty when there are none.
func (r *AgentRun) Mark(ledgers ...types.UID) string {
	marked := r.ledgers()
	for _, ledger := range ledgers {
		if !slices.Contains(marked, string(ledger)) && len(marked) < MaxLedgers {
			marked = append(marked, string(ledger))
		}
	}
	if len(marked) == 0 {
		return ""
	}
	return string(r.UID) + "/" + strings.Join(marked, "/")
}

// ledgers are those that the run's annotation names. One with another run's UID names none:
// annotations are copied with the manifest when a run is made from another.
func (r *AgentRun) ledgers() []string {
	uid, rest, ok := strings.Cut(r.Annotations[RecordedAnnotation], "/")
	if !ok || uid == "" || uid != string(r.UID) || len(rest) > MaxLedgers*(maxLedgerID+1) {
		return nil
	}
	return slices.DeleteFunc(strings.Split(rest, "/"), func(ledger string) bool { return ledger == "" })
}

// Ending returns the condition that tells how a terminal run ended: Succeeded, else what
// the konveyor controller left in Ready. It is nil when neither tells.
func (r *AgentRun) Ending() *metav1.Condition {
	if !r.Terminal() {
		return nil
	}
	want := metav1.ConditionTrue
	if r.Status.Phase == AgentRunFailed {
		want = metav1.ConditionFalse
	}
	for _, conditionType := range []string{ConditionSucceeded, ConditionReady} {
		c := meta.FindStatusCondition(r.Status.Conditions, conditionType)
		if c != nil && c.Status == want && c.Reason != "" {
			return c
		}
	}
	return nil
}

// FinishTime is when a terminal run ended, by the member's clock: its completionTime, or
// where it has none the time at which the condition of Ending turned. It is zero when
// neither is known.
func (r *AgentRun) FinishTime() time.Time {
	if !r.Terminal() {
		return time.Time{}
	}
	if !r.Status.CompletionTime.IsZero() {
		return r.Status.CompletionTime.Time
	}
	if end := r.Ending(); end != nil {
		return end.LastTransitionTime.Time
	}
	return time.Time{}
}

// AgentRunList is a list of AgentRuns.
//
// +kubebuilder:object:root=true
type AgentRunList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgentRun `json:"items"`
}
