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
package kubeconfigsecret_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// extraGroup is served by no member until a test installs its CRD.
const extraGroup = "extra.example.com"

var widgets = []schema.GroupVersionResource{
	{Group: extraGroup, Version: "v1", Resource: "widgets"},
	{Group: extraGroup, Version: "v2", Resource: "widgets"},
}

// watchWidgets makes widgets optional and has each cluster watch them where they are served.
func watchWidgets(o *kubeconfigsecret.Options) {
	o.OptionalResources = widgets
	for _, verb := range []string{"list", "watch"} {
		o.OptionalAccess = append(o.OptionalAccess, authorizationv1.ResourceAttributes{Group: extraGroup, Resource: "widgets", Verb: verb})
	}
	plain := o.NewCluster
	o.NewCluster = func(ctx context.Context, conn *kubeconfigsecret.Connection) (cluster.Cluster, error) {
		cl, err := plain(ctx, conn)
		if err != nil {
			return nil, err
		}
		marked := withWidgets{Cluster: cl}
		for _, resource := range widgets {
			if !conn.Serves(resource) {
				continue
			}
			marked.versions += resource.Version
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(resource.GroupVersion().WithKind("Widget"))
			if _, err := cl.GetCache().GetInformer(ctx, u); err != nil {
				return nil, err
			}
		}
		return marked, nil
	}
}

// withWidgets is a cluster that remembers which versions of widgets it was made for.
type withWidgets struct {
	cluster.Cluster
	versions string
}

// versions returns those for which a member's cluster in use was made, for Eventually; that
// there is none at any time fails the test.
func (f *fleet) versions(name string) func() string {
	return func() string {
		f.t.Helper()
		cl, err := f.provider.Get(f.t.Context(), f.name(name))
		f.Expect(err).NotTo(HaveOccurred())
		return cl.(withWidgets).versions
	}
}

func TestOptionalResourcesThatComeAndGo(t *testing.T) {
	f := newFleet(t, watchWidgets, map[string][]byte{"a": admin(west), "b": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.awaitReason("b", kubeconfigsecret.ReasonConnected)
	f.Expect(f.versions("a")()).To(BeEmpty())
	var gap atomic.Bool
	f.provider.Subscribe(func(multicluster.ClusterName) {
		for _, m := range f.provider.Members() {
			if m.Connected.Status != metav1.ConditionTrue {
				gap.Store(true)
			}
		}
	})

	t.Log("A CRD that comes later is noticed, and others are not disturbed")
	crd := widgetCRD("v1")
	f.install(west, crd)
	f.Eventually(f.versions("a")).Should(Equal("v1"))
	f.awaitReconciled(west, "a")

	t.Log("So is another version of it")
	before := crd.DeepCopy()
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Served = !crd.Spec.Versions[i].Served
	}
	f.Expect(west.Client.Patch(t.Context(), crd, client.MergeFrom(before))).To(Succeed())
	f.Eventually(f.versions("a")).Should(Equal("v2"))
	f.awaitReconciled(west, "a")

	t.Log("And that it is gone")
	f.uninstall(west, crd)
	f.Eventually(f.versions("a")).Should(BeEmpty())
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.awaitReconciled(west, "a")

	f.Expect(gap.Load()).To(BeFalse())
	f.Expect(f.made("b")).To(Equal(1))
}

func TestRightsToOptionalResources(t *testing.T) {
	const missing = "list widgets.extra.example.com, watch widgets.extra.example.com"
	proxy := harness.NewProxy(t, east)
	plain, plainKubeconfig := newUser(t)
	full, fullKubeconfig := newUser(t)
	never, neverKubeconfig := newUser(t)
	through := func(kubeconfig []byte) []byte {
		return bytes.ReplaceAll(kubeconfig, []byte(east.Config.Host), []byte(proxy.URL()))
	}
	f := newFleet(t, watchWidgets, map[string][]byte{
		"plain": through(plainKubeconfig), "full": through(fullKubeconfig), "never": neverKubeconfig,
	})
	message := func(name string) string { return f.member(name).Connected.Message }
	required := f.grantRequired(plain)
	f.grantRequired(full)
	f.grantRequired(never)
	all := grant(f, full)
	f.awaitReason("plain", kubeconfigsecret.ReasonConnected)
	f.awaitReason("full", kubeconfigsecret.ReasonConnected)
	f.awaitReason("never", kubeconfigsecret.ReasonConnected)

	t.Log("Where they are missing, the connection in use stays, and says what it lacks")
	crd := widgetCRD("v1")
	f.install(east, crd)
	f.awaitReason("plain", kubeconfigsecret.ReasonReconnectRefused)
	f.Expect(f.member("plain").Connected.Status).To(Equal(metav1.ConditionTrue))
	f.Expect(message("plain")).To(ContainSubstring(missing))
	f.awaitReconciled(east, "plain")
	f.Expect(f.made("plain")).To(Equal(1))
	f.Eventually(f.versions("full")).Should(Equal("v1"))

	t.Log("A member that is connected for the first time is refused")
	f.put("new", plainKubeconfig)
	f.awaitReason("new", kubeconfigsecret.ReasonForbidden)
	f.Expect(message("new")).To(ContainSubstring(missing))

	t.Log("A connection that does not use them recovers without them")
	f.Expect(east.Client.Delete(t.Context(), required)).To(Succeed())
	proxy.Reset() // a watch that is open stays open
	f.awaitReason("plain", kubeconfigsecret.ReasonForbidden)
	f.grantRequired(plain)
	f.awaitReason("plain", kubeconfigsecret.ReasonReconnectRefused)

	t.Log("Granting them mends it")
	grant(f, plain)
	f.Eventually(f.versions("plain")).Should(Equal("v1"))
	f.awaitReason("plain", kubeconfigsecret.ReasonConnected)
	f.awaitReason("new", kubeconfigsecret.ReasonConnected)

	t.Log("Taking them away from a connection that uses them is noticed")
	f.Expect(east.Client.Delete(t.Context(), all)).To(Succeed())
	proxy.Reset()
	f.awaitReason("full", kubeconfigsecret.ReasonForbidden)
	f.Expect(message("full")).To(ContainSubstring(missing))

	t.Log("Nobody needs them once the CRD is gone")
	f.awaitReason("never", kubeconfigsecret.ReasonReconnectRefused)
	f.uninstall(east, crd)
	f.awaitReason("never", kubeconfigsecret.ReasonConnected)
	// A try that comes between the CRD's end and its being noticed succeeds, and that is all.
	f.Expect(f.made("never")).To(BeNumerically("<=", 2))
	f.awaitReason("full", kubeconfigsecret.ReasonConnected)
	f.Eventually(f.versions("full")).Should(BeEmpty())
	f.awaitReconciled(east, "full")
}

// requiredRules are the rights that newFleet requires.
var requiredRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"konveyor.io"}, Resources: []string{"agentruns/status"}, Verbs: []string{"patch"}},
}

// grantRequired gives a user of east the rights that newFleet requires, and no more.
func (f *fleet) grantRequired(user string) *rbacv1.ClusterRoleBinding {
	f.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"}, Rules: requiredRules}
	f.Expect(east.Client.Create(f.t.Context(), role)).To(Succeed())
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	f.Expect(east.Client.Create(f.t.Context(), binding)).To(Succeed())
	return binding
}

// widgetCRD has widgets in two versions, of which one is served.
func widgetCRD(served string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + extraGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: extraGroup,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
		},
	}
	for i, resource := range widgets {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: resource.Version, Served: resource.Version == served, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		})
	}
	return crd
}

// install puts a CRD into an API server, until the test ends at the latest.
func (f *fleet) install(cp *harness.ControlPlane, crd *apiextensionsv1.CustomResourceDefinition) {
	f.t.Helper()
	f.Expect(cp.Client.Create(f.t.Context(), crd)).To(Succeed())
	f.t.Cleanup(func() { f.uninstall(cp, crd) })
}

// uninstall takes a CRD away and waits until it is gone.
func (f *fleet) uninstall(cp *harness.ControlPlane, crd *apiextensionsv1.CustomResourceDefinition) {
	f.t.Helper()
	f.Expect(client.IgnoreNotFound(cp.Client.Delete(context.Background(), crd))).To(Succeed())
	f.Eventually(func() error {
		return cp.Client.Get(context.Background(), client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{})
	}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
}
