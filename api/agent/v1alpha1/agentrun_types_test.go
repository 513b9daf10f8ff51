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
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRecorded(t *testing.T) {
	type recorded struct {
		Any, ByA, ByB bool
		// Next is the mark when the ledger b has counted the run, too.
		Next string
	}
	full := "u" + strings.Repeat("/x", MaxLedgers)
	cases := map[string]struct {
		uid  types.UID
		mark map[string]string
		want recorded
	}{
		"a run is recorded by the ledger that its mark names":   {"u", marked("u/a"), recorded{Any: true, ByA: true, Next: "u/a/b"}},
		"by each of them, once":                                 {"u", marked("u/a/b"), recorded{Any: true, ByA: true, ByB: true, Next: "u/a/b"}},
		"a mark with another's UID, as of a copy, says nothing": {"v", marked("u/a"), recorded{Next: "v/b"}},
		"nor one that names no ledger":                          {"u", marked("u"), recorded{Next: "u/b"}},
		"nor one of which nothing is left but the slash":        {"u", marked("u/"), recorded{Next: "u/b"}},
		"nor one that differs in case alone":                    {"u", marked("U/a"), recorded{Next: "u/b"}},
		"nor one that has blanks around":                        {"u", marked(" u/a"), recorded{Next: "u/b"}},
		"a run without a mark is not":                           {"u", map[string]string{"other": "u/a"}, recorded{Next: "u/b"}},
		"a run without annotations is not":                      {"u", nil, recorded{Next: "u/b"}},
		"a manifest that was never stored is not, ever":         {"", marked("/a"), recorded{Next: "/b"}},
		"one more than there is room for is not named":          {"u", marked(full), recorded{Any: true, Next: full}},
		"empty names are none":                                  {"u", marked("u//a//"), recorded{Any: true, ByA: true, Next: "u/a/b"}},
		"a mark as long as an annotation may be says nothing":   {"u", marked("u/a/" + strings.Repeat("x", 200_000)), recorded{Next: "u/b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := &AgentRun{ObjectMeta: metav1.ObjectMeta{UID: tc.uid, Annotations: tc.mark}}
			got := recorded{Any: run.Recorded(), ByA: run.RecordedBy("a"), ByB: run.RecordedBy("b"), Next: run.Mark("b")}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if run.Mark() == "" == got.Any {
				t.Errorf("Mark() = %q, Recorded() = %v", run.Mark(), got.Any)
			}
		})
	}
}

func marked(value string) map[string]string { return map[string]string{RecordedAnnotation: value} }

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
