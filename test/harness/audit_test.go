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
	"testing"

	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

func TestRequestsCountsWhatAUserAskedFor(t *testing.T) {
	g := NewGomega(t)
	ctx := t.Context()
	run := build.MakeAgentRun("counted").Obj()
	g.Expect(member.Client.Create(ctx, run)).To(gomega.Succeed())
	c := clientOf(t, "counter", "system:masters")

	failed := run.DeepCopy()
	failed.Status.Phase = agentv1alpha1.AgentRunFailed
	g.Expect(c.Status().Patch(ctx, failed, client.MergeFrom(run))).To(gomega.Succeed())

	counter := ByUser("counter")
	patches, err := member.Requests(counter, WithVerb("patch"), OnResource("agentruns/status"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(patches).To(gomega.HaveLen(1))
	g.Expect(patches[0]).To(gomega.And(
		gomega.HaveField("Namespace", run.Namespace),
		gomega.HaveField("Name", run.Name),
		gomega.HaveField("UserAgent", "counter/1"),
	))
	g.Eventually(member.Requests).WithArguments(counter, OnObject(run.Namespace, run.Name)).
		Should(gomega.HaveExactElements(gomega.HaveField("Code", int32(200))))
	g.Expect(member.Requests(counter, WithVerb("get", "list"), OnResource("agentruns"))).To(gomega.BeEmpty())

	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(run), run)).To(gomega.Succeed())
	g.Expect(member.Requests(counter, WithVerb("get", "list"), OnResource("agentruns"))).To(gomega.HaveLen(1))
	g.Expect(member.Requests(counter, WithVerb("get"), ReceivedAfter(patches[0].Received))).NotTo(gomega.BeEmpty())
}

func TestRequestsNeedsAudit(t *testing.T) {
	_, err := hub.Requests()
	NewGomega(t).Expect(err).To(gomega.MatchError(gomega.ContainSubstring("Options.Audit")))
}

// clientOf is a client of the member for a new user, who calls itself "<name>/1".
func clientOf(t *testing.T, name string, groups ...string) client.WithWatch {
	t.Helper()
	config, err := member.AddUser(name, groups...)
	must(t, err)
	config.UserAgent = name + "/1"
	c, err := client.NewWithWatch(config, client.Options{Scheme: member.Scheme})
	must(t, err)
	return c
}

// readRuns lets a user read AgentRuns in the member.
func readRuns(t *testing.T, subject rbacv1.Subject) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "read-runs-" + subject.Name}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{agentv1alpha1.GroupVersion.Group},
		Resources: []string{"agentruns"},
		Verbs:     []string{"get", "list", "watch"},
	}}}
	must(t, member.Client.Create(t.Context(), role))
	must(t, member.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{subject},
	}))
}
