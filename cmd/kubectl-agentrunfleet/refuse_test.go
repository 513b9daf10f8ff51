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
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

func TestRefuses(t *testing.T) {
	s := newSuite(t)
	capi := harness.MemberSecret(clusters, "capi", []byte("kind: Config"))
	s.Expect(hubPlane.Client.Create(t.Context(), capi)).To(Succeed())
	before := s.settled(c1Plane)

	cases := map[string]struct {
		args string
		want string
	}{
		"no such command":               {"join c1", `there is no command "join"`},
		"no name":                       {"register --member-context=c1", "give one NAME"},
		"two names":                     {"register a b --member-context=c1", "give one NAME"},
		"a name in capitals":            {"register C1 --member-context=c1", `NAME "C1" cannot name a member`},
		"a name too long for a label":   {"register " + strings.Repeat("a", 64) + " --member-context=c1", "must be no more than 63"},
		"no member context":             {"register c1", "--member-context: required"},
		"an unknown member context":     {"register c1 --member-context=c9", `--member-context: the kubeconfig has no context "c9"`},
		"an unknown hub context":        {"register c1 --member-context=c1 --context=h9", `--context: the kubeconfig has no context "h9"`},
		"a context without CA":          {"register c1 --member-context=no-ca -n clusters", "has no CA"},
		"a context that trusts anyone":  {"register c1 --member-context=insecure -n clusters", "insecure-skip-tls-verify, which the manager refuses"},
		"a context with a proxy":        {"register c1 --member-context=proxied -n clusters", "give --server with a URL that the hub reaches"},
		"a server by plain http":        {"register c1 --member-context=c1 -n clusters --server=http://c1.example.com", "only https is allowed"},
		"a server with a password":      {"register c1 --member-context=c1 -n clusters --server=https://u:hunter2@c1.example.com", "credentials in the URL are refused"},
		"a hub without CRDs":            {"register c1 --member-context=c1 --context=c1 -n default", "hub c1 does not serve agentrunclusterstatuses"},
		"members without CRDs":          {"members --context=c1", "kubectl apply -k config/default"},
		"a namespace the hub lacks":     {"register c1 --member-context=c1 -n nowhere", "Namespace nowhere"},
		"a namespace the member lacks":  {"register c1 --member-context=c1 -n clusters --member-namespaces=nowhere", "leave it out of --member-namespaces"},
		"a bad namespace":               {"register c1 --member-context=c1 --member-namespaces=A", `--member-namespaces: "A"`},
		"too many namespaces":           {"register c1 --member-context=c1 --member-namespaces=" + many(), "give at most 32"},
		"a short expiration":            {"register c1 --member-context=c1 --expiration=1m", "--expiration: 1m0s: must be 10m0s to"},
		"renewal of what is not there":  {"register c1 --member-context=c1 -n clusters --renew", "register it first, without --renew"},
		"renewal of more":               {"register c1 --member-context=c1 --renew --server=https://c1.example.com", "changes the token alone"},
		"the Secret of something else":  {"register capi --member-context=c1 -n clusters", "Secret clusters/capi-kubeconfig exists and was not made by"},
		"its renewal":                   {"register capi --member-context=c1 -n clusters --renew", "Secret clusters/capi-kubeconfig exists and was not made by"},
		"a member that does not answer": {"unregister c1 --member-context=gone -n clusters", "nothing was deleted: member gone: reading Namespace kube-system"},
		"an unknown output":             {"members -o yaml", `--output: "yaml": must be wide`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, err := s.try(strings.Fields(tc.args)...)
			g.Expect(err).To(MatchError(ContainSubstring(tc.want)))
			g.Expect(err).NotTo(MatchError(ContainSubstring("hunter2")))
			g.Expect(out).To(BeEmpty())
		})
	}
	s.Expect(s.inventory(c1Plane)()).To(ConsistOf(before))
	s.Expect(hubPlane.Client.Delete(t.Context(), capi)).To(Succeed())
}

// many lists namespaces, all different.
func many() string {
	names := []string{}
	for c := 'a'; c <= 'z'; c++ {
		names = append(names, string(c), string(c)+"z")
	}
	return strings.Join(names, ",")
}

// TestNothingElseIsTouched: what register has not made stays, and one member is not taken
// for another.
func TestNothingElseIsTouched(t *testing.T) {
	s := newSuite(t)
	capi := harness.MemberSecret(clusters, "capi", []byte("kind: Config"))
	s.Expect(hubPlane.Client.Create(t.Context(), capi)).To(Succeed())
	s.Expect(s.plugin("unregister", "capi", "--member-context=c1", "-n", clusters)).To(Equal(`
hub hub: Secret clusters/capi-kubeconfig was not made by `[1:] + "`register` with this hub and is left alone" + `
member c1: has nothing of clusters/capi
`))
	s.Expect(hubPlane.Client.Delete(t.Context(), capi)).To(Succeed())

	s.plugin("register", "one", "--member-context=c1", "-n", clusters)
	before, err := s.inventory(c1Plane)()
	s.Expect(err).NotTo(HaveOccurred())
	for _, command := range []string{"register", "unregister"} {
		_, err := s.try(command, "one", "--member-context=hub", "-n", clusters)
		s.Expect(err).To(MatchError(ContainSubstring("member hub is another cluster than the one that is registered as clusters/one")))
	}
	s.Expect(s.inventory(c1Plane)()).To(ContainElements(before))

	// What others add to the Secret stays; what register answers for is corrected.
	secret := s.secret("one")
	label(secret, "env", "production")
	annotate(secret, "fleet.konveyor.io/paused", "true")
	s.Expect(hubPlane.Client.Update(t.Context(), secret)).To(Succeed())
	account := newRegistrationOf(s, "one").serviceAccount()
	s.Expect(c1Plane.Client.Delete(t.Context(), account)).To(Succeed())
	s.Expect(s.plugin("register", "one", "--member-context=ca-in-a-file", "-n", clusters, "--server=https://c1.example.com:6443", "--expiration=1h")).To(And(
		ContainSubstring("ServiceAccount %[1]s/%[1]s created", account.Name),
		ContainSubstring("token issued"), // the former is no longer valid
		ContainSubstring("Secret clusters/one-kubeconfig updated"),
	))
	secret = s.secret("one")
	s.Expect(secret.Labels).To(HaveKeyWithValue("env", "production"))
	s.Expect(secret.Annotations).To(HaveKeyWithValue("fleet.konveyor.io/paused", "true"))
	endpoint, _ := stored(secret.Data["value"])
	s.Expect(endpoint.Server).To(Equal("https://c1.example.com:6443"))
	s.Expect(endpoint.CertificateAuthorityData).To(Equal(c1Plane.Config.CAData))

	// Forgetting --server does not undo it; an empty one does.
	s.Expect(s.plugin("register", "one", "--member-context=c1", "-n", clusters)).NotTo(ContainSubstring("updated"))
	s.plugin("register", "one", "--member-context=c1", "-n", clusters, "--server=")
	endpoint, _ = stored(s.secret("one").Data["value"])
	s.Expect(strings.TrimSuffix(endpoint.Server, "/")).To(Equal(strings.TrimSuffix(c1Plane.Config.Host, "/")))

	s.deletionIsWaitedFor(account.Namespace)
}

// deletionIsWaitedFor: the member takes its time to delete the Namespace.
func (s *suite) deletionIsWaitedFor(name string) {
	s.Helper()
	namespace := &corev1.Namespace{}
	hold := func(finalizers ...string) {
		s.Eventually(func() error { // its controllers write it too
			if err := c1Plane.Client.Get(s.Context(), client.ObjectKey{Name: name}, namespace); err != nil {
				return err
			}
			namespace.Finalizers = finalizers
			return c1Plane.Client.Update(s.Context(), namespace)
		}).Should(Succeed())
	}
	hold("example.com/hold")
	s.plugin("unregister", "one", "--member-context=c1", "-n", clusters)
	_, err := s.try("register", "one", "--member-context=c1", "-n", clusters)
	s.Expect(err).To(MatchError(ContainSubstring("Namespace " + name + ": is being deleted: run the command again when it is gone")))
	hold()
	s.Eventually(func() error {
		return c1Plane.Client.Get(s.Context(), client.ObjectKey{Name: name}, namespace)
	}).Should(MatchError(ContainSubstring("not found")))
}

func newRegistrationOf(s *suite, name string) *registration {
	return &registration{namespace: clusters, name: name, objects: s.objectsOf(name)}
}

// TestKubectlFindsIt: as a plugin, with the flags that kubectl passes on.
func TestKubectlFindsIt(t *testing.T) {
	s := newSuite(t)
	kubectl, err := harness.BinaryPath("kubectl")
	s.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(t.Context(), kubectl, "agentrunfleet", "members", "--context=hub", "-n", "default", "--kubeconfig="+s.kubeconfig)
	cmd.Env = append(os.Environ(), "PATH="+binaries)
	out, err := cmd.CombinedOutput()
	s.Expect(string(out)).To(Equal("No members found\n"))
	s.Expect(err).NotTo(HaveOccurred())
}

func TestVersion(t *testing.T) {
	s := newSuite(t)
	s.Expect(s.plugin("version")).To(Equal("dev\n")) // make plugin sets another
}
