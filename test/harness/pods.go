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
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// CreateRun creates a run and then its status, which a create alone drops. On
// return the run is as stored.
func (cp *ControlPlane) CreateRun(ctx context.Context, run *agentv1alpha1.AgentRun) error {
	status := *run.Status.DeepCopy()
	if err := cp.Client.Create(ctx, run); err != nil {
		return fmt.Errorf("creating AgentRun %s in %q: %w", client.ObjectKeyFromObject(run), cp.Name, err)
	}
	if reflect.ValueOf(status).IsZero() {
		return nil
	}
	// A manager may have written first; what is given here stands beside it.
	stored := run.DeepCopy()
	run.Status = status
	if err := cp.Client.Status().Patch(ctx, run, client.MergeFrom(stored)); err != nil {
		return fmt.Errorf("writing the status of AgentRun %s in %q: %w", client.ObjectKeyFromObject(run), cp.Name, err)
	}
	return nil
}

// CreatePod creates a pod and then, as kubelet would, its status, which a create
// alone drops. On return the pod is as stored.
func (cp *ControlPlane) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	status := *pod.Status.DeepCopy()
	if err := cp.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating Pod %s in %q: %w", client.ObjectKeyFromObject(pod), cp.Name, err)
	}
	pod.Status = status
	return cp.SetPodStatus(ctx, pod)
}

// SetPodStatus plays kubelet: the stored pod's status becomes the given pod's, and
// nothing else of it changes, whatever its resource version. On return the pod is as
// stored.
func (cp *ControlPlane) SetPodStatus(ctx context.Context, pod *corev1.Pod) error {
	status := *pod.Status.DeepCopy()
	key := client.ObjectKeyFromObject(pod)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := cp.Client.Get(ctx, key, pod); err != nil {
			return err
		}
		pod.Status = status
		return cp.Client.Status().Update(ctx, pod)
	})
	if err != nil {
		return fmt.Errorf("writing the status of Pod %s in %q: %w", key, cp.Name, err)
	}
	return nil
}
