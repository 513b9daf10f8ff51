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
	"net/http"
	"slices"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

// accountOf is a ServiceAccount's name as a user.
func accountOf(name string) string { return "system:serviceaccount:" + namespace + ":" + name }

// expectNothingForbidden: whatever the account asked for was granted.
func (i *installation) expectNothingForbidden(cp *harness.ControlPlane, account string) {
	i.Helper()
	requests, err := cp.Requests(harness.ByUser(accountOf(account)))
	i.Expect(err).NotTo(HaveOccurred())
	i.Expect(requests).NotTo(BeEmpty(), "%s has asked %s for nothing", account, cp.Name)
	i.Expect(slices.DeleteFunc(requests, func(r harness.Request) bool { return r.Code != http.StatusForbidden })).
		To(BeEmpty(), "missing in the role of %s in %s", account, cp.Name)
}

// expectEveryRuleUsed: what the ClusterRole, and a Role of its name, grant was asked for, but for the exceptions.
func (i *installation) expectEveryRuleUsed(cp *harness.ControlPlane, account, role string, except ...string) {
	i.Helper()
	granted := &rbacv1.ClusterRole{}
	i.Expect(cp.Client.Get(i.Context(), client.ObjectKey{Name: role}, granted)).To(Succeed())
	namespaced := &rbacv1.Role{}
	i.Expect(client.IgnoreNotFound(cp.Client.Get(i.Context(), client.ObjectKey{Namespace: namespace, Name: role}, namespaced))).To(Succeed())
	requests, err := cp.Requests(harness.ByUser(accountOf(account)))
	i.Expect(err).NotTo(HaveOccurred())
	used := map[string]bool{}
	for _, r := range requests {
		used[r.Verb+" "+r.Resource] = true
		if r.Verb == "watch" {
			// Servers that do not stream lists are listed first.
			used["list "+r.Resource] = true
		}
	}
	for _, right := range rightsOf(append(granted.Rules, namespaced.Rules...)) {
		i.Expect(used[right] || slices.Contains(except, right)).
			To(BeTrue(), "role %s in %s grants %q, which was not used", role, cp.Name, right)
	}
}

func rightsOf(rules []rbacv1.PolicyRule) []string {
	var rights []string
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				rights = append(rights, verb+" "+resource)
			}
		}
	}
	return rights
}
