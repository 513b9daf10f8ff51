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

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	rbacmember "github.com/konveyor/agentrun-fleet/config/rbac/member"
)

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedByValue = "kubectl-agentrunfleet"
	// registrationLabel holds registration.objects.
	registrationLabel = "fleet.konveyor.io/registration"
	// memberAnnotation tells readers of a member who registered it: <hub namespace>/<name>.
	memberAnnotation = "fleet.konveyor.io/registered-as"
)

// registration is one member of one hub. Two of them never share an object.
type registration struct {
	// namespace and name are those on the hub.
	namespace, name string
	// objects is the name of all that is made in the member.
	objects string
}

func newRegistration(hub types.UID, namespace, name string) *registration {
	// The hash tells hubs and namespaces apart. The name before it is for readers, cut so
	// that the whole can name a Namespace: 63 characters.
	sum := sha256.Sum256([]byte(string(hub) + "/" + namespace + "/" + name))
	readable := strings.ReplaceAll(name[:min(len(name), 39)], ".", "-")
	return &registration{
		namespace: namespace,
		name:      name,
		objects:   "agentrun-fleet-" + readable + "-" + hex.EncodeToString(sum[:4]),
	}
}

// labels are on everything that is made for the registration.
func (r *registration) labels() map[string]string {
	return map[string]string{managedByLabel: managedByValue, registrationLabel: r.objects}
}

func (r *registration) mark(o client.Object) {
	annotate(o, memberAnnotation, r.namespace+"/"+r.name)
	label(o, "app.kubernetes.io/name", "agentrun-fleet")
	for k, v := range r.labels() {
		label(o, k, v)
	}
}

func label(o client.Object, key, value string) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	o.SetLabels(labels)
}

// annotate sets an annotation, or removes it when the value is empty.
func annotate(o client.Object, key, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	if value == "" {
		delete(annotations, key)
	}
	o.SetAnnotations(annotations)
}

// made says whether the object was made for this registration.
func (r *registration) made(o client.Object) bool {
	for k, v := range r.labels() {
		if o.GetLabels()[k] != v {
			return false
		}
	}
	return true
}

func notMade(o client.Object) error {
	return fmt.Errorf("%s exists and was not made by `register` with this hub: choose another NAME, or delete it", nameOf(o))
}

func (r *registration) meta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: r.objects}
}

func (r *registration) serviceAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: r.meta(r.objects)}
}

// inMember is all that the member must have, in the order in which to make it. No
// namespaces means all.
func (r *registration) inMember(namespaces []string) ([]wanted, error) {
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(rbacmember.RoleYAML, role); err != nil {
		return nil, fmt.Errorf("config/rbac/member/role.yaml: %w", err)
	}
	ns, account := &corev1.Namespace{ObjectMeta: r.meta("")}, r.serviceAccount()
	objects := []wanted{
		{ns, func() { label(ns, "pod-security.kubernetes.io/enforce", "restricted") }},
		// Pods have no business with this account: only the hub uses it.
		{account, func() { account.AutomountServiceAccountToken = new(bool) }},
	}
	if len(namespaces) == 0 {
		return append(objects, r.rights(role.Rules)...), nil
	}
	for _, namespace := range namespaces {
		objects = append(objects, r.rightsIn(namespace, role.Rules)...)
	}
	return objects, nil
}

func (r *registration) rights(rules []rbacv1.PolicyRule) []wanted {
	role := &rbacv1.ClusterRole{ObjectMeta: r.meta("")}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: r.meta("")}
	return []wanted{
		{role, func() { role.Rules, role.AggregationRule = rules, nil }},
		{binding, func() { binding.RoleRef, binding.Subjects = r.roleRef("ClusterRole"), r.subjects() }},
	}
}

func (r *registration) rightsIn(namespace string, rules []rbacv1.PolicyRule) []wanted {
	role := &rbacv1.Role{ObjectMeta: r.meta(namespace)}
	binding := &rbacv1.RoleBinding{ObjectMeta: r.meta(namespace)}
	return []wanted{
		{role, func() { role.Rules = rules }},
		{binding, func() { binding.RoleRef, binding.Subjects = r.roleRef("Role"), r.subjects() }},
	}
}

func (r *registration) roleRef(kind string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: r.objects}
}

func (r *registration) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: r.objects, Name: r.objects}}
}

// grants are the rights that the registration has in the member, bindings first.
func (r *registration) grants(ctx context.Context, member *cluster) ([]client.Object, error) {
	return r.list(ctx, member, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleList{}, &rbacv1.RoleList{})
}

// list finds the registration's objects of some kinds, in all namespaces.
func (r *registration) list(ctx context.Context, c *cluster, lists ...client.ObjectList) ([]client.Object, error) {
	found := []client.Object{}
	for _, list := range lists {
		if err := c.List(ctx, list, client.MatchingLabels(r.labels())); err != nil {
			return nil, fmt.Errorf("%s: looking for what was registered: %w", c.title, err)
		}
		items, err := itemsOf(list)
		if err != nil {
			return nil, err
		}
		found = append(found, items...)
	}
	return found, nil
}

func itemsOf(list client.ObjectList) ([]client.Object, error) {
	items := []client.Object{}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		item, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("%T holds a %T, which has no metadata", list, o)
		}
		items = append(items, item)
		return nil
	})
	return items, err
}

// prune takes away the rights that are not among objects, which a former registration with
// another limit has left.
func (r *registration) prune(ctx context.Context, member *cluster, objects []wanted) error {
	grants, err := r.grants(ctx, member)
	if err != nil {
		return err
	}
	for _, o := range grants {
		if slices.ContainsFunc(objects, func(w wanted) bool { return nameOf(w.object) == nameOf(o) }) {
			continue
		}
		if err := member.remove(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
