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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// outage is how long the hub is away, and between is how long apart runs fail meanwhile.
const outage, between = 2 * time.Minute, 10 * time.Second

// TestHubAwayForTwoMinutes: the manager goes on failing runs, and afterwards, the same
// process, has every one of them on record, though some have been deleted. Then another
// manager takes over. No total ever goes back.
func TestHubAwayForTwoMinutes(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for two minutes")
	}
	t.Parallel()
	f := newFleet(t, []harness.Option{harness.WithAudit}, "alpha", "beta")
	f.join(f.names...)
	w := f.workload(nil, endings...)
	watch := f.follow()
	leader := f.newPod("leader")
	leader.start()
	f.Expect(<-f.begin(w.draw(20))).To(Succeed())
	f.Eventually(f.counted(w.truth)).Should(Succeed())
	before := f.holder()

	leader.proxy.Pause()
	away := time.Now()
	for n := 0; time.Since(away) < outage; n++ {
		for _, name := range f.names {
			f.failsNow(w, fmt.Sprintf("away-%d", n), name, n)
		}
		f.Consistently(leader.Exited(), between).ShouldNot(BeClosed())
	}
	missing := w.failures() - f.totalFailures()
	written, err := f.hub.Requests(harness.ByUser(leader.name), harness.ReceivedAfter(away.Add(time.Second)))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(written).To(BeEmpty(), "the hub was not away")
	f.Expect(missing).To(BeNumerically(">=", 20))
	leader.proxy.Resume()
	back := time.Now()
	f.Eventually(f.recorded(w.truth)).WithTimeout(settled).WithPolling(settlePolled).Should(Succeed())
	t.Logf("After %s without the hub, %d failures were on record and none in flight %s later",
		back.Sub(away).Round(time.Second), missing, time.Since(back).Round(time.Second))
	f.Expect(leader.Exited()).NotTo(BeClosed())
	f.Expect(f.holder()).To(Equal(before), "another process leads")
	f.allMarked()

	f.handOver(leader, w)
	f.neverWentBack(watch, w.truth.all())
}

// failsNow: a run fails in a member, by its pod or by its deadline. Every other one is
// deleted by somebody once it has.
func (f *fleet) failsNow(w *workload, run, member string, n int) {
	f.Helper()
	l := life{member: member, name: run, ending: endings[n%9]} // those of which the manager is to tell
	w.truth[member][l.ending.reason]++
	m := f.members[member]
	f.Expect(m.live(f.Context(), l)).To(Succeed())
	stored := &agentv1alpha1.AgentRun{}
	f.Eventually(func() (agentv1alpha1.AgentRunPhase, error) {
		err := m.Client.Get(f.Context(), client.ObjectKey{Namespace: build.DefaultNamespace, Name: run}, stored)
		return stored.Status.Phase, err
	}).Should(Equal(agentv1alpha1.AgentRunFailed), "%s in %s", run, member)
	if n%2 == 1 {
		f.Expect(m.Client.Delete(f.Context(), stored)).To(Succeed())
	}
}

// handOver has a standby take over from a leader while runs fail.
func (f *fleet) handOver(leader *pod, w *workload) {
	f.Helper()
	standby := f.newPod("standby")
	standby.start("--leader-elect-retry-period=1s")
	before := f.holder()
	made := f.begin(w.draw(60))
	_, err := leader.Stop(stopLimit)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(<-made).To(Succeed())
	f.Eventually(f.holder).Should(And(HavePrefix(standby.name), Not(Equal(before))))
	f.Expect(<-f.begin(w.draw(20))).To(Succeed())
	f.comesTo(w.truth)
	f.allMarked()
}

// allMarked waits until every failed run has its mark.
func (f *fleet) allMarked() {
	f.Helper()
	for _, name := range f.names {
		f.Eventually(func() (int, error) {
			unmarked, _, err := f.members[name].unmarked(f.Context())
			return unmarked, err
		}).Should(BeZero(), "runs without their mark in %s", name)
	}
}

// holder is who holds the Lease.
func (f *fleet) holder() string {
	lease := &coordinationv1.Lease{}
	err := f.hub.Client.Get(f.Context(), client.ObjectKey{Namespace: system, Name: "agentrun-fleet-manager"}, lease)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func (f *fleet) totalFailures() int64 {
	f.Helper()
	sums, err := f.summary()
	f.Expect(err).NotTo(HaveOccurred())
	return sums.Status.TotalFailures
}
