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
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

const (
	// clusters is the hub's namespace in which the tests register.
	clusters = "clusters"
	// elsewhere is one in which their manager does not look.
	elsewhere = "elsewhere"
	viewer    = "viewer"
	// granted is the longest that the member's API server issues tokens for.
	granted = "24h0m0s"
)

// The tests share a hub and a member: starting one costs seconds.
var (
	hubPlane, c1Plane *harness.ControlPlane
	binaries          string
)

func TestMain(m *testing.M) {
	code, err := startAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func startAndRun(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if binaries, err = os.MkdirTemp("", "kubectl-agentrunfleet-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(binaries)) }()
	root, err := harness.RepoRoot()
	if err != nil {
		return 1, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(binaries, "kubectl-agentrunfleet"), "./cmd/kubectl-agentrunfleet")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the plugin: %w\n%s", err, out)
	}
	planes, err := startPlanes(ctx)
	if err != nil {
		return 1, err
	}
	hubPlane, c1Plane = planes[0], planes[1]
	code = m.Run()
	return code, harness.StopAll(planes...)
}

func startPlanes(ctx context.Context) ([]*harness.ControlPlane, error) {
	hubOptions, err := harness.HubOptions()
	if err != nil {
		return nil, err
	}
	// The controller manager empties and ends namespaces.
	c1Options, err := harness.MemberOptions("c1", harness.WithAudit, harness.WithControllerManager)
	if err != nil {
		return nil, err
	}
	c1Options.APIServerFlags = map[string]string{"service-account-max-token-expiration": granted}
	planes, err := harness.StartAll(ctx, hubOptions, c1Options)
	if err != nil {
		return nil, err
	}
	return planes, prepareHub(ctx, planes[0])
}

// prepareHub makes the namespaces, and a user that may see statuses and no Secrets.
func prepareHub(ctx context.Context, hub *harness.ControlPlane) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: viewer}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{fleetv1alpha1.GroupVersion.Group}, Resources: []string{"agentrunclusterstatuses"}, Verbs: []string{"list"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewer},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: viewer}},
	}
	return errors.Join(
		hub.EnsureNamespace(ctx, clusters),
		hub.EnsureNamespace(ctx, elsewhere),
		hub.Client.Create(ctx, role),
		hub.Client.Create(ctx, binding),
	)
}

// suite runs the plugin as a process with one kubeconfig that has all contexts.
type suite struct {
	*testing.T
	*WithT
	kubeconfig string
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{T: t, WithT: harness.NewGomega(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "hub"
	add := func(name string, cp *harness.ControlPlane, change func(*clientcmdapi.Cluster)) {
		c := &clientcmdapi.Cluster{Server: cp.URL(), CertificateAuthorityData: cp.Config.CAData}
		change(c)
		config.Clusters[name] = c
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cp.Config.CertData, ClientKeyData: cp.Config.KeyData}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	asIs := func(*clientcmdapi.Cluster) {}
	add("hub", hubPlane, asIs)
	add("c1", c1Plane, asIs)
	add("gone", c1Plane, func(c *clientcmdapi.Cluster) { c.Server = "https://127.0.0.1:1" })
	add("no-ca", c1Plane, func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = nil })
	add("insecure", c1Plane, func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData, c.InsecureSkipTLSVerify = nil, true })
	add("proxied", c1Plane, func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://127.0.0.1:1" })
	add("ca-in-a-file", c1Plane, func(c *clientcmdapi.Cluster) {
		c.CertificateAuthority, c.CertificateAuthorityData = "ca.crt", nil
		s.Expect(os.WriteFile(filepath.Join(filepath.Dir(s.kubeconfig), "ca.crt"), c1Plane.Config.CAData, 0o600)).To(Succeed())
	})
	user, err := hubPlane.AddUser(viewer)
	s.Expect(err).NotTo(HaveOccurred())
	add(viewer, hubPlane, asIs)
	config.AuthInfos[viewer] = &clientcmdapi.AuthInfo{ClientCertificateData: user.CertData, ClientKeyData: user.KeyData}
	s.Expect(clientcmd.WriteToFile(*config, s.kubeconfig)).To(Succeed())
	return s
}

// try runs the plugin and returns what it printed; the error has what it complained of.
func (s *suite) try(args ...string) (string, error) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), filepath.Join(binaries, "kubectl-agentrunfleet"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), nil
}

func (s *suite) plugin(args ...string) string {
	s.Helper()
	out, err := s.try(args...)
	s.Expect(err).NotTo(HaveOccurred())
	return times.ReplaceAllString(out, "<time>")
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// objectsOf is the name of what is registered in the member.
func (s *suite) objectsOf(name string) string {
	s.Helper()
	system := &corev1.Namespace{}
	s.Expect(hubPlane.Client.Get(s.Context(), client.ObjectKey{Name: "kube-system"}, system)).To(Succeed())
	return newRegistration(system.UID, clusters, name).objects
}

func (s *suite) secret(name string) *corev1.Secret {
	s.Helper()
	secret := &corev1.Secret{}
	s.Expect(hubPlane.Client.Get(s.Context(), client.ObjectKey{Namespace: clusters, Name: name + "-kubeconfig"}, secret)).To(Succeed())
	return secret
}

// inventory is a function that names everything of the kinds that register makes, and of those
// that others make in its wake.
func (s *suite) inventory(cp *harness.ControlPlane) func() ([]string, error) {
	return func() ([]string, error) {
		found := []string{}
		for _, list := range []client.ObjectList{
			&corev1.NamespaceList{}, &corev1.ServiceAccountList{}, &rbacv1.ClusterRoleList{},
			&rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &corev1.SecretList{},
		} {
			if err := cp.Client.List(s.Context(), list); err != nil {
				return nil, err
			}
			items, err := itemsOf(list)
			if err != nil {
				return nil, err
			}
			for _, o := range items {
				found = append(found, nameOf(o))
			}
		}
		return found, nil
	}
}

// settled is the inventory once the member's controllers have ended the namespaces that were
// deleted, and have made what they make in each of the others.
func (s *suite) settled(cp *harness.ControlPlane) []string {
	s.Helper()
	namespaces := &corev1.NamespaceList{}
	s.Eventually(func() ([]corev1.Namespace, error) {
		err := cp.Client.List(s.Context(), namespaces)
		return namespaces.Items, err
	}).ShouldNot(ContainElement(HaveField("DeletionTimestamp", Not(BeNil()))))
	for _, namespace := range namespaces.Items {
		s.Eventually(func() error {
			return cp.Client.Get(s.Context(), client.ObjectKey{Namespace: namespace.Name, Name: "default"}, &corev1.ServiceAccount{})
		}).Should(Succeed())
	}
	found, err := s.inventory(cp)()
	s.Expect(err).NotTo(HaveOccurred())
	return found
}

func (s *suite) status(name string) func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
	return func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
		status := &fleetv1alpha1.AgentRunClusterStatus{}
		return status, hubPlane.Client.Get(s.Context(), client.ObjectKey{Namespace: clusters, Name: name}, status)
	}
}

// startManager runs the real manager on the hub until the test ends.
func (s *suite) startManager() {
	s.Helper()
	dir := s.TempDir()
	binary, err := harness.BuildManager(s.Context(), dir)
	s.Expect(err).NotTo(HaveOccurred())
	manager, err := harness.StartManager(s.Context(), binary, hubPlane.KubeconfigPath(), filepath.Join(dir, "manager.log"),
		"--kubeconfig-secret-namespaces="+clusters)
	s.Expect(err).NotTo(HaveOccurred())
	s.Cleanup(func() {
		manager.Kill()
		if log, err := os.ReadFile(manager.LogFile); err == nil && s.Failed() {
			s.Logf("manager log:\n%s", log)
		}
	})
}
