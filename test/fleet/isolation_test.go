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
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestAHungMemberHoldsUpNobody: a member stops answering just before many of its runs pass
// their deadline. The others are served as before, from the first moment on.
func TestAHungMemberHoldsUpNobody(t *testing.T) {
	f := newFleet(t, "hung", "well")
	hung, well := f.members["hung"], f.members["well"]
	f.join("hung", "well")
	f.start()
	for name := range f.members {
		f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	}
	quiet, _ := f.samples(well, "quiet", 5)
	const runs = 60
	for i := range runs {
		f.WithT.Expect(hung.create(t.Context(), build.MakeAgentRun(fmt.Sprintf("due-%d", i)).StartupDeadline(5).Obj())).To(Succeed())
	}
	hung.proxy.Pause()
	var disturbed, worst time.Duration
	for i := 0; time.Duration(i)*time.Second < 10*time.Second; i++ {
		_, w := f.samples(well, fmt.Sprintf("while-hung-%d", i), 2)
		disturbed, worst = w, max(worst, w)
	}
	t.Logf("A failing run of the other member took %s when quiet, and at most %s while one hung (last %s)", quiet, worst, disturbed)
	f.WithT.Expect(worst).To(BeNumerically("<", undisturbed))
	hung.proxy.Resume()
	for i := range runs {
		f.WithT.Eventually(hung.run(t.Context(), build.DefaultNamespace, fmt.Sprintf("due-%d", i))).Should(failedWith("StartupDeadlineExceeded"))
	}
}

// TestABusyMemberHoldsUpNobody: a member joins with a thousand runs that are about to fail.
func TestABusyMemberHoldsUpNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	f := newFleet(t, "busy", "well")
	busy, well := f.members["busy"], f.members["well"]
	const runs, makers = 1000, 8
	var wait sync.WaitGroup
	for maker := range makers {
		wait.Go(func() {
			for i := maker; i < runs; i += makers {
				run := build.MakeAgentRun(fmt.Sprintf("run-%d", i)).Obj()
				if err := busy.create(t.Context(), run, labelled(run).Scheduled().Waiting("main", "ImagePullBackOff", "").Obj()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	f.join("well")
	f.start("--member-qps=50", "--member-burst=50") // so that the member is busy for a while
	f.WithT.Eventually(f.clusterStatus("well")).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	quiet, _ := f.samples(well, "quiet", 5)
	f.join("busy")
	f.WithT.Eventually(func() int32 { return busy.count(f).Failed }).Should(BeNumerically(">", 0))
	median, worst := f.samples(well, "while-busy", 10)
	f.WithT.Expect(busy.count(f).Failed).To(BeNumerically("<", runs), "the member was not busy any more")
	t.Logf("A failing run of the other member took %s when quiet, and %s (at most %s) while one was busy", quiet, median, worst)
	f.WithT.Expect(worst).To(BeNumerically("<", undisturbed))
	f.WithT.Eventually(func() int32 { return busy.count(f).Failed }).WithTimeout(2 * time.Minute).Should(BeNumerically("==", runs))
}
