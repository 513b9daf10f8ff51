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
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch

var (
	_ multicluster.Provider         = (*Provider)(nil)
	_ multicluster.ProviderRunnable = (*Provider)(nil)
)

// Provider discovers members from the hub's Secrets and keeps them connected. See the package comment.
type Provider struct {
	opts   Options
	hub    manager.Manager
	steady steadyClock

	// observing makes reading a Secret and acting on it one step, so that an older
	// reading never comes after a newer one.
	observing sync.Mutex
	// parsing lets one kubeconfig be parsed at a time: a hundred hostile ones need the memory of one.
	parsing sync.Mutex

	mu          sync.RWMutex
	ctx         context.Context // of Start; nil before
	aware       multicluster.Aware
	indexes     []index // fixed once started
	members     map[multicluster.ClusterName]*member
	ended       map[multicluster.ClusterName]<-chan struct{} // former members that may not have ended yet
	synced      bool
	subscribers []func(multicluster.ClusterName)
	running     sync.WaitGroup
}

type index struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

// New returns a provider without members. Call SetupWithManager before its manager is started.
func New(opts Options) *Provider {
	opts.setDefaults()
	return &Provider{
		opts:    opts,
		steady:  newSteadyClock(opts.Clock),
		members: map[multicluster.ClusterName]*member{},
		ended:   map[multicluster.ClusterName]<-chan struct{}{},
	}
}

// SetupWithManager adds the controller that watches Secrets to the hub's manager, whose
// cache should be restricted by HubCacheByObject.
func (p *Provider) SetupWithManager(hub manager.Manager) error {
	if p.opts.NewCluster == nil {
		return errors.New("kubeconfigsecret.Options.NewCluster: not set: give a function that makes a member's cluster")
	}
	p.hub = hub
	watched := predicate.NewPredicateFuncs(func(o client.Object) bool { return p.watched(client.ObjectKeyFromObject(o)) })
	return builder.ControllerManagedBy(hub).
		Named("kubeconfigsecret").
		For(&corev1.Secret{}, builder.WithPredicates(watched)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RecoverPanic: new(true)}).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, p.observe(ctx, req.NamespacedName)
		}))
}

// Start connects members until ctx is done. The multicluster manager calls it, once.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	if p.hub == nil {
		return errors.New("kubeconfigsecret.Provider: SetupWithManager was not called")
	}
	p.mu.Lock()
	p.ctx, p.aware = ctx, aware
	p.mu.Unlock()
	defer p.stop()

	if err := p.observeAll(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// stop waits for the members to end; ctx, which is done, keeps new ones from being made.
func (p *Provider) stop() {
	p.awaitObserver()
	p.running.Wait()
}

// awaitObserver returns once nobody acts on a Secret who began before ctx was done. The
// lock is not kept, as a member that ends may still ask for it.
func (p *Provider) awaitObserver() {
	p.observing.Lock()
	defer p.observing.Unlock()
}

// observeAll acts on the Secrets that exist at the start.
func (p *Provider) observeAll(ctx context.Context) error {
	if !p.hub.GetCache().WaitForCacheSync(ctx) {
		return nil // ctx is done
	}
	secrets := &corev1.SecretList{}
	if err := p.hub.GetClient().List(ctx, secrets); err != nil {
		return fmt.Errorf("listing the hub's Secrets: %w", err)
	}
	for i := range secrets.Items {
		key := client.ObjectKeyFromObject(&secrets.Items[i])
		if !p.watched(key) {
			continue
		}
		if err := p.observe(ctx, key); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.synced = true
	p.mu.Unlock()
	return nil
}

// observe makes the members agree with one Secret. It reads the hub's cache and
// memory only; members connect on their own.
func (p *Provider) observe(ctx context.Context, key types.NamespacedName) error {
	p.observing.Lock()
	defer p.observing.Unlock()

	p.mu.RLock()
	running := p.ctx != nil && p.ctx.Err() == nil
	p.mu.RUnlock()
	if !running {
		return nil // Start will look at it, or has ended
	}
	secret := &corev1.Secret{}
	// Nobody writes to it, and a member keeps its kubeconfig, of which one copy is enough.
	err := p.hub.GetClient().Get(ctx, key, secret, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err) || (err == nil && !selects(secret)):
		clusterName, _ := clusterOf(key.Name)
		p.remove(MemberName(key.Namespace, clusterName))
		return nil
	case err != nil:
		return fmt.Errorf("reading Secret %s: %w", key, err)
	}
	p.ensure(secret)
	return nil
}

func (p *Provider) ensure(secret *corev1.Secret) {
	clusterName, _ := clusterOf(secret.Name)
	name := MemberName(secret.Namespace, clusterName)
	p.mu.Lock()
	m, known := p.members[name]
	if !known {
		m = newMember(p.ctx, p, secret, p.ended[name])
		delete(p.ended, name)
		p.members[name] = m
	}
	p.mu.Unlock()
	m.adopt(secret)
	if !known {
		p.running.Go(m.run)
	}
}

// remove takes the member out before it is stopped: from then on it is not found.
func (p *Provider) remove(name multicluster.ClusterName) {
	p.mu.Lock()
	m, known := p.members[name]
	if known {
		delete(p.members, name)
		p.ended[name] = m.done
	}
	p.forgetEnded()
	p.mu.Unlock()
	if !known {
		return
	}
	m.cancel()
	m.log.Info("Member removed")
	p.notify(name)
}

// forgetEnded keeps ended from growing with each member that ever was.
func (p *Provider) forgetEnded() {
	for name, done := range p.ended {
		select {
		case <-done:
			delete(p.ended, name)
		default:
		}
	}
}

// Get returns the cluster of an engaged member, and an error that wraps
// multicluster.ErrClusterNotFound for any other name, the hub's "" included. It never blocks.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	p.mu.RLock()
	m, ok := p.members[name]
	p.mu.RUnlock()
	if ok {
		if cl, ok := m.get(); ok {
			return cl, nil
		}
	}
	return nil, fmt.Errorf("member %q: %w", name, multicluster.ErrClusterNotFound)
}

// IndexField adds an index to the cache of every member. It fails once the provider
// has started, since members that are being connected would miss it.
func (p *Provider) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx != nil {
		return fmt.Errorf("index %q: added after the provider started: add it before the manager is started", field)
	}
	p.indexes = append(p.indexes, index{obj, field, extract})
	return nil
}

// Members returns what is known of each member, sorted by name. ClockOffset is computed for the
// hub's clock as it is set now: ask anew instead of keeping it.
func (p *Provider) Members() []Member {
	p.mu.RLock()
	members := make([]Member, 0, len(p.members))
	for _, m := range p.members {
		members = append(members, m.view())
	}
	p.mu.RUnlock()
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return members
}

// Lookup returns what Members does of one member. It copies that member alone, so that it may be asked
// for each request.
func (p *Provider) Lookup(name multicluster.ClusterName) (Member, bool) {
	p.mu.RLock()
	m, ok := p.members[name]
	p.mu.RUnlock()
	if !ok {
		return Member{}, false
	}
	return m.view(), true
}

// Synced says whether all Secrets that the hub had at the start are among Members.
func (p *Provider) Synced() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.synced
}

// Subscribe adds a function that is called with the name of each member whose entry in
// Members has changed, appeared or gone. It must return soon; no lock is held, so it may call Members.
func (p *Provider) Subscribe(changed func(multicluster.ClusterName)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscribers = append(p.subscribers, changed)
}

func (p *Provider) notify(name multicluster.ClusterName) {
	p.mu.RLock()
	subscribers := slices.Clone(p.subscribers)
	p.mu.RUnlock()
	for _, changed := range subscribers {
		changed(name)
	}
}

func (p *Provider) parse(kubeconfig []byte) (*rest.Config, error) {
	p.parsing.Lock()
	defer p.parsing.Unlock()
	return ParseKubeconfig(kubeconfig, p.opts.Policy)
}
