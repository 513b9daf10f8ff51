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
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
)

// Options configure the controller.
type Options struct {
	// Policy says what fails a run, and when.
	Policy startup.Policy
	// MaxConcurrentReconciles is how many runs are worked on at a time, over all
	// members. Default 10.
	MaxConcurrentReconciles int
	// ReconciliationTimeout bounds the work on one run. Default 30 s.
	ReconciliationTimeout time.Duration
	// Clock tells the time. Default the real one.
	Clock clock.PassiveClock
}

// SetupWithManager adds the controller to mgr. Each member that mgr engages must have
// been built by NewCluster and have synced.
func SetupWithManager(mgr mcmanager.Manager, opts Options) error {
	if opts.MaxConcurrentReconciles == 0 {
		opts.MaxConcurrentReconciles = 10
	}
	if opts.ReconciliationTimeout == 0 {
		opts.ReconciliationTimeout = 30 * time.Second
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	r := &Reconciler{clusters: mgr, policy: opts.Policy, clock: opts.Clock, seen: newFirstSeen()}
	// multicluster-runtime drops the manager's controller options: set them here.
	c, err := mccontroller.New(controllerName, mgr, mccontroller.Options{
		Reconciler:              mcreconcile.NewClusterNotFoundWrapper(r),
		MaxConcurrentReconciles: opts.MaxConcurrentReconciles,
		ReconciliationTimeout:   opts.ReconciliationTimeout,
		RecoverPanic:            new(true),
		LogConstructor:          logConstructor(mgr.GetLogger()),
	})
	if err != nil {
		return err
	}
	for _, src := range r.sources() {
		if err := c.MultiClusterWatch(src); err != nil {
			return err
		}
	}
	return nil
}

// logConstructor gives each reconcile a logger that names the member and the run.
func logConstructor(base logr.Logger) func(*mcreconcile.Request) logr.Logger {
	base = base.WithValues("controller", controllerName)
	return func(req *mcreconcile.Request) logr.Logger {
		if req == nil {
			return base
		}
		return base.WithValues("cluster", req.ClusterName.String(), "run", req.NamespacedName.String())
	}
}

// sources are what wakes the reconciler up: runs, pods with the run's label, and in
// members that have them Sandboxes and their pods.
func (r *Reconciler) sources() []mcsource.Source {
	return []mcsource.Source{
		mcsource.Kind(&agentv1alpha1.AgentRun{}, mchandler.TypedEnqueueRequestForObject[*agentv1alpha1.AgentRun]()),
		mcsource.Kind(&corev1.Pod{}, r.enqueue(runsOfPod)),
		sandboxPods{mcsource.Kind(&corev1.Pod{}, r.enqueue(runsOfPod))},
		mcsource.Kind(&unstructured.Unstructured{}, enqueueAll(runsOfSandbox)).
			WithProjection(func(cl cluster.Cluster, _ *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				if served := cacheOf(cl).sandbox; served != nil {
					return newSandbox(*served), nil
				}
				return &unstructured.Unstructured{}, nil
			}).
			WithClusterFilter(servesSandboxes),
	}
}

func servesSandboxes(_ multicluster.ClusterName, cl cluster.Cluster) bool {
	return cacheOf(cl).sandbox != nil
}

// sandboxPods watches the pods in a member's second cache.
type sandboxPods struct {
	mcsource.Source
}

// ForCluster returns the source for one member.
func (s sandboxPods) ForCluster(name multicluster.ClusterName, cl cluster.Cluster) (source.TypedSource[mcreconcile.Request], bool, error) {
	if !servesSandboxes(name, cl) {
		return nil, false, nil
	}
	return s.Source.ForCluster(name, secondCache{cl})
}

type secondCache struct {
	cluster.Cluster
}

// GetCache returns the second cache in the place of the first.
func (s secondCache) GetCache() cache.Cache {
	return cacheOf(s.Cluster).sandboxPods
}

// mapFunc names the runs that an object of a member is about.
type mapFunc[T client.Object] func(ctx context.Context, c *memberCache, obj T) []types.NamespacedName

// enqueueAll turns a mapFunc into a handler for every member.
func enqueueAll[T client.Object](fn mapFunc[T]) mchandler.TypedEventHandlerFunc[T, mcreconcile.Request] {
	return enqueueWith(fn, func(mcreconcile.Request) {})
}

// enqueue is enqueueAll for pods: it notes when the event was seen.
func (r *Reconciler) enqueue(fn mapFunc[*corev1.Pod]) mchandler.TypedEventHandlerFunc[*corev1.Pod, mcreconcile.Request] {
	return enqueueWith(fn, func(req mcreconcile.Request) { r.seen.mark(req, r.clock.Now()) })
}

func enqueueWith[T client.Object](fn mapFunc[T], note func(mcreconcile.Request)) mchandler.TypedEventHandlerFunc[T, mcreconcile.Request] {
	return func(name multicluster.ClusterName, cl cluster.Cluster) handler.TypedEventHandler[T, mcreconcile.Request] {
		if second, ok := cl.(secondCache); ok {
			cl = second.Cluster
		}
		return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, obj T) []mcreconcile.Request {
			keys := fn(ctx, cacheOf(cl), obj)
			requests := make([]mcreconcile.Request, len(keys))
			for i, key := range keys {
				requests[i] = mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}, ClusterName: name}
				note(requests[i])
			}
			return requests
		})
	}
}

// runsOfPod: the run its label names, and the runs of the Sandbox that owns it.
func runsOfPod(ctx context.Context, c *memberCache, pod *corev1.Pod) []types.NamespacedName {
	var keys []types.NamespacedName
	if run := pod.Labels[agentv1alpha1.AgentRunLabel]; run != "" {
		keys = append(keys, types.NamespacedName{Namespace: pod.Namespace, Name: run})
	}
	owner := metav1.GetControllerOf(pod)
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
