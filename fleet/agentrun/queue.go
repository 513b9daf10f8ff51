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
	"sync"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// lowShare is how often a member's low-priority requests come before its others: one
// in so many, so that a steady stream of events does not hold up an initial list for ever.
const lowShare = 4

// fairQueue is a work queue that serves members in turn. A member has a bounded number
// of requests in work, so that one that hangs does not take all workers, and its initial
// list comes after what happens now. Deduplication, delays and back-off are client-go's.
type fairQueue struct {
	workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	lanes *lanes
	// lowMu has one request at a time be added as in no hurry.
	lowMu sync.Mutex
}

// wake is not worked on: it wakes a worker that waits though a lane has become free. No
// request names no member.
var wake = mcreconcile.Request{}

// newFairQueue returns a queue that has at most perMember requests of a member in work,
// and delays by the clock.
func newFairQueue(name string, limiter workqueue.TypedRateLimiter[mcreconcile.Request], perMember int, c clock.WithTicker) *fairQueue {
	l := &lanes{limit: perMember, byMember: map[multicluster.ClusterName]*lane{}}
	return &fairQueue{lanes: l, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[mcreconcile.Request]{
			Name: name,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[mcreconcile.Request]{
				Name:  name,
				Clock: c,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[mcreconcile.Request]{
					Name: name, Queue: l,
				}),
			}),
		})}
}

// AddLow adds a request that is in no hurry. One that is queued keeps its place, and one
// that is in work is queued again after that as any other.
func (q *fairQueue) AddLow(req mcreconcile.Request) {
	q.lowMu.Lock()
	defer q.lowMu.Unlock()
	q.lanes.setLow(req)
	q.Add(req)
	q.lanes.setLow(wake)
}

// Get returns the next request of a member that may have more in work.
func (q *fairQueue) Get() (mcreconcile.Request, bool) {
	for {
		req, shutdown := q.TypedRateLimitingInterface.Get()
		if req != wake || shutdown {
			return req, shutdown
		}
		q.TypedRateLimitingInterface.Done(wake)
	}
}

// Done ends the work on a request.
func (q *fairQueue) Done(req mcreconcile.Request) {
	waiting := q.lanes.done(req.ClusterName)
	q.TypedRateLimitingInterface.Done(req)
	if waiting {
		q.Add(wake)
	}
}

// lanes holds queued requests, a lane for each member. It is the storage of a client-go
// queue, which calls it under its own lock; mu guards what is called beside that.
type lanes struct {
	limit int

	mu       sync.Mutex
	low      mcreconcile.Request // the one request that is in no hurry when it is pushed; wake for none
	wakes    int
	byMember map[multicluster.ClusterName]*lane
	turn     []*lane // those that have requests and may have more in work, next first
	ready    int     // requests in the lanes of turn
}

// lane is one member's requests.
type lane struct {
	name      multicluster.ClusterName
	high, low []mcreconcile.Request
	inWork    int
	served    int
	inTurn    bool
}

func (l *lane) len() int { return len(l.high) + len(l.low) }

func (l *lanes) setLow(req mcreconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.low = req
}

// Touch has nothing to do: a request that is queued already keeps its place.
func (l *lanes) Touch(mcreconcile.Request) {}

// Push queues a request.
func (l *lanes) Push(req mcreconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if req == wake {
		l.wakes++
		return
	}
	member := l.byMember[req.ClusterName]
	if member == nil {
		member = &lane{name: req.ClusterName}
		l.byMember[req.ClusterName] = member
	}
	if req == l.low {
		member.low = append(member.low, req)
	} else {
		member.high = append(member.high, req)
	}
	if member.inTurn {
		l.ready++
		return
	}
	l.admit(member)
}

// Len is the number of requests that may be worked on now.
func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready + l.wakes
}

// Pop takes the next request of the member whose turn it is.
func (l *lanes) Pop() mcreconcile.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wakes > 0 {
		l.wakes--
		return wake
	}
	member := l.turn[0]
	l.turn[0] = nil
	l.turn = l.turn[1:]
	member.inTurn = false
	l.ready -= member.len()
	req := member.next()
	member.inWork++
	l.admit(member)
	return req
}

// done says that one request of a member is no longer in work, and whether others of it
// have waited for that.
func (l *lanes) done(name multicluster.ClusterName) (waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	member := l.byMember[name]
	if member == nil {
		return false
	}
	member.inWork--
	if member.len() == 0 && member.inWork == 0 {
		delete(l.byMember, name)
		return false
	}
	return l.admit(member)
}

// admit puts a member at the end of the turn when it has requests and may have more in
// work. It says whether it did.
func (l *lanes) admit(member *lane) bool {
	if member.inTurn || member.len() == 0 || member.inWork >= l.limit {
		return false
	}
	member.inTurn = true
	l.turn = append(l.turn, member)
	l.ready += member.len()
	return true
}

func (l *lane) next() mcreconcile.Request {
	l.served++
	from := &l.high
	if len(l.high) == 0 || (len(l.low) > 0 && l.served%lowShare == 0) {
		from = &l.low
	}
	req := (*from)[0]
	(*from)[0] = mcreconcile.Request{}
	*from = (*from)[1:]
	return req
}
