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
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRecorded(t *testing.T) {
	cases := map[string]struct {
		uid  types.UID
		mark map[string]string
		want bool
	}{
		"a run with its own UID is recorded":             {"a", map[string]string{RecordedAnnotation: "a"}, true},
		"a run with another's UID is not":                {"b", map[string]string{RecordedAnnotation: "a"}, false},
		"a run without a mark is not":                    {"a", map[string]string{"other": "a"}, false},
		"a manifest that was never stored is not, ever":  {"", map[string]string{RecordedAnnotation: ""}, false},
		"a run whose mark differs in case alone is not":  {"a", map[string]string{RecordedAnnotation: "A"}, false},
		"a run whose mark has blanks around is not":      {"a", map[string]string{RecordedAnnotation: " a"}, false},
		"a run without annotations is not":               {"a", nil, false},
		"a manifest without UID and annotations is not":  {"", nil, false},
		"a run that is marked with nothing in it is not": {"a", map[string]string{RecordedAnnotation: ""}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := &AgentRun{ObjectMeta: metav1.ObjectMeta{UID: tc.uid, Annotations: tc.mark}}
			if got := run.Recorded(); got != tc.want {
				t.Errorf("Recorded() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestEndingAndFinishTime(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }
	completed := at(7)
	condition := func(conditionType string, status metav1.ConditionStatus, reason string, seconds int64) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: reason, LastTransitionTime: at(seconds)}
	}
	cases := map[string]struct {
		status     AgentRunStatus
		wantEnding string
		wantFinish time.Time
	}{
		"a run that is not terminal has no end, whatever it says": {
			status: AgentRunStatus{
				Phase: AgentRunRunning, CompletionTime: &completed,
				Conditions: []metav1.Condition{condition(ConditionSucceeded, metav1.ConditionTrue, "Early", 1)},
			},
		},
		"completionTime comes before the condition's": {
			status: AgentRunStatus{
				Phase: AgentRunSucceeded, CompletionTime: &completed,
				Conditions: []metav1.Condition{condition(ConditionSucceeded, metav1.ConditionTrue, "Done", 9)},
			},
			wantEnding: ConditionSucceeded,
			wantFinish: completed.Time,
		},
		"Succeeded comes before Ready": {
			status: AgentRunStatus{
				Phase: AgentRunFailed,
				Conditions: []metav1.Condition{
					condition(ConditionReady, metav1.ConditionFalse, "PodFailed", 2),
					condition(ConditionSucceeded, metav1.ConditionFalse, "Evicted", 1),
				},
			},
			wantEnding: ConditionSucceeded,
			wantFinish: at(1).Time,
		},
		"a Succeeded that contradicts the phase tells nothing": {
			status: AgentRunStatus{
				Phase: AgentRunFailed,
				Conditions: []metav1.Condition{
					condition(ConditionSucceeded, metav1.ConditionTrue, "Done", 1),
					condition(ConditionReady, metav1.ConditionFalse, "PodFailed", 2),
				},
			},
			wantEnding: ConditionReady,
			wantFinish: at(2).Time,
		},
		"a condition without a reason tells nothing": {
			status: AgentRunStatus{
				Phase:      AgentRunFailed,
				Conditions: []metav1.Condition{condition(ConditionSucceeded, metav1.ConditionFalse, "", 1)},
			},
		},
		"a completionTime alone tells when, not how": {
			status:     AgentRunStatus{Phase: AgentRunFailed, CompletionTime: &completed},
			wantFinish: completed.Time,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := &AgentRun{Status: tc.status}
			var ending string
			if c := run.Ending(); c != nil {
				ending = c.Type
			}
			if ending != tc.wantEnding {
				t.Errorf("Ending() is condition %q, want %q", ending, tc.wantEnding)
			}
			if got := run.FinishTime(); !got.Equal(tc.wantFinish) {
				t.Errorf("FinishTime() = %s, want %s", got, tc.wantFinish)
			}
		})
	}
}
