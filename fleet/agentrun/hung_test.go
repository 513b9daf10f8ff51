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
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// Members that hang at a time, how many runs of each are to be written, which together are
// more than there are workers, and how long a run of another member may take meanwhile.
const (
	hungMembers = 15
	hungRuns    = 4
	promptly    = 5 * time.Second
	// givenUp is when the work on a run that hangs ends: after it has shown.
	givenUp = slowAfter + 2*time.Second
)

// hanging never answers a write, and counts those that wait for it.
type hanging struct {
	http.RoundTripper
	waiting *atomic.Int64
}

func (h hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPatch {
		return h.RoundTripper.RoundTrip(req)
	}
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// panicking panics at a write, and counts how often.
type panicking struct {
	http.RoundTripper
	times *atomic.Int64
}

func (p panicking) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPatch {
		return p.RoundTripper.RoundTrip(req)
	}
	p.times.Add(1)
	panic("as told")
}

// provided are the members of a manager, by the namespace that each is limited to.
type provided map[multicluster.ClusterName]*engaged

func (p provided) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if member, ok := p[name]; ok {
		return member, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

func (provided) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// add engages a member that is a namespace of a control plane.
func (p provided) add(t *testing.T, cp *harness.ControlPlane, name string, config *rest.Config) {
	t.Helper()
	if err := cp.EnsureNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	p[multicluster.ClusterName(name)] = engageAs(t, cp, config, func(o *cluster.Options) {
		o.Cache.DefaultNamespaces = map[string]cache.Config{name: {}}
	})
}

// start runs a manager of them with the defaults until the test ends.
func (p provided) start(t *testing.T, hub *rest.Config) {
	t.Helper()
	g := NewWithT(t)
	mgr, err := mcmanager.New(hub, p, manager.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(SetupWithManager(mgr, Options{
		Policy:                startup.Policy{Fatal: startup.DefaultFatal()},
		ReconciliationTimeout: givenUp,
	})).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
		mgr.GetLocalManager().GetHTTPClient().CloseIdleConnections()
	})
	for name, member := range p {
		g.Expect(mgr.Engage(ctx, name, member)).To(Succeed())
	}
}

// TestMembersThatHangHoldUpNobody: a site goes, so that many members at the same time take
// writes and do not answer them. They do not have all workers until it shows that they hang, and
// then one each; a run of another member is failed as ever.
func TestMembersThatHangHoldUpNobody(t *testing.T) {
	cp := harness.NewMember(t, "members")
	g := harness.NewGomega(t)
	var waiting atomic.Int64
	slow := rest.CopyConfig(cp.Config)
	slow.Wrap(func(next http.RoundTripper) http.RoundTripper { return hanging{next, &waiting} })
	p := provided{}
	for i := range hungMembers {
		p.add(t, cp, fmt.Sprintf("hung-%d", i), slow)
	}
	p.add(t, cp, "well", cp.Config)
	for i := range hungMembers * hungRuns {
		run := build.MakeAgentRun(fmt.Sprint("run-", i)).Namespace(fmt.Sprintf("hung-%d", i%hungMembers)).Obj()
		g.Expect(cp.CreateRun(t.Context(), run)).To(Succeed())
	}
	p.start(t, cp.Config)
	g.Eventually(waiting.Load).Should(BeNumerically(">=", defaultWorkers/2))
	p.failsPromptly(t, cp, "while-it-does-not-show")
	g.Eventually(waiting.Load).Should(BeEquivalentTo(hungMembers))
	p.failsPromptly(t, cp, "when-it-does")
	g.Expect(waiting.Load()).To(BeNumerically("~", hungMembers, 1), "the members did not hang any more")
}

// TestAPanicEndsNoManager: the work on a run panics, and is tried again while the others' goes on.
func TestAPanicEndsNoManager(t *testing.T) {
	cp := harness.NewMember(t, "members")
	g := harness.NewGomega(t)
	var times atomic.Int64
	config := rest.CopyConfig(cp.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return panicking{next, &times} })
	p := provided{}
	p.add(t, cp, "panics", config)
	p.add(t, cp, "well", cp.Config)
	p.start(t, cp.Config)
	g.Expect(cp.CreateRun(t.Context(), build.MakeAgentRun("run").Namespace("panics").Obj())).To(Succeed())
	g.Eventually(times.Load).Should(BeNumerically(">", 2))
	p.failsPromptly(t, cp, "beside-one-that-panics")
}

// failsPromptly has a run of the member that is well fail in time.
func (p provided) failsPromptly(t *testing.T, cp *harness.ControlPlane, name string) {
	t.Helper()
	g := harness.NewGomega(t)
	run := build.MakeAgentRun(name).Namespace("well").Obj()
	g.Expect(cp.CreateRun(t.Context(), run)).To(Succeed())
	pod := build.MakePod(name).ForRun(run).Container("main", "registry.example/agent:1").Scheduled().Waiting("main", "ImagePullBackOff", "").Obj()
	g.Expect(cp.CreatePod(t.Context(), pod)).To(Succeed())
	start := time.Now()
	g.Eventually(func() (*agentv1alpha1.AgentRun, error) {
		return run, cp.Client.Get(t.Context(), client.ObjectKeyFromObject(run), run)
	}).WithTimeout(promptly).Should(harness.HavePhase(agentv1alpha1.AgentRunFailed))
	t.Logf("Run %s failed within %s", name, time.Since(start))
}
