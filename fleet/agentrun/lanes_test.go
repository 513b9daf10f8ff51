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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// step is what happens to a queue: time passes, the work on requests ends, and others are
// added. Then each free worker takes what it may.
type step struct {
	after time.Duration
	done  []string
	add   []string
	want  []string
}

// TestWorkersOfMembersThatHang goes through what members may have at work, of which some do
// not answer.
func TestWorkersOfMembersThatHang(t *testing.T) {
	const longer = slowAfter + time.Second
	cases := map[string]struct {
		workers int
		steps   []step
	}{
		"a member has a tenth of the workers": {workers: 20, steps: []step{
			{add: runsOf("a", 0, 5), want: runsOf("a", 0, 2)},
			{done: runsOf("a", 0, 1), want: runsOf("a", 2, 3)},
		}},
		"several have half of them, and each that has none gets one": {workers: 20, steps: []step{
			{add: turns("m", 7, 2), want: append(turns("m", 7, 1), "m0/1", "m1/1", "m2/1")},
			{add: runsOf("well", 0, 2), want: runsOf("well", 0, 1)},
			{done: []string{"m0/0"}}, // it has another at work, and so have ten in all
			{done: []string{"m6/0"}, want: []string{"m3/1", "m6/1"}},
		}},
		"those that come to hang at the same time leave workers to others": {workers: 20, steps: []step{
			{add: turns("hung", 19, 4), want: turns("hung", 19, 1)},
			{add: runsOf("well", 0, 3), want: runsOf("well", 0, 1)},
			{done: runsOf("well", 0, 1), want: runsOf("well", 1, 2)},
			{after: slowAfter, done: runsOf("well", 1, 2), want: runsOf("well", 2, 3)},
		}},
		"one that answers in time keeps its workers": {workers: 20, steps: []step{
			{add: runsOf("a", 0, 6), want: runsOf("a", 0, 2)},
			{after: slowAfter, done: runsOf("a", 0, 2), want: runsOf("a", 2, 4)},
		}},
		"one that does not has one, until a minute after it was last seen to be slow": {workers: 20, steps: []step{
			{add: runsOf("a", 0, 8), want: runsOf("a", 0, 2)},
			{after: longer, done: runsOf("a", 0, 1)},
			{done: runsOf("a", 1, 2), want: runsOf("a", 2, 3)},
			{after: longer, done: runsOf("a", 2, 3), want: runsOf("a", 3, 4)},
			{after: time.Second, done: runsOf("a", 3, 4), want: runsOf("a", 4, 5)},
			{after: slowFor - 2*time.Second, done: runsOf("a", 4, 5), want: runsOf("a", 5, 6)}, // which took long, too
			{after: time.Second, done: runsOf("a", 5, 6), want: runsOf("a", 6, 7)},
		}},
		"it has more again a minute after": {workers: 20, steps: []step{
			{add: runsOf("a", 0, 2), want: runsOf("a", 0, 2)},
			{after: longer, done: runsOf("a", 0, 2)},
			{after: slowFor, add: runsOf("a", 2, 5), want: runsOf("a", 2, 4)},
		}},
		"a member is slow while a request hangs, and not only when that has ended": {workers: 40, steps: []step{
			{add: runsOf("a", 0, 2), want: runsOf("a", 0, 2)},
			{after: longer, add: runsOf("a", 2, 4)}, // though four would be its share
		}},
		"slow members have half of the workers together, and take turns": {workers: 8, steps: []step{
			{add: turns("hung", 7, 3), want: turns("hung", 7, 1)},
			{after: longer, done: turns("hung", 7, 1), want: []string{"hung0/1", "hung1/1", "hung2/1", "hung3/1"}},
			{add: runsOf("well", 0, 3), want: runsOf("well", 0, 1)},
			{done: runsOf("well", 0, 1), want: runsOf("well", 1, 2)},
			{after: slowAfter, done: append(runsOf("well", 1, 2), "hung1/1"), want: []string{"hung4/1", "well/2"}},
			{done: []string{"hung0/1", "hung2/1"}, want: []string{"hung5/1", "hung6/1"}},
			{done: []string{"hung3/1"}, want: []string{"hung0/2"}},
		}},
		"the only worker serves everybody in turn": {workers: 1, steps: []step{
			{add: append(runsOf("hung", 0, 2), "well/0"), want: runsOf("hung", 0, 1)},
			{after: longer, done: runsOf("hung", 0, 1), want: runsOf("well", 0, 1)},
			{done: runsOf("well", 0, 1), want: runsOf("hung", 1, 2)},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := clocktesting.NewFakeClock(time.Unix(1, 0))
			q := testQueueAt(t, tc.workers, now)
			for i, s := range tc.steps {
				now.Step(s.after)
				for _, r := range s.done {
					q.Done(parsed(r))
				}
				for _, r := range s.add {
					q.Add(parsed(r))
				}
				if diff := cmp.Diff(s.want, handOut(t, q)); diff != "" {
					t.Fatalf("step %d, handed out to free workers (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestNothingIsKeptOfMembersThatWereSlow: members come and go under other names.
func TestNothingIsKeptOfMembersThatWereSlow(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1, 0))
	q := testQueueAt(t, 20, now)
	for i := range 100 {
		q.Add(of(fmt.Sprint("m", i), "a"))
		first := take(t, q, 1, false)[0]
		now.Step(slowAfter + time.Second)
		q.Done(first)
	}
	if kept, atMost := len(q.lanes.slow), int(slowFor/slowAfter); kept > atMost {
		t.Errorf("%d members are remembered to be slow, want at most %d", kept, atMost)
	}
}

// handOut gives each free worker what it may have.
func handOut(t *testing.T, q *fairQueue) []string {
	t.Helper()
	var out []string
	for {
		q.lanes.mu.Lock()
		may := len(q.lanes.atWork) < q.lanes.workers && q.lanes.next() >= 0
		q.lanes.mu.Unlock()
		if !may {
			return out
		}
		out = append(out, names(take(t, q, 1, false))...)
	}
}

// runsOf names requests of a member, from one number to before another.
func runsOf(member string, from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%s/%d", member, i))
	}
	return out
}

// turns names as many requests of each of several members.
func turns(members string, n, each int) []string {
	var all [][]string
	for i := range n {
		all = append(all, runsOf(fmt.Sprint(members, i), 0, each))
	}
	return slices.Concat(all...)
}

func parsed(request string) mcreconcile.Request {
	member, run, _ := strings.Cut(request, "/")
	return of(member, run)
}
