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
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	rbacmember "github.com/konveyor/agentrun-fleet/config/rbac/member"
	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestLimitedToNamespaces: rights, and a manager at work, in some namespaces and nowhere else.
func TestLimitedToNamespaces(t *testing.T) {
	s := newSuite(t)
	for _, namespace := range []string{"team-a", "team-b", "team-c"} {
		s.Expect(c1Plane.EnsureNamespace(t.Context(), namespace)).To(Succeed())
	}
	before := s.settled(c1Plane)
	s.Expect(s.register("team-b,team-a")).To(Equal(fmt.Sprintf(`
member c1: Namespace %[1]s created
member c1: ServiceAccount %[1]s/%[1]s created
member c1: Role team-a/%[1]s created
member c1: RoleBinding team-a/%[1]s created
member c1: Role team-b/%[1]s created
member c1: RoleBinding team-b/%[1]s created
member c1: token issued, expires <time>
hub hub: Secret clusters/limited-kubeconfig created
`[1:], s.objectsOf("limited"))))
	s.Expect(s.secret("limited").Annotations).To(HaveKeyWithValue("fleet.konveyor.io/namespaces", "team-a,team-b"))
	s.mayWorkIn("team-a", "team-b")
	s.mayNotWorkIn("team-c", "default", "kube-system", s.objectsOf("limited"), "")

	s.otherComesAndGoes()
	s.startManager()
	outside := s.stuckRun("team-c", "outside")
	s.failsRun("team-a", "inside")
	s.Expect(s.phaseOf(outside)).NotTo(Equal(agentv1alpha1.AgentRunFailed))

	// Another limit takes away what the former gave; the Secret is told first.
	s.Expect(s.register("team-a,team-c")).To(HaveSuffix(fmt.Sprintf(`
hub hub: Secret clusters/limited-kubeconfig updated
member c1: RoleBinding team-b/%[1]s deleted
member c1: Role team-b/%[1]s deleted
`, s.objectsOf("limited"))))
	s.mayWorkIn("team-a", "team-c")
	s.mayNotWorkIn("team-b", "")
	s.becomesFailed(outside)
	outside = s.stuckRun("team-b", "outside")
	s.failsRun("team-a", "inside-too")
	s.Expect(s.phaseOf(outside)).NotTo(Equal(agentv1alpha1.AgentRunFailed))

	// Forgetting the flag does not lift it.
	s.Expect(s.plugin("register", "limited", "--member-context=c1", "-n", clusters)).NotTo(Or(ContainSubstring("created"), ContainSubstring("deleted")))
	s.mayNotWorkIn("team-b", "")

	s.Expect(s.register("")).To(And(ContainSubstring("ClusterRoleBinding"), ContainSubstring("Role team-a/%s deleted", s.objectsOf("limited"))))
	s.Expect(s.secret("limited").Annotations).NotTo(HaveKey("fleet.konveyor.io/namespaces"))
	s.mayWorkIn("team-a", "team-b", "")

	s.becomesFailed(outside)
	s.deletesRuns("team-a", "team-b", "team-c")

	s.plugin("unregister", "limited", "--member-context=c1", "-n", clusters)
	s.Eventually(s.inventory(c1Plane)).Should(ConsistOf(before))
}

// otherComesAndGoes: registrations of one cluster under two names share nothing.
func (s *suite) otherComesAndGoes() {
	s.Helper()
	before := s.settled(c1Plane)
	s.plugin("register", "other", "--member-context=c1", "-n", clusters)
	s.plugin("unregister", "other", "--member-context=c1", "-n", clusters)
	s.Eventually(s.inventory(c1Plane)).Should(ConsistOf(before))
}

func (s *suite) phaseOf(run *agentv1alpha1.AgentRun) agentv1alpha1.AgentRunPhase {
	s.Helper()
	s.Expect(c1Plane.Client.Get(s.Context(), client.ObjectKeyFromObject(run), run)).To(Succeed())
	return run.Status.Phase
}

func (s *suite) register(namespaces string) string {
	s.Helper()
	return s.plugin("register", "limited", "--member-context=c1", "-n", clusters, "--expiration=1h", "--member-namespaces="+namespaces)
}

func (s *suite) mayWorkIn(namespaces ...string) {
	s.Helper()
	for _, namespace := range namespaces {
		// The authorizer learns of new rights by a watch.
		s.Eventually(func() (map[string]bool, error) { return s.reviews(namespace) }).Should(HaveEach(BeTrue()), "in namespace %q", namespace)
	}
}

func (s *suite) mayNotWorkIn(namespaces ...string) {
	s.Helper()
	for _, namespace := range namespaces {
		s.Eventually(func() (map[string]bool, error) { return s.reviews(namespace) }).Should(HaveEach(BeFalse()), "in namespace %q", namespace)
	}
}

// reviews asks the member, as the hub, for every right of the role in a namespace; the
// empty one stands for all.
func (s *suite) reviews(namespace string) (map[string]bool, error) {
	config, err := kubeconfigsecret.ParseKubeconfig(s.secret("limited").Data["value"], kubeconfigsecret.Policy{})
	if err != nil {
		return nil, err
	}
	asHub, err := client.New(config, client.Options{Scheme: harness.NewScheme()})
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(rbacmember.RoleYAML, role); err != nil {
		return nil, err
	}
	allowed := map[string]bool{}
	for _, right := range rightsOf(role) {
		right.Namespace = namespace
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		if err := asHub.Create(s.Context(), review); err != nil {
			return nil, err
		}
		allowed[fmt.Sprint(right)] = review.Status.Allowed
	}
	return allowed, nil
}

func rightsOf(role *rbacv1.ClusterRole) []authorizationv1.ResourceAttributes {
	rights := []authorizationv1.ResourceAttributes{}
	for _, rule := range role.Rules {
		for _, name := range rule.Resources {
			resource, subresource, _ := strings.Cut(name, "/")
			for _, verb := range rule.Verbs {
				rights = append(rights, authorizationv1.ResourceAttributes{
					Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
				})
			}
		}
	}
	return rights
}
