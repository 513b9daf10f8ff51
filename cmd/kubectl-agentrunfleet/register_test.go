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
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	"sigs.k8s.io/yaml"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	rbacmember "github.com/konveyor/agentrun-fleet/config/rbac/member"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestRegister: the life of a member, from nothing to nothing.
func TestRegister(t *testing.T) {
	s := newSuite(t)
	atC1 := s.settled(c1Plane)
	atHub, err := s.inventory(hubPlane)()
	s.Expect(err).NotTo(HaveOccurred())

	s.dryRunChangesNothing(atHub, atC1)
	s.registers()
	s.registersTwice()
	s.secretHasNoMoreThanItMust()
	s.grantsExactlyTheRole()

	s.startManager()
	s.Eventually(s.status("c1")).Should(harness.HaveCondition(fleetv1alpha1.ConditionConnected, metav1.ConditionTrue, ""))
	s.failsRun("default", "before")
	s.printsMembers()
	s.renewsWithoutGap()
	s.nothingWasForbidden()
	s.deletesRuns("default")

	s.unregisters()
	s.Eventually(s.inventory(c1Plane)).Should(ConsistOf(atC1))
	s.Eventually(s.inventory(hubPlane)).Should(ConsistOf(atHub))
	s.Expect(s.plugin("unregister", "c1", "--member-context=c1", "-n", clusters)).To(Equal(`
hub hub: Secret clusters/c1-kubeconfig is not there
member c1: has nothing of clusters/c1
`[1:]))
}

func (s *suite) dryRunChangesNothing(atHub, atC1 []string) {
	s.Helper()
	s.Expect(s.plugin("register", "c1", "--member-context=c1", "-n", clusters, "--dry-run")).To(Equal(fmt.Sprintf(`
member c1: Namespace %[1]s created (dry run)
member c1: ServiceAccount %[1]s/%[1]s created (dry run)
member c1: ClusterRole %[1]s created (dry run)
member c1: ClusterRoleBinding %[1]s created (dry run)
member c1: token issued (dry run), valid for 8760h0m0s if the API server grants that
hub hub: Secret clusters/c1-kubeconfig created (dry run)
`[1:], s.objectsOf("c1"))))
	s.Expect(s.inventory(c1Plane)()).To(ConsistOf(atC1))
	s.Expect(s.inventory(hubPlane)()).To(ConsistOf(atHub))
}

func (s *suite) registers() {
	s.Helper()
	s.Expect(s.plugin("register", "c1", "--member-context=c1", "--context=hub", "-n", clusters)).To(Equal(fmt.Sprintf(`
member c1: Namespace %[1]s created
member c1: ServiceAccount %[1]s/%[1]s created
member c1: ClusterRole %[1]s created
member c1: ClusterRoleBinding %[1]s created
member c1: token issued, expires <time>; the API server granted %[2]s instead of 8760h0m0s
hub hub: Secret clusters/c1-kubeconfig created
`[1:], s.objectsOf("c1"), granted)))
	s.expiryIsTold(24 * time.Hour)
}

func (s *suite) registersTwice() {
	s.Helper()
	before := s.secret("c1")
	s.Expect(s.plugin("register", "c1", "--member-context=c1", "-n", clusters)).To(Equal(fmt.Sprintf(`
member c1: Namespace %[1]s unchanged
member c1: ServiceAccount %[1]s/%[1]s unchanged
member c1: ClusterRole %[1]s unchanged
member c1: ClusterRoleBinding %[1]s unchanged
member c1: token unchanged, expires <time>; --renew renews it
hub hub: Secret clusters/c1-kubeconfig unchanged
`[1:], s.objectsOf("c1"))))
	s.Expect(s.plugin("register", "c1", "--member-context=c1", "-n", clusters, "--renew", "--dry-run")).To(Equal(`
member c1: token issued (dry run), valid for 8760h0m0s if the API server grants that
hub hub: Secret clusters/c1-kubeconfig updated (dry run)
`[1:]))
	s.Expect(s.plugin("unregister", "c1", "--member-context=c1", "-n", clusters, "--dry-run")).To(And(
		ContainSubstring("Secret clusters/c1-kubeconfig deleted (dry run)"), ContainSubstring("Namespace %s deleted (dry run)", s.objectsOf("c1")),
	))
	s.Expect(s.secret("c1")).To(Equal(before))
}

// expiryIsTold: the Secret's annotation is what stands in the token itself.
func (s *suite) expiryIsTold(want time.Duration) {
	s.Helper()
	secret := s.secret("c1")
	told, err := time.Parse(time.RFC3339, secret.Annotations[expiryAnnotation])
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(told).To(BeTemporally("~", time.Now().Add(want), 5*time.Minute))
	_, token := stored(secret.Data["value"])
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	s.Expect(err).NotTo(HaveOccurred())
	claims := struct {
		Exp int64 `json:"exp"`
	}{}
	s.Expect(json.Unmarshal(payload, &claims)).To(Succeed())
	s.Expect(told.Unix()).To(BeNumerically("~", claims.Exp, 1))
}

func (s *suite) secretHasNoMoreThanItMust() {
	s.Helper()
	secret := s.secret("c1")
	s.Expect(secret.Type).To(Equal(corev1.SecretType("cluster.x-k8s.io/secret")))
	s.Expect(secret.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"))
	s.Expect(secret.Annotations).NotTo(HaveKey("fleet.konveyor.io/namespaces"))
	s.Expect(secret.Data).To(HaveLen(1))
	_, token := stored(secret.Data["value"])
	got := strings.Replace(string(secret.Data["value"]), token, "TOKEN", 1)
	want := fmt.Sprintf(`
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: %s
  name: member
contexts:
- context:
    cluster: member
    user: agentrun-fleet
  name: member
current-context: member
kind: Config
users:
- name: agentrun-fleet
  user:
    token: TOKEN
`[1:], base64.StdEncoding.EncodeToString(c1Plane.Config.CAData), c1Plane.URL())
	s.Expect(cmp.Diff(want, got)).To(BeEmpty(), "(-want +got)")
}

func (s *suite) grantsExactlyTheRole() {
	s.Helper()
	objects := s.objectsOf("c1")
	want, got := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}
	s.Expect(yaml.UnmarshalStrict(rbacmember.RoleYAML, want)).To(Succeed())
	s.Expect(want.Rules).NotTo(BeEmpty())
	s.Expect(c1Plane.Client.Get(s.Context(), client.ObjectKey{Name: objects}, got)).To(Succeed())
	s.Expect(cmp.Diff(want.Rules, got.Rules)).To(BeEmpty(), "(-want +got)")

	bindings := &rbacv1.ClusterRoleBindingList{}
	s.Expect(c1Plane.Client.List(s.Context(), bindings)).To(Succeed())
	bound := slices.DeleteFunc(bindings.Items, func(b rbacv1.ClusterRoleBinding) bool {
		return !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name == objects })
	})
	s.Expect(bound).To(ConsistOf(HaveField("RoleRef.Name", objects)))
}

// failsRun makes a run that cannot start, and sees the manager fail it.
func (s *suite) failsRun(namespace, name string) {
	s.Helper()
	s.becomesFailed(s.stuckRun(namespace, name))
}

func (s *suite) becomesFailed(run *agentv1alpha1.AgentRun) {
	s.Helper()
	s.Eventually(komega.New(c1Plane.Client).WithContext(s.Context()).Object(run)).Should(And(
		harness.HavePhase(agentv1alpha1.AgentRunFailed),
		harness.HaveCondition(agentv1alpha1.ConditionSucceeded, metav1.ConditionFalse, startup.ReasonImagePullBackOff),
	))
}

func (s *suite) stuckRun(namespace, name string) *agentv1alpha1.AgentRun {
	s.Helper()
	run := build.MakeAgentRun(name).Namespace(namespace).Obj()
	s.Expect(c1Plane.CreateRun(s.Context(), run)).To(Succeed())
	s.Expect(c1Plane.CreatePod(s.Context(), build.MakePod(name).Namespace(namespace).ForRun(run).Container("agent", "registry.example.com/agent:gone").
		Waiting("agent", startup.ReasonImagePullBackOff, "Back-off").Obj())).To(Succeed())
	return run
}

func (s *suite) deletesRuns(namespaces ...string) {
	s.Helper()
	for _, namespace := range namespaces {
		for _, kind := range []client.Object{&agentv1alpha1.AgentRun{}, &corev1.Pod{}} {
			s.Expect(c1Plane.Client.DeleteAllOf(s.Context(), kind, client.InNamespace(namespace), client.GracePeriodSeconds(0))).To(Succeed())
		}
	}
}

func (s *suite) renewsWithoutGap() {
	s.Helper()
	before := s.secret("c1")
	conditions := s.watchConnected()
	start := time.Now()
	s.Expect(s.plugin("register", "c1", "--member-context=c1", "-n", clusters, "--renew", "--expiration=2h")).To(Equal(`
member c1: token issued, expires <time>
hub hub: Secret clusters/c1-kubeconfig updated
`[1:]))
	s.failsRun("default", "during")
	s.expiryIsTold(2 * time.Hour)
	s.onlyTheTokenChanged(before, s.secret("c1"))

	// The manager connects anew with it.
	s.Eventually(func() ([]harness.Request, error) {
		return c1Plane.Requests(harness.ByUser(s.account()), harness.OnResource("agentruns"),
			harness.WithVerb("list", "watch"), harness.ReceivedAfter(start))
	}).ShouldNot(BeEmpty())
	s.failsRun("default", "after")
	// What the conditions say is written at most once a second: the run's count comes after
	// anything that was to be said of the connection before it.
	s.Eventually(s.status("c1")).Should(HaveField("Status.Runs.Failed", BeEquivalentTo(3)))
	seen := conditions()
	s.Expect(seen).NotTo(BeEmpty())
	s.Expect(seen).To(HaveEach(And(HaveField("Status", metav1.ConditionTrue), HaveField("LastTransitionTime", seen[0].LastTransitionTime))))
}

// watchConnected returns a function that ends the watch and returns what was seen.
func (s *suite) watchConnected() func() []metav1.Condition {
	s.Helper()
	w, err := hubPlane.Client.Watch(s.Context(), &fleetv1alpha1.AgentRunClusterStatusList{}, client.InNamespace(clusters),
		client.MatchingFields{"metadata.name": "c1"})
	s.Expect(err).NotTo(HaveOccurred())
	seen, done := []metav1.Condition{}, make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			if status, ok := event.Object.(*fleetv1alpha1.AgentRunClusterStatus); ok {
				seen = append(seen, status.Status.Conditions...)
			}
		}
	}()
	return func() []metav1.Condition {
		w.Stop()
		<-done
		return seen
	}
}

func (s *suite) onlyTheTokenChanged(before, after *corev1.Secret) {
	s.Helper()
	endpointBefore, tokenBefore := stored(before.Data["value"])
	endpointAfter, tokenAfter := stored(after.Data["value"])
	s.Expect(tokenAfter).NotTo(Equal(tokenBefore))
	s.Expect(cmp.Diff(endpointBefore, endpointAfter)).To(BeEmpty())
	for _, secret := range []*corev1.Secret{before, after} {
		_, token := stored(secret.Data["value"])
		secret.Data["value"] = []byte(strings.Replace(string(secret.Data["value"]), token, "TOKEN", 1))
		delete(secret.Annotations, expiryAnnotation)
		secret.ResourceVersion, secret.ManagedFields = "", nil
	}
	s.Expect(cmp.Diff(before, after)).To(BeEmpty())
}

// account is who the hub is in the member.
func (s *suite) account() string {
	s.Helper()
	return "system:serviceaccount:" + s.objectsOf("c1") + ":" + s.objectsOf("c1")
}

func (s *suite) nothingWasForbidden() {
	s.Helper()
	requests, err := c1Plane.Requests(harness.ByUser(s.account()))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(requests).NotTo(BeEmpty())
	s.Expect(slices.DeleteFunc(requests, func(r harness.Request) bool { return r.Code != http.StatusForbidden })).To(BeEmpty())
}

func (s *suite) unregisters() {
	s.Helper()
	s.Expect(s.plugin("unregister", "c1", "--member-context=c1", "-n", clusters)).To(Equal(fmt.Sprintf(`
hub hub: Secret clusters/c1-kubeconfig deleted
member c1: ClusterRoleBinding %[1]s deleted
member c1: ClusterRole %[1]s deleted
member c1: ServiceAccount %[1]s/%[1]s deleted
member c1: Namespace %[1]s deleted
`[1:], s.objectsOf("c1"))))
}
