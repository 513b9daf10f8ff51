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

package startup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// PodOf picks the run's pod among candidates: those that carry the run's label or
// belong to its Sandbox. A pod that the run or its Sandbox controls comes before one that
// has only the label, which anybody may set: such a one counts only for a run without a
// Sandbox. A pod left over from an earlier run of the same name is told
// by its owner, or by being older than the run. Of several the youngest counts;
// a Sandbox makes a new pod when its pod is deleted. sandboxUID is empty when the
// run has no Sandbox.
func PodOf(run *agentv1alpha1.AgentRun, sandboxUID types.UID, candidates []*corev1.Pod) *corev1.Pod {
	mine := keep(candidates, func(pod *corev1.Pod) bool { return controlled(run, sandboxUID, pod) })
	if len(mine) == 0 && sandboxUID == "" {
		mine = keep(candidates, func(pod *corev1.Pod) bool { return labelledOnly(run, pod) })
	}
	if len(mine) == 0 {
		return nil
	}
	return slices.MaxFunc(mine, func(a, b *corev1.Pod) int {
		if byAge := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); byAge != 0 {
			return byAge
		}
		// Of the same second: the one that is not on its way out.
		return boolToInt(a.DeletionTimestamp == nil) - boolToInt(b.DeletionTimestamp == nil)
	})
}

func keep(pods []*corev1.Pod, wanted func(*corev1.Pod) bool) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !wanted(pod) })
}

// controlled says whether the run or its Sandbox controls the pod.
func controlled(run *agentv1alpha1.AgentRun, sandboxUID types.UID, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && (owner.UID == run.UID || (sandboxUID != "" && owner.UID == sandboxUID))
}

// labelledOnly says whether the pod has the run's label, is not older than the run, and is
// not controlled by another run, or by a Sandbox that is not (or no longer) this run's.
func labelledOnly(run *agentv1alpha1.AgentRun, pod *corev1.Pod) bool {
	if owner := metav1.GetControllerOf(pod); owner != nil && (owner.Kind == "AgentRun" || owner.Kind == "Sandbox") {
		return false
	}
	return pod.Labels[agentv1alpha1.AgentRunLabel] == run.Name && !pod.CreationTimestamp.Before(&run.CreationTimestamp)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
