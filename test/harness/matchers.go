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

package harness

import (
	"fmt"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// HavePhase succeeds when an AgentRun is in the phase.
func HavePhase(phase agentv1alpha1.AgentRunPhase) types.GomegaMatcher {
	return gomega.WithTransform(func(object any) (agentv1alpha1.AgentRunPhase, error) {
		run, ok := object.(*agentv1alpha1.AgentRun)
		if !ok {
			return "", fmt.Errorf("HavePhase takes a *AgentRun, not a %T", object)
		}
		return run.Status.Phase, nil
	}, gomega.Equal(phase))
}

// HaveCondition succeeds when an object of this project has the condition with
// that status and reason; an empty reason stands for any.
func HaveCondition(conditionType string, status metav1.ConditionStatus, reason string) types.GomegaMatcher {
	matchReason := gomega.Not(gomega.BeEmpty())
	if reason != "" {
		matchReason = gomega.Equal(reason)
	}
	return gomega.WithTransform(conditionsOf, gomega.ContainElement(gomega.And(
		gomega.HaveField("Type", conditionType),
		gomega.HaveField("Status", status),
		gomega.HaveField("Reason", matchReason),
	)))
}

func conditionsOf(object any) ([]metav1.Condition, error) {
	switch o := object.(type) {
	case *agentv1alpha1.AgentRun:
		return o.Status.Conditions, nil
	case *fleetv1alpha1.AgentRunClusterStatus:
		return o.Status.Conditions, nil
	case *fleetv1alpha1.AgentRunFleetStatus:
		return o.Status.Conditions, nil
	default:
		return nil, fmt.Errorf("HaveCondition takes an object of this project, not a %T", object)
	}
}
