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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func metaAt(seconds int) *metav1.Time {
	t := metav1.NewTime(at(seconds))
	return &t
}

func condition(conditionType string, status metav1.ConditionStatus, reason string, seconds int) metav1.Condition {
	return metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: "about " + reason, LastTransitionTime: *metaAt(seconds),
	}
}

func TestRunOf(t *testing.T) {
	cases := map[string]struct {
		status agentv1alpha1.AgentRunStatus
		want   Run
	}{
		"a run without a phase is Pending": {
			want: Run{Phase: agentv1alpha1.AgentRunPending},
		},
		"a running run has no reason and no end, whatever its conditions say": {
			status: agentv1alpha1.AgentRunStatus{
				Phase:      agentv1alpha1.AgentRunRunning,
				Conditions: []metav1.Condition{condition("Succeeded", metav1.ConditionFalse, "Early", 1)},
			},
			want: Run{Phase: agentv1alpha1.AgentRunRunning},
		},
		"a failed run has the reason of its Succeeded condition, verbatim": {
			status: agentv1alpha1.AgentRunStatus{
				Phase:          agentv1alpha1.AgentRunFailed,
				CompletionTime: metaAt(7),
				Conditions: []metav1.Condition{
					condition("Ready", metav1.ConditionFalse, "PodFailed", 2),
					condition("Succeeded", metav1.ConditionFalse, "Weird,Reason_1", 1),
				},
			},
			want: Run{Phase: agentv1alpha1.AgentRunFailed, Reason: "Weird,Reason_1", Message: "about Weird,Reason_1", Completed: at(7)},
		},
		"a run that another controller failed has the reason of its Ready condition": {
			status: agentv1alpha1.AgentRunStatus{
				Phase: agentv1alpha1.AgentRunFailed,
				Conditions: []metav1.Condition{
					condition("Succeeded", metav1.ConditionUnknown, "Pending", 1),
					condition("Ready", metav1.ConditionFalse, "AgentNotFound", 2),
				},
			},
			want: Run{Phase: agentv1alpha1.AgentRunFailed, Reason: "AgentNotFound", Message: "about AgentNotFound", Completed: at(2), Unsettled: true},
		},
		"a failed run on which nobody left a reason is Unknown": {
			status: agentv1alpha1.AgentRunStatus{
				Phase:      agentv1alpha1.AgentRunFailed,
				Conditions: []metav1.Condition{condition("Ready", metav1.ConditionTrue, "Odd", 2)},
			},
			want: Run{Phase: agentv1alpha1.AgentRunFailed, Reason: ReasonUnknown, Unsettled: true},
		},
		"a succeeded run without completionTime ended when its condition turned": {
			status: agentv1alpha1.AgentRunStatus{
				Phase:      agentv1alpha1.AgentRunSucceeded,
				Conditions: []metav1.Condition{condition("Succeeded", metav1.ConditionTrue, "Completed", 9)},
			},
			want: Run{Phase: agentv1alpha1.AgentRunSucceeded, Completed: at(9)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := &agentv1alpha1.AgentRun{Status: tc.status}
			run.UID, run.Namespace, run.Name, run.CreationTimestamp = "u", "ns", "r", *metaAt(0)
			tc.want.UID, tc.want.Namespace, tc.want.Name, tc.want.Created = "u", "ns", "r", at(0)
			if diff := cmp.Diff(tc.want, RunOf(run, "ledger")); diff != "" {
				t.Errorf("RunOf (-want +got):\n%s", diff)
			}
		})
	}
}

// A run on its way out keeps the status it has: nobody will settle its reason.
func TestRunOfOneOnItsWayOut(t *testing.T) {
	run := &agentv1alpha1.AgentRun{Status: agentv1alpha1.AgentRunStatus{
		Phase: agentv1alpha1.AgentRunFailed, Conditions: []metav1.Condition{condition("Ready", metav1.ConditionFalse, "PodFailed", 2)},
	}}
	if !RunOf(run, "ledger").Unsettled {
		t.Error("the reason of a run that another controller ended is said to be settled")
	}
	run.DeletionTimestamp = metaAt(3)
	if got := RunOf(run, "ledger"); got.Unsettled || got.Reason != "PodFailed" {
		t.Errorf("on its way out: unsettled %v, reason %s; want false, PodFailed", got.Unsettled, got.Reason)
	}
}

func TestRunOfMarks(t *testing.T) {
	cases := map[string]struct {
		mark   string
		ledger types.UID
		want   bool
	}{
		"a run with the ledger's mark is marked":                        {"u/ledger", "ledger", true},
		"a run that another ledger has counted is not":                  {"u/another", "ledger", false},
		"a run that both have counted is":                               {"u/another/ledger", "ledger", true},
		"a run without a mark is not":                                   {"", "ledger", false},
		"before there is a ledger, whatever one has counted is marked":  {"u/another", "", true},
		"before there is a ledger, what none has counted is not marked": {"", "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := &agentv1alpha1.AgentRun{}
			run.UID, run.Annotations = "u", map[string]string{agentv1alpha1.RecordedAnnotation: tc.mark}
			if got := RunOf(run, tc.ledger).Marked; got != tc.want {
				t.Errorf("marked %v, want %v", got, tc.want)
			}
		})
	}
}

func TestBounded(t *testing.T) {
	cases := map[string]struct{ reason, want string }{
		"a CamelCase word stays":                        {"ErrImagePull", "ErrImagePull"},
		"a word of 63 characters stays":                 {"A" + strings.Repeat("b", 62), "A" + strings.Repeat("b", 62)},
		"a word of 64 characters is Other":              {"A" + strings.Repeat("b", 63), "Other"},
		"an empty reason is Other":                      {"", "Other"},
		"a lower case word is Other":                    {"oom", "Other"},
		"a sentence is Other":                           {"Image not found", "Other"},
		"a letter from another alphabet is Other":       {"Ошибка", "Other"},
		"a word with a line break at its end is Other":  {"Error\n", "Other"},
		"a word with the separators of a key is Other":  {"Error_1:2", "Other"},
		"a word that is followed by a quote is Other":   {`Error"`, "Other"},
		"a word with a NUL character in it is Other":    {"Err\x00or", "Other"},
		"a word that starts with a digit is Other":      {"137", "Other"},
		"a single capital is a word that may be a name": {"E", "E"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Bounded(tc.reason); got != tc.want {
				t.Errorf("Bounded(%q) = %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
