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

package kubeconfigsecret

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

// health counts what the probes of one connection found.
type health struct {
	threshold int
	failures  int
	since     time.Time // of the first failure in a row
}

// observe takes the result of a probe and says whether the member now counts as lost.
func (h *health) observe(failed bool, at time.Time) (lost bool) {
	if !failed {
		h.failures = 0
		return false
	}
	if h.failures == 0 {
		h.since = at
	}
	h.failures++
	return h.failures >= h.threshold
}

// watchHealth probes the connection in use until it is closed. A probe is cheap until an
// informer has met an error; then all checks are made until they pass again, since
// /version still answers when a right or a CRD was taken away. A member that answers is
// looked at now and then in any case: a right to write is missed by no informer.
func (m *member) watchHealth(conn *Connection) {
	o := m.provider.opts
	h := health{threshold: o.FailureThreshold}
	thorough, cut := false, false
	look := nextLook(o)
	for m.awaitProbe(conn) {
		cut = conn.watchError() != nil || cut
		thorough = cut || thorough
		version, err := probe(conn, o, thorough)
		if conn.ctx.Err() != nil {
			return
		}
		if err != nil && classify(err).reason == ReasonUnauthorized {
			m.renew(conn)
		}
		now := o.Clock.Now()
		thorough = thorough && err != nil
		back := h.failures >= h.threshold && err == nil
		lost := h.observe(err != nil, now)
		switch {
		case err == nil:
			m.answered(conn, version, now)
			if back && cut {
				m.renewWatches(conn)
			}
			cut = false
			if !now.Before(look) {
				thorough = m.look(conn)
				look = nextLook(o)
			}
		case lost:
			m.lost(conn, classify(err), h.since)
		}
	}
}

// renewWatches has a member connected anew that was lost and is back: its informers wait
// out a back-off of their own, up to half a minute, and miss what happens meanwhile.
func (m *member) renewWatches(conn *Connection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inUse == conn {
		conn.stale = true
		m.tryAgain()
	}
}

// awaitProbe returns when the next probe is due, and false when the connection was closed
// first. That an informer is no longer accepted does not wait for it.
func (m *member) awaitProbe(conn *Connection) bool {
	timer := m.provider.opts.Clock.NewTimer(m.provider.opts.ProbeInterval)
	defer timer.Stop()
	for {
		select {
		case <-conn.ctx.Done():
			return false
		case <-conn.unauthorized:
			m.renew(conn)
		case <-timer.C():
			return true
		}
	}
}

func probe(conn *Connection, o Options, thorough bool) (string, error) {
	timeout := o.ProbeTimeout
	if thorough { // many calls, of which each ends after CallTimeout
		timeout = o.ConnectTimeout
	}
	ctx, cancel := context.WithTimeout(conn.ctx, timeout)
	defer cancel()
	if thorough {
		return conn.check.allFor(ctx, conn.found.serves)
	}
	return conn.check.alive(ctx)
}

// nextLook is when to ask for the optional resources again; members connected together
// are not asked together.
func nextLook(o Options) time.Time {
	return o.Clock.Now().Add(delay(1, o.MendInterval, o.MendInterval, rand.Float64())) //nolint:gosec // jitter
}

// look asks whether all that is needed is still there, and says true when it is not: then
// the next probes find out whether it stays so. It asks for the optional resources, too,
// and has the member connected anew when they are others than the connection in use
// knows. An answer that fails changes nothing.
func (m *member) look(conn *Connection) (missing bool) {
	ctx, cancel := context.WithTimeout(conn.ctx, m.provider.opts.ProbeTimeout)
	defer cancel()
	found, err := conn.check.served(ctx)
	if err == nil {
		err = conn.check.allowed(ctx, found.serves.Intersection(conn.found.serves))
	}
	if err != nil {
		return classify(err).mendable()
	}
	serves := found.serves
	m.mu.Lock()
	outdated := !serves.Equal(conn.found.serves)
	changed := m.inUse == conn && conn.outdated != outdated
	if changed {
		conn.outdated = outdated
		m.tryAgain()
	}
	m.mu.Unlock()
	if changed {
		m.log.Info("Optional resources of a member changed", "before", names(conn.found.serves), "now", names(serves))
	}
	return false
}

func names(resources resourceSet) []string {
	out := make([]string, 0, len(resources))
	for r := range resources {
		out = append(out, r.GroupVersion().String()+"/"+r.Resource)
	}
	slices.Sort(out)
	return out
}

// sleep waits for d and returns false when ctx was done first.
func sleep(ctx context.Context, c clock.WithTicker, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
