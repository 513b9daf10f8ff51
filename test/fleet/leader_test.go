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

package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// Flags of the candidates. Those that often look are quick to take over what is released,
// and those with a short lease also what is not.
var (
	oftenLooking = []string{"--leader-elect-retry-period=1s"}
	shortLease   = []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}
)

const shortLeaseDuration = 6 * time.Second

// candidate is a manager that stands for election, as a hub user of its own, through a
// proxy of its own, in a pod of its own.
type candidate struct {
	*harness.Manager
	name  string
	proxy *harness.Proxy
}

// candidate starts a manager with leader election. It is ready, whether it leads or not.
func (f *fleet) candidate(name string, flags ...string) *candidate {
	f.Helper()
	user, err := f.hub.AddUser(name, "system:masters")
	f.WithT.Expect(err).NotTo(HaveOccurred())
	c := &candidate{name: name, proxy: harness.NewProxy(f.T, f.hub)}
	dir := f.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	f.WithT.Expect(os.WriteFile(kubeconfig, harness.Kubeconfig(user, c.proxy.URL()), 0o600)).To(Succeed())
	c.Manager, err = harness.StartManagerInPod(f.Context(), name, managerBinary, kubeconfig, filepath.Join(dir, "manager.log"), flags...)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.Cleanup(func() {
		c.Kill()
		if f.Failed() {
			f.Logf("log of %s (end):\n%s", name, c.log(f))
		}
	})
	return c
}

func (c *candidate) log(f *fleet) string {
	f.Helper()
	content, err := os.ReadFile(c.LogFile)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	return string(lastBytes(content, 6000))
}

// lease fetches the Lease.
func (f *fleet) lease() (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, f.hub.Client.Get(f.Context(), client.ObjectKey{Namespace: "default", Name: "agentrun-fleet-manager"}, lease)
}

// ledBy matches a Lease that a candidate holds.
func ledBy(c *candidate) OmegaMatcher {
	return HaveField("Spec.HolderIdentity", HaveValue(HavePrefix(c.name+"_")))
}

// failing makes a run that is about to fail.
func (f *fleet) failing(m *member, name string) {
	f.Helper()
	run := build.MakeAgentRun(name).Namespace("work").Obj()
	f.WithT.Expect(m.create(f.Context(), run, labelled(run).Scheduled().Waiting("main", "InvalidImageName", "").Obj())).To(Succeed())
}

// fails makes a run, and sees it failed in its member.
func (f *fleet) fails(m *member, name string) {
	f.Helper()
	f.failing(m, name)
	f.WithT.Eventually(m.run(f.Context(), "work", name)).Should(failedWith("InvalidImageName"))
}

// summed waits until the summary counts that many failed runs.
func (f *fleet) summed(failed int32) {
	f.Helper()
	f.WithT.Eventually(f.fleetStatus).Should(And(
		harness.HaveCondition("Ready", "True", ""),
		HaveField("Status.Runs.Failed", failed),
	))
}

// onlyLooks: all that a candidate has asked the hub for is its Lease.
func (f *fleet) onlyLooks(c *candidate) {
	f.Helper()
	requests, err := f.hub.Requests(harness.ByUser(c.name))
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(requests).To(ContainElement(HaveField("Resource", "leases")))
	f.WithT.Expect(slices.DeleteFunc(requests, func(r harness.Request) bool {
		return r.Resource == "" || r.Resource == "leases" && r.Verb == "get" // without a resource: what kinds there are
	})).To(BeEmpty())
}

// watches is how many watches managers have begun in a member.
func (f *fleet) watches(m *member) int {
	f.Helper()
	watches, err := m.Requests(harness.ByUser(m.user), harness.WithVerb("watch"))
	f.WithT.Expect(err).NotTo(HaveOccurred())
	return len(watches)
}

// endedWith: the manager has ended by itself, not well, and says why in its last line.
func (f *fleet) endedWith(c *candidate, why string) {
	f.Helper()
	f.WithT.Eventually(c.Exited()).Should(BeClosed())
	_, err := c.Stop(stopLimit)
	f.WithT.Expect(err).To(MatchError(ContainSubstring("exit status 1")))
	lines := strings.Split(strings.TrimSpace(c.log(f)), "\n")
	f.WithT.Expect(lines[len(lines)-1]).To(And(HavePrefix("fleet-manager: "), ContainSubstring(why)))
}

// TestOneOfTwoManagersWorks: a standby asks the hub for its Lease alone and no member for
// anything, and takes over when the leader is stopped or has crashed.
func TestOneOfTwoManagersWorks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha")
	m := f.members["alpha"]
	f.namespace("work")
	f.join("alpha")

	first := f.candidate("first", oftenLooking...)
	f.WithT.Eventually(f.lease).Should(ledBy(first))
	f.fails(m, "one")
	watched := f.watches(m)
	second := f.candidate("second", shortLease...)
	f.fails(m, "two")
	f.summed(2)
	f.onlyLooks(second)
	f.WithT.Expect(f.watches(m)).To(Equal(watched))

	// The lease of three minutes is not waited for.
	took, err := first.Stop(stopLimit)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	stopped := time.Now()
	f.WithT.Eventually(f.lease).Should(ledBy(second))
	t.Logf("Stopped in %s, taken over %s later", took, time.Since(stopped))
	f.fails(m, "three")
	f.summed(3)

	third := f.candidate("third", shortLease...)
	f.onlyLooks(third)
	second.Kill()
	last, err := f.lease()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Eventually(f.lease).Should(ledBy(third))
	now, err := f.lease()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(now.Spec.AcquireTime.Sub(last.Spec.RenewTime.Time)).To(BeNumerically(">", shortLeaseDuration))
	f.fails(m, "four")
	f.summed(4)
}

// TestARestartedContainerTakesOverAtOnce: it does not wait for the three minutes of the
// lease of the one before it in its pod. Another pod would.
func TestARestartedContainerTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha")
	f.namespace("work")
	f.join("alpha")
	crashed := f.candidate("pod")
	f.WithT.Eventually(f.lease).Should(ledBy(crashed))
	before, err := f.lease()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	crashed.Kill()

	other := f.candidate("other", oftenLooking...)
	f.WithT.Consistently(f.lease).ShouldNot(ledBy(other))
	restarted := f.candidate("pod")
	f.WithT.Eventually(f.lease).Should(And(ledBy(restarted), Not(HaveField("Spec.HolderIdentity", before.Spec.HolderIdentity))))
	f.fails(f.members["alpha"], "one")
	f.onlyLooks(other)
}

// TestALeaderWithoutTheHub: it serves members until its renew deadline and then ends,
// before another takes over. Between the two no member hears anything.
func TestALeaderWithoutTheHub(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha")
	m := f.members["alpha"]
	f.namespace("work")
	f.join("alpha")
	leader := f.candidate("leader", shortLease...)
	f.WithT.Eventually(f.lease).Should(ledBy(leader))
	standby := f.candidate("standby", shortLease...)
	f.fails(m, "before")

	leader.proxy.Pause()
	f.fails(m, "during")
	f.WithT.Eventually(leader.Exited()).Should(BeClosed())
	ended := time.Now()
	f.failing(m, "after")
	f.endedWith(leader, "the Lease default/agentrun-fleet-manager could not be renewed in time")

	f.WithT.Eventually(f.lease).Should(ledBy(standby))
	lease, err := f.lease()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	takenOver := lease.Spec.AcquireTime.Time
	f.WithT.Expect(takenOver).To(BeTemporally(">", ended))
	f.WithT.Eventually(m.run(f.Context(), "work", "after")).Should(failedWith("InvalidImageName"))
	between, err := m.Requests(harness.ByUser(m.user), harness.ReceivedAfter(ended),
		func(r harness.Request) bool { return r.Received.Before(takenOver) })
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(between).To(BeEmpty())
	f.summed(3)
	t.Logf("Taken over %s after the leader's end", takenOver.Sub(ended))
}

// TestALeaderOutlivesAnOutage of the hub that is shorter than the renew deadline, and
// fails runs meanwhile.
func TestALeaderOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha")
	m := f.members["alpha"]
	f.namespace("work")
	f.join("alpha")
	leader := f.candidate("leader", oftenLooking...)
	f.fails(m, "before")
	before, err := f.lease()
	f.WithT.Expect(err).NotTo(HaveOccurred())

	outages := map[string]func(){
		"hangs":   leader.proxy.Pause,
		"refuses": func() { leader.proxy.Refuse(); leader.proxy.Reset() },
	}
	for name, begin := range outages {
		begin()
		f.fails(m, name)
		f.WithT.Consistently(leader.Exited()).ShouldNot(BeClosed())
		over := time.Now()
		leader.proxy.Resume()
		f.WithT.Expect(leader.proxy.Accept()).To(Succeed())
		f.WithT.Eventually(f.lease).Should(HaveField("Spec", And(
			HaveField("RenewTime.Time", BeTemporally(">", over)),
			HaveField("HolderIdentity", before.Spec.HolderIdentity),
			HaveField("AcquireTime", before.Spec.AcquireTime),
		)), name)
	}
	f.summed(3)
}

// TestALeaseInOtherHands: a leader that was as if frozen until another took over ends as
// soon as it looks, whatever its renew deadline is.
func TestALeaseInOtherHands(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha")
	leader := f.candidate("leader", oftenLooking...)
	f.WithT.Eventually(func() error {
		lease, err := f.lease()
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity = new("somebody")
		return f.hub.Client.Update(f.Context(), lease)
	}).Should(Succeed())
	f.endedWith(leader, "lost the Lease default/agentrun-fleet-manager to somebody")
}
