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
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

func of(member, run string) mcreconcile.Request {
	return mcreconcile.Request{
		ClusterName: multicluster.ClusterName(member),
		Request:     reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: run}},
	}
}

func testQueue(t *testing.T, workers int) *fairQueue {
	t.Helper()
	return testQueueAt(t, workers, clock.RealClock{})
}

func testQueueAt(t *testing.T, workers int, c clock.WithTicker) *fairQueue {
	t.Helper()
	q := newFairQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](time.Millisecond, time.Second), workers, c)
	t.Cleanup(q.ShutDown)
	return q
}

func names(requests []mcreconcile.Request) []string {
	out := make([]string, len(requests))
	for i, r := range requests {
		out[i] = r.ClusterName.String() + "/" + r.Name
	}
	return out
}

func take(t *testing.T, q *fairQueue, n int, done bool) []mcreconcile.Request {
	t.Helper()
	out := make([]mcreconcile.Request, n)
	for i := range out {
		req, shutdown := q.Get()
		if shutdown {
			t.Fatal("the queue has shut down")
		}
		out[i] = req
		if done {
			q.Done(req)
		}
	}
	return out
}

func TestMembersAreServedInTurn(t *testing.T) {
	q := testQueue(t, 100)
	for i := range 4 {
		q.Add(of("busy", fmt.Sprint(i)))
	}
	q.Add(of("quiet", "a"))
	q.Add(of("other", "b"))
	want := []string{"busy/0", "quiet/a", "other/b", "busy/1", "busy/2", "busy/3"}
	if diff := cmp.Diff(want, names(take(t, q, 6, true))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestAnInitialListComesAfterWhatHappensNow(t *testing.T) {
	q := testQueue(t, 100)
	for i := range 6 {
		q.AddLow(of("m", fmt.Sprintf("listed-%d", i)))
	}
	for i := range 4 {
		q.Add(of("m", fmt.Sprintf("now-%d", i)))
	}
	want := []string{"m/now-0", "m/now-1", "m/now-2", "m/listed-0", "m/now-3", "m/listed-1", "m/listed-2", "m/listed-3", "m/listed-4", "m/listed-5"}
	if diff := cmp.Diff(want, names(take(t, q, 10, true))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestWhatHappensNowIsNotTakenForAList: members' initial lists and events arrive at the same
// time, and each request comes into the lane that it was added to.
func TestWhatHappensNowIsNotTakenForAList(t *testing.T) {
	const each = 10_000
	q := testQueue(t, 1)
	var adders sync.WaitGroup
	adders.Go(func() {
		for i := range each {
			q.AddLow(of("listed", fmt.Sprint(i)))
		}
	})
	adders.Go(func() {
		for i := range each {
			q.Add(of("now", fmt.Sprint(i)))
		}
	})
	adders.Wait()
	got := map[string][2]int{}
	for name, member := range q.lanes.byMember {
		got[name.String()] = [2]int{len(member.high), len(member.unhurried)}
	}
	want := map[string][2]int{"listed": {0, each}, "now": {each, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests in a hurry and not, by member (-want +got):\n%s", diff)
	}
}

// TestARunThatIsListedAndHappens: what happens to a run of which the initial list has yet
// to be worked on is in as much of a hurry as anything else, and is worked on once.
func TestARunThatIsListedAndHappens(t *testing.T) {
	q := testQueue(t, 100)
	for i := range 4 {
		q.AddLow(of("m", fmt.Sprintf("listed-%d", i)))
	}
	q.Add(of("m", "now"))
	q.Add(of("m", "listed-2"))
	q.AddLow(of("m", "listed-2")) // and then it is listed again
	q.Add(of("m", "listed-2"))
	want := []string{"m/now", "m/listed-2", "m/listed-0", "m/listed-1", "m/listed-3"}
	if diff := cmp.Diff(want, names(take(t, q, 5, true))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if q.Len() != 0 || len(q.lanes.byMember) != 0 {
		t.Error("something is left in the queue")
	}
	q.AddLow(of("m", "listed-2"))
	if diff := cmp.Diff([]string{"m/listed-2"}, names(take(t, q, 1, true))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestABusyMemberDelaysAnotherByOneTurn: however many requests of members are queued, one of
// another comes after at most one of each.
func TestABusyMemberDelaysAnotherByOneTurn(t *testing.T) {
	const crowd = 5000
	cases := map[string]struct {
		queued map[string]func(*fairQueue, mcreconcile.Request)
		by     func(*fairQueue, mcreconcile.Request)
		within int
	}{
		"one member is busy with what happens":                    {queued: lanesOf("busy", (*fairQueue).Add), by: (*fairQueue).Add, within: 2},
		"one member is listed":                                    {queued: lanesOf("busy", (*fairQueue).AddLow), by: (*fairQueue).Add, within: 2},
		"the other is listed while one is busy":                   {queued: lanesOf("busy", (*fairQueue).Add), by: (*fairQueue).AddLow, within: 2},
		"many members are busy":                                   {queued: lanesOf("a b c d e f g", (*fairQueue).Add), by: (*fairQueue).Add, within: 8},
		"something happens in the member itself, which is listed": {queued: lanesOf("well", (*fairQueue).AddLow), by: (*fairQueue).Add, within: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := testQueue(t, 40)
			for i := range crowd {
				for member, add := range tc.queued {
					add(q, of(member, fmt.Sprint(i)))
				}
			}
			// Wherever the turn is.
			for i := range 10 {
				run := fmt.Sprint("probe-", i)
				tc.by(q, of("well", run))
				got := names(take(t, q, tc.within, true))
				if !slices.Contains(got, "well/"+run) {
					t.Fatalf("with %d queued of each member, %s was not among the next %d: %s", crowd, run, tc.within, got)
				}
			}
		})
	}
}

// lanesOf has members queue by the same function.
func lanesOf(members string, add func(*fairQueue, mcreconcile.Request)) map[string]func(*fairQueue, mcreconcile.Request) {
	out := map[string]func(*fairQueue, mcreconcile.Request){}
	for member := range strings.FieldsSeq(members) {
		out[member] = add
	}
	return out
}

func TestAHungMemberHasABoundedNumberAtWork(t *testing.T) {
	q := testQueue(t, 20)
	for i := range 5 {
		q.Add(of("hung", fmt.Sprint(i)))
	}
	q.Add(of("well", "a"))
	got := take(t, q, 3, false) // two that hang, and the other member's
	want := []string{"hung/0", "well/a", "hung/1"}
	if diff := cmp.Diff(want, names(got)); diff != "" {
		t.Fatalf("order (-want +got):\n%s", diff)
	}
	if q.Len() != 0 {
		t.Error("another request may be worked on while two hang")
	}
	next := make(chan mcreconcile.Request)
	go func() {
		req, _ := q.Get()
		next <- req
	}()
	q.Add(of("well", "b"))
	if req := <-next; req != of("well", "b") {
		t.Errorf("a worker got %s, want the other member's", req)
	}
	go func() {
		req, _ := q.Get()
		next <- req
	}()
	q.Done(got[0])
	if req := <-next; req != of("hung", "2") {
		t.Errorf("a waiting worker got %s, want the hung member's next", req)
	}
}

func TestARequestAtWorkIsNotWorkedOnTwice(t *testing.T) {
	q := testQueue(t, 2)
	q.Add(of("m", "a"))
	first := take(t, q, 1, false)[0]
	q.Add(of("m", "a"))
	if q.Len() != 0 {
		t.Error("a request may be worked on while it is at work")
	}
	q.Done(first)
	if got := take(t, q, 1, true)[0]; got != first {
		t.Errorf("got %s, want %s again", got, first)
	}
}

// TestQueueUnderLoad: nothing is lost, nothing is worked on twice at a time, and no
// member has more in work than it may, with workers that come and go.
func TestQueueUnderLoad(t *testing.T) {
	const members, runs, perMember, workers = 7, 300, 2, 20
	q := testQueue(t, workers)
	var inWork [members]atomic.Int32
	var seen sync.Map
	var left sync.WaitGroup
	left.Add(members * runs)
	for range workers {
		go func() {
			for {
				req, shutdown := q.Get()
				if shutdown {
					return
				}
				var m int
				_, _ = fmt.Sscanf(req.ClusterName.String(), "m%d", &m)
				if n := inWork[m].Add(1); n > perMember {
					t.Errorf("member %d has %d in work", m, n)
				}
				if _, again := seen.LoadOrStore(req, true); !again {
					left.Done()
				}
				inWork[m].Add(-1)
				q.Done(req)
			}
		}()
	}
	var adders sync.WaitGroup
	for m := range members {
		adders.Go(func() {
			for i := range runs {
				req := of(fmt.Sprintf("m%d", m), fmt.Sprint(i))
				switch i % 3 {
				case 0:
					q.Add(req)
				case 1:
					q.AddLow(req)
				default:
					q.AddAfter(req, time.Millisecond)
				}
				q.Add(req)
			}
		})
	}
	adders.Wait()
	left.Wait()
	// What was added twice has been worked on twice; nothing is kept of members then.
	harness.NewGomega(t).Eventually(func() int {
		q.lanes.mu.Lock()
		defer q.lanes.mu.Unlock()
		return len(q.lanes.byMember)
	}).Should(gomega.BeZero())
}
