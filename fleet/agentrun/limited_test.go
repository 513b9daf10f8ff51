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
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestMapperKnowsWhatIsRead: the shared RESTMapper asks no server, so that it must know
// each kind that is read and its list.
func TestMapperKnowsWhatIsRead(t *testing.T) {
	kinds := []schema.GroupVersionKind{
		agentv1alpha1.GroupVersion.WithKind("AgentRun"),
		corev1.SchemeGroupVersion.WithKind("Pod"),
	}
	for _, version := range sandboxVersions {
		kinds = append(kinds, schema.GroupVersionKind{Group: sandboxGroup, Version: version, Kind: "Sandbox"})
	}
	for _, gvk := range kinds {
		for _, kind := range []string{gvk.Kind, gvk.Kind + "List"} {
			mapping, err := memberMapper.RESTMapping(schema.GroupKind{Group: gvk.Group, Kind: kind}, gvk.Version)
			if err != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
				t.Errorf("%s of %s: mapped to %+v, %v; want it namespaced", kind, gvk.GroupVersion(), mapping, err)
			}
		}
	}
}

// TestLimitedMember: the cache of a member that is limited to namespaces lists all kinds
// over those namespaces, and holds nothing of others.
func TestLimitedMember(t *testing.T) {
	crd, err := harness.SandboxCRDPath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cp := harness.NewMember(t, "member", harness.WithCRDs(crd))
	g := harness.NewGomega(t)
	for _, namespace := range []string{"one", "two", "theirs"} {
		g.Expect(cp.EnsureNamespace(t.Context(), namespace)).To(Succeed())
		run := build.MakeAgentRun("run").Namespace(namespace).Obj()
		g.Expect(cp.CreateRun(t.Context(), run)).To(Succeed())
		pod := build.MakePod("labelled").ForRun(run).Container("main", "registry.example/agent:1").Obj()
		sandbox := build.MakeSandbox("sandbox").Version("v1alpha1").Namespace(namespace).PodTemplate(pod).Obj()
		made := build.MakePod("made").Namespace(namespace).Label(sandboxPodLabel, "0badcafe").Container("main", "registry.example/agent:1").Obj()
		g.Expect(cp.CreatePod(t.Context(), pod)).To(Succeed())
		g.Expect(cp.Client.Create(t.Context(), sandbox)).To(Succeed())
		g.Expect(cp.CreatePod(t.Context(), made)).To(Succeed())
	}
	limit := func(o *cluster.Options) { o.Cache.DefaultNamespaces = map[string]cache.Config{"one": {}, "two": {}} }
	cached := cacheOf(engageAs(t, cp, cp.Config, limit).Cluster)
	sandboxes := &unstructured.UnstructuredList{}
	sandboxes.SetGroupVersionKind(cached.sandbox.GroupVersion().WithKind("SandboxList"))
	cases := map[string]struct {
		from cache.Cache
		list client.ObjectList
	}{
		"runs":              {cached.Cache, &agentv1alpha1.AgentRunList{}},
		"labelled pods":     {cached.Cache, &corev1.PodList{}},
		"Sandboxes":         {cached.Cache, sandboxes},
		"pods of Sandboxes": {cached.sandboxPods, &corev1.PodList{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(tc.from.List(t.Context(), tc.list)).To(Succeed())
			g.Expect(namespacesOf(g, tc.list)).To(Equal([]string{"one", "two"}))
		})
	}
}

func namespacesOf(g *WithT, list client.ObjectList) []string {
	var namespaces []string
	g.Expect(meta.EachListItem(list, func(o runtime.Object) error {
		namespaces = append(namespaces, o.(metav1.Object).GetNamespace())
		return nil
	})).To(Succeed())
	slices.Sort(namespaces)
	return namespaces
}
