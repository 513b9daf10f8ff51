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
	"os"
	"path/filepath"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

// kubeVersion is what the Makefile builds.
const kubeVersion = "v1.36.3"

func TestEachControlPlaneReportsThePinnedVersion(t *testing.T) {
	if os.Getenv(assetsEnv) != "" {
		root, err := RepoRoot()
		must(t, err)
		if os.Getenv(assetsEnv) != filepath.Join(root, "bin", "k8s") {
			t.Skip("KUBEBUILDER_ASSETS brings programs of its own version")
		}
	}
	for _, cp := range []*ControlPlane{hub, member} {
		g := NewGomega(t)
		d, err := discovery.NewDiscoveryClientForConfig(cp.Config)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		version, err := d.ServerVersion()
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(version.GitVersion).To(gomega.Equal(kubeVersion), cp.Name)
	}
}

func TestControlPlanesShareNothing(t *testing.T) {
	g := NewGomega(t)
	status := &fleetv1alpha1.AgentRunFleetStatus{ObjectMeta: metav1.ObjectMeta{Name: "alone"}}
	g.Expect(hub.Client.Create(t.Context(), status)).To(gomega.Succeed())
	run := build.MakeAgentRun("alone").Obj()
	g.Expect(member.Client.Create(t.Context(), run)).To(gomega.Succeed())

	err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(run), run)
	g.Expect(err).To(gomega.HaveOccurred(), "the hub does not have the member's CRD")
	g.Expect(hub.Client.Create(t.Context(), namespace("only-on-hub"))).To(gomega.Succeed())
	err = member.Client.Get(t.Context(), client.ObjectKey{Name: "only-on-hub"}, &corev1.Namespace{})
	g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "%v", err)
}

func TestAKilledAPIServerComesBackWithItsDataAndUsers(t *testing.T) {
	g := NewGomega(t)
	cp := NewControlPlanes(t, Options{Name: "killed"})[0]
	user, err := cp.AddUser("survivor", "system:masters")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(cp.EnsureNamespace(t.Context(), "kept")).To(gomega.Succeed())
	addr := cp.Addr()

	g.Expect(cp.KillAPIServer()).To(gomega.Succeed())
	g.Expect(cp.Client.Get(t.Context(), client.ObjectKey{Name: "kept"}, &corev1.Namespace{})).NotTo(gomega.Succeed())

	g.Expect(cp.RestartAPIServer()).To(gomega.Succeed())
	g.Expect(cp.Addr()).To(gomega.Equal(addr))
	c, err := client.New(user, client.Options{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Eventually(func() error {
		return c.Get(t.Context(), client.ObjectKey{Name: "kept"}, &corev1.Namespace{})
	}).Should(gomega.Succeed())
}

func TestStopLeavesNothing(t *testing.T) {
	g := NewGomega(t)
	cp := NewControlPlanes(t, Options{Name: "stopped"})[0]
	// An open watch is what makes a graceful end slow.
	w, err := cp.Client.Watch(t.Context(), &corev1.NamespaceList{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer w.Stop()

	g.Expect(cp.Stop()).To(gomega.Succeed())
	g.Expect(cp.Dir).NotTo(gomega.BeADirectory())
	g.Eventually(w.ResultChan()).Should(gomega.BeClosed())
	g.Expect(cp.Stop()).To(gomega.Succeed(), "a second call")
}

func TestAControlPlaneThatCannotStartSaysWhy(t *testing.T) {
	cases := map[string]struct {
		assets string
		flags  map[string]string
		want   string
	}{
		"programs that were never built name the command that builds them": {
			assets: t.TempDir(),
			want:   "make kube-binaries",
		},
		"an API server that exits shows the end of its log": {
			flags: map[string]string{"no-such-flag": "1"},
			want:  "unknown flag: --no-such-flag",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewGomega(t)
			t.Setenv("TMPDIR", t.TempDir())
			if tc.assets != "" {
				t.Setenv(assetsEnv, tc.assets)
			}
			_, err := Start(t.Context(), Options{Name: "broken", APIServerFlags: tc.flags})
			g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(tc.want)))
			g.Expect(os.ReadDir(os.TempDir())).To(gomega.BeEmpty(), "temporary files")
		})
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
