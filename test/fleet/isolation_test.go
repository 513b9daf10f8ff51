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
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// undisturbed bounds how long a failing run of a healthy member may take while another
// hangs or is busy. With one queue for all members it took 50 s.
const undisturbed = 5 * time.Second

// failOne makes a run fail in a member and returns how long that took from its pod's
// status being stored.
func (f *fleet) failOne(m *member, name string) time.Duration {
	f.Helper()
	run := build.MakeAgentRun(name).Obj()
	f.WithT.Expect(m.create(f.Context(), run, labelled(run).Scheduled().Waiting("main", "ContainerCreating", "").Obj())).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), build.DefaultNamespace, name)).Should(harness.HaveCondition("Succeeded", metav1.ConditionUnknown, "ContainerCreating"))
	f.WithT.Expect(m.SetPodStatus(f.Context(), labelled(run).Scheduled().Waiting("main", "ImagePullBackOff", "").Obj())).To(Succeed())
	start := time.Now()
	f.WithT.Eventually(m.run(f.Context(), build.DefaultNamespace, name)).Should(failedWith("ImagePullBackOff"))
	return time.Since(start)
}

// samples is failOne some times; the median and the worst of it.
func (f *fleet) samples(m *member, name string, n int) (median, worst time.Duration) {
	f.Helper()
	var took []time.Duration
	for i := range n {
		took = append(took, f.failOne(m, fmt.Sprintf("%s-%d", name, i)))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1]
}

// A site of members is lost at once, of which each has runs that come to their deadline then.
// By their share of the workers they could have all of them.
const (
	siteMembers = 12
	siteRuns    = 5
	siteWorkers = 20
	siteDue     = 5 * time.Second
	// callTimeout is after what time the manager gives a request up.
	callTimeout = 10 * time.Second
)

// TestMembersThatHangHoldUpNobody: members stop answering just before many of their runs
// pass their deadline. The others are served as before, from the first moment on.
func TestMembersThatHangHoldUpNobody(t *testing.T) {
	f := newFleet(t, "site", "well")
	site, well := f.site("site"), f.members["well"]
	f.join("well")
	f.start(fmt.Sprintf("--max-concurrent-reconciles=%d", siteWorkers))
	for _, name := range append(site, "well") {
		f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	}
	quiet, _ := f.samples(well, "quiet", 5)
	f.eachRun(site, func(m *member, run *agentv1alpha1.AgentRun) {
		f.WithT.Expect(m.create(t.Context(), run)).To(Succeed())
	})
	for _, name := range site {
		f.members[name].proxy.Pause()
	}
	var worst time.Duration
	most := 0
	for since, i := time.Now(), 0; time.Since(since) < siteDue+callTimeout*3/2; i++ {
		_, w := f.samples(well, fmt.Sprintf("while-hung-%d", i), 2)
		worst = max(worst, w)
		most = max(most, f.busyWorkers())
	}
	t.Logf("A failing run of the other member took %s when quiet, and at most %s while %d members hung and had up to %d of %d workers",
		quiet, worst, siteMembers, most, siteWorkers)
	f.WithT.Expect(most).To(BeNumerically(">=", siteMembers), "the members did not hang all at the same time")
	f.WithT.Expect(worst).To(BeNumerically("<", undisturbed))
	for _, name := range site {
		f.members[name].proxy.Resume()
	}
	f.eachRun(site, func(m *member, run *agentv1alpha1.AgentRun) {
		f.WithT.Eventually(m.run(t.Context(), run.Namespace, run.Name)).Should(failedWith("StartupDeadlineExceeded"))
	})
}

// site makes members of the namespaces of one API server, each behind a proxy of its own,
// and joins them. It returns their names.
func (f *fleet) site(plane string) []string {
	f.Helper()
	names := make([]string, siteMembers)
	for i := range names {
		name := fmt.Sprintf("%s-%d", plane, i)
		cp := f.members[plane].ControlPlane
		f.members[name] = &member{ControlPlane: cp, proxy: harness.NewProxy(f.T, cp), user: "fleet-of-" + name}
		f.WithT.Expect(cp.EnsureNamespace(f.Context(), name)).To(Succeed())
		secret := harness.MemberSecret(clusters, name, f.kubeconfig(name))
		secret.Annotations = map[string]string{"fleet.konveyor.io/namespaces": name}
		f.WithT.Expect(f.hub.Client.Create(f.Context(), secret)).To(Succeed())
		names[i] = name
	}
	return names
}

// eachRun calls do for each run that comes to its deadline in a site.
func (f *fleet) eachRun(site []string, do func(*member, *agentv1alpha1.AgentRun)) {
	f.Helper()
	for i := range siteRuns {
		for _, name := range site {
			do(f.members[name], build.MakeAgentRun(fmt.Sprintf("due-%d", i)).Namespace(name).StartupDeadline(int32(siteDue/time.Second)).Obj())
		}
	}
}

// busyWorkers is how many runs the manager is at work on.
func (f *fleet) busyWorkers() int {
	f.Helper()
	metrics, err := f.manager.Metrics(f.Context())
	f.WithT.Expect(err).NotTo(HaveOccurred())
	found := activeWorkers.FindStringSubmatch(metrics)
	f.WithT.Expect(found).To(HaveLen(2))
	n, err := strconv.Atoi(found[1])
	f.WithT.Expect(err).NotTo(HaveOccurred())
	return n
}

var activeWorkers = regexp.MustCompile(`(?m)^controller_runtime_active_workers\{[^}]*controller="agentrun-fleet"[^}]*\} (\S+)$`)

// burst is how many runs of a busy member fail at once, probes how many of another one are
// measured before and meanwhile, and fair how much longer the latter may take. Below noise,
// what else runs on the machine says more than the manager; without a fair queue it is minutes.
// The ratio itself is BenchmarkFairness' to measure, where noise hits both alike, and the
// order is asserted where the queue is.
const (
	burst  = 5000
	probes = 100
	fair   = 2
	noise  = 50 * time.Millisecond
)

// TestABusyMemberHoldsUpNobody: 5,000 runs of a member fail at once. The rate that it is
// granted keeps its workers waiting for as long as is measured, and the machine idle. Runs
// of the other member fail as fast as before.
func TestABusyMemberHoldsUpNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	f := newFleet(t, "busy", "well")
	busy, well := f.members["busy"], f.members["well"]
	f.join("busy", "well")
	// Enough for the probes, of which each costs a write and an Event.
	f.start("--member-qps=60", "--member-burst=200")
	crowd, quiet, disturbed := f.crowd(busy, "run", burst), f.crowd(well, "quiet", probes), f.crowd(well, "disturbed", probes)
	f.WithT.Eventually(f.clusterStatus("busy")).Should(HaveField("Status.Runs.Pending", BeEquivalentTo(burst+1)))
	f.WithT.Eventually(f.clusterStatus("well")).Should(HaveField("Status.Runs.Pending", BeEquivalentTo(2*(probes+1))))
	f.WithT.Eventually(f.queued).Should(BeZero())

	before := f.latencies(well, quiet)
	f.failAtOnce(busy, crowd)
	f.WithT.Eventually(f.queued).Should(BeNumerically(">", burst*9/10))
	// It has used up what it may exceed its rate by, and with it the machine.
	f.WithT.Eventually(f.clusterStatus("busy")).Should(HaveField("Status.Runs.Failed", BeNumerically(">", 100)))
	meanwhile := f.latencies(well, disturbed)
	queued, err := f.queued()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(queued).To(BeNumerically(">", burst/4), "the member was not busy any more")

	ratio := float64(percentile(meanwhile, 50)) / float64(percentile(before, 50))
	t.Logf("Runs of the other member failed within %s (p99 %s) when quiet and %s (p99 %s) while %d of one were to fail, with %d still queued: ratio %.2f",
		percentile(before, 50), percentile(before, 99), percentile(meanwhile, 50), percentile(meanwhile, 99), burst, queued, ratio)
	f.WithT.Expect(percentile(meanwhile, 50)).To(BeNumerically("<", max(fair*percentile(before, 50), noise)))
	f.WithT.Expect(slices.Max(meanwhile)).To(BeNumerically("<", undisturbed))
}

// crowd stores runs of which the manager has nothing to say but what their status says, and
// returns their pods, of which the containers are being created.
func (f *fleet) crowd(m *member, name string, n int) []*corev1.Pod {
	f.Helper()
	pods := make([]*corev1.Pod, n)
	runs := make([]*agentv1alpha1.AgentRun, n)
	created := time.Now().Truncate(time.Second) // a pod that is older than the run is not the run's
	for i := range n {
		runs[i] = build.MakeAgentRun(fmt.Sprintf("%s-%d", name, i)).Created(created).Obj()
		pods[i] = labelled(runs[i]).Created(created).Scheduled().Waiting("main", "ContainerCreating", "").Obj()
	}
	f.WithT.Expect(m.Store(f.Context(), objects(pods)...)).To(Succeed())
	f.about(m, name+"-first") // when that is observed, so are all the pods
	first, err := m.run(f.Context(), build.DefaultNamespace, name+"-first")()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	for i := range n {
		runs[i].Status = first.Status
	}
	f.WithT.Expect(m.Store(f.Context(), objects(runs)...)).To(Succeed())
	return pods
}

// failAtOnce lets pods fail, of which the manager hears when all of them have.
func (f *fleet) failAtOnce(m *member, pods []*corev1.Pod) {
	f.Helper()
	m.proxy.Pause()
	defer m.proxy.Resume()
	for _, pod := range pods {
		waitsOn(pod, "ImagePullBackOff")
	}
	f.WithT.Expect(m.Store(f.Context(), objects(pods)...)).To(Succeed())
}

// queued is how many runs the manager has yet to look at.
func (f *fleet) queued() (int, error) {
	metrics, err := f.manager.Metrics(f.Context())
	if err != nil {
		return 0, err
	}
	total := 0
	for _, depth := range queueDepth.FindAllStringSubmatch(metrics, -1) {
		n, err := strconv.ParseFloat(depth[1], 64)
		if err != nil {
			return 0, err
		}
		total += int(n)
	}
	return total, nil
}

var queueDepth = regexp.MustCompile(`(?m)^workqueue_depth\{[^}]*name="agentrun-fleet"[^}]*\} (\S+)$`)

// latencies lets pods fail one after another, and returns how long after each had its status
// stored a watch saw its run Failed.
func (f *fleet) latencies(m *member, pods []*corev1.Pod) []time.Duration {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), harness.EventuallyTimeout)
	defer cancel()
	runs, err := m.Client.Watch(ctx, &agentv1alpha1.AgentRunList{})
	f.WithT.Expect(err).NotTo(HaveOccurred())
	defer runs.Stop()
	took := make([]time.Duration, len(pods))
	for i, pod := range pods {
		waitsOn(pod, "ImagePullBackOff")
		f.WithT.Expect(m.SetPodStatus(ctx, pod)).To(Succeed())
		start := time.Now()
		f.awaitFailed(runs, pod.Labels[agentv1alpha1.AgentRunLabel])
		took[i] = time.Since(start)
	}
	return took
}

func (f *fleet) awaitFailed(runs watch.Interface, name string) {
	f.Helper()
	for event := range runs.ResultChan() {
		if run, ok := event.Object.(*agentv1alpha1.AgentRun); ok && run.Name == name && run.Status.Phase == agentv1alpha1.AgentRunFailed {
			return
		}
	}
	f.Fatalf("AgentRun %s was not seen Failed while it was watched", name)
}

// waitsOn has a pod's container wait for another reason.
func waitsOn(pod *corev1.Pod, reason string) {
	pod.Status.ContainerStatuses[0].State.Waiting.Reason = reason
}

func objects[T client.Object](of []T) []client.Object {
	all := make([]client.Object, len(of))
	for i := range of {
		all[i] = of[i]
	}
	return all
}

func percentile(samples []time.Duration, p int) time.Duration {
	return slices.Sorted(slices.Values(samples))[(len(samples)-1)*p/100]
}
