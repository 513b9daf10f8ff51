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

package kubeconfigsecret

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func clusterSecret(name, label string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{ClusterNameLabel: label}},
		Type:       SecretType,
		Data:       map[string][]byte{Key: []byte("kubeconfig")},
	}
}

func TestSelects(t *testing.T) {
	change := func(f func(*corev1.Secret)) *corev1.Secret {
		s := clusterSecret("east-kubeconfig", "east")
		f(s)
		return s
	}
	tests := map[string]struct {
		secret *corev1.Secret
		want   bool
	}{
		"type, label and name agree":                  {clusterSecret("east-kubeconfig", "east"), true},
		"a cluster whose own name ends in kubeconfig": {clusterSecret("a-kubeconfig-kubeconfig", "a-kubeconfig"), true},
		"a missing key is reported, not ignored":      {change(func(s *corev1.Secret) { s.Data = nil }), true},
		"the CA":                                      {clusterSecret("east-ca", "east"), false},
		"etcd's CA":                                   {clusterSecret("east-etcd", "east"), false},
		"the service account key":                     {clusterSecret("east-sa", "east"), false},
		"the front proxy's CA":                        {clusterSecret("east-proxy", "east"), false},
		"the label of another cluster":                {clusterSecret("east-kubeconfig", "west"), false},
		"no cluster before the suffix":                {clusterSecret("-kubeconfig", ""), false},
		"no label":                                    {change(func(s *corev1.Secret) { s.Labels = nil }), false},
		"another type":                                {change(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), false},
		"deleted":                                     {change(func(s *corev1.Secret) { now := metav1.Now(); s.DeletionTimestamp = &now }), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := selects(tc.secret); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCredentialOf(t *testing.T) {
	limitedTo := func(list string) *corev1.Secret {
		s := clusterSecret("east-kubeconfig", "east")
		s.Annotations = map[string]string{NamespacesAnnotation: list}
		return s
	}
	plain := clusterSecret("east-kubeconfig", "east")
	noted := clusterSecret("east-kubeconfig", "east")
	noted.Annotations = map[string]string{"note": "a", PausedAnnotation: "true"}
	long := make([]string, maxNamespaces+1)
	for i := range long {
		long[i] = fmt.Sprintf("n%d", i)
	}
	tests := map[string]struct {
		secret *corev1.Secret
		want   []string
		bad    string         // in the error
		same   *corev1.Secret // nothing is reconnected between both
		other  *corev1.Secret // something is
	}{
		"no annotation means all":       {secret: plain, same: noted, other: limitedTo("a")},
		"a list":                        {secret: limitedTo("a,b"), want: []string{"a", "b"}, same: limitedTo(" b, a,b "), other: limitedTo("a")},
		"an empty list is not all":      {secret: limitedTo(""), bad: "entry 1 is no name", other: plain},
		"a name that is none":           {secret: limitedTo("a,B_,c"), bad: "entry 2 is no name", other: limitedTo("a,c")},
		"a trailing comma":              {secret: limitedTo("a,"), bad: "entry 2 is no name", other: limitedTo("a")},
		"another mistake is a change":   {secret: limitedTo("a,"), bad: "entry 2 is no name", other: limitedTo("b,")},
		"more than can be watched each": {secret: limitedTo(strings.Join(long, ",")), bad: "lists 33 namespaces", other: plain},
		"as many as can be":             {secret: limitedTo(strings.Join(long[:maxNamespaces], ",")), want: slices.Sorted(slices.Values(long[:maxNamespaces])), other: plain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := credentialOf(tc.secret)
			if diff := cmp.Diff(tc.want, got.namespaces); diff != "" {
				t.Errorf("namespaces (-want +got):\n%s", diff)
			}
			if (got.invalid != nil) != (tc.bad != "") || (tc.bad != "" && !strings.Contains(got.invalid.Error(), tc.bad)) {
				t.Errorf("error %v, want %q", got.invalid, tc.bad)
			}
			if tc.same != nil && credentialOf(tc.same).hash != got.hash {
				t.Error("counts as a change")
			}
			if credentialOf(tc.other).hash == got.hash {
				t.Error("counts as no change")
			}
		})
	}
}

func TestPausedBy(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"by default":             {nil, false},
		"true":                   {map[string]string{PausedAnnotation: "true"}, true},
		"false":                  {map[string]string{PausedAnnotation: "false"}, false},
		"what is neither pauses": {map[string]string{PausedAnnotation: ""}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			secret := clusterSecret("east-kubeconfig", "east")
			secret.Annotations = tc.annotations
			if got := pausedBy(secret); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestHubCacheByObject(t *testing.T) {
	object, byObject := HubCacheByObject("a", "b")
	if _, ok := object.(*corev1.Secret); !ok {
		t.Fatalf("got %T, want Secrets", object)
	}
	if got, want := byObject.Field.String(), "type=cluster.x-k8s.io/secret"; got != want {
		t.Errorf("field selector %q, want %q", got, want)
	}
	if byObject.Label.Matches(labels.Set{}) || !byObject.Label.Matches(labels.Set{ClusterNameLabel: "x"}) {
		t.Errorf("label selector %q", byObject.Label)
	}
	if len(byObject.Namespaces) != 2 {
		t.Errorf("namespaces %v, want a and b", byObject.Namespaces)
	}
}

func TestStripSecret(t *testing.T) {
	tests := map[string]struct {
		name string
		data map[string][]byte
		want map[string][]byte
	}{
		"a member keeps its kubeconfig only": {
			"east-kubeconfig", map[string][]byte{Key: []byte("k"), "other": []byte("o")}, map[string][]byte{Key: []byte("k")},
		},
		"a CA keeps nothing":                {"east-ca", map[string][]byte{"tls.key": []byte("k"), Key: []byte("v")}, nil},
		"a member without its key, neither": {"east-kubeconfig", map[string][]byte{"other": []byte("o")}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := clusterSecret(tc.name, "east")
			in.Data = tc.data
			in.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{data}", "a": "b"}
			in.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			out, err := stripSecret(in)
			if err != nil {
				t.Fatal(err)
			}
			want := clusterSecret(tc.name, "east")
			want.Data = tc.want
			want.Annotations = map[string]string{"a": "b"}
			if diff := cmp.Diff(want, out); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWatched(t *testing.T) {
	tests := map[string]struct {
		namespaces []string
		key        types.NamespacedName
		want       bool
	}{
		"all namespaces by default":     {nil, types.NamespacedName{Namespace: "x", Name: "a-kubeconfig"}, true},
		"a namespace that is listed":    {[]string{"x"}, types.NamespacedName{Namespace: "x", Name: "a-kubeconfig"}, true},
		"a namespace that is not":       {[]string{"x"}, types.NamespacedName{Namespace: "y", Name: "a-kubeconfig"}, false},
		"a name that no kubeconfig has": {nil, types.NamespacedName{Namespace: "x", Name: "a-ca"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := New(Options{Namespaces: tc.namespaces}).watched(tc.key); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
