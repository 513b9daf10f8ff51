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

package rollup_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/rollup"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
)

// Two Secrets that lead to one cluster are two members: each counts every failure, in its
// totals as in all else. So do two hubs.
func TestTwoLedgersOfOneCluster(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, second := w.member("ledgers", "first"), w.member("ledgers", "second")
	w.members.set(first)
	w.engage(first.Name, "ledgers-runs")
	for i := range 3 {
		w.fail("ledgers-runs", fmt.Sprint("before-", i), "E")
	}
	w.settle(first, "ledgers-runs", map[string]int{"E": 3})

	w.members.set(second)
	w.engage(second.Name, "ledgers-runs")
	w.Eventually(w.cluster(second.Name)).Should(haveExactly("E", 3))
	for i := range 3 {
		w.fail("ledgers-runs", fmt.Sprint("after-", i), "F")
	}
	for _, m := range []rollup.Member{first, second} {
		w.Eventually(w.cluster(m.Name)).Should(haveExactly("F", 3))
		w.Consistently(w.cluster(m.Name)).Should(HaveField("Status.TotalFailures", int64(6)))
	}
	w.Expect(w.fleet("fleet")()).To(HaveField("Status.TotalFailures", int64(12)))
}

func haveExactly(reason string, total int) gomegatypes.GomegaMatcher {
	return And(haveTotal(reason, total), HaveField("Status.TotalExact", true))
}

// A ledger that is deleted is begun again with what exists; one that is restored into
// another object goes on.
func TestALedgerThatIsDeletedAndRestored(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("begun-again", "m")
	w.members.set(m)
	end := w.engage(m.Name, "begun-again-runs")
	gone := w.fail("begun-again-runs", "gone", "E")
	w.fail("begun-again-runs", "kept", "E")
	w.settle(m, "begun-again-runs", map[string]int{"E": 2})
	w.Expect(hub.Client.Delete(w.ctx, gone)).To(Succeed())
	w.Eventually(w.cluster(m.Name)).Should(HaveField("Status.Runs.Failed", int32(1)))

	before, err := w.cluster(m.Name)()
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(before.Status.Ledger.ID).To(Equal(before.UID))
	w.Expect(hub.Client.Delete(w.ctx, before)).To(Succeed())
	w.Eventually(w.cluster(m.Name)).Should(And(Not(HaveField("UID", before.UID)), haveExactly("E", 1)))
	w.settle(m, "begun-again-runs", map[string]int{"E": 1})

	t.Log("restored from a backup, with its status")
	w.crash(end)
	w.Expect(hub.Client.Delete(w.ctx, before.DeepCopy())).To(Succeed())
	restored := &fleetv1alpha1.AgentRunClusterStatus{ObjectMeta: metav1.ObjectMeta{
		Namespace: before.Namespace, Name: before.Name, OwnerReferences: before.OwnerReferences,
	}}
	w.Expect(hub.Client.Create(w.ctx, restored)).To(Succeed())
	restored.Status = before.Status
	w.Expect(hub.Client.Status().Update(w.ctx, restored)).To(Succeed())
	w.Expect(restored.UID).NotTo(Equal(before.UID))
	w.start()
	w.engage(m.Name, "begun-again-runs")
	w.fail("begun-again-runs", "later", "E")
	w.settle(m, "begun-again-runs", map[string]int{"E": 3})
	w.Expect(w.cluster(m.Name)()).To(HaveField("Status.Ledger.ID", before.UID))
}

// A member in which nothing may be marked is limited to other namespaces, and to the former
// again: what was counted there is not counted anew.
func TestNamespacesThatComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.marking = false
	var watched atomic.Value
	w.options.Prove = func(ctx context.Context, cl cluster.Cluster, ledger types.UID) (tally.Proof, error) {
		return proveIn(ctx, cl, ledger, watched.Load().(string))
	}
	w.start()
	m := w.member("limited", "m")
	w.members.set(m)
	end := func() {}
	watch := func(namespace string, failed int32) {
		watched.Store(namespace)
		next := w.engage(m.Name, namespace)
		end()
		end = next
		w.Eventually(w.cluster(m.Name)).Should(And(
			HaveField("Status.Runs.Failed", failed), HaveField("Status.TotalExact", true), HaveField("Status.Ledger.Waiting", int32(0))))
	}
	run := w.fail("limited-a", "a", "E")
	watch("limited-a", 1)
	w.Expect(w.cluster(m.Name)()).To(haveTotal("E", 1))
	watch("limited-b", 0)
	w.fail("limited-b", "b", "F")
	w.Eventually(w.cluster(m.Name)).Should(haveExactly("F", 1))
	watch("limited-a", 1)
	w.fail("limited-a", "later", "G")
	w.Eventually(w.cluster(m.Name)).Should(haveExactly("G", 1))
	w.Expect(w.cluster(m.Name)()).To(And(HaveField("Status.TotalFailures", int64(3)), HaveField("Status.Ledger.InFlight", ContainElement(run.UID))))
}

// One ledger is begun again so often that the runs have no room for its marks. Another one's
// stay, or it would count them again.
func TestALedgerThatIsBegunAgainOften(t *testing.T) {
	w := newWorld(t)
	w.start()
	stays, again := w.member("begun-often", "stays"), w.member("begun-often", "again")
	w.members.set(stays)
	w.engage(stays.Name, "begun-often-runs")
	for i := range 3 {
		w.fail("begun-often-runs", fmt.Sprint("before-", i), "E")
	}
	w.settle(stays, "begun-often-runs", map[string]int{"E": 3})
	var strangers []types.UID // which leave room for one more
	for i := range agentv1alpha1.MaxLedgers - 2 {
		strangers = append(strangers, types.UID(fmt.Sprint("stranger-", i)))
	}
	for _, run := range w.wanting("begun-often-runs", strangers...) {
		w.markRun(&run, strangers...)
	}
	w.members.set(again)
	w.engage(again.Name, "begun-often-runs")
	for range 3 {
		w.Eventually(w.cluster(again.Name)).Should(haveExactly("E", 3))
		o, err := w.cluster(again.Name)()
		w.Expect(err).NotTo(HaveOccurred())
		w.Eventually(func() []agentv1alpha1.AgentRun { return w.wanting("begun-often-runs", o.Status.Ledger.ID) }).Should(BeEmpty())
		w.Expect(hub.Client.Delete(w.ctx, o)).To(Succeed())
		w.Eventually(w.cluster(again.Name)).ShouldNot(HaveField("UID", o.UID))
	}
	w.fail("begun-often-runs", "later", "F")
	for _, m := range []rollup.Member{stays, again} {
		w.Eventually(w.cluster(m.Name)).Should(And(haveExactly("E", 3), haveExactly("F", 1)))
		w.Consistently(w.cluster(m.Name)).Should(HaveField("Status.TotalFailures", int64(4)))
	}
}

// markRun has ledgers, which the test makes up, mark a run.
func (w *world) markRun(run *agentv1alpha1.AgentRun, ledgers ...types.UID) {
	before := client.MergeFrom(run.DeepCopy())
	run.Annotations = map[string]string{agentv1alpha1.RecordedAnnotation: run.Mark(ledgers...)}
	w.Expect(hub.Client.Patch(w.ctx, run, before)).To(Succeed())
}

// wanting are the failed runs of a namespace that have room for a mark of these ledgers.
func (w *world) wanting(namespace string, ledgers ...types.UID) []agentv1alpha1.AgentRun {
	var list agentv1alpha1.AgentRunList
	w.Expect(hub.Client.List(w.ctx, &list, client.InNamespace(namespace))).To(Succeed())
	return slices.DeleteFunc(list.Items, func(run agentv1alpha1.AgentRun) bool {
		return run.Status.Phase != agentv1alpha1.AgentRunFailed || run.Mark(ledgers...) == run.Mark()
	})
}

// What goes before the first look is judged by the marks of the ledger that is found then.
func TestWhatGoesBeforeTheFirstLook(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("early", "m")
	w.members.set(m)
	end := w.engage(m.Name, "early-runs")
	counted := w.fail("early-runs", "counted", "E")
	w.settle(m, "early-runs", map[string]int{"E": 1})
	w.crash(end)
	another := w.fail("early-runs", "another", "F")
	w.markRun(another, "stranger")

	w.members.update(m.Name, func() { // nobody has said yet which members there are
		w.members.unsynced = true
		delete(w.members.members, m.Name)
	})
	w.start()
	w.engage(m.Name, "early-runs")
	w.Eventually(func() bool { return rollup.Engaged(w.rollup, m.Name) }).Should(BeTrue())
	for _, run := range []*agentv1alpha1.AgentRun{counted, another} {
		w.Expect(hub.Client.Delete(w.ctx, run)).To(Succeed())
	}
	w.Eventually(func() int { return rollup.Early(w.rollup, m.Name) }).Should(Equal(2))
	w.members.update(m.Name, func() {
		w.members.unsynced = false
		w.members.members[m.Name] = m
	})
	w.Eventually(w.cluster(m.Name)).Should(And(HaveField("Status.Ledger.Missed", int64(1)), HaveField("Status.TotalExact", false),
		HaveField("Status.TotalFailures", int64(1))))
}
