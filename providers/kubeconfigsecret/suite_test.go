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

package kubeconfigsecret_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// hub holds the Secrets. east and west are API servers that members point to, often several to
// one; bare lacks the CRD until a test installs it.
var hub, east, west, bare *harness.ControlPlane

func TestMain(m *testing.M) {
	log.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(os.Stderr)))
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		// Fuzzing needs no clusters, and each of its workers would start its own.
		os.Exit(m.Run())
	}
	os.Exit(withControlPlanes(m.Run))
}

func withControlPlanes(run func() int) int {
	options, err := suiteOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	planes, err := harness.StartAll(context.Background(), options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	hub, east, west, bare = planes[0], planes[1], planes[2], planes[3]
	code := run()
	if err := harness.StopAll(planes...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func suiteOptions() ([]harness.Options, error) {
	e, err := harness.MemberOptions("east", harness.WithAudit)
	if err != nil {
		return nil, err
	}
	w, err := harness.MemberOptions("west")
	return []harness.Options{{Name: "hub"}, e, w, {Name: "bare"}}, err
}

// fleet is a running manager whose members are the Secrets of one namespace of the hub.
type fleet struct {
	*gomega.WithT
	t         *testing.T
	namespace string
	provider  *kubeconfigsecret.Provider
	manager   mcmanager.Manager
	started   time.Time
	ended     chan error
	seen      *record

	mu       sync.Mutex
	clusters map[multicluster.ClusterName]int // made by NewCluster
	// engaged are the contexts given to Engage, the latest of each member.
	engaged map[multicluster.ClusterName]context.Context
	engages int
}

// newFleet starts a manager with a controller of ConfigMaps, and stops it when the test
// ends. The Secrets given exist before it starts.
func newFleet(t *testing.T, change func(*kubeconfigsecret.Options), secrets map[string][]byte) *fleet {
	t.Helper()
	return newFleetWith(t, (*fleet).addController, change, secrets)
}

// newFleetWith is newFleet with controllers of the test's own.
func newFleetWith(t *testing.T, controllers func(*fleet), change func(*kubeconfigsecret.Options), secrets map[string][]byte) *fleet {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	f := &fleet{
		WithT: harness.NewGomega(t), t: t, namespace: newNamespace(t), ended: make(chan error, 1),
		seen: &record{}, clusters: map[multicluster.ClusterName]int{},
		engaged: map[multicluster.ClusterName]context.Context{},
	}
	for name, kubeconfig := range secrets {
		f.put(name, kubeconfig)
	}
	options := kubeconfigsecret.Options{
		Namespaces:        []string{f.namespace},
		NewCluster:        f.newCluster,
		RequiredResources: []schema.GroupVersionResource{{Group: "konveyor.io", Version: "v1alpha1", Resource: "agentruns"}},
		RequiredAccess: []authorizationv1.ResourceAttributes{
			{Verb: "list", Resource: "configmaps"},
			{Verb: "watch", Resource: "configmaps"},
			{Verb: "patch", Group: "konveyor.io", Resource: "agentruns", Subresource: "status"},
		},
		ConnectTimeout: 10 * time.Second, CallTimeout: 5 * time.Second,
		ProbeInterval: 100 * time.Millisecond, ProbeTimeout: 2 * time.Second,
		BackoffBase: 50 * time.Millisecond, BackoffMax: time.Second, MendInterval: 500 * time.Millisecond,
		RotationOverlap: time.Second,
	}
	if change != nil {
		change(&options)
	}
	f.provider = kubeconfigsecret.New(options)
	f.start(leaks, options.Namespaces, controllers)
	return f
}

// cacheSyncTimeout is how long a controller waits for a member's cache before it ends the manager.
const cacheSyncTimeout = 2 * time.Second

// nameIndex is added to every member.
const nameIndex = "name"

func (f *fleet) start(leaks goleak.Option, namespaces []string, controllers func(*fleet)) {
	f.t.Helper()
	secrets, byObject := kubeconfigsecret.HubCacheByObject(namespaces...)
	var err error
	f.manager, err = mcmanager.New(hub.Config, f.provider, manager.Options{
		Scheme:     hub.Scheme,
		Metrics:    server.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: map[client.Object]cache.ByObject{secrets: byObject}},
		Controller: config.Controller{SkipNameValidation: new(true), CacheSyncTimeout: cacheSyncTimeout},
	})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(f.provider.SetupWithManager(f.manager.GetLocalManager())).To(gomega.Succeed())
	f.Expect(f.manager.Add(engagements{f})).To(gomega.Succeed())
	controllers(f)

	ctx, cancel := context.WithCancel(context.Background())
	f.started = time.Now()
	go func() { f.ended <- f.manager.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		f.Eventually(f.ended).Should(gomega.Receive(gomega.BeNil()))
		// Proxies are closed after this, and the administrators' clients keep their connections; that those
		// to members are closed is for TestDialerEndsAllTraffic.
		f.Eventually(func() error {
			return goleak.Find(leaks,
				goleak.IgnoreAnyFunction("github.com/konveyor/agentrun-fleet/test/harness.(*Proxy).acceptFrom"),
				goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
			)
		}).Should(gomega.Succeed())
	})
}

func (f *fleet) addController() {
	f.t.Helper()
	f.Expect(mcbuilder.ControllerManagedBy(f.manager).Named("configmaps").For(&corev1.ConfigMap{}).
		WithOptions(controller.TypedOptions[mcreconcile.Request]{SkipNameValidation: new(true), CacheSyncTimeout: cacheSyncTimeout}).
		Complete(mcreconcile.Func(f.reconcile))).To(gomega.Succeed())

	f.Expect(f.manager.GetFieldIndexer().IndexField(f.t.Context(), &corev1.ConfigMap{}, nameIndex, func(o client.Object) []string {
		return []string{o.GetName()}
	})).To(gomega.Succeed())
}

// engagements notes what the manager engages.
type engagements struct{ *fleet }

// Start waits until ctx is done.
func (engagements) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage notes the context.
func (e engagements) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.engaged[name] = ctx //nolint:fatcontext // it is kept to be asked, nothing is derived from it
	e.engages++
	return nil
}

// engagedBy is the context with which a member was engaged last.
func (f *fleet) engagedBy(name string) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.engaged[f.name(name)]
}

func (f *fleet) newCluster(ctx context.Context, conn *kubeconfigsecret.Connection) (cluster.Cluster, error) {
	f.mu.Lock()
	f.clusters[conn.Name]++
	f.mu.Unlock()
	cl, err := cluster.New(conn.Config, conn.ClusterOptions)
	if err != nil {
		return nil, err
	}
	_, err = cl.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
	return cl, err
}

func (f *fleet) reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	cl, err := f.manager.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return ctrl.Result{}, err
	}
	configMap := &corev1.ConfigMap{}
	if err := cl.GetClient().Get(ctx, req.NamespacedName, configMap); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	f.seen.add(string(req.ClusterName) + " " + req.Name)
	return ctrl.Result{}, nil
}

// made is how often a cluster was made for a member.
func (f *fleet) made(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters[f.name(name)]
}

func (f *fleet) name(cluster string) multicluster.ClusterName {
	return kubeconfigsecret.MemberName(f.namespace, cluster)
}

// inUse is the cluster of a member that is engaged; nil when it is not.
func (f *fleet) inUse(name string) cluster.Cluster {
	cl, _ := f.provider.Get(f.t.Context(), f.name(name))
	return cl
}

// put creates or replaces a member's Secret. A nil kubeconfig leaves the key out.
func (f *fleet) put(cluster string, kubeconfig []byte) {
	f.t.Helper()
	secret := harness.MemberSecret(f.namespace, cluster, kubeconfig)
	if kubeconfig == nil {
		secret.Data = nil
	}
	err := hub.Client.Create(f.t.Context(), secret)
	if client.IgnoreAlreadyExists(err) == nil && err != nil {
		err = hub.Client.Update(f.t.Context(), secret)
	}
	f.Expect(err).NotTo(gomega.HaveOccurred())
}

func (f *fleet) remove(cluster string) {
	f.t.Helper()
	f.Expect(hub.Client.Delete(f.t.Context(), harness.MemberSecret(f.namespace, cluster, nil))).To(gomega.Succeed())
}

// member returns what the provider says of a cluster; nil when it says nothing.
func (f *fleet) member(cluster string) *kubeconfigsecret.Member {
	for _, m := range f.provider.Members() {
		if m.Name == f.name(cluster) {
			return &m
		}
	}
	return nil
}

// reason of a member's condition, for Eventually; empty when there is no such member.
func (f *fleet) reason(cluster string) func() string {
	return func() string {
		if m := f.member(cluster); m != nil {
			return m.Connected.Reason
		}
		return ""
	}
}

func (f *fleet) awaitReason(cluster, reason string) {
	f.t.Helper()
	f.Eventually(f.reason(cluster)).Should(gomega.Equal(reason), func() string { return fmt.Sprintf("%+v", f.member(cluster)) })
}

// awaitReconciled makes a ConfigMap in an API server and waits until the controller has seen it in the member.
func (f *fleet) awaitReconciled(cp *harness.ControlPlane, cluster string) {
	f.t.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "probe-"}}
	f.Expect(cp.Client.Create(f.t.Context(), configMap)).To(gomega.Succeed())
	want := string(f.name(cluster)) + " " + configMap.Name
	f.Eventually(func() int { return f.seen.count(want) }).Should(gomega.BeNumerically(">", 0), want)
}

// record counts what was reconciled.
type record struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *record) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	r.counts[what]++
}

func (r *record) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fleet-"}}
	if err := hub.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// newUser makes a user of east that no other test knows.
func newUser(t *testing.T, groups ...string) (string, []byte) {
	t.Helper()
	name := "user-" + string(uuid.NewUUID())
	user, err := east.AddUser(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return name, harness.Kubeconfig(user, "")
}

func admin(cp *harness.ControlPlane) []byte { return harness.Kubeconfig(cp.Config, "") }
