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
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// lowShare is how often a member's low-priority requests come before its others: one
// in so many, so that a steady stream of events does not hold up an initial list for ever.
const lowShare = 4

// A member of which a request is at work for longer than slowAfter is slow, and until
// slowFor after such a request was last seen. That outlasts maxBackoff: one that hangs is
// not taken for well between two tries.
const (
	slowAfter = 3 * time.Second
	slowFor   = time.Minute
)

// lanes holds queued requests, a lane for each member, and hands them out in turn:
//
//   - A member that has none at work gets a worker whenever one is free.
//   - It gets more, up to a tenth of the workers, while less than half of all are at work.
//   - A slow member has one worker, and all slow members together have half of them.
//
// Members that hang are known to be slow by and by. Until then others have no worker to wait
// for, unless more than half as many as there are workers come to hang at the same time; then
// they wait until the first calls have timed out.
//
// It is the storage of a client-go queue, which calls it under its own lock; mu guards what
// is called beside that.
type lanes struct {
	workers int
	clock   clock.PassiveClock

	mu       sync.Mutex
	low      mcreconcile.Request // the one request that is in no hurry when it is pushed; wake for none
	wakes    int
	byMember map[multicluster.ClusterName]*lane
	turn     []*lane // those that have requests, next first
	atWork   map[mcreconcile.Request]time.Time
	slow     map[multicluster.ClusterName]time.Time // until when
}

func newLanes(workers int, c clock.PassiveClock) *lanes {
	return &lanes{
		workers:  workers,
		clock:    c,
		byMember: map[multicluster.ClusterName]*lane{},
		atWork:   map[mcreconcile.Request]time.Time{},
		slow:     map[multicluster.ClusterName]time.Time{},
	}
}

// share is how many of the workers one member may have.
func (l *lanes) share() int { return (l.workers + 9) / 10 }

// half is how many of them may be busy with what is not needed to serve everybody.
func (l *lanes) half() int { return (l.workers + 1) / 2 }

func (l *lanes) setLow(req mcreconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.low = req
}

// Touch is told of a request that is added while it is queued. One that was in no hurry
// is now.
func (l *lanes) Touch(req mcreconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if member := l.byMember[req.ClusterName]; member != nil && req != l.low {
		member.hurry(req)
	}
}

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
	if member.len() == 0 {
		l.turn = append(l.turn, member)
	}
	member.push(req, req == l.low)
}

// Len is not zero when there is a request that may be worked on now.
func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wakes > 0 || l.next() >= 0 {
		return 1
	}
	return 0
}

// Pop takes the next request of the member whose turn it is.
func (l *lanes) Pop() mcreconcile.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wakes > 0 {
		l.wakes--
		return wake
	}
	// Len has said that there is one. Time may have taken that back since, which is no
	// matter for one request.
	at := max(l.next(), 0)
	member := l.turn[at]
	l.turn = slices.Delete(l.turn, at, at+1)
	req := member.pop()
	if member.len() > 0 {
		l.turn = append(l.turn, member)
	}
	member.atWork++
	l.atWork[req] = l.clock.Now()
	return req
}

// next is the place in turn of the member to be served, or -1 when none may have a worker.
func (l *lanes) next() int {
	now := l.clock.Now()
	slowAtWork := l.slowAtWork(now)
	return slices.IndexFunc(l.turn, func(member *lane) bool {
		switch {
		case l.isSlow(member.name, now):
			return member.atWork == 0 && slowAtWork < l.half()
		case member.atWork == 0:
			return true
		default:
			return member.atWork < l.share() && len(l.atWork) < l.half()
		}
	})
}

// slowAtWork notes which members are slow by now, and returns how many workers they have.
func (l *lanes) slowAtWork(now time.Time) int {
	for req, since := range l.atWork {
		l.noteSlow(req.ClusterName, since, now)
	}
	n := 0
	for req := range l.atWork {
		if l.isSlow(req.ClusterName, now) {
			n++
		}
	}
	return n
}

func (l *lanes) noteSlow(name multicluster.ClusterName, since, now time.Time) {
	if now.Sub(since) > slowAfter {
		l.slow[name] = now.Add(slowFor)
	}
}

func (l *lanes) isSlow(name multicluster.ClusterName, now time.Time) bool {
	return now.Before(l.slow[name])
}

// done says that a request is no longer at work.
func (l *lanes) done(req mcreconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, ok := l.atWork[req]
	if !ok {
		return
	}
	now := l.clock.Now()
	maps.DeleteFunc(l.slow, func(_ multicluster.ClusterName, until time.Time) bool { return !now.Before(until) })
	l.noteSlow(req.ClusterName, since, now)
	delete(l.atWork, req)
	member := l.byMember[req.ClusterName]
	member.atWork--
	if member.len() == 0 && member.atWork == 0 {
		delete(l.byMember, req.ClusterName)
	}
}

// lane is one member's requests.
type lane struct {
	name      multicluster.ClusterName
	high, low []mcreconcile.Request
	// unhurried are the requests in low. One that is not among them has been moved to high
	// since, or is there twice.
	unhurried map[types.NamespacedName]bool
	atWork    int
	served    int
}

func (l *lane) len() int { return len(l.high) + len(l.unhurried) }

func (l *lane) push(req mcreconcile.Request, low bool) {
	if !low {
		l.high = append(l.high, req)
		return
	}
	if l.unhurried == nil {
		l.unhurried = map[types.NamespacedName]bool{}
	}
	l.low = append(l.low, req)
	l.unhurried[req.NamespacedName] = true
}

// hurry moves a request from low to high.
func (l *lane) hurry(req mcreconcile.Request) {
	if l.unhurried[req.NamespacedName] {
		l.takeLow(req)
		l.high = append(l.high, req)
	}
}

func (l *lane) pop() mcreconcile.Request {
	l.served++
	if len(l.high) > 0 && (len(l.unhurried) == 0 || l.served%lowShare != 0) {
		return first(&l.high)
	}
	for {
		req := first(&l.low)
		if l.unhurried[req.NamespacedName] {
			l.takeLow(req)
			return req
		}
	}
}

// takeLow notes that a request is no longer in low.
func (l *lane) takeLow(req mcreconcile.Request) {
	delete(l.unhurried, req.NamespacedName)
	if len(l.unhurried) == 0 {
		l.low = nil
	}
}

func first(from *[]mcreconcile.Request) mcreconcile.Request {
	req := (*from)[0]
	(*from)[0] = mcreconcile.Request{}
	*from = (*from)[1:]
	return req
}
