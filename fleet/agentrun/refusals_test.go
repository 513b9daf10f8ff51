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

package agentrun

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/konveyor/agentrun-fleet/fleet/ttl"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// limitedUser is who the manager is in a member that grants no more than it must.
const limitedUser = "limited"

// requiredRules are what RequiredAccess asks for, and Events.
func requiredRules() []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}}
	for _, a := range RequiredAccess() {
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{a.Group}, Resources: []string{resource}, Verbs: []string{a.Verb}})
	}
	return rules
}

// engageLimited engages a member that grants only what is required.
func engageLimited(t *testing.T) *engaged {
	t.Helper()
	g := harness.NewGomega(t)
	cp := harness.NewMember(t, "member", harness.WithAudit)
	grant(t, cp, "required", requiredRules()...)
	config, err := cp.AddUser(limitedUser)
	g.Expect(err).NotTo(HaveOccurred())
	return engageAs(t, cp, config)
}

func grant(t *testing.T, cp *harness.ControlPlane, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	g := harness.NewGomega(t)
	meta := metav1.ObjectMeta{Name: name}
	g.Expect(cp.Client.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})).To(Succeed())
	g.Expect(cp.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: limitedUser}},
	})).To(Succeed())
}

// asked counts the requests of a verb for runs themselves.
func (k *bookkeeper) asked(verb string) int {
	k.t.Helper()
	requests, err := k.member.plane.Requests(harness.ByUser(limitedUser), harness.OnResource("agentruns"), harness.WithVerb(verb))
	k.Expect(err).NotTo(HaveOccurred())
	return len(requests)
}

// inMinutes matches when a run comes back whose request was refused.
var inMinutes = HaveField("RequeueAfter", And(BeNumerically(">=", refusedAgain), BeNumerically("<", 2*refusedAgain)))

// TestWithoutTheRightToMark: a member that may not be marked works, and is asked again.
func TestWithoutTheRightToMark(t *testing.T) {
	k := keepBooks(t, engageLimited(t))
	for _, name := range []string{"first", "second"} {
		k.store(failedAt(name, noon).Obj(), true)
	}
	k.Expect(k.once("first")).To(inMinutes)
	k.Expect(k.asked("patch")).To(Equal(1))
	k.Expect(k.once("second")).To(inMinutes)
	k.Expect(k.asked("patch")).To(Equal(1), "one refusal stands for the namespace")
	k.Eventually(k.event("first", "NotMarked")).Should(And(HaveField("Type", "Warning"), HaveField("Note", ContainSubstring("grant patch on agentruns.konveyor.io"))))

	k.wall.SetTime(noon.Add(refusalHolds))
	k.Expect(k.once("second")).To(inMinutes)
	k.Expect(k.asked("patch")).To(Equal(2), "after a while it is asked again")
	k.Expect(k.stored("first").Annotations).To(BeEmpty())

	grant(t, k.member.plane, "mark", rbacv1.PolicyRule{APIGroups: []string{"konveyor.io"}, Resources: []string{"agentruns"}, Verbs: []string{"patch"}})
	k.Eventually(func() bool {
		// The authorizer learns of a grant from its own watch.
		k.wall.SetTime(k.wall.Now().Add(refusalHolds))
		k.once("first")
		return k.stored("first").Recorded()
	}).Should(BeTrue())
}

// TestWithoutTheRightToDelete: an Event tells which right is missing.
func TestWithoutTheRightToDelete(t *testing.T) {
	k := keepBooks(t, engageLimited(t))
	k.ttl = ttl.Policy{Succeeded: time.Minute}
	k.store(succeededAt("run", noon.Add(-time.Hour)).Obj(), false)
	k.Expect(k.once("run")).To(inMinutes)
	k.Expect(k.once("run")).To(inMinutes)
	k.Expect(k.asked("delete")).To(Equal(1))
	k.Expect(k.stored("run")).NotTo(BeNil())
	k.Eventually(k.event("run", "NotDeleted")).Should(And(
		HaveField("Type", "Warning"),
		HaveField("Note", "the AgentRun Succeeded at 2026-03-01T11:00:00Z (by its completionTime), and its TTL of 1m0s is over, "+
			"but the fleet manager is not allowed to delete it; delete it, or grant delete on agentruns.konveyor.io")))

	grant(t, k.member.plane, "delete", rbacv1.PolicyRule{APIGroups: []string{"konveyor.io"}, Resources: []string{"agentruns"}, Verbs: []string{"delete"}})
	k.Eventually(func() any {
		k.wall.SetTime(k.wall.Now().Add(refusalHolds))
		k.once("run")
		return k.stored("run")
	}).Should(BeNil())
}

func TestRefusalsAreForgotten(t *testing.T) {
	var r refusals
	what := refusal{"ns/member", "default", verbDelete}
	others := []refusal{{"ns/other", "default", verbDelete}, {"ns/member", "default", verbPatch}, {"ns/member", "kube-system", verbDelete}}
	r.add(what, noon)
	if !r.holds(what, noon.Add(refusalHolds-1)) {
		t.Error("a refusal does not hold as long as it should")
	}
	if r.holds(what, noon.Add(refusalHolds)) {
		t.Error("a refusal holds longer than it should")
	}
	for _, other := range others {
		if r.holds(other, noon) {
			t.Errorf("the refusal of %v holds for %v", what, other)
		}
		r.add(other, noon.Add(refusalHolds))
	}
	if len(r.until) != len(others) {
		t.Errorf("%d refusals are remembered, want the %d that hold", len(r.until), len(others))
	}
}

// announcer is a Ledger that tells the test's listener.
type announcer struct {
	tell func(multicluster.ClusterName, types.NamespacedName)
}

func (*announcer) WantedMark(multicluster.ClusterName, types.UID) types.UID { return ledgerID }

func (a *announcer) OnWantsMark(f func(multicluster.ClusterName, types.NamespacedName)) { a.tell = f }

// TestRecordedRunsAreQueued: after what happens in the member now.
func TestRecordedRunsAreQueued(t *testing.T) {
	queue := newFairQueue("recorded", workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](time.Second, time.Second), 40, clock.RealClock{})
	defer queue.ShutDown()
	ledger := &announcer{}
	enqueueUnmarked(ledger, queue)
	ledger.tell("ns/member", request("recorded").NamespacedName)
	queue.Add(request("happens-now"))
	for _, want := range []string{"happens-now", "recorded"} {
		if got, _ := queue.Get(); got != request(want) {
			t.Errorf("next in the queue is %v, want %v", got, request(want))
		}
	}
}
