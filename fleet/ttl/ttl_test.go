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
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

// now is the member's time in these tests.
var now = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// recordedRun is a run that carries its own mark.
func recordedRun(w *build.AgentRunWrapper) *agentv1alpha1.AgentRun {
	run := w.UID("u").Obj()
	run.Annotations = map[string]string{agentv1alpha1.RecordedAnnotation: "u/ledger"}
	return run
}

func succeeded(finished time.Time) *build.AgentRunWrapper {
	return build.MakeAgentRun("r").UID("u").Phase(agentv1alpha1.AgentRunSucceeded).Completed(finished)
}

func failed(finished time.Time) *build.AgentRunWrapper {
	return build.MakeAgentRun("r").Failed("OOMKilled", "", finished)
}

func condition(conditionType string, status metav1.ConditionStatus, turned time.Time) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: "Said", LastTransitionTime: metav1.NewTime(turned)}
}

func TestDecide(t *testing.T) {
	never := Decision{}
	cases := map[string]struct {
		run    *agentv1alpha1.AgentRun
		policy Policy
		want   Decision
	}{
		"a run that is not terminal stays, whatever its times say": {
			run:    build.MakeAgentRun("r").Phase(agentv1alpha1.AgentRunRunning).TTLAfterFinished(0).Completed(ago(time.Hour)).Obj(),
			policy: Policy{Succeeded: time.Second, Failed: time.Second},
			want:   never,
		},
		"without a TTL a run stays": {
			run:  succeeded(ago(1000 * time.Hour)).Obj(),
			want: never,
		},
		"a negative policy is no TTL": {
			run:    succeeded(ago(time.Hour)).Obj(),
			policy: Policy{Succeeded: -time.Second},
			want:   never,
		},
		"a TTL that has not passed is waited for, to the instant": {
			run:  succeeded(ago(10 * time.Second)).TTLAfterFinished(60).Obj(),
			want: Decision{RequeueAfter: 50 * time.Second},
		},
		"a nanosecond before the time is not the time": {
			run:  succeeded(ago(60*time.Second - 1)).TTLAfterFinished(60).Obj(),
			want: Decision{RequeueAfter: 1},
		},
		"at the very instant the run goes": {
			run:  succeeded(ago(60 * time.Second)).TTLAfterFinished(60).Obj(),
			want: Decision{Delete: true, TTL: time.Minute, Finished: ago(time.Minute)},
		},
		"0 in the spec means at once": {
			run:  succeeded(now).TTLAfterFinished(0).Obj(),
			want: Decision{Delete: true, Finished: now},
		},
		"0 in the spec wins over a policy": {
			run:    succeeded(now).TTLAfterFinished(0).Obj(),
			policy: Policy{Succeeded: time.Hour},
			want:   Decision{Delete: true, Finished: now},
		},
		"a long TTL in the spec wins over a short policy": {
			run:    succeeded(ago(time.Minute)).TTLAfterFinished(3600).Obj(),
			policy: Policy{Succeeded: time.Second},
			want:   Decision{RequeueAfter: 59 * time.Minute},
		},
		"the policy for successes is that of a success": {
			run:    succeeded(ago(time.Minute)).Obj(),
			policy: Policy{Succeeded: time.Minute, Failed: time.Hour},
			want:   Decision{Delete: true, TTL: time.Minute, Finished: ago(time.Minute)},
		},
		"the policy for failures is not that of a success": {
			run:    succeeded(ago(time.Hour)).Obj(),
			policy: Policy{Failed: time.Minute},
			want:   never,
		},
		"the policy for failures is that of a recorded failure": {
			run:    recordedRun(failed(ago(time.Hour))),
			policy: Policy{Succeeded: time.Minute, Failed: 2 * time.Hour},
			want:   Decision{RequeueAfter: time.Hour},
		},
		"the policy for successes is not that of a failure": {
			run:    recordedRun(failed(ago(time.Hour))),
			policy: Policy{Succeeded: time.Minute},
			want:   never,
		},
		"a failure that is not recorded stays, and its mark is waited for, not the time": {
			run:  failed(ago(time.Hour)).UID("u").TTLAfterFinished(0).Obj(),
			want: never,
		},
		"a failure with the mark of another run stays": {
			run: func() *agentv1alpha1.AgentRun {
				run := recordedRun(failed(ago(time.Hour)).TTLAfterFinished(0))
				run.UID = "of-the-copy"
				return run
			}(),
			want: never,
		},
		"a recorded failure goes": {
			run:  recordedRun(failed(ago(time.Hour)).TTLAfterFinished(60)),
			want: Decision{Delete: true, TTL: time.Minute, Finished: ago(time.Hour)},
		},
		"a run on its way out is not deleted twice": {
			run: func() *agentv1alpha1.AgentRun {
				run := succeeded(ago(time.Hour)).TTLAfterFinished(0).Obj()
				run.DeletionTimestamp = &metav1.Time{Time: now}
				return run
			}(),
			want: never,
		},
		"an end in the future defers the deletion, even at once": {
			run:  succeeded(now.Add(5 * time.Minute)).TTLAfterFinished(0).Obj(),
			want: Decision{RequeueAfter: 5 * time.Minute},
		},
		"an end in the future defers the deletion until the TTL after it": {
			run:  succeeded(now.Add(5 * time.Minute)).TTLAfterFinished(60).Obj(),
			want: Decision{RequeueAfter: 6 * time.Minute},
		},
		"without a completionTime the Succeeded condition tells the end": {
			run: build.MakeAgentRun("r").Phase(agentv1alpha1.AgentRunSucceeded).TTLAfterFinished(60).
				Condition(condition("Succeeded", metav1.ConditionTrue, ago(time.Hour))).Obj(),
			want: Decision{Delete: true, TTL: time.Minute, Finished: ago(time.Hour), FinishedBy: "Succeeded"},
		},
		"without either, what another controller left in Ready tells the end": {
			run: recordedRun(build.MakeAgentRun("r").Phase(agentv1alpha1.AgentRunFailed).TTLAfterFinished(60).
				Condition(condition("Succeeded", metav1.ConditionUnknown, ago(2*time.Hour))).
				Condition(condition("Ready", metav1.ConditionFalse, ago(time.Hour)))),
			want: Decision{Delete: true, TTL: time.Minute, Finished: ago(time.Hour), FinishedBy: "Ready"},
		},
		"a condition's time is waited for as well": {
			run: build.MakeAgentRun("r").Phase(agentv1alpha1.AgentRunSucceeded).TTLAfterFinished(60).
				Condition(condition("Succeeded", metav1.ConditionTrue, ago(20*time.Second))).Obj(),
			want: Decision{RequeueAfter: 40 * time.Second},
		},
		"a run that ended nobody knows when stays": {
			run: build.MakeAgentRun("r").Phase(agentv1alpha1.AgentRunSucceeded).TTLAfterFinished(0).
				Condition(condition("Succeeded", metav1.ConditionUnknown, ago(time.Hour))).Obj(),
			want: never,
		},
		"a condition without a time tells no end": {
			run: func() *agentv1alpha1.AgentRun {
				run := build.MakeAgentRun("r").Phase(agentv1alpha1.AgentRunSucceeded).TTLAfterFinished(0).Obj()
				run.Status.Conditions = []metav1.Condition{condition("Succeeded", metav1.ConditionTrue, time.Time{})}
				return run
			}(),
			want: never,
		},
		"the longest TTL of a spec is waited for": {
			run:  succeeded(now).TTLAfterFinished(math.MaxInt32).Obj(),
			want: Decision{RequeueAfter: math.MaxInt32 * time.Second},
		},
		"times beyond the longest duration do not wrap": {
			run:    succeeded(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)).Obj(),
			policy: Policy{Succeeded: math.MaxInt64},
			want:   Decision{RequeueAfter: math.MaxInt64},
		},
		"an end before all clocks is over": {
			run:  succeeded(time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)).TTLAfterFinished(math.MaxInt32).Obj(),
			want: Decision{Delete: true, TTL: math.MaxInt32 * time.Second, Finished: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.run.DeepCopy()
			if diff := cmp.Diff(tc.want, Decide(tc.run, tc.policy, now)); diff != "" {
				t.Errorf("Decide (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.run); diff != "" {
				t.Errorf("Decide changed the run (-before +after):\n%s", diff)
			}
		})
	}
}

// TestComesBackOnce: who comes back when told to finds the run's time over, so that
// nobody is kept busy.
func TestComesBackOnce(t *testing.T) {
	run := succeeded(ago(1500 * time.Millisecond)).TTLAfterFinished(7).Obj()
	wait := Decide(run, Policy{}, now).RequeueAfter
	if wait <= 0 {
		t.Fatalf("RequeueAfter = %s, want some time", wait)
	}
	if early := Decide(run, Policy{}, now.Add(wait-1)); early.Delete {
		t.Error("the run goes a nanosecond too early")
	}
	if due := Decide(run, Policy{}, now.Add(wait)); !due.Delete || due.RequeueAfter != 0 {
		t.Errorf("Decide when told to come back = %+v, want the run deleted", due)
	}
}
