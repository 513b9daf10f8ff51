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
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// engager is the controller with the members' events led to its queue.
type engager struct {
	controller.TypedController[mcreconcile.Request]
	queue *fairQueue
	seen  *firstSeen
	clock clock.PassiveClock
}

var _ mcmanager.Runnable = &engager{}

// Engage watches a member until ctx ends: its runs, pods with the run's label, and where
// it has them Sandboxes and their pods. The member's informers must have synced, so it
// does not block; nothing of it is left when ctx has ended.
func (e *engager) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	c, ok := cl.GetCache().(*memberCache)
	if name == mcmanager.LocalCluster || !ok {
		return fmt.Errorf("cluster %q is no member: it was not built by NewCluster", name)
	}
	m := &engagedMember{engager: e, ctx: ctx, name: name, cache: c}
	err := errors.Join(
		watch(m, c.Cache, runKind, itself),
		watch(m, c.Cache, podKind, runsOfPod),
	)
	if c.sandbox != nil {
		err = errors.Join(err,
			watch(m, c.Cache, newSandbox(*c.sandbox), runsOfSandbox),
			watch(m, c.sandboxPods, podKind, runsOfPod),
		)
	}
	return err
}

// engagedMember is one member while it is engaged.
type engagedMember struct {
	*engager
	ctx   context.Context
	name  multicluster.ClusterName
	cache *memberCache
}

// mapFunc names the runs that an object of a member is about.
type mapFunc[T client.Object] func(ctx context.Context, c *memberCache, obj T) []types.NamespacedName

// watch leads the events of a kind to the queue until the member is disengaged.
func watch[T client.Object](m *engagedMember, from cache.Cache, kind T, runsOf mapFunc[T]) error {
	informer, err := from.GetInformer(m.ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %T of cluster %q: %w", kind, m.name, err)
	}
	registration, err := informer.AddEventHandler(handlerOf(m, runsOf))
	if err != nil {
		return fmt.Errorf("watching %T of cluster %q: %w", kind, m.name, err)
	}
	context.AfterFunc(m.ctx, func() {
		if err := informer.RemoveEventHandler(registration); err != nil {
			log.FromContext(m.ctx).Error(err, "Cannot stop watching", "cluster", m.name.String(), "kind", fmt.Sprintf("%T", kind))
		}
	})
	return nil
}

func handlerOf[T client.Object](m *engagedMember, runsOf mapFunc[T]) toolscache.ResourceEventHandler {
	enqueue := func(o any, initial bool) {
		if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		if obj, ok := o.(T); ok && m.ctx.Err() == nil {
			m.enqueue(runsOf(m.ctx, m.cache, obj), isPod(obj), initial)
		}
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: enqueue,
		// An object that moves between runs concerns the one it has left, too.
		UpdateFunc: func(before, after any) { enqueue(before, false); enqueue(after, false) },
		DeleteFunc: func(o any) { enqueue(o, false) },
	}
}

func isPod(o client.Object) bool {
	_, ok := o.(*corev1.Pod)
	return ok
}

func (m *engagedMember) enqueue(runs []types.NamespacedName, pod, initial bool) {
	var now time.Time
	if pod {
		now = m.clock.Now()
	}
	for _, key := range runs {
		req := mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}, ClusterName: m.name}
		if pod {
			m.seen.mark(req, now)
		}
		if initial {
			m.queue.AddLow(req)
		} else {
			m.queue.Add(req)
		}
	}
}

func itself(_ context.Context, _ *memberCache, run *agentv1alpha1.AgentRun) []types.NamespacedName {
	return []types.NamespacedName{client.ObjectKeyFromObject(run)}
}

// runsOfPod: the run its label names, the run that controls it, and the runs of the
// Sandbox that does.
func runsOfPod(ctx context.Context, c *memberCache, pod *corev1.Pod) []types.NamespacedName {
	var keys []types.NamespacedName
	if run := pod.Labels[agentv1alpha1.AgentRunLabel]; run != "" {
		keys = append(keys, types.NamespacedName{Namespace: pod.Namespace, Name: run})
	}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "AgentRun" {
		return append(keys, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name})
	}
	if owner == nil || owner.Kind != "Sandbox" || c.sandbox == nil {
		return keys
	}
	s := newSandbox(*c.sandbox)
	s.SetNamespace(pod.Namespace)
	s.SetName(owner.Name)
	if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
		// Not there yet: its own event comes.
		return keys
	}
	return append(keys, runsOfSandbox(ctx, c, s)...)
}

// runsOfSandbox: the run that controls it, and the runs whose status names it.
func runsOfSandbox(ctx context.Context, c *memberCache, s *unstructured.Unstructured) []types.NamespacedName {
	var keys []types.NamespacedName
	if owner := metav1.GetControllerOf(s); owner != nil && owner.Kind == "AgentRun" {
		keys = append(keys, types.NamespacedName{Namespace: s.GetNamespace(), Name: owner.Name})
	}
	runs := &agentv1alpha1.AgentRunList{}
	if err := c.List(ctx, runs, client.InNamespace(s.GetNamespace()), client.MatchingFields{indexSandboxName: s.GetName()}); err != nil {
		return keys
	}
	for i := range runs.Items {
		keys = append(keys, client.ObjectKeyFromObject(&runs.Items[i]))
	}
	// A pod with the run's label is the last link between a run and a Sandbox it
	// neither controls nor names.
	pods, err := listPods(ctx, c.Cache, s.GetNamespace(), indexOwner, string(s.GetUID()))
	if err != nil {
		return keys
	}
	for _, pod := range pods {
		keys = append(keys, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[agentv1alpha1.AgentRunLabel]})
	}
	return keys
}
