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

package rollup_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/rollup"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// hubUser is whom the rollup writes as. It may do what the markers in rollup.go say.
const hubUser = "rollup"

var (
	// hub is a real API server. It holds the members' runs too: a member is one of its
	// namespaces, watched through a cache of its own.
	hub       *harness.ControlPlane
	hubConfig *rest.Config
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(os.Stderr)))
	if err := startHub(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := hub.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func startHub(ctx context.Context) error {
	memberCRDs, err := harness.MemberCRDPath()
	if err != nil {
		return err
	}
	options, err := harness.HubOptions(harness.WithAudit, harness.WithCRDs(memberCRDs))
	if err != nil {
		return err
	}
	if hub, err = harness.Start(ctx, options); err != nil {
		return err
	}
	if hubConfig, err = hub.AddUser(hubUser); err != nil {
		return err
	}
	return grant(ctx)
}

func grant(ctx context.Context) error {
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"fleet.konveyor.io"}, Resources: []string{resource}, Verbs: verbs}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: hubUser}, Rules: []rbacv1.PolicyRule{
		rule("agentrunclusterstatuses", "list", "watch", "create", "delete"),
		rule("agentrunclusterstatuses/status", "update"),
		rule("agentrunfleetstatuses", "list", "watch", "create"),
		rule("agentrunfleetstatuses/status", "update"),
	}}
	if err := hub.Client.Create(ctx, role); err != nil {
		return err
	}
	return hub.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: hubUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: hubUser},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: hubUser}},
	})
}

// registry is a rollup.Members that a test fills.
type registry struct {
	mu       sync.Mutex
	members  map[multicluster.ClusterName]rollup.Member
	unsynced bool
	changed  func(multicluster.ClusterName)
}

func (r *registry) Members() []rollup.Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.members))
}

func (r *registry) Synced() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.unsynced
}

func (r *registry) Subscribe(changed func(multicluster.ClusterName)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// update changes the registry and tells whoever has subscribed.
func (r *registry) update(name multicluster.ClusterName, change func()) {
	r.mu.Lock()
	change()
	changed := r.changed
	r.mu.Unlock()
	if changed != nil {
		changed(name)
	}
}

func (r *registry) set(m rollup.Member) { r.update(m.Name, func() { r.members[m.Name] = m }) }

func (r *registry) remove(name multicluster.ClusterName) {
	r.update(name, func() { delete(r.members, name) })
}

// world is one test's: its members, and a rollup that can be stopped and started.
type world struct {
	*gomega.WithT
	t       *testing.T
	ctx     context.Context
	members *registry
	options rollup.Options
	rollup  *rollup.Rollup
	stop    func()
	// unmarked are runs that are recorded and that nobody has marked; marking says
	// whether they are marked at once, as a member's reconciler would.
	unmarked chan unmarked
	marking  bool
	// newClient makes the hub's client; the usual one when nil.
	newClient client.NewClientFunc
	// pokes are the runs that were made for a write to be made.
	pokes int
	// ends are those of all connections.
	ends []context.CancelFunc
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{WithT: harness.NewGomega(t), t: t, ctx: t.Context(),
		members:  &registry{members: map[multicluster.ClusterName]rollup.Member{}},
		unmarked: make(chan unmarked, 10_000), marking: true}
	w.options.Prove = prove
	t.Cleanup(func() { w.clean() })
	return w
}

// start starts a manager's worth of rollup; stop ends it.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	cl, err := cluster.New(hubConfig, func(o *cluster.Options) {
		o.Scheme = hub.Scheme
		o.NewClient = w.newClient
	})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	started := rollup.New(cl, w.members, w.options)
	w.rollup = started
	started.OnWantsMark(func(name multicluster.ClusterName, run types.NamespacedName) { w.unmarked <- unmarked{name, run} })
	var running sync.WaitGroup
	if w.marking {
		running.Go(func() { w.markAll(ctx, started) })
	}
	running.Go(func() { _ = cl.Start(ctx) })
	running.Go(func() {
		if err := started.Start(ctx); err != nil {
			w.t.Errorf("Start: %v", err)
		}
	})
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
}

// prove lists the runs of all members.
func prove(ctx context.Context, cl cluster.Cluster, ledger types.UID) (tally.Proof, error) {
	return proveIn(ctx, cl, ledger, "")
}

func proveIn(ctx context.Context, cl cluster.Cluster, ledger types.UID, namespace string) (tally.Proof, error) {
	var runs agentv1alpha1.AgentRunList
	if err := cl.GetAPIReader().List(ctx, &runs, client.InNamespace(namespace)); err != nil {
		return tally.Proof{}, err
	}
	proof := tally.Proof{Since: map[string]string{namespace: runs.ResourceVersion}, Open: sets.New[types.UID]()}
	for i := range runs.Items {
		if run := &runs.Items[i]; !run.RecordedBy(ledger) {
			proof.Open.Insert(run.UID)
		}
	}
	return proof, nil
}

// markAll marks what comes to be recorded until ctx ends.
func (w *world) markAll(ctx context.Context, by *rollup.Rollup) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-w.unmarked:
			w.markBy(by, u.member, u.run)
		}
	}
}

// unmarked is a run that comes to be recorded in a member's ledger.
type unmarked struct {
	member multicluster.ClusterName
	run    types.NamespacedName
}

// mark gives a run the mark of a member's ledger; one that is gone needs none.
func (w *world) mark(member multicluster.ClusterName, key types.NamespacedName) {
	w.markBy(w.rollup, member, key)
}

func (w *world) markBy(by *rollup.Rollup, member multicluster.ClusterName, key types.NamespacedName) {
	if err := w.tryMark(by, member, key); client.IgnoreNotFound(err) != nil {
		w.t.Errorf("marking AgentRun %s: %v", key, err)
	}
}

func (w *world) tryMark(by *rollup.Rollup, member multicluster.ClusterName, key types.NamespacedName) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		run := &agentv1alpha1.AgentRun{}
		if err := hub.Client.Get(context.Background(), key, run); err != nil {
			return err
		}
		ledger, err := w.ledgerOf(by, member, run.UID)
		if err != nil {
			return err
		}
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`, run.ResourceVersion,
			agentv1alpha1.RecordedAnnotation, run.Mark(ledger))
		return hub.Client.Patch(context.Background(), run, client.RawPatch(types.MergePatchType, []byte(patch)))
	})
}

// ledgerOf is the ledger that wants to mark the run, or else the one on the hub.
func (w *world) ledgerOf(by *rollup.Rollup, member multicluster.ClusterName, run types.UID) (types.UID, error) {
	if ledger := by.WantedMark(member, run); ledger != "" {
		return ledger, nil
	}
	stored, err := w.cluster(member)()
	return stored.Status.Ledger.ID, err
}

// clean leaves nothing on the hub for the next test.
func (w *world) clean() {
	if w.stop != nil {
		w.stop()
	}
	ctx := context.Background()
	w.Expect(hub.Client.DeleteAllOf(ctx, &fleetv1alpha1.AgentRunFleetStatus{})).To(gomega.Succeed())
	var all fleetv1alpha1.AgentRunClusterStatusList
	w.Expect(hub.Client.List(ctx, &all)).To(gomega.Succeed())
	for i := range all.Items {
		w.Expect(client.IgnoreNotFound(hub.Client.Delete(ctx, &all.Items[i]))).To(gomega.Succeed())
	}
}

// member makes the Secret of a member and returns it as connected.
func (w *world) member(namespace, name string) rollup.Member {
	w.Expect(hub.EnsureNamespace(w.ctx, namespace)).To(gomega.Succeed())
	secret := harness.MemberSecret(namespace, name, []byte("kubeconfig"))
	w.Expect(hub.Client.Create(w.ctx, secret)).To(gomega.Succeed())
	w.t.Cleanup(func() { _ = hub.Client.Delete(context.Background(), secret) })
	return rollup.Member{
		Name:      multicluster.ClusterName(namespace + "/" + name),
		Namespace: namespace, Cluster: name,
		SecretName: secret.Name, SecretUID: secret.UID,
		Connected: metav1.Condition{
			Type: "Connected", Status: metav1.ConditionTrue, Reason: "Connected", Message: "The member is watched",
			LastTransitionTime: metav1.Now(),
		},
		LastContactTime:   metav1.Now(),
		KubernetesVersion: "v1.36.3", Endpoint: "https://member.example:6443",
	}
}

func lost(m rollup.Member, status metav1.ConditionStatus, reason string) rollup.Member {
	m.Connected = metav1.Condition{Type: "Connected", Status: status, Reason: reason, Message: "What to do", LastTransitionTime: metav1.Now()}
	return m
}

// engage connects a member: its runs are those in one namespace of the hub. The
// returned function ends the connection.
func (w *world) engage(name multicluster.ClusterName, runs string) context.CancelFunc {
	w.Expect(hub.EnsureNamespace(w.ctx, runs)).To(gomega.Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	cl, err := cluster.New(hub.Config, func(o *cluster.Options) {
		o.Scheme = hub.Scheme
		o.Cache.DefaultNamespaces = map[string]cache.Config{runs: {}}
	})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	var running sync.WaitGroup
	running.Go(func() { _ = cl.Start(ctx) })
	_, err = cl.GetCache().GetInformer(ctx, &agentv1alpha1.AgentRun{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(w.rollup.Engage(ctx, name, cl)).To(gomega.Succeed())
	end := sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(end)
	w.ends = append(w.ends, end)
	return end
}

// create makes a run and its status.
func (w *world) create(namespace string, run *build.AgentRunWrapper) *agentv1alpha1.AgentRun {
	o := run.Namespace(namespace).Obj()
	status := o.Status
	w.Expect(hub.EnsureNamespace(w.ctx, namespace)).To(gomega.Succeed())
	w.Expect(hub.Client.Create(w.ctx, o)).To(gomega.Succeed())
	o.Status = status
	w.Expect(hub.Client.Status().Update(w.ctx, o)).To(gomega.Succeed())
	return o
}

func (w *world) cluster(name multicluster.ClusterName) func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
	namespace, cluster, _ := strings.Cut(string(name), "/")
	return func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
		o := &fleetv1alpha1.AgentRunClusterStatus{}
		return o, hub.Client.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: cluster}, o)
	}
}

func (w *world) fleet(name string) func() (*fleetv1alpha1.AgentRunFleetStatus, error) {
	return func() (*fleetv1alpha1.AgentRunFleetStatus, error) {
		o := &fleetv1alpha1.AgentRunFleetStatus{}
		return o, hub.Client.Get(w.ctx, client.ObjectKey{Name: name}, o)
	}
}

// writes are the rollup's writes of a resource since then.
func (w *world) writes(resource string, since time.Time) []harness.Request {
	requests, err := hub.Requests(harness.ByUser(hubUser), harness.WithVerb("create", "update", "patch", "delete"),
		harness.OnResource(resource), harness.ReceivedAfter(since))
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return requests
}

func haveRuns(want fleetv1alpha1.RunCounts) gomega.OmegaMatcher {
	return gomega.HaveField("Status.Runs", gomega.HaveValue(gomega.Equal(want)))
}
