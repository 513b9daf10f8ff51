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

// swap puts a proven connection in the place of the one in use: controllers change over in
// Engage, requests in flight keep the old one for a while.
func (m *member) swap(want desire, fresh *Connection) *failure {
	old, ok := m.replace(want, fresh)
	if !ok {
		fresh.close()
		return nil
	}
	if err := m.engage(fresh); err != nil {
		m.restore(old, fresh)
		return setUpFailed(err)
	}
	m.retire(old)
	m.helpers.Go(func() { m.watchHealth(fresh) })
	m.update(func() {
		m.observed = observation{engaged: true}
		m.lastContact = m.provider.opts.Clock.Now()
		m.snapshot.KubernetesVersion = fresh.found.version
		m.snapshot.Endpoint = printable(fresh.Config.Host, maxEndpoint)
	})
	return nil
}

func (m *member) engage(conn *Connection) error {
	return m.provider.aware.Engage(conn.ctx, m.name, conn.cluster)
}

// restore puts the connection that was in use, if there was one, back in the place of one that could not be
// engaged. It is engaged again, since some controllers have changed over by then.
func (m *member) restore(old, failed *Connection) {
	if old == nil {
		m.disengage()
		return
	}
	m.update(func() {
		m.inUse = old
		m.snapshot.ClockOffset = old.dates.offset(m.snapshot.ClockOffset)
	})
	failed.close()
	if err := m.engage(old); err != nil {
		m.log.Info("Cannot go back to the former connection", "cause", setUpFailed(err).message)
		m.disengage()
	}
}

// replace returns the connection that was in use, and false when nobody asks for the fresh one any longer.
// It comes before Engage, since controllers ask for the cluster at once, and decide by what Lookup says.
func (m *member) replace(want desire, fresh *Connection) (old *Connection, ok bool) {
	m.update(func() {
		if want.ctx.Err() != nil {
			return
		}
		old, ok = m.inUse, true
		m.inUse = fresh
		m.snapshot.ClockOffset = fresh.dates.offset(m.snapshot.ClockOffset)
	})
	return old, ok
}

// retire closes a replaced connection once what is in flight on it had time to end.
func (m *member) retire(old *Connection) {
	if old == nil {
		return
	}
	o := m.provider.opts
	m.helpers.Go(func() {
		sleep(m.ctx, o.Clock, o.RotationOverlap)
		old.close()
	})
}

// disengage closes the connection in use; Get answers ErrClusterNotFound from then on.
func (m *member) disengage() {
	m.mu.Lock()
	conn := m.inUse
	m.inUse = nil
	m.observed = observation{}
	m.mu.Unlock()
	if conn != nil {
		conn.close()
	}
}
