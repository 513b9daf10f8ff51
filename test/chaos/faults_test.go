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

package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

// slowDelay is how late each piece of data is on a slow link.
const slowDelay = 300 * time.Millisecond

// disturbance is how a kind of fault begins, and how it is healed.
type disturbance struct {
	inject, heal func(*member, context.Context) error
}

var disturbances = map[kind]disturbance{
	pause:             {(*member).pause, (*member).resume},
	slow:              {(*member).slowDown, (*member).speedUp},
	reset:             {(*member).reset, (*member).nothing},
	refuse:            {(*member).refuse, (*member).accept},
	rotateCredentials: {(*member).rotate, (*member).nothing},
	badKubeconfig:     {(*member).spoilSecret, (*member).putSecret},
	deleteSecret:      {(*member).deleteSecret, (*member).putSecret},
	killServer:        {(*member).killServer, (*member).restartServer},
}

// tallyOf counts faults by kind.
type tallyOf struct {
	mu     sync.Mutex
	counts map[kind]int
}

func (t *tallyOf) add(k kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[k]++
}

// disturb injects a member's faults, and heals each. None is begun when the time for
// faults is over.
func (f *fleet) disturb(ctx context.Context, m *member, faults []fault) error {
	for _, x := range faults {
		if err := f.clock.until(ctx, x.at); err != nil {
			return err
		}
		if f.clock.now() > f.plan.duration {
			return nil
		}
		d := disturbances[x.kind]
		if err := d.inject(m, ctx); err != nil {
			return fmt.Errorf("%s, %s: %w", x.target, x.kind, err)
		}
		f.injected.add(x.kind)
		waited := f.clock.until(ctx, f.clock.now()+x.lasts)
		if err := errors.Join(waited, d.heal(m, ctx)); err != nil {
			return fmt.Errorf("%s, after %s: %w", x.target, x.kind, err)
		}
	}
	return nil
}

// crashManager kills the manager, and starts it again.
func (f *fleet) crashManager(ctx context.Context, faults []fault) error {
	for _, x := range faults {
		if err := f.clock.until(ctx, x.at); err != nil {
			return err
		}
		if f.clock.now() > f.plan.duration {
			return nil
		}
		if err := f.managerLives(); err != nil {
			return err
		}
		f.manager.Kill()
		f.injected.add(x.kind)
		if err := errors.Join(f.clock.until(ctx, f.clock.now()+x.lasts), f.startManager(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (*member) nothing(context.Context) error { return nil }

func (m *member) pause(context.Context) error {
	m.proxy.Pause()
	return nil
}

func (m *member) resume(context.Context) error {
	m.proxy.Resume()
	return nil
}

func (m *member) slowDown(context.Context) error {
	m.proxy.Slow(slowDelay)
	return nil
}

func (m *member) speedUp(context.Context) error {
	m.proxy.Slow(0)
	return nil
}

func (m *member) reset(context.Context) error {
	m.proxy.Reset()
	return nil
}

// refuse also cuts what is connected, so that there is something to refuse.
func (m *member) refuse(context.Context) error {
	m.proxy.Refuse()
	m.proxy.Reset()
	return nil
}

func (m *member) accept(context.Context) error { return m.proxy.Accept() }

// rotate has the manager be another user in the member.
func (m *member) rotate(ctx context.Context) error {
	m.users++
	user, err := m.AddUser(fmt.Sprintf("fleet-%d", m.users), "system:masters")
	if err != nil {
		return err
	}
	m.kubeconfig = harness.Kubeconfig(user, m.proxy.URL())
	return m.putSecret(ctx)
}

// putSecret makes the Secret by which the hub knows the member, or mends it.
func (m *member) putSecret(ctx context.Context) error { return m.putKubeconfig(ctx, m.kubeconfig) }

func (m *member) spoilSecret(ctx context.Context) error {
	return m.putKubeconfig(ctx, []byte("apiVersion: v1\nkind: Config\nclusters: []\n"))
}

func (m *member) putKubeconfig(ctx context.Context, kubeconfig []byte) error {
	secret := harness.MemberSecret(clusters, m.Name, kubeconfig)
	err := m.hub.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		secret.ResourceVersion = ""
		err = m.hub.Client.Update(ctx, secret)
	}
	return err
}

func (m *member) deleteSecret(ctx context.Context) error {
	return m.hub.Client.Delete(ctx, harness.MemberSecret(clusters, m.Name, nil))
}

// killServer holds up the runs' lives until restartServer.
func (m *member) killServer(context.Context) error {
	m.serving.Lock()
	return m.KillAPIServer()
}

func (m *member) restartServer(context.Context) error {
	defer m.serving.Unlock()
	return m.RestartAPIServer()
}
