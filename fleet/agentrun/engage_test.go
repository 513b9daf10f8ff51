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
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// What 1,000 engagements may leave behind. A source of multicluster-runtime's own
// controller leaves a goroutine each, and a handler that is not removed 5 KiB.
const (
	engagements       = 1000
	goroutinesAllowed = 5
	heapAllowed       = 256 << 10
)

// TestEngagingLeavesNothingBehind engages one member again and again. Engagements end
// before, while and after the initial list is delivered.
func TestEngagingLeavesNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	crd, err := harness.SandboxCRDPath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	member := engage(t, harness.WithCRDs(crd))
	g := harness.NewGomega(t)
	for i := range 20 {
		run := build.MakeAgentRun(fmt.Sprintf("run-%d", i)).Obj()
		g.Expect(member.plane.CreateRun(t.Context(), run)).To(Succeed())
		pod := build.MakePod(run.Name+"-pod").ForRun(run).Container("main", "registry.example/agent:1").Obj()
		g.Expect(member.plane.CreatePod(t.Context(), pod)).To(Succeed())
	}
	e, delivered := drained(t)
	cycle := func(n int) {
		for i := range n {
			ctx, cancel := context.WithCancel(t.Context())
			before := delivered.Load()
			g.Expect(e.Engage(ctx, "ns/member", member.Cluster)).To(Succeed())
			if i%20 == 0 {
				g.Eventually(delivered.Load).Should(BeNumerically(">", before), "an engagement delivered no event")
			}
			cancel()
		}
	}
	goroutines := runtime.NumGoroutine()
	gone := func() {
		g.Eventually(runtime.NumGoroutine).Should(BeNumerically("<=", goroutines+goroutinesAllowed))
	}
	cycle(engagements / 10) // what is made once, and stays
	gone()
	heap := heapInUse()
	cycle(engagements)
	gone()
	g.Eventually(heapInUse).Should(BeNumerically("<=", heap+heapAllowed))
	t.Logf("%d engagements left %d goroutines and %d KiB of heap", engagements, runtime.NumGoroutine()-goroutines, (heapInUse()-heap)/1024)
	g.Eventually(func() int {
		e.seen.mu.Lock()
		defer e.seen.mu.Unlock()
		return len(e.seen.at)
	}).Should(BeZero())
}

// TestInitialListsAreInNoHurry: a run that a member had before it was engaged comes after
// what happens there, whichever object tells of it.
func TestInitialListsAreInNoHurry(t *testing.T) {
	run := build.MakeAgentRun("run").Obj()
	pod := build.MakePod("pod").ForRun(run).Container("main", "registry.example/agent:1").Obj()
	cases := map[string]struct {
		happens          func(m *engagedMember)
		hurried, waiting int
	}{
		"a run is listed": {func(m *engagedMember) { handlerOf(m, itself).OnAdd(run, true) }, 0, 1},
		"a pod is listed": {func(m *engagedMember) { handlerOf(m, runsOfPod).OnAdd(pod, true) }, 0, 1},
		"a run is made":   {func(m *engagedMember) { handlerOf(m, itself).OnAdd(run, false) }, 1, 0},
		"a pod is made":   {func(m *engagedMember) { handlerOf(m, runsOfPod).OnAdd(pod, false) }, 1, 0},
		"a run changes":   {func(m *engagedMember) { handlerOf(m, itself).OnUpdate(run, run) }, 1, 0},
		"a pod is gone":   {func(m *engagedMember) { handlerOf(m, runsOfPod).OnDelete(pod) }, 1, 0},
		"a listed run's pod changes": {func(m *engagedMember) {
			handlerOf(m, itself).OnAdd(run, true)
			handlerOf(m, runsOfPod).OnUpdate(pod, pod)
		}, 1, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := testQueue(t, 40)
			tc.happens(&engagedMember{
				engager: &engager{queue: q, seen: newFirstSeen(), clock: clock.RealClock{}},
				ctx:     t.Context(), name: "ns/member", cache: &memberCache{},
			})
			queued := q.lanes.byMember["ns/member"]
			if len(queued.high) != tc.hurried || len(queued.unhurried) != tc.waiting {
				t.Errorf("%d requests in a hurry and %d in none, want %d and %d", len(queued.high), len(queued.unhurried), tc.hurried, tc.waiting)
			}
		})
	}
}

// drained is an engager of which a worker takes what comes, and the number of that.
func drained(t *testing.T) (*engager, *atomic.Int64) {
	t.Helper()
	queue := newFairQueue("", workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request](), 1, clock.RealClock{})
	e := &engager{queue: queue, seen: newFirstSeen(), clock: clock.RealClock{}}
	delivered := &atomic.Int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			req, shutdown := queue.Get()
			if shutdown {
				return
			}
			e.seen.take(req)
			queue.Done(req)
			delivered.Add(1)
		}
	}()
	t.Cleanup(func() {
		queue.ShutDown()
		<-done
	})
	return e, delivered
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
