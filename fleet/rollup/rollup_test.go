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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/rollup"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

var notFound = WithTransform(apierrors.IsNotFound, BeTrue())

// A member's whole life: it appears, its runs come and go, it is lost, it comes back,
// it goes.
func TestMemberLife(t *testing.T) {
	w := newWorld(t)
	w.start()
	east := w.member("life", "east")
	w.members.set(east)
	w.engage(east.Name, "life-runs")

	t.Log("it appears, and with it the summary over all members")
	w.Eventually(w.cluster(east.Name)).Should(And(
		harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"),
		HaveField("OwnerReferences", ConsistOf(And(HaveField("UID", east.SecretUID), HaveField("Name", "east-kubeconfig")))),
		HaveField("Labels", HaveKeyWithValue("app.kubernetes.io/managed-by", "agentrun-fleet")),
		HaveField("Status.KubernetesVersion", "v1.36.3"),
		HaveField("Status.Endpoint", "https://member.example:6443"),
		HaveField("Status.LastContactTime", Not(BeNil())),
	))
	w.Eventually(w.fleet("fleet")).Should(And(
		harness.HaveCondition("Ready", metav1.ConditionTrue, "AllMembersObserved"),
		HaveField("Status.Clusters", fleetv1alpha1.ClusterCounts{Total: 1, Observed: 1, Ratio: "1/1"}),
	))

	t.Log("its runs are counted on it and in the summary")
	end := metav1.Now().Rfc3339Copy().Time
	w.create("life-runs", build.MakeAgentRun("new"))
	w.create("life-runs", build.MakeAgentRun("busy").Phase(agentv1alpha1.AgentRunRunning))
	failed := w.create("life-runs", build.MakeAgentRun("bad").Failed("ImagePullBackOff", "Back-off\npulling image", end))
	counts := fleetv1alpha1.RunCounts{Pending: 1, Running: 1, Active: 2, Failed: 1}
	w.Eventually(w.cluster(east.Name)).Should(haveRuns(counts))
	w.Eventually(w.fleet("fleet")).Should(haveRuns(counts))
	w.Eventually(w.cluster(east.Name)).Should(HaveField("Status.RecentFailures", ConsistOf(And(
		HaveField("Name", "bad"), HaveField("Reason", "ImagePullBackOff"), HaveField("Message", "Back-off pulling image"),
	))))
	w.Eventually(w.fleet("fleet")).Should(HaveField("Status.Failures", ConsistOf(And(
		HaveField("Reason", "ImagePullBackOff"), HaveField("Current", int32(1)), HaveField("Total", int64(1)), HaveField("Clusters", int32(1)),
		HaveField("LastRun", &fleetv1alpha1.RunReference{Cluster: "life/east", Namespace: "life-runs", Name: "bad"}),
	))))
	w.Expect(series(east, "agentrunfleet_failed_runs")).To(Equal(1))
	w.Eventually(func() int { return series(east, "agentrunfleet_recorded_failures_total") }).Should(Equal(1))

	t.Log("while it is lost its active runs are unknown, and the summary is not ready")
	w.members.set(lost(east, metav1.ConditionUnknown, "Unreachable"))
	unknown := fleetv1alpha1.RunCounts{Unknown: 2, Failed: 1}
	w.Eventually(w.cluster(east.Name)).Should(And(haveRuns(unknown), harness.HaveCondition("Connected", metav1.ConditionUnknown, "Unreachable")))
	w.Eventually(w.fleet("fleet")).Should(And(haveRuns(unknown),
		harness.HaveCondition("Ready", metav1.ConditionFalse, "MembersNotObserved"),
		HaveField("Status.Clusters.Ratio", "0/1")))

	t.Log("back again it is counted anew, and what failed stays on record")
	w.Expect(hub.Client.Delete(w.ctx, failed)).To(Succeed())
	w.members.set(east)
	w.Eventually(w.fleet("fleet")).Should(And(haveRuns(fleetv1alpha1.RunCounts{Pending: 1, Running: 1, Active: 2}),
		HaveField("Status.Failures", ConsistOf(And(HaveField("Current", int32(0)), HaveField("Total", int64(1))))),
		harness.HaveCondition("Ready", metav1.ConditionTrue, "")))

	t.Log("when it goes, so does all that was written of it")
	w.members.remove(east.Name)
	w.Eventually(func() error { _, err := w.cluster(east.Name)(); return err }).Should(notFound)
	w.Eventually(w.fleet("fleet")).Should(And(haveRuns(fleetv1alpha1.RunCounts{}), harness.HaveCondition("Ready", metav1.ConditionFalse, "NoMembers")))
	for _, name := range []string{"agentrunfleet_runs", "agentrunfleet_failed_runs", "agentrunfleet_member_up", "agentrunfleet_recorded_failures_total"} {
		w.Expect(series(east, name)).To(BeZero(), name)
	}
}

// series is the number of the member's series of a metric.
func series(m rollup.Member, metric string) int {
	families, err := metrics.Registry.Gather()
	if err != nil {
		panic(err)
	}
	n := 0
	for _, family := range families {
		for _, metricOf := range family.GetMetric() {
			for _, label := range metricOf.GetLabel() {
				if family.GetName() == metric && label.GetName() == "cluster" && label.GetValue() == string(m.Name) {
					n++
				}
			}
		}
	}
	return n
}

func TestMetricsAreWellFormed(t *testing.T) {
	problems, err := testutil.GatherAndLint(metrics.Registry, "agentrunfleet_runs", "agentrunfleet_failed_runs",
		"agentrunfleet_member_up", "agentrunfleet_recorded_failures_total")
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}

// For two seconds runs are created as fast as they can be, and the member is marked a
// thousand times besides; each object is written at most three times.
func TestWritesAreCoalesced(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("storm", "m")
	w.members.set(m)
	w.engage(m.Name, "storm-runs")
	w.Eventually(w.cluster(m.Name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, ""))
	w.Eventually(w.fleet("fleet")).Should(harness.HaveCondition("Ready", metav1.ConditionTrue, ""))

	began := time.Now()
	created, marks := int32(0), 0
	for ; time.Since(began) < 2*time.Second || marks < 1000; marks++ {
		if marks%10 == 0 {
			w.Expect(hub.Client.Create(w.ctx, build.MakeAgentRun(fmt.Sprint("r", created)).Namespace("storm-runs").Obj())).To(Succeed())
			created++
		}
		rollup.MarkChanged(w.rollup, m.Name)
	}
	seconds := int(time.Since(began).Seconds())
	clusters, fleets := w.writes("agentrunclusterstatuses/status", began), w.writes("agentrunfleetstatuses/status", began)
	t.Logf("%d marks and %d runs in %d s: %d and %d writes", marks, created, seconds, len(clusters), len(fleets))
	for _, writes := range [][]harness.Request{clusters, fleets} {
		w.Expect(len(writes)).To(And(BeNumerically(">=", 1), BeNumerically("<=", seconds+1)))
	}
	counts := fleetv1alpha1.RunCounts{Pending: created, Active: created}
	w.Eventually(w.cluster(m.Name)).Should(haveRuns(counts))
	w.Eventually(w.fleet("fleet")).Should(haveRuns(counts))

	t.Log("what does not change is not written")
	quiet := time.Now()
	for range 1000 {
		rollup.MarkChanged(w.rollup, m.Name)
		w.members.set(m)
	}
	w.Consistently(func() []harness.Request {
		return append(w.writes("agentrunclusterstatuses/status", quiet), w.writes("agentrunfleetstatuses/status", quiet)...)
	}).Should(BeEmpty())
}

// A failure is in the summary without waiting for the member's own object.
func TestFailureIsSummedUpPromptly(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("prompt", "m")
	w.members.set(m)
	w.engage(m.Name, "prompt-runs")
	run := w.create("prompt-runs", build.MakeAgentRun("r"))
	w.Eventually(w.fleet("fleet")).Should(haveRuns(fleetv1alpha1.RunCounts{Pending: 1, Active: 1}))

	run.Status = build.MakeAgentRun("r").Failed("ErrImagePull", "no", time.Now()).Obj().Status
	w.Expect(hub.Client.Status().Update(w.ctx, run)).To(Succeed())
	failed := time.Now()
	w.Eventually(w.fleet("fleet")).Should(haveRuns(fleetv1alpha1.RunCounts{Failed: 1}))
	t.Logf("in the summary after %v", time.Since(failed))
	w.Expect(time.Since(failed)).To(BeNumerically("<", 5*time.Second), "far above the budget, since the machine is shared")
}

// A manager that starts leaves the last known numbers alone until it knows better, and
// removes what members that went meanwhile have left.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.start()
	kept, gone := w.member("restart", "kept"), w.member("restart", "gone")
	for _, m := range []rollup.Member{kept, gone} {
		w.members.set(m)
		w.engage(m.Name, "restart-runs")
	}
	w.create("restart-runs", build.MakeAgentRun("busy").Phase(agentv1alpha1.AgentRunRunning))
	counts := fleetv1alpha1.RunCounts{Running: 1, Active: 1}
	w.Eventually(w.cluster(kept.Name)).Should(haveRuns(counts))
	w.Eventually(w.cluster(gone.Name)).Should(haveRuns(counts))
	w.Eventually(w.fleet("fleet")).Should(haveRuns(fleetv1alpha1.RunCounts{Running: 2, Active: 2}))
	w.stop()

	t.Log("before its members are known it writes and deletes nothing")
	foreign := &fleetv1alpha1.AgentRunClusterStatus{ObjectMeta: metav1.ObjectMeta{Namespace: "restart", Name: "foreign"}}
	w.Expect(hub.Client.Create(w.ctx, foreign)).To(Succeed())
	w.members = &registry{members: map[multicluster.ClusterName]rollup.Member{}, unsynced: true}
	restarted := time.Now()
	w.start()
	writes := func() []harness.Request {
		return append(append(w.writes("agentrunclusterstatuses/status", restarted), w.writes("agentrunclusterstatuses", restarted)...),
			w.writes("agentrunfleetstatuses/status", restarted)...)
	}
	w.Consistently(writes).Should(BeEmpty())

	t.Log("a member that has not been tried keeps its numbers; one that is gone goes, and only it")
	w.members.update(kept.Name, func() {
		w.members.unsynced = false
		w.members.members[kept.Name] = lost(kept, metav1.ConditionUnknown, "Connecting")
	})
	w.Eventually(func() error { _, err := w.cluster(gone.Name)(); return err }).Should(notFound)
	w.Eventually(w.fleet("fleet")).Should(And(haveRuns(counts), HaveField("Status.Clusters.Ratio", "1/1")))
	w.Consistently(w.cluster(kept.Name)).Should(And(haveRuns(counts), harness.HaveCondition("Connected", metav1.ConditionTrue, "")))
	w.Expect(w.cluster("restart/foreign")()).To(HaveField("Name", "foreign"))

	t.Log("connected but not counted yet it keeps them too")
	w.members.set(kept)
	w.Consistently(w.cluster(kept.Name)).Should(haveRuns(counts))

	t.Log("tried in vain, its active runs are unknown")
	w.members.set(lost(kept, metav1.ConditionUnknown, "Unreachable"))
	w.Eventually(w.cluster(kept.Name)).Should(haveRuns(fleetv1alpha1.RunCounts{Unknown: 1}))
	w.Eventually(w.fleet("fleet")).Should(haveRuns(fleetv1alpha1.RunCounts{Unknown: 1}))

	t.Log("counted, it shows what there is")
	w.members.set(kept)
	w.engage(kept.Name, "restart-runs")
	w.Eventually(w.cluster(kept.Name)).Should(haveRuns(counts))
}

// A member that was never reached is shown, with what is the matter.
func TestMemberNeverReached(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := lost(w.member("never", "m"), metav1.ConditionFalse, "InvalidKubeconfig")
	m.LastContactTime = metav1.Time{}
	w.members.set(m)
	w.Eventually(w.cluster(m.Name)).Should(And(
		harness.HaveCondition("Connected", metav1.ConditionFalse, "InvalidKubeconfig"),
		HaveField("Status.LastContactTime", BeNil())))
	w.Eventually(w.fleet("fleet")).Should(HaveField("Status.Clusters.Ratio", "0/1"))

	t.Log("one that is connected but not counted yet is not shown as one without runs")
	uncounted := w.member("never", "uncounted")
	w.members.set(uncounted)
	w.Eventually(w.fleet("fleet")).Should(HaveField("Status.Clusters.Ratio", "0/2"))
	w.Consistently(func() error { _, err := w.cluster(uncounted.Name)(); return err }).Should(notFound)
}

// What somebody else does to the objects is put right.
func TestForeignHandsArePutRight(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("foreign", "m")
	w.members.set(m)
	w.engage(m.Name, "foreign-runs")
	w.create("foreign-runs", build.MakeAgentRun("r"))
	counts := fleetv1alpha1.RunCounts{Pending: 1, Active: 1}
	w.Eventually(w.cluster(m.Name)).Should(haveRuns(counts))

	t.Log("an edited status")
	w.Eventually(func(g Gomega) {
		stored, err := w.cluster(m.Name)()
		g.Expect(err).NotTo(HaveOccurred())
		stored.Status.Runs.Failed = 99
		stored.Status.Conditions = foreignConditions() // no room is left for another
		g.Expect(hub.Client.Status().Update(w.ctx, stored)).To(Succeed())
	}).Should(Succeed())
	w.Eventually(w.cluster(m.Name)).Should(And(haveRuns(counts), HaveField("Status.Conditions", ConsistOf(HaveField("Type", "Connected")))))
	w.Eventually(func(g Gomega) {
		stored, err := w.fleet("fleet")()
		g.Expect(err).NotTo(HaveOccurred())
		stored.Status.Conditions = foreignConditions()
		g.Expect(hub.Client.Status().Update(w.ctx, stored)).To(Succeed())
	}).Should(Succeed())
	w.Eventually(w.fleet("fleet")).Should(And(haveRuns(counts), HaveField("Status.Conditions", ConsistOf(HaveField("Type", "Ready")))))

	t.Log("a deleted object")
	before, err := w.cluster(m.Name)()
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(hub.Client.Delete(w.ctx, before)).To(Succeed())
	w.Eventually(w.cluster(m.Name)).Should(And(haveRuns(counts), HaveField("UID", Not(Equal(before.UID)))))

	t.Log("a Secret that was made anew: its member is another one")
	m.SecretUID = "another"
	w.members.set(m)
	w.Eventually(w.cluster(m.Name)).Should(And(haveRuns(counts),
		HaveField("OwnerReferences", ConsistOf(HaveField("UID", m.SecretUID)))))

	t.Log("the last summary deleted: the default one is made again")
	fleet, err := w.fleet("fleet")()
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(hub.Client.Delete(w.ctx, fleet)).To(Succeed())
	w.Eventually(w.fleet("fleet")).Should(And(haveRuns(counts), HaveField("UID", Not(Equal(fleet.UID)))))
}

// foreignConditions are as many as the API server takes.
func foreignConditions() []metav1.Condition {
	out := make([]metav1.Condition, 8)
	for i := range out {
		out[i] = metav1.Condition{
			Type: fmt.Sprint("Foreign", i), Status: metav1.ConditionTrue, Reason: "ByHand", LastTransitionTime: metav1.Now().Rfc3339Copy(),
		}
	}
	return out
}

// A rotated member is counted from the new connection; the old one's end changes
// nothing, and neither does what comes through it afterwards.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("rotate", "m")
	w.members.set(m)
	w.create("rotate-old", build.MakeAgentRun("r"))
	endOld := w.engage(m.Name, "rotate-old")
	w.Eventually(w.cluster(m.Name)).Should(haveRuns(fleetv1alpha1.RunCounts{Pending: 1, Active: 1}))

	endNew := w.engage(m.Name, "rotate-new")
	w.Eventually(w.cluster(m.Name)).Should(haveRuns(fleetv1alpha1.RunCounts{}))
	endOld()
	w.create("rotate-old", build.MakeAgentRun("late"))
	w.create("rotate-new", build.MakeAgentRun("r").Phase(agentv1alpha1.AgentRunRunning))
	running := fleetv1alpha1.RunCounts{Running: 1, Active: 1}
	w.Eventually(w.cluster(m.Name)).Should(haveRuns(running))

	t.Log("without a connection the last count stands")
	endNew()
	w.create("rotate-new", build.MakeAgentRun("late"))
	rollup.MarkChanged(w.rollup, m.Name)
	w.Consistently(w.cluster(m.Name)).Should(haveRuns(running))
}

// What is known of a failed run's pod is shown, though the pod is gone before the failure
// can be put on record, and stays.
func TestEvidence(t *testing.T) {
	w := newWorld(t)
	pods := make(chan *corev1.Pod, 1)
	pods <- build.MakePod("p").Node("node-1").Obj()
	w.options.PodOf = func(context.Context, cluster.Cluster, *agentv1alpha1.AgentRun) *corev1.Pod {
		select {
		case pod := <-pods:
			return pod
		default:
			return nil
		}
	}
	proving := make(chan struct{})
	w.options.Prove = func(ctx context.Context, cl cluster.Cluster, ledger types.UID) (tally.Proof, error) {
		<-proving
		return prove(ctx, cl, ledger)
	}
	w.options.Culprit = func(pod *corev1.Pod, reason string) (container, image, node string) {
		return "for-" + reason, "example.com/agent:1", pod.Spec.NodeName
	}
	w.start()
	m := w.member("evidence", "m")
	w.members.set(m)
	w.create("evidence-runs", build.MakeAgentRun("r").Failed("ErrImagePull", "no", time.Now()))
	w.engage(m.Name, "evidence-runs")
	shown := HaveField("Status.RecentFailures", ConsistOf(And(HaveField("Container", "for-ErrImagePull"),
		HaveField("Image", "example.com/agent:1"), HaveField("Node", "node-1"))))
	w.Eventually(w.cluster(m.Name)).Should(haveRuns(fleetv1alpha1.RunCounts{Failed: 1}))
	w.create("evidence-runs", build.MakeAgentRun("other"))
	w.Eventually(w.cluster(m.Name)).Should(haveRuns(fleetv1alpha1.RunCounts{Pending: 1, Active: 1, Failed: 1}))
	close(proving)
	w.Eventually(w.cluster(m.Name)).Should(shown)

	w.Expect(hub.Client.DeleteAllOf(w.ctx, &agentv1alpha1.AgentRun{}, client.InNamespace("evidence-runs"))).To(Succeed())
	w.Eventually(w.cluster(m.Name)).Should(And(haveRuns(fleetv1alpha1.RunCounts{}), shown))
}

// The last contact is renewed though nothing else happens.
func TestContactIsRenewed(t *testing.T) {
	w := newWorld(t)
	fake := clocktesting.NewFakeClock(time.Now())
	w.options.Clock = fake
	w.start()
	m := w.member("contact", "m")
	w.members.set(m)
	w.engage(m.Name, "contact-runs")
	w.Eventually(w.cluster(m.Name)).Should(HaveField("Status.LastContactTime", Not(BeNil())))

	t.Log("as long as it does not move nothing is written, and all events run dry")
	quiet := time.Now()
	w.Consistently(func() []harness.Request {
		fake.Step(time.Second)
		return w.writes("agentrunclusterstatuses/status", quiet)
	}).Should(Or(BeEmpty(), HaveEach(HaveField("Code", 409))), "a write upon an old version is none")

	m.LastContactTime = metav1.NewTime(m.LastContactTime.Add(time.Minute)).Rfc3339Copy()
	w.members.mu.Lock()
	w.members.members[m.Name] = m // nobody is told
	w.members.mu.Unlock()
	w.Eventually(func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
		fake.Step(10 * time.Second)
		return w.cluster(m.Name)()
	}).Should(HaveField("Status.LastContactTime.Time", BeTemporally("==", m.LastContactTime.Time)))
}

// What could not be written while the hub was away is written when it is back.
func TestHubOutage(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("outage", "m")
	w.members.set(m)
	w.engage(m.Name, "outage-runs")
	w.create("outage-runs", build.MakeAgentRun("r"))
	w.Eventually(w.fleet("fleet")).Should(haveRuns(fleetv1alpha1.RunCounts{Pending: 1, Active: 1}))

	w.Expect(hub.KillAPIServer()).To(Succeed())
	w.members.set(lost(m, metav1.ConditionUnknown, "Unreachable"))
	w.Expect(hub.RestartAPIServer()).To(Succeed())
	unknown := fleetv1alpha1.RunCounts{Unknown: 1}
	w.Eventually(w.cluster(m.Name)).Should(haveRuns(unknown))
	w.Eventually(w.fleet("fleet")).Should(haveRuns(unknown))
}

// The hub's own API server is no member, though multicluster-runtime can engage it.
func TestTheHubIsNoMember(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.Expect(w.rollup.Engage(w.ctx, "", nil)).To(Succeed())
}
