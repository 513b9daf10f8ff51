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
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// fairQueue is a work queue that serves members in turn. What a member may have at work is
// bounded (lanes), so that those that hang do not take all workers, and its initial list
// comes after what happens now. Deduplication, delays and back-off are client-go's.
type fairQueue struct {
	workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	lanes *lanes
	// lowMu has one request at a time be added as in no hurry.
	lowMu sync.Mutex
}

// wake is not worked on: it wakes a worker that waits though a request may be worked on
// now. No request names no member.
var wake = mcreconcile.Request{}

// newFairQueue returns a queue for so many workers, that delays by the clock.
func newFairQueue(name string, limiter workqueue.TypedRateLimiter[mcreconcile.Request], workers int, c clock.WithTicker) *fairQueue {
	l := newLanes(workers, c)
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
// that is at work is queued again after that as any other.
func (q *fairQueue) AddLow(req mcreconcile.Request) {
	q.lowMu.Lock()
	defer q.lowMu.Unlock()
	q.lanes.setLow(req)
	q.Add(req)
	q.lanes.setLow(wake)
}

// Get returns the next request of a member that may have one more at work.
func (q *fairQueue) Get() (mcreconcile.Request, bool) {
	for {
		req, shutdown := q.TypedRateLimitingInterface.Get()
		if req != wake || shutdown {
			return req, shutdown
		}
		q.TypedRateLimitingInterface.Done(wake)
	}
}

// Done ends the work on a request. Another may have waited for that.
func (q *fairQueue) Done(req mcreconcile.Request) {
	q.lanes.done(req)
	q.TypedRateLimitingInterface.Done(req)
	if q.lanes.Len() > 0 {
		q.Add(wake)
	}
}
