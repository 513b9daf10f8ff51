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

package ttl

import (
	"time"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// Policy is how long finished runs are kept whose spec does not say; 0 means for ever.
type Policy struct {
	Succeeded, Failed time.Duration
}

// Decision says whether a run is to be deleted.
type Decision struct {
	// Delete is true when the run's time is over. The fields after it are set then.
	Delete bool
	// TTL is how long the run was kept after Finished, at least.
	TTL time.Duration
	// Finished is when the run ended, by the member's clock.
	Finished time.Time
	// FinishedBy is the type of the condition that tells Finished; empty when that is the
	// run's completionTime.
	FinishedBy string

	// RequeueAfter is when the run's time is over; 0 when it is to be deleted now, or
	// not for what is known of it.
	RequeueAfter time.Duration
}

// Decide says whether a run is to be deleted. now is the member's time.
func Decide(run *agentv1alpha1.AgentRun, policy Policy, now time.Time) Decision {
	ttl, limited := ttlOf(run, policy)
	finished := run.FinishTime()
	if !limited || finished.IsZero() || run.DeletionTimestamp != nil || !recorded(run) {
		return Decision{}
	}
	// Times do not wrap where durations would, and Sub stops at the longest duration.
	if left := finished.Add(ttl).Sub(now); left > 0 {
		return Decision{RequeueAfter: left}
	}
	return Decision{Delete: true, TTL: ttl, Finished: finished, FinishedBy: finishedBy(run)}
}

// ttlOf is how long the run is kept, and whether it has an end at all.
func ttlOf(run *agentv1alpha1.AgentRun, policy Policy) (ttl time.Duration, limited bool) {
	if seconds := run.Spec.TTLSecondsAfterFinished; seconds != nil {
		return time.Duration(*seconds) * time.Second, true
	}
	ttl = policy.Succeeded
	if run.Status.Phase == agentv1alpha1.AgentRunFailed {
		ttl = policy.Failed
	}
	return ttl, ttl > 0
}

// recorded says whether the run may go for the ledger's sake. Successes are not in it.
func recorded(run *agentv1alpha1.AgentRun) bool {
	return run.Status.Phase != agentv1alpha1.AgentRunFailed || run.Recorded()
}

func finishedBy(run *agentv1alpha1.AgentRun) string {
	if !run.Status.CompletionTime.IsZero() {
		return ""
	}
	return run.Ending().Type
}
