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

package rollup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second))
}

func ptrAt(seconds int) *metav1.Time {
	t := at(seconds)
	return &t
}

func TestContact(t *testing.T) {
	cases := map[string]struct {
		stored    *metav1.Time
		last      metav1.Time
		connected metav1.ConditionStatus
		want      *metav1.Time
	}{
		"the first contact is shown":                                  {nil, at(0), metav1.ConditionTrue, ptrAt(0)},
		"a member that never answered has none":                       {nil, metav1.Time{}, metav1.ConditionUnknown, nil},
		"a move of less than 30 s is not worth a write":               {ptrAt(0), at(29), metav1.ConditionTrue, ptrAt(0)},
		"a move of 30 s is":                                           {ptrAt(0), at(30), metav1.ConditionTrue, ptrAt(30)},
		"nor is one back by as much, as of a clock that is corrected": {ptrAt(29), at(0), metav1.ConditionTrue, ptrAt(29)},
		"after the hub's clock was set back it is shown by that":      {ptrAt(7200), at(60), metav1.ConditionTrue, ptrAt(60)},
		"a lost member's last contact is exact":                       {ptrAt(0), at(7), metav1.ConditionUnknown, ptrAt(7)},
		"after a restart the stored one stands until there is news":   {ptrAt(0), metav1.Time{}, metav1.ConditionUnknown, ptrAt(0)},
		"parts of a second are cut, as the API server cuts them": {
			nil, metav1.NewTime(epoch.Add(300 * time.Millisecond)), metav1.ConditionTrue, ptrAt(0),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := Member{LastContactTime: tc.last, Connected: metav1.Condition{Status: tc.connected}}
			if diff := cmp.Diff(tc.want, contact(tc.stored, m)); diff != "" {
				t.Errorf("contact (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetConnectionKeepsTheTimeOfTheLastTransition(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason string, seconds int) metav1.Condition {
		return metav1.Condition{Type: "Connected", Status: status, Reason: reason, LastTransitionTime: at(seconds)}
	}
	cases := map[string]struct {
		stored []metav1.Condition
		now    metav1.Condition
		want   metav1.Condition
	}{
		"the first condition has the time that the member gives": {
			nil, condition("True", "Connected", 5), condition("True", "Connected", 5),
		},
		"one without a time has the present": {
			nil, metav1.Condition{Status: "True", Reason: "Connected"}, condition("True", "Connected", 100),
		},
		"another reason for the same status keeps the time": {
			[]metav1.Condition{condition("Unknown", "Connecting", 1)}, condition("Unknown", "Unreachable", 5), condition("Unknown", "Unreachable", 1),
		},
		"another status has its own time": {
			[]metav1.Condition{condition("True", "Connected", 1)}, condition("Unknown", "Unreachable", 5), condition("Unknown", "Unreachable", 5),
		},
		"a status and a reason that the API refuses are replaced": {
			nil, condition("Maybe", "not a word", 5), condition("Unknown", "Other", 5),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Rollup{clock: clocktesting.NewFakeClock(at(100).Time)}
			status := fleetv1alpha1.AgentRunClusterStatusStatus{Conditions: tc.stored}
			r.setConnection(&status, Member{Connected: tc.now})
			if diff := cmp.Diff([]metav1.Condition{tc.want}, status.Conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectorOf(t *testing.T) {
	expression := func(operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: operator, Values: values}}}
	}
	cases := map[string]struct {
		selector  *metav1.LabelSelector
		want      string
		wantError string
	}{
		"none selects everything":         {},
		"an empty one selects everything": {selector: &metav1.LabelSelector{}},
		"labels and expressions select":   {selector: expression("In", "a", "b"), want: "k in (a,b)"},
		"an unknown operator is an error that names the field": {
			selector:  expression("Near"),
			wantError: `spec.clusterSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator`,
		},
		"an operator without its values is an error that names the field": {
			selector:  expression("In"),
			wantError: "spec.clusterSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			selector, err := selectorOf(fleetv1alpha1.AgentRunFleetStatusSpec{ClusterSelector: tc.selector})
			var got, gotError string
			if err != nil {
				gotError = err.Error()
			} else {
				got = selector.String()
			}
			if diff := cmp.Diff([]string{tc.want, tc.wantError}, []string{got, gotError}); diff != "" {
				t.Errorf("selector and error (-want +got):\n%s", diff)
			}
		})
	}
}
