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

package install

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

func TestEveryKustomizationBuilds(t *testing.T) {
	hub := []string{
		"Namespace agentrun-fleet-system",
		"CustomResourceDefinition agentrunclusterstatuses.fleet.konveyor.io",
		"CustomResourceDefinition agentrunfleetstatuses.fleet.konveyor.io",
		"ServiceAccount agentrun-fleet-manager",
		"ClusterRole agentrun-fleet-hub",
		"ClusterRoleBinding agentrun-fleet-hub",
		"Role agentrun-fleet-hub",
		"RoleBinding agentrun-fleet-hub",
		"ClusterRole agentrun-fleet-viewer",
		"ClusterRole agentrun-fleet-editor",
		"PodDisruptionBudget agentrun-fleet-manager",
		"Service agentrun-fleet-metrics",
		"Deployment agentrun-fleet-manager",
	}
	member := []string{
		"Namespace agentrun-fleet-system",
		"ServiceAccount agentrun-fleet",
		"ClusterRole agentrun-fleet-member",
		"ClusterRoleBinding agentrun-fleet-member",
		"Secret agentrun-fleet-token",
	}
	cases := map[string]struct {
		dir  string
		want []string
	}{
		"a hub gets its CRDs and the manager": {
			dir:  "default",
			want: hub,
		},
		"a hub whose manager may read Secrets in one namespace gets a Role besides": {
			dir:  "secret-namespaces",
			want: append([]string{"Role agentrun-fleet-kubeconfigs", "RoleBinding agentrun-fleet-kubeconfigs"}, hub...),
		},
		"a member gets the AgentRun CRD and an account for the hub": {
			dir:  "member",
			want: append([]string{"CustomResourceDefinition agentruns.konveyor.io"}, member...),
		},
		"a member with a CRD of its own gets the account alone": {
			dir:  "member/rbac-only",
			want: member,
		},
		"what a hub has as a member of itself goes without the Namespace of both": {
			dir:  "rbac/member",
			want: slices.DeleteFunc(slices.Clone(member), func(o string) bool { return strings.HasPrefix(o, "Namespace ") }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range kustomize(t, tc.dir) {
				got = append(got, o.GetKind()+" "+o.GetName())
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("kustomize build config/%s (-want +got):\n%s", tc.dir, diff)
			}
		})
	}
}

// One can find all objects of the project by a label, and who makes them.
func TestEveryObjectIsLabelled(t *testing.T) {
	want := map[string]string{
		"app.kubernetes.io/name":       "agentrun-fleet",
		"app.kubernetes.io/part-of":    "agentrun-fleet",
		"app.kubernetes.io/managed-by": "kustomize",
	}
	for _, dir := range []string{"secret-namespaces", "member"} {
		for _, o := range kustomize(t, dir) {
			if o.GetName() == "agentruns.konveyor.io" {
				continue // konveyor's
			}
			got := maps.Clone(o.GetLabels())
			maps.DeleteFunc(got, func(label, _ string) bool { return want[label] == "" })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("config/%s: labels of %s %s (-want +got):\n%s", dir, o.GetKind(), o.GetName(), diff)
			}
		}
	}
}

// The garbage collector must work harder before the limit ends the manager.
func TestManagersMemoryLimitsAgree(t *testing.T) {
	g := NewWithT(t)
	for _, o := range kustomize(t, "manager") {
		if o.GetKind() != "Deployment" {
			continue
		}
		deployment := appsv1.Deployment{}
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &deployment)).To(Succeed())
		manager := deployment.Spec.Template.Spec.Containers[0]
		i := slices.IndexFunc(manager.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
		g.Expect(i).To(BeNumerically(">=", 0), "GOMEMLIMIT is set")
		soft, err := resource.ParseQuantity(strings.TrimSuffix(manager.Env[i].Value, "B")) // 460Mi of 460MiB
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(soft.AsApproximateFloat64() / manager.Resources.Limits.Memory().AsApproximateFloat64()).To(BeNumerically("~", 0.9, 0.01))
		return
	}
	t.Error("config/manager has no Deployment")
}

// kubectl explain prints what stands in the CRDs.
func TestEveryFieldIsDocumented(t *testing.T) {
	for _, dir := range []string{"default", "member"} {
		documented := 0
		for _, crd := range crds(t, dir) {
			for _, version := range crd.Spec.Versions {
				found := undocumented(crd.Spec.Names.Singular, *version.Schema.OpenAPIV3Schema, &documented)
				for _, field := range found {
					t.Errorf("config/%s: %s has no description", dir, field)
				}
			}
		}
		if documented < 20 {
			t.Errorf("config/%s: %d documented fields found, want them all", dir, documented)
		}
	}
}

// undocumented returns the fields below schema without a description, and counts the
// others. The API server documents metadata itself.
func undocumented(path string, schema apiextensionsv1.JSONSchemaProps, documented *int) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property, at := schema.Properties[name], path+"."+name
		switch {
		case property.Description != "":
			*documented++
		case name != "metadata":
			found = append(found, at)
		}
		found = append(found, undocumented(at, property, documented)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		found = append(found, undocumented(path+"[]", *schema.Items.Schema, documented)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		found = append(found, undocumented(path+"{}", *schema.AdditionalProperties.Schema, documented)...)
	}
	return found
}

func crds(t *testing.T, dir string) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var out []apiextensionsv1.CustomResourceDefinition
	for _, o := range kustomize(t, dir) {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crd := apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &crd); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		out = append(out, crd)
	}
	return out
}

// kustomize builds a folder of config.
func kustomize(t *testing.T, dir string) []unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	binary, err := harness.ToolPath("kustomize", "kustomize")
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(t.Context(), binary, "build", config(t, dir))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred(), "%s", &stderr)
	g.Expect(stderr.String()).To(BeEmpty(), "kustomize warns of what it will not build one day")

	var objects []unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096)
	for {
		o := unstructured.Unstructured{}
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		g.Expect(err).NotTo(HaveOccurred())
		objects = append(objects, o)
	}
}

// config is a path within the folder config.
func config(t *testing.T, path string) string {
	t.Helper()
	return inRepo(t, filepath.Join("config", path))
}
