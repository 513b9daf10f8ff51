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
	"maps"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// sandboxPodLabel is on every pod that the agent-sandbox controller made or adopted.
// Source: agent-sandbox v0.4.6, controllers/sandbox_controller.go.
const sandboxPodLabel = "agents.x-k8s.io/sandbox-name-hash"

// sandboxGroup is the API group of Sandboxes.
const sandboxGroup = "agents.x-k8s.io"

// sandboxVersions are the versions of Sandbox that are understood, best first.
var sandboxVersions = []string{"v1beta1", "v1alpha1"}

// Index fields of a member's cache.
const (
	indexRunLabel    = "run-label"    // pods by the run their label names
	indexOwner       = "owner"        // pods and Sandboxes by their controller's UID
	indexSandboxName = "sandbox-name" // runs by status.sandboxName
)

// memberScheme and memberMapper are shared by all members: a discovered RESTMapper
// costs more than the rest of an idle member together.
var (
	memberScheme = newScheme()
	memberMapper = newMapper()
)

// runKind and podKind name kinds to those that keep what they are asked by. They are not written to.
var (
	runKind = &agentv1alpha1.AgentRun{}
	podKind = &corev1.Pod{}
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(agentv1alpha1.AddToScheme(s))
	return s
}

func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(agentv1alpha1.GroupVersion.WithKind("AgentRun"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	// The cache of a member that is limited to namespaces asks for the scope of the lists too.
	m.Add(agentv1alpha1.GroupVersion.WithKind("AgentRunList"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("PodList"), meta.RESTScopeNamespace)
	for _, v := range sandboxVersions {
		m.Add(schema.GroupVersionKind{Group: sandboxGroup, Version: v, Kind: "SandboxList"}, meta.RESTScopeNamespace)
		m.AddSpecific(
			schema.GroupVersionKind{Group: sandboxGroup, Version: v, Kind: "Sandbox"},
			sandboxResource(v),
			schema.GroupVersionResource{Group: sandboxGroup, Version: v, Resource: "sandbox"},
			meta.RESTScopeNamespace)
	}
	return m
}

// NewCluster returns a cluster for the member at cfg, with its informers asked for
// but not started. serves says which of OptionalResources the member serves; when that
// changes, it needs another cluster. opts carry the HTTP clients; everything else is set
// here.
func NewCluster(ctx context.Context, cfg *rest.Config, serves func(schema.GroupVersionResource) bool, opts ...cluster.Option) (cluster.Cluster, error) {
	served := servedSandbox(serves)
	ours := func(o *cluster.Options) { o.Cache.NewInformer = newInformer } // first, so that opts may wrap it
	cl, err := cluster.New(cfg, append(append([]cluster.Option{ours}, opts...), func(o *cluster.Options) {
		o.Scheme = memberScheme
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return memberMapper, nil }
		o.Client.Cache = &client.CacheOptions{Unstructured: true}
		o.NewCache = func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
			return newMemberCache(cfg, opts, served)
		}
	})...)
	if err != nil {
		return nil, err
	}
	return cl, cacheOf(cl).prepare(ctx)
}

// sandboxResource is Sandboxes in one version of their API.
func sandboxResource(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: sandboxGroup, Version: version, Resource: "sandboxes"}
}

// servedSandbox returns the version of Sandbox to use, or nil when the member serves
// none that is understood.
func servedSandbox(serves func(schema.GroupVersionResource) bool) *schema.GroupVersionKind {
	for _, version := range sandboxVersions {
		if serves(sandboxResource(version)) {
			return &schema.GroupVersionKind{Group: sandboxGroup, Version: version, Kind: "Sandbox"}
		}
	}
	return nil
}

// memberCache is a member's cache. A cache selects the pods it holds by one label
// selector, and no selector says "labelled as a run's or made by a Sandbox", so the
// latter live in a second cache.
type memberCache struct {
	cache.Cache
	// sandbox is the served kind of Sandbox; nil when there is none, and then
	// sandboxPods is nil too.
	sandbox     *schema.GroupVersionKind
	sandboxPods cache.Cache
	// namespaces are those that the member is limited to; all of them are one, "".
	namespaces []string
}

func cacheOf(cl cluster.Cluster) *memberCache {
	return cl.GetCache().(*memberCache)
}

func newMemberCache(cfg *rest.Config, opts cache.Options, served *schema.GroupVersionKind) (*memberCache, error) {
	opts.ReaderFailOnMissingInformer = true
	// Each entry of ByObject costs a client, so that what needs no selector shares the default's.
	opts.DefaultTransform = strip
	opts.ByObject = map[client.Object]cache.ByObject{
		podKind: {Label: selector(agentv1alpha1.AgentRunLabel, selection.Exists)},
	}
	main, err := cache.New(cfg, opts)
	if err != nil {
		return nil, err
	}
	m := &memberCache{Cache: main, sandbox: served, namespaces: watchedNamespaces(opts)}
	if served == nil {
		return m, nil
	}
	opts.ByObject = nil
	opts.DefaultLabelSelector = selector(sandboxPodLabel, selection.Exists).
		Add(requirement(agentv1alpha1.AgentRunLabel, selection.DoesNotExist))
	m.sandboxPods, err = cache.New(cfg, opts)
	return m, err
}

func watchedNamespaces(opts cache.Options) []string {
	if len(opts.DefaultNamespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return slices.Sorted(maps.Keys(opts.DefaultNamespaces))
}

func newSandbox(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

func selector(label string, op selection.Operator) labels.Selector {
	return labels.NewSelector().Add(requirement(label, op))
}

func requirement(label string, op selection.Operator) labels.Requirement {
	r, err := labels.NewRequirement(label, op, nil)
	utilruntime.Must(err)
	return *r
}

// prepare asks for every informer and index, so that the cache is whole once it has
// synced.
func (m *memberCache) prepare(ctx context.Context) error {
	err := errors.Join(
		m.informer(ctx, m.Cache, runKind, indexSandboxName, func(o client.Object) []string {
			return nonEmpty(o.(*agentv1alpha1.AgentRun).Status.SandboxName)
		}),
		m.informer(ctx, m.Cache, podKind, indexRunLabel, func(o client.Object) []string {
			return nonEmpty(o.GetLabels()[agentv1alpha1.AgentRunLabel])
		}),
		m.IndexField(ctx, podKind, indexOwner, ownerUID),
	)
	if m.sandbox == nil {
		return err
	}
	return errors.Join(err,
		m.informer(ctx, m.Cache, newSandbox(*m.sandbox), indexOwner, ownerUID),
		m.informer(ctx, m.sandboxPods, podKind, indexOwner, ownerUID),
	)
}

func (m *memberCache) informer(ctx context.Context, c cache.Cache, obj client.Object, field string, extract client.IndexerFunc) error {
	if _, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	return c.IndexField(ctx, obj, field, extract)
}

func ownerUID(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// Start runs both caches until ctx ends.
func (m *memberCache) Start(ctx context.Context) error {
	if m.sandboxPods == nil {
		return m.Cache.Start(ctx)
	}
	second := make(chan error, 1)
	go func() { second <- m.sandboxPods.Start(ctx) }()
	err := m.Cache.Start(ctx)
	return errors.Join(err, <-second)
}

// WaitForCacheSync waits for both caches.
func (m *memberCache) WaitForCacheSync(ctx context.Context) bool {
	return m.Cache.WaitForCacheSync(ctx) && (m.sandboxPods == nil || m.sandboxPods.WaitForCacheSync(ctx))
}

// RequiredResources are what a member must serve.
func RequiredResources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{agentv1alpha1.GroupVersion.WithResource("agentruns")}
}

// RequiredAccess is what a member's kubeconfig must allow for runs to be observed and
// failed. Events are not among it, nor are marking and deleting runs: without them the
// rest works.
func RequiredAccess() []authorizationv1.ResourceAttributes {
	return slices.Concat(
		access(agentv1alpha1.GroupVersion.Group, "agentruns", "", "get", "list", "watch"),
		access(agentv1alpha1.GroupVersion.Group, "agentruns", "status", "patch"),
		access("", "pods", "", "list", "watch"),
	)
}

// OptionalResources are what is watched where a member serves it: Sandboxes, in each
// version that is understood.
func OptionalResources() []schema.GroupVersionResource {
	resources := make([]schema.GroupVersionResource, len(sandboxVersions))
	for i, version := range sandboxVersions {
		resources[i] = sandboxResource(version)
	}
	return resources
}

// OptionalAccess is what a member that serves Sandboxes must also allow: its cache would
// never sync without. To patch them is not among it: without that, an Event on the run
// tells of a Sandbox that was not stopped.
func OptionalAccess() []authorizationv1.ResourceAttributes {
	return access(sandboxGroup, "sandboxes", "", "list", "watch")
}

func access(group, resource, subresource string, verbs ...string) []authorizationv1.ResourceAttributes {
	attributes := make([]authorizationv1.ResourceAttributes, len(verbs))
	for i, verb := range verbs {
		attributes[i] = authorizationv1.ResourceAttributes{Group: group, Resource: resource, Subresource: subresource, Verb: verb}
	}
	return attributes
}
