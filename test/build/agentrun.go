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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// DefaultNamespace is where objects are unless they say otherwise.
const DefaultNamespace = "default"

// AgentRunWrapper builds an AgentRun.
type AgentRunWrapper struct{ run agentv1alpha1.AgentRun }

// MakeAgentRun starts a run of agent "agent" in DefaultNamespace.
func MakeAgentRun(name string) *AgentRunWrapper {
	return &AgentRunWrapper{agentv1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: name},
		Spec:       agentv1alpha1.AgentRunSpec{AgentRef: "agent"},
	}}
}

// Obj returns a copy of the run as built so far.
func (w *AgentRunWrapper) Obj() *agentv1alpha1.AgentRun { return w.run.DeepCopy() }

// Namespace sets the namespace.
func (w *AgentRunWrapper) Namespace(namespace string) *AgentRunWrapper {
	w.run.Namespace = namespace
	return w
}

// UID sets the UID, which the API server would otherwise choose.
func (w *AgentRunWrapper) UID(uid types.UID) *AgentRunWrapper {
	w.run.UID = uid
	return w
}

// Created sets the creation time, which the API server would otherwise choose.
func (w *AgentRunWrapper) Created(t time.Time) *AgentRunWrapper {
	w.run.CreationTimestamp = metav1.NewTime(t)
	return w
}

// Label sets a label.
func (w *AgentRunWrapper) Label(key, value string) *AgentRunWrapper {
	metav1.SetMetaDataLabel(&w.run.ObjectMeta, key, value)
	return w
}

// Agent sets the agent that is executed.
func (w *AgentRunWrapper) Agent(name string) *AgentRunWrapper {
	w.run.Spec.AgentRef = name
	return w
}

// StartupDeadline sets the deadline, in seconds; 0 disables it.
func (w *AgentRunWrapper) StartupDeadline(seconds int32) *AgentRunWrapper {
	w.run.Spec.StartupDeadlineSeconds = &seconds
	return w
}

// TTLAfterFinished sets how long a finished run is kept, in seconds.
func (w *AgentRunWrapper) TTLAfterFinished(seconds int32) *AgentRunWrapper {
	w.run.Spec.TTLSecondsAfterFinished = &seconds
	return w
}

// SandboxName sets the Sandbox that the run's status names.
func (w *AgentRunWrapper) SandboxName(name string) *AgentRunWrapper {
	w.run.Status.SandboxName = name
	return w
}

// Phase sets the phase.
func (w *AgentRunWrapper) Phase(phase agentv1alpha1.AgentRunPhase) *AgentRunWrapper {
	w.run.Status.Phase = phase
	return w
}

// Started sets the time at which the run's pod was first seen Running.
func (w *AgentRunWrapper) Started(t time.Time) *AgentRunWrapper {
	w.run.Status.StartTime = &metav1.Time{Time: t}
	return w
}

// Completed sets the time at which the run ended.
func (w *AgentRunWrapper) Completed(t time.Time) *AgentRunWrapper {
	w.run.Status.CompletionTime = &metav1.Time{Time: t}
	return w
}

// Condition sets a condition.
func (w *AgentRunWrapper) Condition(c metav1.Condition) *AgentRunWrapper {
	meta.SetStatusCondition(&w.run.Status.Conditions, c)
	return w
}

// Failed makes the run one that failed at that time for that reason.
func (w *AgentRunWrapper) Failed(reason, message string, t time.Time) *AgentRunWrapper {
	return w.Phase(agentv1alpha1.AgentRunFailed).Completed(t).Condition(metav1.Condition{
		Type:               agentv1alpha1.ConditionSucceeded,
		Status:             metav1.ConditionFalse,
		Reason:             reason,
		Message:            message,
		LastTransitionTime: metav1.NewTime(t),
	})
}
