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
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// engaged is one member whose cache runs, and what a manager would know of it.
type engaged struct {
	cluster.Cluster
	plane  *harness.ControlPlane
	client client.Client // nil: the cluster's own
	state  MemberState
}

func (e *engaged) GetCluster(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	return e, nil
}

func (e *engaged) GetClient() client.Client {
	if e.client != nil {
		return e.client
	}
	return e.Cluster.GetClient()
}

func engage(t *testing.T, options ...harness.Option) *engaged {
	t.Helper()
	cp := harness.NewMember(t, "member", options...)
	return engageAs(t, cp, cp.Config)
}

// engageAs engages a member that runs already, as whoever has the config.
func engageAs(t *testing.T, cp *harness.ControlPlane, config *rest.Config, options ...cluster.Option) *engaged {
	t.Helper()
	cl, err := NewCluster(t.Context(), config, served(t, cp), options...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cl.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the member's cluster ended with %v", err)
		}
		if c, ok := cp.Client.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
		cl.GetHTTPClient().CloseIdleConnections()
	})
	if !cl.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the member's cache did not sync")
	}
	return &engaged{Cluster: cl, plane: cp}
}

// served says what a control plane serves.
func served(t *testing.T, cp *harness.ControlPlane) func(schema.GroupVersionResource) bool {
	t.Helper()
	dc, err := discovery.NewDiscoveryClientForConfig(cp.Config)
	if err != nil {
		t.Fatal(err)
	}
	return func(want schema.GroupVersionResource) bool {
		list, err := dc.ServerResourcesForGroupVersion(want.GroupVersion().String())
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == want.Resource })
	}
}

func (e *engaged) reconciler() *Reconciler {
	return &Reconciler{clusters: e, member: func(multicluster.ClusterName) MemberState { return e.state }, policy: startup.Policy{Fatal: startup.DefaultFatal()}, clock: clock.RealClock{}, seen: newFirstSeen()}
}

func request(name string) mcreconcile.Request {
	return mcreconcile.Request{ClusterName: "ns/member", Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: build.DefaultNamespace, Name: name}}}
}

// TestCacheHoldsOnlyWhatIsRead: pods that are neither labelled as a run's nor made by a
// Sandbox never enter the member's cache, and what enters is stripped.
func TestCacheHoldsOnlyWhatIsRead(t *testing.T) {
	crd, err := harness.SandboxCRDPath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := engage(t, harness.WithCRDs(crd))
	g := harness.NewGomega(t)
	run := build.MakeAgentRun("run").Obj()
	run.Annotations = map[string]string{"large": strings.Repeat("x", 1000)}
	run.Labels = map[string]string{"team": "red"}
	run.Finalizers = []string{"example.com/hold"}
	run.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "theirs", UID: "theirs"}}
	run.Spec.Instructions = "write a long story"
	run.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", Value: "secret"}}
	g.Expect(e.plane.Client.Create(t.Context(), run)).To(Succeed())
	pod := func(name, label, value string) *corev1.Pod {
		p := build.MakePod(name).Container("main", "registry.example/agent:1").Label(label, value).Obj()
		p.Annotations = map[string]string{"large": "x"}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "secret"}}
		return p
	}
	for _, p := range []*corev1.Pod{
		pod("unrelated", "app", "web"),
		pod("labelled", agentv1alpha1.AgentRunLabel, "run"),
		pod("of-a-sandbox", sandboxPodLabel, "0badcafe"),
	} {
		g.Expect(e.plane.CreatePod(t.Context(), p)).To(Succeed())
	}
	list := func(reader client.Reader) func() ([]string, error) {
		return func() ([]string, error) {
			pods := &corev1.PodList{}
			err := reader.List(t.Context(), pods)
			var names []string
			for i := range pods.Items {
				p := &pods.Items[i]
				names = append(names, p.Name)
				if p.Annotations != nil || p.ManagedFields != nil || p.Spec.Containers[0].Env != nil {
					t.Errorf("Pod %s is held with annotations, managed fields or environment", p.Name)
				}
			}
			return names, err
		}
	}
	cached := cacheOf(e.Cluster)
	// The unrelated pod is older than the two that arrive, in both watches.
	g.Eventually(list(cached.Cache)).Should(ConsistOf("labelled"))
	g.Eventually(list(cached.sandboxPods)).Should(ConsistOf("of-a-sandbox"))

	held := &agentv1alpha1.AgentRun{}
	g.Eventually(func() error { return cached.Get(t.Context(), client.ObjectKeyFromObject(run), held) }).Should(Succeed())
	g.Expect(held.ObjectMeta).To(Equal(metav1.ObjectMeta{
		Namespace: run.Namespace, Name: run.Name, UID: run.UID, ResourceVersion: run.ResourceVersion,
		Generation: run.Generation, CreationTimestamp: run.CreationTimestamp,
	}))
	g.Expect(held.Spec).To(BeZero())

	// A status patch made from the stripped run leaves all else of the stored one whole.
	_, err = e.reconciler().Reconcile(t.Context(), request("run"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(run), held)).To(Succeed())
	g.Expect(held.Status.Phase).To(Equal(agentv1alpha1.AgentRunPending))
	g.Expect(held.Spec).To(Equal(run.Spec))
	g.Expect(held.Annotations).To(Equal(run.Annotations))
	g.Expect(held.Labels).To(Equal(run.Labels))
	g.Expect(held.Finalizers).To(Equal(run.Finalizers))
	g.Expect(held.OwnerReferences).To(Equal(run.OwnerReferences))
}

// TestConflicts lets somebody else come between the decision and its write.
func TestConflicts(t *testing.T) {
	e := engage(t)
	foreign := metav1.Condition{Type: "Ready", Status: "False", Reason: "Theirs", Message: "m", LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}
	cases := map[string]struct {
		between func(ctx context.Context, c client.Client, run *agentv1alpha1.AgentRun) error
		want    OmegaMatcher
	}{
		"another controller writes a condition: it survives, and the run fails": {
			between: func(ctx context.Context, c client.Client, run *agentv1alpha1.AgentRun) error {
				run.Status.Conditions = append(run.Status.Conditions, foreign)
				return c.Status().Update(ctx, run)
			},
			want: And(harness.HavePhase(agentv1alpha1.AgentRunFailed), harness.HaveCondition("Ready", "False", "Theirs"), harness.HaveCondition("Succeeded", "False", "ImagePullBackOff")),
		},
		"another controller ends the run: its end stands": {
			between: func(ctx context.Context, c client.Client, run *agentv1alpha1.AgentRun) error {
				run.Status.Phase = agentv1alpha1.AgentRunSucceeded
				return c.Status().Update(ctx, run)
			},
			want: And(harness.HavePhase(agentv1alpha1.AgentRunSucceeded), HaveField("Status.CompletionTime", BeNil()),
				harness.HaveCondition("Succeeded", metav1.ConditionTrue, "Completed")),
		},
		"the run is deleted and made anew: the new one is not touched": {
			between: func(ctx context.Context, c client.Client, run *agentv1alpha1.AgentRun) error {
				if err := c.Delete(ctx, run); err != nil {
					return err
				}
				return c.Create(ctx, build.MakeAgentRun(run.Name).Obj())
			},
			want: HaveField("Status", Equal(agentv1alpha1.AgentRunStatus{})),
		},
		"the run is deleted: nothing comes of it": {
			between: func(ctx context.Context, c client.Client, run *agentv1alpha1.AgentRun) error {
				return c.Delete(ctx, run)
			},
		},
	}
	n := 0
	for name, tc := range cases {
		n++
		runName := "conflict-" + string(rune('a'+n))
		t.Run(name, func(t *testing.T) {
			g := harness.NewGomega(t)
			run := build.MakeAgentRun(runName).Obj()
			g.Expect(e.plane.Client.Create(t.Context(), run)).To(Succeed())
			pod := build.MakePod(runName).ForRun(run).Container("main", "registry.example/agent:1").Scheduled().Waiting("main", "ImagePullBackOff", "").Obj()
			g.Expect(e.plane.CreatePod(t.Context(), pod)).To(Succeed())
			g.Eventually(func() (*corev1.Pod, error) {
				o, err := gather(t.Context(), e.Cluster, client.ObjectKeyFromObject(run))
				return o.pod, err
			}).Should(HaveField("Status.ContainerStatuses", HaveLen(1)))

			patches := 0
			e.client = interceptor.NewClient(e.plane.Client, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if patches++; patches == 1 {
						stored := &agentv1alpha1.AgentRun{}
						if err := c.Get(ctx, client.ObjectKeyFromObject(obj), stored); err != nil {
							return err
						}
						if err := tc.between(ctx, c, stored); err != nil {
							return err
						}
					}
					return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
				},
			})
			_, err := e.reconciler().Reconcile(t.Context(), request(runName))
			g.Expect(err).NotTo(HaveOccurred())
			stored := &agentv1alpha1.AgentRun{}
			err = e.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(run), stored)
			if tc.want == nil {
				g.Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(stored).To(tc.want)
		})
	}
}

// TestContended: a run that others never stop writing is left for a moment. It is no error.
func TestContended(t *testing.T) {
	e := engage(t)
	g := harness.NewGomega(t)
	run := build.MakeAgentRun("run").Obj()
	g.Expect(e.plane.Client.Create(t.Context(), run)).To(Succeed())
	g.Eventually(func() error {
		return e.GetCache().Get(t.Context(), client.ObjectKeyFromObject(run), &agentv1alpha1.AgentRun{})
	}).Should(Succeed())
	patches := 0
	e.client = interceptor.NewClient(e.plane.Client, interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			patches++
			return apierrors.NewConflict(schema.GroupResource{Resource: "agentruns"}, "run", errors.New("changed"))
		},
	})
	g.Expect(e.reconciler().Reconcile(t.Context(), request("run"))).To(Equal(reconcile.Result{RequeueAfter: contendedAgain}))
	g.Expect(patches).To(Equal(maxConflicts))
}

// TestMemberState: a paused member is observed and not written to, and its clock is the
// one that deadlines are measured by.
func TestMemberState(t *testing.T) {
	e := engage(t)
	g := harness.NewGomega(t)
	run := build.MakeAgentRun("run").StartupDeadline(600).Obj()
	g.Expect(e.plane.Client.Create(t.Context(), run)).To(Succeed())
	g.Eventually(func() error {
		return e.Cluster.GetCache().Get(t.Context(), client.ObjectKeyFromObject(run), &agentv1alpha1.AgentRun{})
	}).Should(Succeed())
	stored := func() (*agentv1alpha1.AgentRun, error) {
		current := &agentv1alpha1.AgentRun{}
		return current, e.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(run), current)
	}

	e.state.Paused = true
	result, err := e.reconciler().Reconcile(t.Context(), request("run"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(pausedAgain))
	g.Expect(stored()).To(HaveField("Status", Equal(agentv1alpha1.AgentRunStatus{})))

	e.state.Paused = false
	result, err = e.reconciler().Reconcile(t.Context(), request("run"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically("~", 10*time.Minute, 30*time.Second))
	g.Expect(stored()).To(harness.HavePhase(agentv1alpha1.AgentRunPending))

	e.state.Lost = true
	result, err = e.reconciler().Reconcile(t.Context(), request("run"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(lostAgain))
	e.state.Lost = false

	// The member's clock, which stamped the run, is ahead: the deadline has passed there.
	e.state.ClockOffset = 10 * time.Minute
	g.Eventually(func() (*agentv1alpha1.AgentRun, error) {
		if _, err := e.reconciler().Reconcile(t.Context(), request("run")); err != nil {
			return nil, err
		}
		return stored()
	}).Should(And(
		harness.HavePhase(agentv1alpha1.AgentRunFailed),
		harness.HaveCondition("Succeeded", metav1.ConditionFalse, "StartupDeadlineExceeded"),
	))
}

func TestTheHubIsNoMember(t *testing.T) {
	r := &Reconciler{seen: newFirstSeen()}
	if _, err := r.Reconcile(t.Context(), mcreconcile.Request{Request: request("x").Request}); err == nil {
		t.Error("a request without a cluster name was worked on")
	}
}

func TestBounded(t *testing.T) {
	for name, s := range map[string]string{"short": "short", "long": strings.Repeat("x", 5000), "long of wide runes": strings.Repeat("ä", 5000)} {
		t.Run(name, func(t *testing.T) {
			if got := bounded(s); len(got) > maxNote || !utf8.ValidString(got) {
				t.Errorf("bounded gave %d bytes, valid %v; want at most %d, valid", len(got), utf8.ValidString(got), maxNote)
			}
		})
	}
}

func TestFirstSeenForgetsWhatIsTaken(t *testing.T) {
	f := newFirstSeen()
	first := time.Unix(1, 0)
	f.mark(request("a"), first)
	f.mark(request("a"), time.Unix(2, 0))
	if got := f.take(request("a")); !got.Equal(first) {
		t.Errorf("take = %s, want the first time %s", got, first)
	}
	if got := f.take(request("a")); !got.IsZero() || len(f.at) != 0 {
		t.Errorf("take again = %s with %d entries, want nothing left", got, len(f.at))
	}
}

func TestShutdownTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		shutdownTime string
		want         bool
	}{
		"none":               {"", false},
		"a lifetime to come": {"2026-03-02T12:00:00Z", false},
		"now":                {"2026-03-01T12:00:00Z", true},
		"past":               {"2026-03-01T11:00:00Z", true},
		"something else":     {"soon", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sandbox := build.MakeSandbox("s").Obj()
			if tc.shutdownTime != "" {
				sandbox.Object["spec"] = map[string]any{"shutdownTime": tc.shutdownTime}
			}
			if got := sandboxView(sandbox, now).Stopped; got != tc.want {
				t.Errorf("Stopped = %v, want %v", got, tc.want)
			}
		})
	}
}
