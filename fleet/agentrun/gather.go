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

package agentrun

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
)

// observed is what a member's cache holds of one run.
type observed struct {
	run     *agentv1alpha1.AgentRun
	pod     *corev1.Pod
	sandbox *unstructured.Unstructured
}

func (o observed) input(policy startup.Policy, now time.Time) startup.Input {
	return startup.Input{Run: o.run, Pod: o.pod, Sandbox: sandboxView(o.sandbox, now), Policy: policy, Now: now}
}

// gather reads the run and what belongs to it from the member's cache. Its error is
// NotFound when the run is gone.
func gather(ctx context.Context, cl cluster.Cluster, key types.NamespacedName) (observed, error) {
	run := &agentv1alpha1.AgentRun{}
	if err := cl.GetCache().Get(ctx, key, run); err != nil {
		return observed{}, err
	}
	return gatherFor(ctx, cacheOf(cl), run)
}

func gatherFor(ctx context.Context, c *memberCache, run *agentv1alpha1.AgentRun) (observed, error) {
	o := observed{run: run}
	candidates, err := listPods(ctx, c.Cache, run.Namespace, indexRunLabel, run.Name)
	if err != nil {
		return o, err
	}
	// A label holds 63 characters, a run's name may be longer.
	controlled, err := listPods(ctx, c.Cache, run.Namespace, indexOwner, string(run.UID))
	if err != nil {
		return o, err
	}
	candidates = append(candidates, controlled...)
	if o.sandbox, err = c.sandboxOf(ctx, run, candidates); err != nil {
		return o, err
	}
	var sandboxUID types.UID
	if o.sandbox != nil {
		sandboxUID = o.sandbox.GetUID()
		owned, err := c.podsOwnedBy(ctx, run.Namespace, sandboxUID)
		if err != nil {
			return o, err
		}
		candidates = append(candidates, owned...)
	}
	o.pod = startup.PodOf(run, sandboxUID, candidates)
	return o, nil
}

// PodOf returns the pod of a run in a member's cache, or nil. It is for callers that
// want to say more of a failed run than its status does.
func PodOf(ctx context.Context, cl cluster.Cluster, run *agentv1alpha1.AgentRun) *corev1.Pod {
	c, ok := cl.GetCache().(*memberCache)
	if !ok {
		return nil
	}
	o, err := gatherFor(ctx, c, run)
	if err != nil {
		return nil
	}
	return o.pod
}

// sandboxOf returns the run's Sandbox: the one it controls, the one its status names, or
// the one that made a pod with the run's label. A Sandbox that another run controls
// is never it: that run had the same name and is gone.
func (m *memberCache) sandboxOf(ctx context.Context, run *agentv1alpha1.AgentRun, labelled []*corev1.Pod) (*unstructured.Unstructured, error) {
	if m.sandbox == nil {
		return nil, nil
	}
	owned := &unstructured.UnstructuredList{}
	owned.SetGroupVersionKind(m.sandbox.GroupVersion().WithKind("SandboxList"))
	if err := m.List(ctx, owned, client.InNamespace(run.Namespace), client.MatchingFields{indexOwner: string(run.UID)}); err != nil {
		return nil, err
	}
	if len(owned.Items) > 0 {
		youngest := slices.MaxFunc(owned.Items, func(a, b unstructured.Unstructured) int {
			at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
			return at.Compare(bt.Time)
		})
		return &youngest, nil
	}
	for _, name := range sandboxNames(run, labelled) {
		s := newSandbox(*m.sandbox)
		err := m.Get(ctx, types.NamespacedName{Namespace: run.Namespace, Name: name}, s)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && !ofAnotherRun(s, run) {
			return s, nil
		}
	}
	return nil, nil
}

func sandboxNames(run *agentv1alpha1.AgentRun, labelled []*corev1.Pod) []string {
	names := nonEmpty(run.Status.SandboxName)
	for _, pod := range labelled {
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Sandbox" {
			names = append(names, owner.Name)
		}
	}
	return names
}

// ofAnotherRun says whether a Sandbox that the run does not control belongs to an
// earlier run of the name: it has that run for its controller, or it is older than
// this run and this run's status does not name it.
func ofAnotherRun(s *unstructured.Unstructured, run *agentv1alpha1.AgentRun) bool {
	if owner := metav1.GetControllerOf(s); owner != nil && owner.Kind == "AgentRun" && owner.UID != run.UID {
		return true
	}
	created := s.GetCreationTimestamp()
	return run.Status.SandboxName != s.GetName() && created.Before(&run.CreationTimestamp)
}

// podsOwnedBy returns the pods of a Sandbox, with the run's label or without.
func (m *memberCache) podsOwnedBy(ctx context.Context, namespace string, uid types.UID) ([]*corev1.Pod, error) {
	labelled, err := listPods(ctx, m.Cache, namespace, indexOwner, string(uid))
	if err != nil {
		return nil, err
	}
	unlabelled, err := listPods(ctx, m.sandboxPods, namespace, indexOwner, string(uid))
	return append(labelled, unlabelled...), err
}

func listPods(ctx context.Context, c client.Reader, namespace, index, value string) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index: value}); err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// sandboxView is what fleet/startup wants to know of a Sandbox.
func sandboxView(u *unstructured.Unstructured, now time.Time) *startup.Sandbox {
	if u == nil {
		return nil
	}
	s := &startup.Sandbox{Name: u.GetName()}
	s.Stopped = u.GetDeletionTimestamp() != nil || shutdownTimeReached(u, now)
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if raw, ok := u.Object["status"].(map[string]any); ok {
		// A status of another shape has nothing to say; the pod still has.
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &status); err == nil {
			s.Conditions = status.Conditions
		}
	}
	return s
}

// shutdownTimeReached says whether the Sandbox's lifetime is over. Many have one that ends
// later.
func shutdownTimeReached(u *unstructured.Unstructured, now time.Time) bool {
	value, found, _ := unstructured.NestedString(u.Object, "spec", "shutdownTime")
	at, err := time.Parse(time.RFC3339, value)
	return found && err == nil && !at.After(now)
}
