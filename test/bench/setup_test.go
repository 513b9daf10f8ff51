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

package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/agentrun"
	"github.com/konveyor/agentrun-fleet/fleet/rollup"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// setUp is a manager whose members are Secrets of a hub.
type setUp struct {
	// start has a manager run until ctx is done.
	start func(ctx context.Context, hub *harness.ControlPlane) (*running, error)
	// secret makes a member of a kubeconfig.
	secret func(namespace, cluster string, kubeconfig []byte) *corev1.Secret
}

type running struct {
	manager mcmanager.Manager
	// observed is how many members are engaged and written of, each with so many runs.
	observed func(ctx context.Context, runs int) (int, error)
}

// ours is what cmd/fleet-manager sets up.
var ours = setUp{
	start:  startOurs,
	secret: harness.MemberSecret,
}

// plain is what a newcomer to multicluster-runtime sets up for the same: its own provider of kubeconfig
// Secrets, and a controller for the same kinds.
var plain = setUp{
	start: startPlain,
	secret: func(namespace, cluster string, kubeconfig []byte) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster, Labels: map[string]string{kubeconfigLabel: "true"}},
			Data:       map[string][]byte{kubeconfigKey: kubeconfig},
		}
	},
}

const (
	kubeconfigLabel = kubeconfig.DefaultKubeconfigSecretLabel
	kubeconfigKey   = kubeconfig.DefaultKubeconfigSecretKey
)

func managerOptions(hub *harness.ControlPlane, byObject map[client.Object]cache.ByObject) manager.Options {
	return manager.Options{
		Scheme:     hub.Scheme,
		Metrics:    server.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: byObject},
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
}

func startOurs(_ context.Context, hub *harness.ControlPlane) (*running, error) {
	provider := kubeconfigsecret.New(kubeconfigsecret.Options{
		NewCluster: func(ctx context.Context, conn *kubeconfigsecret.Connection) (cluster.Cluster, error) {
			return agentrun.NewCluster(ctx, conn.Config, conn.Serves, conn.ClusterOptions)
		},
		RequiredResources: agentrun.RequiredResources(),
		RequiredAccess:    agentrun.RequiredAccess(),
		OptionalResources: agentrun.OptionalResources(),
		OptionalAccess:    agentrun.OptionalAccess(),
	})
	secrets, secretsOnly := kubeconfigsecret.HubCacheByObject()
	mgr, err := mcmanager.New(hub.Config, provider, managerOptions(hub, map[client.Object]cache.ByObject{secrets: secretsOnly}))
	if err != nil {
		return nil, err
	}
	if err := provider.SetupWithManager(mgr.GetLocalManager()); err != nil {
		return nil, err
	}
	roll := rollup.New(mgr.GetLocalManager(), members{provider}, rollup.Options{PodOf: agentrun.PodOf, Culprit: startup.Culprit, Prove: agentrun.Prove})
	options := agentrun.Options{Policy: startup.Policy{Fatal: startup.DefaultFatal()}, Ledger: roll, Member: func(name multicluster.ClusterName) agentrun.MemberState {
		m, _ := provider.Lookup(name)
		return agentrun.MemberState{Paused: m.Paused, Lost: m.Lost, ClockOffset: m.ClockOffset}
	}}
	if err := agentrun.SetupWithManager(mgr, options); err != nil {
		return nil, err
	}
	return &running{manager: mgr, observed: func(ctx context.Context, runs int) (int, error) { return observed(ctx, hub, runs) }}, mgr.Add(roll)
}

// observed counts the members that are Connected and whose status says so many runs.
func observed(ctx context.Context, hub *harness.ControlPlane, runs int) (int, error) {
	statuses := &fleetv1alpha1.AgentRunClusterStatusList{}
	if err := hub.Client.List(ctx, statuses); err != nil {
		return 0, err
	}
	n := 0
	for i := range statuses.Items {
		if s := &statuses.Items[i].Status; s.KubernetesVersion != "" && s.Runs.Running == int32(runs) {
			n++
		}
	}
	return n, nil
}

// members shows the provider to the rollup, as cmd/fleet-manager does.
type members struct {
	*kubeconfigsecret.Provider
}

// Members returns the provider's members.
func (m members) Members() []rollup.Member {
	found := m.Provider.Members()
	out := make([]rollup.Member, len(found))
	for i, f := range found {
		out[i] = rollup.Member{
			Name: f.Name, Namespace: f.Namespace, Cluster: f.Cluster, SecretName: f.SecretName, SecretUID: f.SecretUID, Labels: f.Labels,
			Connected: f.Connected, LastContactTime: f.LastContactTime, KubernetesVersion: f.KubernetesVersion,
			Endpoint: f.Endpoint, ClockOffset: f.ClockOffset, Paused: f.Paused,
		}
	}
	return out
}

func startPlain(ctx context.Context, hub *harness.ControlPlane) (*running, error) {
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace:      memberNamespace,
		ClusterOptions: []cluster.Option{func(o *cluster.Options) { o.Scheme = harness.NewScheme() }},
	})
	mgr, err := mcmanager.New(hub.Config, provider, managerOptions(hub, nil))
	if err != nil {
		return nil, err
	}
	if err := provider.SetupWithManager(ctx, mgr); err != nil {
		return nil, err
	}
	sandbox := &unstructured.Unstructured{}
	sandbox.SetAPIVersion("agents.x-k8s.io/v1alpha1")
	sandbox.SetKind("Sandbox")
	err = mcbuilder.ControllerManagedBy(mgr).Named("plain").For(&agentv1alpha1.AgentRun{}).Owns(&corev1.Pod{}).Owns(sandbox).
		WithOptions(controller.TypedOptions[mcreconcile.Request]{SkipNameValidation: new(true)}).
		Complete(mcreconcile.Func(func(context.Context, mcreconcile.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }))
	return &running{manager: mgr, observed: func(context.Context, int) (int, error) { return len(provider.ListClusters()), nil }}, err
}

// memberNamespace is the hub's namespace of members.
const memberNamespace = "clusters"

// heapOf is the heap, in bytes, that each of n members takes which have so many runs. One more is engaged
// before, for what is made once. Each has a user of its own, or else client-go would have
// the plain ones share a connection.
func (s setUp) heapOf(tb testing.TB, hub, member *harness.ControlPlane, n, runs int) float64 {
	tb.Helper()
	before := heap()
	ctx, cancel := context.WithCancel(tb.Context())
	r, err := s.start(ctx, hub)
	must(tb, err)
	ended := chanOf(func() error { return r.manager.Start(ctx) })
	join := func(from, to int) float64 {
		for i := from; i < to; i++ {
			user, err := member.AddUser(fmt.Sprintf("member-%d", i), "system:masters")
			must(tb, err)
			must(tb, hub.Client.Create(tb.Context(), s.secret(memberNamespace, fmt.Sprintf("member-%d", i), harness.Kubeconfig(user, ""))))
		}
		await(tb, fmt.Sprintf("%d members are observed", to), func(ctx context.Context) (bool, error) {
			known, err := r.observed(ctx, runs)
			return known == to, err
		})
		return settled(tb)
	}
	one := join(0, 1)
	each := (join(1, n+1) - one) / float64(n)
	must(tb, hub.Client.DeleteAllOf(tb.Context(), &corev1.Secret{}, client.InNamespace(memberNamespace)))
	await(tb, "no member is observed", func(ctx context.Context) (bool, error) {
		left, err := r.observed(ctx, runs)
		return left == 0, err
	})
	cancel()
	must(tb, <-ended)
	// What is still to be given back would be taken for what the next set-up gives back.
	await(tb, "the memory is given back", func(context.Context) (bool, error) { return heap() < before+left, nil })
	return each
}

// left is what a set-up may leave behind, in bytes: what is made once, such as the scheme's caches.
const left = 4 << 20

func await(tb testing.TB, what string, condition wait.ConditionWithContextFunc) {
	tb.Helper()
	if err := wait.PollUntilContextTimeout(tb.Context(), 500*time.Millisecond, 5*time.Minute, true, condition); err != nil {
		tb.Fatalf("awaiting that %s: %v", what, err)
	}
}

func chanOf(f func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// settled is the heap once it has not changed by more than 1 in 1000 over some seconds.
func settled(tb testing.TB) float64 {
	tb.Helper()
	const readings = 6
	latest := []float64{}
	await(tb, "the heap has settled", func(context.Context) (bool, error) {
		latest = append(latest, heap())
		if len(latest) < readings {
			return false, nil
		}
		latest = latest[len(latest)-readings:]
		return slices.Max(latest)-slices.Min(latest) < slices.Min(latest)/1000, nil
	})
	return slices.Min(latest)
}

func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
