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

package ledger

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// touched is how often a run without its mark is touched once the right to mark is granted,
// for five to ten minutes to pass sooner: an event has it tried again, a minute after the
// last refusal.
const touched = 5 * time.Second

// TestMembersApart: of three members one is paused, one does not grant the right to mark,
// and one goes away. Their totals stay exact, and the manager that starts lives to the end.
func TestMembersApart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, []harness.Option{harness.WithAudit}, "paused", "unmarked", "away")
	f.mayMark("unmarked", false)
	f.join(f.names...)
	f.annotate("paused", kubeconfigsecret.PausedAnnotation, "true")
	p := f.newPod("manager")
	p.start()
	// kubectl waits for nothing that does not exist yet.
	f.Eventually(f.summary).Should(HaveField("Name", "fleet"))
	out, err := f.hub.Kubectl(t.Context(), "wait", "--for=condition=Ready", "--timeout=120s", "arfs/fleet")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(out).To(ContainSubstring("agentrunfleetstatus.fleet.konveyor.io/fleet condition met"))

	t.Run("at a time", func(t *testing.T) {
		t.Run("one is paused", func(t *testing.T) { t.Parallel(); f.on(t).paused() })
		t.Run("one lacks the right to mark", func(t *testing.T) { t.Parallel(); f.on(t).lacksRight() })
		t.Run("one goes away", func(t *testing.T) { t.Parallel(); f.on(t).goesAway() })
	})
	f.Expect(p.Exited()).NotTo(BeClosed())
}

// failing makes runs fail in a member, so many for each ending, and returns the totals.
func (f *fleet) failing(name, prefix string, each int, endings ...ending) totals {
	f.Helper()
	want := totals{}
	for i, e := range endings {
		for j := range each {
			l := life{member: name, name: fmt.Sprintf("%s-%d-%d", prefix, i, j), ending: e}
			f.Expect(f.members[name].live(f.Context(), l)).To(Succeed())
			want[e.reason]++
		}
	}
	return want
}

// comeTo waits until the hub has a member's totals, with so many runs in flight.
func (f *fleet) comeTo(name string, want totals, inFlight int) {
	f.Helper()
	all := func() error { return f.recordedOf(name, want.exactly(inFlight)) }
	f.Eventually(all).WithTimeout(settled).WithPolling(settlePolled).Should(Succeed())
	f.Consistently(all).WithPolling(settlePolled).Should(Succeed())
}

// unmarkedIn returns a function that counts a member's runs without their mark.
func (f *fleet) unmarkedIn(name string) func() (int, error) {
	return func() (int, error) {
		unmarked, _, err := f.members[name].unmarked(f.Context())
		return unmarked, err
	}
}

func (f *fleet) annotate(name, key, value string) {
	f.Helper()
	secret := harness.MemberSecret(clusters, name, nil)
	f.Expect(f.hub.Client.Get(f.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	patch := client.MergeFrom(secret.DeepCopy())
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, key, value)
	f.Expect(f.hub.Client.Patch(f.Context(), secret, patch)).To(Succeed())
}

func (f *fleet) paused() {
	want := f.failing("paused", "another", 4, byAnother...)
	pending := f.failing("paused", "pod", 1, endings[:3]...)
	f.comeTo("paused", want, 12)
	f.Expect(f.unmarkedIn("paused")()).To(Equal(12))
	f.Expect(f.members["paused"].Requests(harness.ByUser(fleetUser), harness.OnResource("agentruns"), harness.WithVerb("patch", "delete"))).To(BeEmpty())
	f.Expect(f.members["paused"].Requests(harness.ByUser(fleetUser), harness.OnResource("agentruns/status"), harness.WithVerb("patch"))).To(BeEmpty())

	f.annotate("paused", kubeconfigsecret.PausedAnnotation, "false")
	ended := time.Now()
	f.Eventually(f.unmarkedIn("paused")).Should(BeZero())
	f.Logf("Every run was marked %s after the pause", time.Since(ended).Round(time.Second))
	for reason, n := range pending {
		want[reason] += n
	}
	f.comeTo("paused", want, 0)
}

func (f *fleet) lacksRight() {
	m := f.members["unmarked"]
	want := f.failing("unmarked", "run", 2, endings...)
	f.comeTo("unmarked", want, 24)
	f.Expect(f.unmarkedIn("unmarked")()).To(Equal(24))
	refused, err := m.Requests(harness.ByUser(fleetUser), harness.OnResource("agentruns"), harness.WithVerb("patch"))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(refused).To(And(Not(BeEmpty()), HaveEach(HaveField("Code", BeEquivalentTo(http.StatusForbidden)))))
	// Several workers may ask before the first answer.
	f.Expect(len(refused)).To(BeNumerically("<=", 10), "each run was asked for")

	f.mayMark("unmarked", true)
	granted := time.Now()
	f.Eventually(func() (int, error) {
		f.touch("unmarked")
		return f.unmarkedIn("unmarked")()
	}).WithTimeout(settled).WithPolling(touched).Should(BeZero())
	f.Logf("Every run was marked %s after the right was granted", time.Since(granted).Round(time.Second))
	f.comeTo("unmarked", want, 0)
}

// touch has the manager look at the runs of a member that have no mark.
func (f *fleet) touch(name string) {
	f.Helper()
	list := &agentv1alpha1.AgentRunList{}
	f.Expect(f.members[name].Client.List(f.Context(), list)).To(Succeed())
	for i := range list.Items {
		if run := &list.Items[i]; !run.Recorded() {
			patch := client.MergeFrom(run.DeepCopy())
			metav1.SetMetaDataAnnotation(&run.ObjectMeta, "example.com/touched", time.Now().String())
			f.Expect(f.members[name].Client.Patch(f.Context(), run, patch)).To(Succeed())
		}
	}
}

// mayMark grants the right to mark, or takes it away, and waits until that is so.
func (f *fleet) mayMark(name string, allowed bool) {
	f.Helper()
	c := f.members[name].Client
	role := &rbacv1.ClusterRole{}
	f.Expect(c.Get(f.Context(), client.ObjectKey{Name: memberRole}, role)).To(Succeed())
	for i := range role.Rules {
		rule := &role.Rules[i]
		if !slices.Contains(rule.Resources, "agentruns") {
			continue
		}
		rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "patch" })
		if allowed {
			rule.Verbs = append(rule.Verbs, "patch")
		}
	}
	f.Expect(c.Update(f.Context(), role)).To(Succeed())
	f.Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: fleetUser, Groups: []string{managers},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: agentv1alpha1.GroupVersion.Group, Resource: "agentruns", Verb: "patch"},
		}}
		err := c.Create(f.Context(), review)
		return review.Status.Allowed, err
	}).Should(Equal(allowed))
}

func (f *fleet) goesAway() {
	m := f.members["away"]
	want := f.failing("away", "run", 3, byAnother...)
	for _, name := range []string{"one", "two"} {
		f.Expect(m.CreateRun(f.Context(), build.MakeAgentRun(name).Obj())).To(Succeed())
	}
	f.comeTo("away", want, 0)
	f.Eventually(f.known("away")).Should(HaveField("Status.Runs.Pending", BeEquivalentTo(2)))
	f.Expect(f.summary()).To(HaveField("Status.Clusters.OldestContactTime", BeNil()))

	m.proxy.Pause()
	m.proxy.Reset()
	f.Eventually(f.known("away")).WithTimeout(settled).Should(And(
		harness.HaveCondition("Connected", metav1.ConditionUnknown, "Unreachable"),
		HaveField("Status.Runs.Pending", BeZero()),
		HaveField("Status.Runs.Unknown", BeEquivalentTo(2)),
		HaveField("Status.Runs.Failed", BeEquivalentTo(9)),
		WithTransform(memberNumbers, Equal(want.exactly(0))),
	))
	last, err := f.clusterStatus("away")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(last.Status.LastContactTime).NotTo(BeNil())
	f.Eventually(f.summary).Should(And(
		harness.HaveCondition("Ready", metav1.ConditionFalse, "MembersNotObserved"),
		HaveField("Status.Clusters.Ratio", "2/3"),
		HaveField("Status.Clusters.OldestContactTime", Equal(last.Status.LastContactTime)),
		HaveField("Status.Runs.Unknown", BeEquivalentTo(2)),
		HaveField("Status.Conditions", ContainElement(HaveField("Message", ContainSubstring("1 of 3 members not observed: clusters/away (Unreachable)")))),
	))
	f.leaves("away")
}

// leaves: a member that is removed leaves the sums, and what it was waited for.
func (f *fleet) leaves(name string) {
	f.Helper()
	f.Expect(f.hub.Client.Delete(f.Context(), harness.MemberSecret(clusters, name, nil))).To(Succeed())
	f.Eventually(f.summary).Should(And(
		harness.HaveCondition("Ready", metav1.ConditionTrue, "AllMembersObserved"),
		HaveField("Status.Clusters.Ratio", "2/2"),
		HaveField("Status.Clusters.OldestContactTime", BeNil()),
	))
	f.Eventually(func() (sum int64, err error) {
		for _, other := range f.names {
			status, getErr := f.clusterStatus(other)
			if client.IgnoreNotFound(getErr) != nil {
				return 0, getErr
			}
			sum -= status.Status.TotalFailures
		}
		sums, err := f.summary()
		return sum + sums.Status.TotalFailures, err
	}).Should(BeZero(), "the summary is the sum of the members that are left")
}
