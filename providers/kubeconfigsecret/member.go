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
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// member is one cluster from the time its Secret appears until it goes. One
// goroutine, run, makes and closes its connections; mu guards what others read.
type member struct {
	provider *Provider
	name     multicluster.ClusterName
	secret   types.NamespacedName
	log      logr.Logger
	// ctx ends when the member is removed. It descends from Provider.Start.
	ctx    context.Context
	cancel context.CancelFunc
	// predecessor is closed when a former member of the same name has ended, so that
	// its last steps cannot undo the first ones of this.
	predecessor <-chan struct{}
	done        chan struct{}
	// helpers are the goroutines that probe, and that close replaced connections.
	helpers sync.WaitGroup
	// again ends a back-off early, and has a connection in use looked at anew.
	again chan struct{}

	mu          sync.Mutex
	wanted      desire
	inUse       *Connection
	observed    observation
	lastContact time.Time
	// snapshot is what others see, but that its ClockOffset is against Provider.steady: see view.
	snapshot Member
}

// desire is what the Secret asks for; ctx ends as soon as it asks for something else.
type desire struct {
	credential
	ctx       context.Context
	supersede context.CancelFunc
}

func newMember(ctx context.Context, p *Provider, secret *corev1.Secret, predecessor <-chan struct{}) *member {
	clusterName, _ := clusterOf(secret.Name)
	name := MemberName(secret.Namespace, clusterName)
	m := &member{
		provider:    p,
		name:        name,
		secret:      client.ObjectKeyFromObject(secret),
		log:         log.Log.WithName("kubeconfigsecret").WithValues("cluster", name),
		predecessor: predecessor,
		done:        make(chan struct{}),
		again:       make(chan struct{}, 1),
		snapshot:    Member{Name: name, Namespace: secret.Namespace, Cluster: clusterName, SecretName: secret.Name},
	}
	m.ctx, m.cancel = context.WithCancel(ctx)
	return m
}

// adopt takes over what the Secret says now. Only another kubeconfig, or other namespaces, start anything.
func (m *member) adopt(secret *corev1.Secret) {
	cred := credentialOf(secret)
	m.update(func() {
		m.snapshot.SecretUID = secret.UID
		m.snapshot.Labels = maps.Clone(secret.Labels)
		m.snapshot.Paused = pausedBy(secret)
		if m.wanted.ctx != nil && m.wanted.hash == cred.hash {
			return
		}
		if m.wanted.ctx != nil {
			m.wanted.supersede()
		}
		current, supersede := context.WithCancel(m.ctx)
		m.wanted = desire{credential: cred, ctx: current, supersede: supersede}
	})
}

// run pursues what the Secret asks for until the member is removed.
func (m *member) run() {
	defer close(m.done)
	if m.predecessor != nil {
		<-m.predecessor
	}
	defer m.helpers.Wait()
	defer m.disengage()

	var last desire
	failures := 0
	for m.ctx.Err() == nil {
		want := m.desire()
		if want.ctx != last.ctx {
			failures = 0
		}
		last = want
		f := m.pursue(want)
		if f == nil {
			failures = 0
			f = m.keep(want)
		}
		if f == nil {
			continue
		}
		failures++
		m.pause(want, f, failures)
	}
}

func (m *member) desire() desire {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted
}

// pursue makes the desired kubeconfig the one in use, by a connection that knows what the
// member serves, or says why it cannot.
func (m *member) pursue(want desire) *failure {
	switch {
	case want.withdrawn():
		m.disengage()
		f := invalidKubeconfig(m.secret, errors.New("missing or empty: put a kubeconfig there"))
		m.failed(want, f)
		return f
	case m.uses(want):
		m.update(func() { m.observed.refusal = nil })
		return nil
	}
	fresh, f := m.connect(want)
	if f == nil {
		f = m.swap(want, fresh)
	}
	if f != nil {
		m.failed(want, f)
	}
	return f
}

func (m *member) uses(want desire) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inUse != nil && m.inUse.credential.hash == want.hash && !m.inUse.outdated && !m.inUse.stale
}

// keep waits while the connection in use is the desired one and runs, or until it is to be looked at anew.
func (m *member) keep(want desire) *failure {
	stopped := m.stopped()
	if stopped == nil {
		return nil // superseded before it was put to use
	}
	select {
	case <-want.ctx.Done():
		return nil
	case <-m.again:
		return nil
	case <-stopped:
	}
	f := m.endedBy()
	m.disengage()
	m.failed(want, f)
	return f
}

// endedBy is why the cluster of the connection in use has ended.
func (m *member) endedBy() *failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inUse != nil {
		if f := m.inUse.tooLarge.Load(); f != nil {
			return f
		}
	}
	return unreachable("The member's cluster ended unexpectedly")
}

// stopped is closed once the cluster of the connection in use has ended; nil when there is none.
func (m *member) stopped() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inUse == nil {
		return nil
	}
	return m.inUse.stopped
}

// pause waits until it is worth trying again, or the connection that could not be replaced ends.
func (m *member) pause(want desire, f *failure, failures int) {
	if want.ctx.Err() != nil {
		return
	}
	again, retry := m.again, (<-chan time.Time)(nil)
	if f.settled {
		again = nil
	} else {
		timer := m.provider.opts.Clock.NewTimer(m.backoff(f, failures))
		defer timer.Stop()
		retry = timer.C()
	}
	select {
	case <-want.ctx.Done():
	case <-again:
	case <-retry:
	case <-m.stopped():
		m.disengage()
		m.failed(want, f)
	}
}

// backoff is how long to wait after so many failures in a row.
func (m *member) backoff(f *failure, failures int) time.Duration {
	o := m.provider.opts
	limit := o.BackoffMax
	if f.mendable() {
		limit = min(limit, o.MendInterval)
	}
	return max(delay(failures, o.BackoffBase, limit, rand.Float64()), f.after) //nolint:gosec // jitter
}

// connect builds and proves a connection without touching the one in use. No lock is held.
func (m *member) connect(want desire) (conn *Connection, f *failure) {
	defer func() {
		// What a member answers must not end the process.
		if r := recover(); r != nil {
			m.log.Info("Panic while connecting", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			conn, f = nil, unreachable("Connecting met an internal error, see the manager's log")
		}
	}()
	if want.invalid != nil {
		return nil, invalidAnnotation(m.secret, want.invalid)
	}
	p := m.provider
	cfg, err := p.parse(want.kubeconfig)
	if err != nil {
		return nil, invalidKubeconfig(m.secret, err)
	}
	m.aim(cfg.Host)
	ctx, cancel := context.WithTimeout(want.ctx, p.opts.ConnectTimeout)
	defer cancel()
	conn, err = newConnection(m.name, want.credential, cfg, p.opts, p.steady, m.log)
	if err != nil {
		return nil, invalidKubeconfig(m.secret, err)
	}
	if conn.found, err = conn.check.all(ctx); err == nil {
		err = conn.dates.known()
	}
	if err == nil {
		err = conn.start(ctx, m.ctx, p.opts.NewCluster, p.indexes)
	}
	if err != nil {
		conn.close()
		f := classify(err)
		f.after = max(conn.checksPatience.wait(), conn.patience.wait())
		return nil, f
	}
	return conn, nil
}

// aim shows where a member is that has never been connected.
func (m *member) aim(host string) {
	m.update(func() {
		if m.inUse == nil {
			m.snapshot.Endpoint = printable(host, maxEndpoint)
		}
	})
}

// failed records that the desired kubeconfig could not be put to use.
func (m *member) failed(want desire, f *failure) {
	m.update(func() {
		switch {
		case want.ctx.Err() != nil: // nobody asks for it any longer
		case m.inUse != nil:
			m.observed.refusal, m.observed.sameKubeconfig = f, m.inUse.credential.hash == want.hash
		default:
			m.observed = observation{failure: f}
		}
	})
}

// answered and lost take what the probes of a connection found, unless it was replaced meanwhile.
func (m *member) answered(conn *Connection, version string, at time.Time) {
	m.update(func() {
		if m.inUse != conn {
			return
		}
		if m.observed.failure != nil && m.observed.refusal != nil {
			m.tryAgain() // what was refused while the member was lost may work now
		}
		m.observed.failure, m.observed.since, conn.lost = nil, time.Time{}, false
		m.lastContact = at
		m.snapshot.KubernetesVersion = version
		m.snapshot.ClockOffset = conn.dates.offset(m.snapshot.ClockOffset)
	})
}

func (m *member) lost(conn *Connection, f *failure, since time.Time) {
	m.update(func() {
		if m.inUse != conn {
			return
		}
		if m.observed.failure == nil && m.observed.refusal != nil {
			m.tryAgain() // what was refused is now the only hope
		}
		m.observed.failure, m.observed.since, conn.lost = f, since, true
	})
}

// renew has what the Secret says now tried at once, since the member no longer accepts
// what is in use. Where that is the same, there is nothing to try but the next probe.
func (m *member) renew(conn *Connection) {
	if err := m.provider.observe(m.ctx, m.secret); err != nil {
		return // the hub's cache is about to end
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inUse == conn && m.wanted.hash != conn.credential.hash {
		m.tryAgain()
	}
}

// tryAgain has run pursue what the Secret asks for once more. It does not block.
func (m *member) tryAgain() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// update changes the state under the lock, computes the snapshot anew and tells the
// subscribers, without the lock, when it differs.
func (m *member) update(change func()) {
	m.mu.Lock()
	before := m.snapshot
	change()
	m.refresh(m.provider.opts.Clock.Now())
	after := m.snapshot
	m.mu.Unlock()

	if cmp.Equal(before, after) {
		return
	}
	if before.Connected.Reason != after.Connected.Reason {
		m.log.Info("Connection changed", "status", after.Connected.Status,
			"reason", after.Connected.Reason, "message", after.Connected.Message)
	}
	m.provider.notify(m.name)
}

func (m *member) refresh(now time.Time) {
	old := m.snapshot.Connected
	observed := m.observed
	if m.inUse != nil {
		observed.namespaces = m.inUse.Namespaces
	}
	cond := observed.condition(m.snapshot.Paused)
	cond.LastTransitionTime = m.observed.transition(old, cond, now)
	m.snapshot.Connected = cond
	contact := m.snapshot.LastContactTime
	if old.Status != cond.Status || m.lastContact.Sub(contact.Time) >= contactGranularity {
		contact = metav1.Time{Time: m.lastContact}
	}
	m.snapshot.LastContactTime = contact
	m.snapshot.Lost = m.inUse != nil && m.inUse.lost
}

func (m *member) get() (cluster.Cluster, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inUse == nil || m.ctx.Err() != nil {
		return nil, false
	}
	return m.inUse.cluster, true
}

func (m *member) view() Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	view := m.snapshot
	view.ClockOffset += m.provider.steady.ahead()
	return view
}
