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
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/rollup"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// faults decides what becomes of the rollup's writes of AgentRunClusterStatuses.
type faults struct {
	// before keeps writes from the hub; after lets them through and hides that.
	before, after atomic.Bool
	failed        atomic.Int32
}

var errInjected = errors.New("injected: the connection broke")

func (f *faults) client(cfg *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(cfg, o)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, interceptor.Funcs{SubResourceUpdate: f.update}), nil
}

func (f *faults) update(ctx context.Context, c client.Client, subResource string, o client.Object, opts ...client.SubResourceUpdateOption) error {
	write := func() error { return c.SubResource(subResource).Update(ctx, o, opts...) }
	if _, ok := o.(*fleetv1alpha1.AgentRunClusterStatus); !ok {
		return write()
	}
	switch {
	case f.before.Load():
		f.failed.Add(1)
		return errInjected
	case f.after.Load():
		// The caller must not see the answer.
		o = o.DeepCopyObject().(client.Object)
		if err := write(); err != nil {
			return err
		}
		f.failed.Add(1)
		return errInjected
	}
	return write()
}

func haveTotal(reason string, total int) types.GomegaMatcher {
	return HaveField("Status.Failures", ContainElement(And(HaveField("Reason", reason), HaveField("Total", int64(total)))))
}

// haveSettled matches a member of which nothing is in flight or waiting.
func haveSettled() types.GomegaMatcher {
	return And(HaveField("Status.Ledger.InFlight", BeEmpty()), HaveField("Status.TotalExact", true))
}

func (w *world) fail(namespace, name, reason string) *agentv1alpha1.AgentRun {
	return w.create(namespace, build.MakeAgentRun(name).Failed(reason, "no", time.Now()))
}

// crash ends the manager and its connection to the member.
func (w *world) crash(end context.CancelFunc) {
	end()
	w.stop()
}

// settle has the manager write all that is in flight out of flight, which else rides on
// the next write of another kind, and checks the totals then.
func (w *world) settle(m rollup.Member, namespace string, totals map[string]int) {
	w.t.Helper()
	want := []types.GomegaMatcher{haveSettled()}
	sum := 0
	for reason, n := range totals {
		want = append(want, haveTotal(reason, n))
		sum += n
	}
	w.Eventually(func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
		w.create(namespace, build.MakeAgentRun(fmt.Sprint("settle-", w.pokes)))
		w.pokes++
		return w.cluster(m.Name)()
	}).WithPolling(time.Second).Should(And(append(want, HaveField("Status.TotalFailures", int64(sum)))...))
	w.Eventually(w.fleet("fleet")).Should(HaveField("Status.TotalFailures", int64(sum)))
	w.Consistently(w.cluster(m.Name)).Should(HaveField("Status.TotalFailures", int64(sum)))
}

// However a manager dies between two steps of the record, the next one counts each
// failure once.
func TestCrashPoints(t *testing.T) {
	cases := map[string]func(w *world, f *faults, m rollup.Member, end context.CancelFunc, run *agentv1alpha1.AgentRun){
		"before the hub has the failure": func(w *world, f *faults, m rollup.Member, end context.CancelFunc, _ *agentv1alpha1.AgentRun) {
			w.Eventually(f.failed.Load).Should(BeNumerically(">", 0))
			w.crash(end)
			w.Expect(w.cluster(m.Name)()).To(HaveField("Status.TotalFailures", int64(0)))
			f.before.Store(false)
		},
		"after the hub has it, before the manager knows": func(w *world, f *faults, m rollup.Member, end context.CancelFunc, _ *agentv1alpha1.AgentRun) {
			f.after.Store(true)
			f.before.Store(false)
			w.Eventually(w.cluster(m.Name)).Should(haveTotal("E", 1))
			w.crash(end)
			f.after.Store(false)
		},
		"after the hub has it, before the run is marked": func(w *world, f *faults, m rollup.Member, end context.CancelFunc, run *agentv1alpha1.AgentRun) {
			f.before.Store(false)
			w.Eventually(w.cluster(m.Name)).Should(HaveField("Status.Ledger.InFlight", ConsistOf(run.UID)))
			w.crash(end)
		},
		"after that, and the run is deleted meanwhile": func(w *world, f *faults, m rollup.Member, end context.CancelFunc, run *agentv1alpha1.AgentRun) {
			f.before.Store(false)
			w.Eventually(w.cluster(m.Name)).Should(HaveField("Status.Ledger.InFlight", ConsistOf(run.UID)))
			w.crash(end)
			w.Expect(hub.Client.Delete(w.ctx, run)).To(Succeed())
		},
		"after the run is marked, before it leaves the ones in flight": func(w *world, f *faults, m rollup.Member, end context.CancelFunc, run *agentv1alpha1.AgentRun) {
			f.before.Store(false)
			w.Eventually(w.cluster(m.Name)).Should(HaveField("Status.Ledger.InFlight", ConsistOf(run.UID)))
			f.before.Store(true)
			w.mark(m.Name, client.ObjectKeyFromObject(run))
			w.crash(end)
			f.before.Store(false)
		},
		"in the write that takes it out of flight, with the answer lost": func(w *world, f *faults, m rollup.Member, end context.CancelFunc, run *agentv1alpha1.AgentRun) {
			f.before.Store(false)
			w.Eventually(w.cluster(m.Name)).Should(HaveField("Status.Ledger.InFlight", ConsistOf(run.UID)))
			f.after.Store(true)
			w.mark(m.Name, client.ObjectKeyFromObject(run))
			w.create(run.Namespace, build.MakeAgentRun("poke")) // else the write is not made for itself
			w.Eventually(w.cluster(m.Name)).Should(And(HaveField("Status.Runs.Pending", int32(1)), HaveField("Status.Ledger.InFlight", BeEmpty())))
			w.crash(end)
			f.after.Store(false)
		},
		"after the run is marked and deleted": func(w *world, f *faults, m rollup.Member, end context.CancelFunc, run *agentv1alpha1.AgentRun) {
			f.before.Store(false)
			w.Eventually(w.cluster(m.Name)).Should(HaveField("Status.Ledger.InFlight", ConsistOf(run.UID)))
			w.mark(m.Name, client.ObjectKeyFromObject(run))
			w.Expect(hub.Client.Delete(w.ctx, run)).To(Succeed())
			w.crash(end)
		},
	}
	n := 0
	for name, crash := range cases {
		n++
		namespace := fmt.Sprint("crash-", n)
		t.Run(name, func(t *testing.T) {
			w, f := newWorld(t), &faults{}
			w.newClient, w.marking = f.client, false
			m := w.member(namespace, "m")
			w.members.set(m)
			w.start()
			end := w.engage(m.Name, namespace)
			w.Eventually(w.cluster(m.Name)).Should(haveRuns(fleetv1alpha1.RunCounts{}))
			f.before.Store(true)
			crash(w, f, m, end, w.fail(namespace, "r", "E"))

			w.marking = true
			w.start()
			w.fail(namespace, "later", "F")
			w.engage(m.Name, namespace)
			w.settle(m, namespace, map[string]int{"E": 1, "F": 1})
		})
	}
}

// What is not known of a write is not assumed: a manager that lives on counts once, too.
func TestWritesWithUnknownOutcome(t *testing.T) {
	w, f := newWorld(t), &faults{}
	w.newClient = f.client
	w.start()
	m := w.member("unknown", "m")
	w.members.set(m)
	w.engage(m.Name, "unknown-runs")
	w.fail("unknown-runs", "first", "E") // has the proof made
	w.Eventually(w.cluster(m.Name)).Should(haveTotal("E", 1))
	for i := range 12 {
		f.before.Store(i%4 == 1)
		f.after.Store(i%4 == 3)
		failed := f.failed.Load()
		run := w.fail("unknown-runs", fmt.Sprint("r", i), "E")
		if i%2 == 1 {
			w.Eventually(f.failed.Load).Should(BeNumerically(">", failed))
			w.Expect(hub.Client.Delete(w.ctx, run)).To(Succeed())
		}
	}
	f.before.Store(false)
	f.after.Store(false)
	w.settle(m, "unknown-runs", map[string]int{"E": 13})
}

// A failure that was seen is counted though its run is deleted before it is recorded,
// and a run that is made anew under its name is another.
func TestDeletedBeforeItIsRecorded(t *testing.T) {
	w, f := newWorld(t), &faults{}
	w.newClient = f.client
	w.start()
	m := w.member("fleeting", "m")
	w.members.set(m)
	w.engage(m.Name, "fleeting-runs")
	w.fail("fleeting-runs", "first", "E") // has the proof made
	w.Eventually(w.cluster(m.Name)).Should(haveTotal("E", 1))

	f.before.Store(true)
	for range 3 {
		failed := f.failed.Load()
		run := w.fail("fleeting-runs", "again", "E")
		w.Eventually(f.failed.Load).Should(BeNumerically(">", failed))
		w.Expect(hub.Client.Delete(w.ctx, run)).To(Succeed())
	}
	f.before.Store(false)
	w.settle(m, "fleeting-runs", map[string]int{"E": 4})
	w.Expect(w.cluster(m.Name)()).To(HaveField("Status.RecentFailures", HaveLen(4)))
}

// A run that somebody else ended is put on record with the reason that the manager
// settles on, or with what is known of it when the member is paused and nobody will.
func TestReasonsAreSettledFirst(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("settled", "m")
	w.members.set(m)
	w.engage(m.Name, "settled-runs")
	run := build.MakeAgentRun("r").Phase(agentv1alpha1.AgentRunFailed).Completed(time.Now())
	ended := w.create("settled-runs", run)
	w.Eventually(w.cluster(m.Name)).Should(And(HaveField("Status.Runs.Failed", int32(1)),
		HaveField("Status.TotalExact", false), HaveField("Status.TotalFailures", int64(0))))
	ended.Status = run.Failed("Evicted", "no room", time.Now()).Obj().Status
	w.Expect(hub.Client.Status().Update(w.ctx, ended)).To(Succeed())
	w.Eventually(w.cluster(m.Name)).Should(And(haveTotal("Evicted", 1), HaveField("Status.TotalExact", true)))

	m.Paused = true
	w.members.set(m)
	w.create("settled-runs", build.MakeAgentRun("paused").Phase(agentv1alpha1.AgentRunFailed).Completed(time.Now()))
	w.Eventually(w.cluster(m.Name)).Should(And(haveTotal("Unknown", 1), HaveField("Status.TotalExact", true)))
}

// A connection that has been replaced may tell of a run's end late, and of the run as it
// was before it was counted.
func TestAReplacedConnectionIsNotListenedTo(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("replaced", "m")
	w.members.set(m)
	gone := w.fail("replaced-runs", "r", "E")
	w.engage(m.Name, "replaced-runs")
	w.settle(m, "replaced-runs", map[string]int{"E": 1})
	w.Expect(hub.Client.Delete(w.ctx, gone)).To(Succeed())
	w.Eventually(w.cluster(m.Name)).Should(HaveField("Status.Runs.Failed", int32(0)))
	rollup.TellLate(w.rollup, m.Name, gone)
	w.settle(m, "replaced-runs", map[string]int{"E": 1})
}

// A member in which nothing may be marked is counted exactly as long as there is room,
// and says when there is none.
func TestRunsThatMayNotBeMarked(t *testing.T) {
	w := newWorld(t)
	w.marking = false
	w.start()
	m := w.member("unmarked", "m")
	w.members.set(m)
	const more = 5
	for i := range fleetv1alpha1.MaxInFlight + more {
		w.fail("unmarked-runs", fmt.Sprintf("r%04d", i), "E")
	}
	end := w.engage(m.Name, "unmarked-runs")
	full := And(haveTotal("E", fleetv1alpha1.MaxInFlight), HaveField("Status.TotalExact", false),
		HaveField("Status.Runs.Failed", int32(fleetv1alpha1.MaxInFlight+more)), HaveField("Status.Ledger.Waiting", int32(more)))
	w.Eventually(w.cluster(m.Name)).Should(full)
	w.Eventually(w.fleet("fleet")).Should(HaveField("Status.TotalExact", false))

	t.Log("a restart changes nothing, and a counted run that goes makes room for another")
	w.crash(end)
	w.start()
	w.engage(m.Name, "unmarked-runs")
	w.Consistently(w.cluster(m.Name)).Should(full)
	first := &agentv1alpha1.AgentRun{}
	first.Namespace, first.Name = "unmarked-runs", "r0000"
	w.Expect(hub.Client.Delete(w.ctx, first)).To(Succeed())
	w.Eventually(w.cluster(m.Name)).Should(haveTotal("E", fleetv1alpha1.MaxInFlight+1))

	t.Log("once they may be marked, all are counted")
	w.crash(w.ends[len(w.ends)-1])
	w.marking = true
	w.start()
	w.engage(m.Name, "unmarked-runs")
	w.settle(m, "unmarked-runs", map[string]int{"E": fleetv1alpha1.MaxInFlight + more})
}

// Two managers by mistake, without leader election, count each failure once, though
// each sees what the other does later.
func TestTwoManagers(t *testing.T) {
	w := newWorld(t)
	m := w.member("two", "m")
	w.members.set(m)
	w.start()
	first, stopFirst := w.rollup, w.stop
	w.start()
	t.Cleanup(stopFirst)
	second := w.rollup
	w.engage(m.Name, "two-runs")
	w.rollup = first
	w.engage(m.Name, "two-runs")
	w.rollup = second

	const runs = 60
	for i := range runs {
		run := w.fail("two-runs", fmt.Sprint("r", i), fmt.Sprint("E", i%3))
		if i%2 == 0 { // deleted as soon as it is recorded, as a TTL of 0 does
			w.Eventually(func() (bool, error) {
				err := hub.Client.Get(w.ctx, client.ObjectKeyFromObject(run), run)
				return run.Recorded(), err
			}).Should(BeTrue())
			w.Expect(hub.Client.Delete(w.ctx, run)).To(Succeed())
		}
	}
	w.settle(m, "two-runs", map[string]int{"E0": runs / 3, "E1": runs / 3, "E2": runs / 3})
	updates, err := hub.Requests(harness.ByUser(hubUser), harness.WithVerb("update"), harness.OnResource("agentrunclusterstatuses/status"))
	w.Expect(err).NotTo(HaveOccurred())
	conflicts := 0
	for _, r := range updates {
		if r.Code == 409 {
			conflicts++
		}
	}
	t.Logf("%d conflicts", conflicts)
}
