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
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

func TestAUserMayDoWhatRBACGrants(t *testing.T) {
	g := NewGomega(t)
	c := clientOf(t, "reader")
	list := func() error { return c.List(t.Context(), &agentv1alpha1.AgentRunList{}) }
	g.Expect(apierrors.IsForbidden(list())).To(gomega.BeTrue(), "before any role is bound")

	readRuns(t, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"})
	g.Eventually(list).Should(gomega.Succeed())
}

func TestAMemberSecretConnectsAHubToAMember(t *testing.T) {
	g := NewGomega(t)
	ctx := t.Context()
	account, err := member.ServiceAccount(ctx, "fleet", "manager")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	readRuns(t, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "fleet", Name: "manager"})
	proxy := NewProxy(t, member)

	g.Expect(hub.EnsureNamespace(ctx, "team")).To(gomega.Succeed())
	secret := MemberSecret("team", "east", Kubeconfig(account, proxy.URL()))
	g.Expect(hub.Client.Create(ctx, secret)).To(gomega.Succeed())

	stored := &corev1.Secret{}
	g.Expect(hub.Client.Get(ctx, client.ObjectKey{Namespace: "team", Name: "east-kubeconfig"}, stored)).To(gomega.Succeed())
	config, err := clientcmd.RESTConfigFromKubeConfig(stored.Data["value"])
	g.Expect(err).NotTo(gomega.HaveOccurred())
	c, err := client.New(config, client.Options{Scheme: member.Scheme})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Eventually(func() error { return c.List(ctx, &agentv1alpha1.AgentRunList{}) }).Should(gomega.Succeed())
	g.Expect(proxy.Accepted()).To(gomega.BeNumerically(">", 0), "connections through the proxy")
	g.Expect(member.Requests(ByUser("system:serviceaccount:fleet:manager"), WithVerb("list"))).NotTo(gomega.BeEmpty())
}

func TestATokenIsGoodUntilItExpires(t *testing.T) {
	cases := map[string]struct {
		expires          time.Duration
		wantUnauthorized bool
	}{
		"a token that expires in an hour is accepted":  {expires: time.Hour},
		"a token that expired an hour ago is rejected": {expires: -time.Hour, wantUnauthorized: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewGomega(t)
			config, err := member.ServiceAccountUntil(t.Context(), "default", "dated", time.Now().Add(tc.expires))
			g.Expect(err).NotTo(gomega.HaveOccurred())
			c, err := client.New(config, client.Options{Scheme: member.Scheme})
			g.Expect(err).NotTo(gomega.HaveOccurred())
			err = c.List(t.Context(), &corev1.PodList{})
			g.Expect(apierrors.IsUnauthorized(err)).To(gomega.Equal(tc.wantUnauthorized), "%v", err)
			g.Expect(apierrors.IsForbidden(err)).To(gomega.Equal(!tc.wantUnauthorized), "%v", err)
		})
	}
}
