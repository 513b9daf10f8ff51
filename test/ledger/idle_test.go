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

	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

const (
	idle      = time.Minute
	heartbeat = 30 * time.Second
	// late is by how much the first of two heartbeats may be, on a busy machine.
	late = 5 * time.Second
	// granularity is that of the API server's clock and the manager's together. Writes of
	// an object follow on each other's answers, so that a busy machine only spreads them.
	granularity = 50 * time.Millisecond

	burst, burstTime = 1000, 10 * time.Second
)

// TestWritesOnTheHub: an idle fleet costs a write for each member twice a minute, and one
// in which a hundred runs fail each second, a write a second for each object.
//
// Leases are not counted: leader election has a heartbeat of its own.
func TestWritesOnTheHub(t *testing.T) {
	t.Parallel()
	f := newFleet(t, []harness.Option{harness.WithAudit}, "alpha", "beta")
	f.join(f.names...)
	w := f.workload(nil, endings...)
	p := f.newPod("manager")
	p.start()
	f.Expect(<-f.begin(w.draw(30))).To(Succeed())
	for _, name := range f.names {
		pending := build.MakeAgentRun("pending").Obj()
		f.Expect(f.members[name].CreateRun(t.Context(), pending)).To(Succeed())
		f.Expect(f.members[name].CreatePod(t.Context(), podOf(pending).Unschedulable("no node fits").Obj())).To(Succeed())
	}
	f.Eventually(f.counted(w.truth)).Should(Succeed())
	f.allMarked()

	t.Run("idle", func(t *testing.T) { f.on(t).idles(p) })
	t.Run("a burst", func(t *testing.T) { f.on(t).bursts(p) })
}

func (f *fleet) idles(p *pod) {
	if testing.Short() {
		f.Skip("waits for a minute")
	}
	begun := time.Now()
	f.Expect(pause(f.Context(), idle)).To(Succeed())
	writes := f.writes(p, begun)
	for object, at := range writes {
		f.Logf("%s was written %d times in %s", object, len(at), idle)
	}
	// An hour that begins moves the history of every object.
	hours := int(begun.Add(idle).Truncate(time.Hour).Sub(begun.Truncate(time.Hour)) / time.Hour)
	for _, name := range f.names {
		object := "agentrunclusterstatuses/status " + name
		at := writes[object]
		f.Expect(at).NotTo(BeEmpty(), "the heartbeat of %s", name)
		f.Expect(len(at)).To(BeNumerically("<=", 1+int(idle/heartbeat)+hours), object)
		for i := 1; i < len(at) && hours == 0; i++ {
			f.Expect(at[i].Sub(at[i-1])).To(BeNumerically(">=", heartbeat-late), object)
		}
		delete(writes, object)
	}
	if hours > 0 {
		delete(writes, "agentrunfleetstatuses/status fleet")
	}
	f.Expect(writes).To(BeEmpty())
}

// bursts has other controllers fail runs, as fast as these are made: a hundred a second at
// most.
func (f *fleet) bursts(p *pod) {
	before := f.totalFailures()
	w := f.workload(nil, byAnother...)
	begun := time.Now()
	const lots = 20
	for i := range lots {
		lives := w.draw(burst / lots)
		for j := range lives {
			lives[j].name = fmt.Sprintf("burst-%s", lives[j].name)
		}
		f.Expect(<-f.begin(lives)).To(Succeed())
		if wait := time.Until(begun.Add(time.Duration(i+1) * burstTime / lots)); wait > 0 {
			f.Expect(pause(f.Context(), wait)).To(Succeed())
		}
	}
	took := time.Since(begun)
	f.Eventually(f.totalFailures).WithTimeout(settled).Should(Equal(before + burst))
	f.allMarked()
	f.Expect(f.totalFailures()).To(Equal(before + burst))
	writes := f.writes(p, begun)
	f.Expect(writes).To(HaveLen(1 + len(f.names)))
	for object, at := range writes {
		f.Logf("%d failures in %s: %s was written %d times in %s", burst, took.Round(time.Second), object, len(at), at[len(at)-1].Sub(at[0]).Round(time.Second))
		f.Expect(len(at)).To(BeNumerically(">", 3), object)
		atMostOneASecond(f, object, at)
	}
}

// atMostOneASecond: between any two writes there is a second.
func atMostOneASecond(f *fleet, object string, at []time.Time) {
	f.Helper()
	for i := 1; i < len(at); i++ {
		f.Expect(at[i].Sub(at[i-1])+granularity).To(BeNumerically(">=", time.Second), "%s was written too often", object)
	}
}

// writes are when the manager has written each object of the hub since, but for Leases.
func (f *fleet) writes(p *pod, since time.Time) map[string][]time.Time {
	f.Helper()
	requests, err := f.hub.Requests(harness.ByUser(p.name), harness.ReceivedAfter(since), harness.WithVerb("create", "update", "patch", "delete"))
	f.Expect(err).NotTo(HaveOccurred())
	out := map[string][]time.Time{}
	for _, r := range requests {
		if r.Resource != "leases" {
			object := r.Resource + " " + r.Name
			out[object] = append(out[object], r.Received)
		}
	}
	return out
}
