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

package tally

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// ReasonUnknown is the reason of a failed run on which nobody left one.
const ReasonUnknown = "Unknown"

// Run is what counts of one run. It is comparable: two equal values count alike.
type Run struct {
	UID       types.UID
	Namespace string
	Name      string
	Phase     agentv1alpha1.AgentRunPhase
	// Reason and Message say why a failed run failed, verbatim. Empty for others.
	Reason  string
	Message string
	// Created and Completed are zero where they are not known.
	Created   time.Time
	Completed time.Time
	// Unsettled says that a failed run has no Succeeded condition yet, so that its reason
	// may change: somebody else than the manager ended it. One on its way out gets none.
	Unsettled bool
	// Marked says that the run bears the mark of being in the ledger's totals.
	Marked bool
	// Evidence says where a failed run failed. RunOf leaves it empty.
	Evidence Evidence
	// Version is the run's resourceVersion, which says whether an observation is older
	// than another. RunOf leaves it empty.
	Version string
}

// Evidence says what kept a run from starting, or ended it.
type Evidence struct {
	Container, Image, Node string
}

// RunOf takes from a run what counts for the ledger with that ID. Before there is one, any
// ledger's mark is taken for its: it will not have counted what went before it was begun.
// A run without a phase is Pending.
func RunOf(r *agentv1alpha1.AgentRun, ledger types.UID) Run {
	run := Run{
		UID: r.UID, Namespace: r.Namespace, Name: r.Name,
		Phase: r.Status.Phase, Created: r.CreationTimestamp.Time, Marked: r.RecordedBy(ledger) || ledger == "" && r.Recorded(),
	}
	if run.Phase == "" {
		run.Phase = agentv1alpha1.AgentRunPending
	}
	if !r.Terminal() {
		return run
	}
	run.Completed = r.FinishTime()
	if run.failed() {
		end := r.Ending()
		run.Reason, run.Message = failure(end)
		run.Unsettled = (end == nil || end.Type != agentv1alpha1.ConditionSucceeded) && r.DeletionTimestamp == nil
	}
	return run
}

// failure is why a failed run failed: the words of the condition that tells its end, or
// ReasonUnknown.
func failure(end *metav1.Condition) (reason, message string) {
	if end != nil {
		return end.Reason, end.Message
	}
	return ReasonUnknown, ""
}

func (r Run) failed() bool {
	return r.Phase == agentv1alpha1.AgentRunFailed
}
