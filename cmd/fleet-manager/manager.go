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

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/agentrun"
	"github.com/konveyor/agentrun-fleet/fleet/rollup"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
)

// shutdownTimeout leaves room within the 10 s that a manager may take to end.
const shutdownTimeout = 8 * time.Second

func newHubScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(fleetv1alpha1.AddToScheme(s))
	return s
}

// run works until ctx is done or, with a lock, until the Lease is lost. It returns nil when
// it was stopped, and another manager may take over then.
func run(ctx context.Context, hub *rest.Config, o *options) error {
	lock, err := newLock(hub, o)
	if err != nil {
		return err
	}
	mgr, err := newManager(hub, o, lock)
	if err != nil {
		return err
	}
	if lock == nil {
		return mgr.Start(ctx)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-lock.lost:
		return err // the process ends, and all work with it
	case err := <-ended:
		return lock.after(err)
	}
}

// newManager wires the provider, the reconciler and the rollup to the hub. A nil lock
// stands for no leader election.
func newManager(hub *rest.Config, o *options, lock *lock) (mcmanager.Manager, error) {
	provider := newProvider(o)
	mgr, err := mcmanager.New(hub, provider, lock.elect(o, ctrl.Options{
		Scheme:                  newHubScheme(),
		Metrics:                 metricsserver.Options{BindAddress: o.metricsAddr},
		HealthProbeBindAddress:  o.probeAddr,
		GracefulShutdownTimeout: new(shutdownTimeout),
		Cache:                   hubCache(o.secretNamespaces),
	}))
	if err != nil {
		return nil, fmt.Errorf("setting up the manager: %w", err)
	}
	if err := provider.SetupWithManager(mgr.GetLocalManager()); err != nil {
		return nil, fmt.Errorf("setting up the provider of members: %w", err)
	}
	roll := rollup.New(mgr.GetLocalManager(), members{provider}, rollup.Options{
		PodOf:   agentrun.PodOf,
		Culprit: startup.Culprit,
		Prove:   agentrun.Prove,
		Clock:   hubClock(),
	})
	if err := agentrun.SetupWithManager(mgr, agentrun.Options{
		Policy:                  o.policy(),
		TTL:                     o.ttlPolicy(),
		Ledger:                  roll,
		MaxConcurrentReconciles: o.maxConcurrentReconciles,
		Member:                  memberState(provider),
		Clock:                   hubClock(),
	}); err != nil {
		return nil, fmt.Errorf("setting up the AgentRun controller: %w", err)
	}
	if err := mgr.Add(roll); err != nil {
		return nil, fmt.Errorf("setting up the rollup: %w", err)
	}
	provider.Subscribe(forgetGone(provider))
	lock.recordEvents(mgr.GetLocalManager())
	return mgr, addProbes(mgr, provider, lock)
}

// newProvider returns the provider of members, which connects to them as the reconciler needs.
func newProvider(o *options) *kubeconfigsecret.Provider {
	return kubeconfigsecret.New(kubeconfigsecret.Options{
		Namespaces: o.secretNamespaces,
		NewCluster: func(ctx context.Context, conn *kubeconfigsecret.Connection) (cluster.Cluster, error) {
			return agentrun.NewCluster(ctx, conn.Config, conn.Serves, conn.ClusterOptions)
		},
		Policy:            o.memberPolicy(),
		RequiredResources: agentrun.RequiredResources(),
		RequiredAccess:    agentrun.RequiredAccess(),
		OptionalResources: agentrun.OptionalResources(),
		OptionalAccess:    agentrun.OptionalAccess(),
		QPS:               o.memberQPS,
		Burst:             o.memberBurst,
		CacheLimit:        o.memberCacheLimit.Value(),
		UserAgent:         "agentrun-fleet",
		Clock:             hubClock(),
	})
}

// hubCache holds of the hub only what is read. In the namespaces of others there may be
// a manager of theirs, whose AgentRunClusterStatuses are none of ours.
func hubCache(namespaces []string) cache.Options {
	secrets, secretsOnly := kubeconfigsecret.HubCacheByObject(namespaces...)
	statuses := cache.ByObject{Namespaces: secretsOnly.Namespaces}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		secrets:                                secretsOnly,
		&fleetv1alpha1.AgentRunClusterStatus{}: statuses,
	}}
}

// addProbes makes the manager ready once it knows its members, dead ones included, or
// knows that another manager leads: a standby is as ready as it can be.
func addProbes(mgr mcmanager.Manager, provider *kubeconfigsecret.Provider, lock *lock) error {
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("members", func(*http.Request) error {
			select {
			case <-mgr.Elected():
				if !provider.Synced() {
					return errors.New("the hub's kubeconfig Secrets have not been read yet")
				}
				return nil
			default:
				return lock.standby()
			}
		}),
	)
}

// forgetGone ends the metrics of members that are gone.
func forgetGone(provider *kubeconfigsecret.Provider) func(multicluster.ClusterName) {
	return func(name multicluster.ClusterName) {
		if _, known := provider.Lookup(name); !known {
			agentrun.ForgetMember(name)
		}
	}
}

// memberState tells the reconciler what the provider knows of a member.
func memberState(provider *kubeconfigsecret.Provider) func(multicluster.ClusterName) agentrun.MemberState {
	return func(name multicluster.ClusterName) agentrun.MemberState {
		m, _ := provider.Lookup(name)
		return agentrun.MemberState{Paused: m.Paused, Lost: m.Lost, ClockOffset: m.ClockOffset}
	}
}

// members shows the provider to the rollup, which does not know it.
type members struct {
	*kubeconfigsecret.Provider
}

// Members returns the provider's members.
func (m members) Members() []rollup.Member {
	found := m.Provider.Members()
	out := make([]rollup.Member, len(found))
	for i, f := range found {
		out[i] = rollup.Member{
			Name:              f.Name,
			Namespace:         f.Namespace,
			Cluster:           f.Cluster,
			SecretName:        f.SecretName,
			SecretUID:         f.SecretUID,
			Labels:            f.Labels,
			Connected:         f.Connected,
			LastContactTime:   f.LastContactTime,
			KubernetesVersion: f.KubernetesVersion,
			Endpoint:          f.Endpoint,
			ClockOffset:       f.ClockOffset,
			Paused:            f.Paused,
		}
	}
	return out
}
