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

package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// clusters is the hub's namespace that holds the members' Secrets.
const clusters = "clusters"

// stopLimit is how long the manager may take to end.
const stopLimit = 10 * time.Second

var managerBinary string

func TestMain(m *testing.M) { os.Exit(harness.RunWithManager(m, &managerBinary)) }

// fleet is a hub with its manager, and members in front of which proxies stand.
type fleet struct {
	*testing.T
	WithT   *WithT
	hub     *harness.ControlPlane
	members map[string]*member
	manager *harness.Manager
	binary  string
	logs    string
	// clockFile holds ahead, by which the fleet's clocks are ahead of the test's (setsClock).
	clockFile string
	ahead     time.Duration
}

// member is a member cluster as the tests see it.
type member struct {
	*harness.ControlPlane
	proxy *harness.Proxy
	// front stands between proxy and API server where the clock can be set; else it is nil.
	front *harness.Front
	// failing counts the runs that populate has made to fail.
	failing int
	// user is who the hub's manager is in the member.
	user string
}

// newFleet starts a hub and members, all at a time. The manager is not started yet.
func newFleet(t *testing.T, names ...string) *fleet {
	t.Helper()
	return newFleetWith(t, nil, names...)
}

// newFleetWith is newFleet with more in every member.
func newFleetWith(t *testing.T, more []harness.Option, names ...string) *fleet {
	t.Helper()
	g := harness.NewGomega(t)
	hubOptions, err := harness.HubOptions(harness.WithAudit)
	g.Expect(err).NotTo(HaveOccurred())
	options := []harness.Options{hubOptions}
	for _, name := range names {
		o, err := harness.MemberOptions(name, append(more, harness.WithAudit)...)
		g.Expect(err).NotTo(HaveOccurred())
		options = append(options, o)
	}
	planes := harness.NewControlPlanes(t, options...)
	f := &fleet{T: t, WithT: g, hub: planes[0], members: map[string]*member{}, binary: managerBinary, logs: t.TempDir()}
	g.Expect(f.hub.EnsureNamespace(t.Context(), clusters)).To(Succeed())
	for i, name := range names {
		f.members[name] = &member{ControlPlane: planes[i+1], proxy: harness.NewProxy(t, planes[i+1]), user: "fleet-of-" + name}
	}
	return f
}

// kubeconfig returns the manager's kubeconfig for a member, through its proxy.
func (f *fleet) kubeconfig(name string) []byte {
	f.Helper()
	m := f.members[name]
	if m.front != nil {
		return m.front.Kubeconfig(m.proxy.URL())
	}
	user, err := m.AddUser(m.user, "system:masters")
	f.WithT.Expect(err).NotTo(HaveOccurred())
	return harness.Kubeconfig(user, m.proxy.URL())
}

// join makes the Secrets by which the hub knows the members.
func (f *fleet) join(names ...string) {
	f.Helper()
	for _, name := range names {
		secret := harness.MemberSecret(clusters, name, f.kubeconfig(name))
		f.WithT.Expect(f.hub.Client.Create(f.Context(), secret)).To(Succeed())
	}
}

// leave removes a member's Secret.
func (f *fleet) leave(name string) {
	f.Helper()
	secret := harness.MemberSecret(clusters, name, nil)
	f.WithT.Expect(f.hub.Client.Delete(f.Context(), secret)).To(Succeed())
}

// start runs the manager; it is stopped, in time, before the API servers are.
func (f *fleet) start(flags ...string) {
	f.Helper()
	logFile := filepath.Join(f.logs, fmt.Sprintf("manager-%d.log", time.Now().UnixNano()))
	manager, err := harness.StartManager(f.Context(), f.binary, f.hub.KubeconfigPath(), logFile, flags...)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.manager = manager
	f.Cleanup(func() {
		if _, err := manager.Stop(stopLimit); err != nil {
			f.Errorf("Stopping the manager: %v", err)
		}
		content, err := os.ReadFile(logFile)
		if err != nil {
			f.Error(err)
		}
		if strings.Contains(string(content), "DATA RACE") || strings.Contains(string(content), "panic") {
			f.Errorf("the manager's log tells of a data race or a panic:\n%s", content)
		}
		if f.Failed() {
			f.Logf("manager log (end):\n%s", lastBytes(content, 6000))
		}
	})
}

func lastBytes(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}

// stop ends the manager and says how long it took.
func (f *fleet) stop() time.Duration {
	f.Helper()
	took, err := f.manager.Stop(stopLimit)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	return took
}

// create stores objects in a member, with the pods' statuses.
func (m *member) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok {
			if err := m.CreatePod(ctx, pod); err != nil {
				return err
			}
			continue
		}
		if err := m.Client.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// namespace makes a namespace of its own for the test in every member.
func (f *fleet) namespace(name string) string {
	f.Helper()
	for _, m := range f.members {
		f.WithT.Expect(m.EnsureNamespace(f.Context(), name)).To(Succeed())
	}
	return name
}

// run returns a function that fetches a run, for Eventually.
func (m *member) run(ctx context.Context, namespace, name string) func() (*agentv1alpha1.AgentRun, error) {
	return func() (*agentv1alpha1.AgentRun, error) {
		run := &agentv1alpha1.AgentRun{}
		return run, m.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, run)
	}
}

// clusterStatus returns a function that fetches what the hub knows of a member.
func (f *fleet) clusterStatus(name string) func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
	return func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
		status := &fleetv1alpha1.AgentRunClusterStatus{}
		return status, f.hub.Client.Get(f.Context(), client.ObjectKey{Namespace: clusters, Name: name}, status)
	}
}

// fleetStatus fetches the summary over all members.
func (f *fleet) fleetStatus() (*fleetv1alpha1.AgentRunFleetStatus, error) {
	status := &fleetv1alpha1.AgentRunFleetStatus{}
	return status, f.hub.Client.Get(f.Context(), client.ObjectKey{Name: fleetv1alpha1.DefaultFleetStatusName}, status)
}

// succeeded returns the run's condition of that type; zero when there is none.
func succeeded(run *agentv1alpha1.AgentRun) metav1.Condition {
	for _, c := range run.Status.Conditions {
		if c.Type == agentv1alpha1.ConditionSucceeded {
			return c
		}
	}
	return metav1.Condition{}
}

// failedWith matches a run that Failed for a reason, with parts of its message.
func failedWith(reason string, messageParts ...string) OmegaMatcher {
	matchers := []OmegaMatcher{
		harness.HavePhase(agentv1alpha1.AgentRunFailed),
		harness.HaveCondition(agentv1alpha1.ConditionSucceeded, metav1.ConditionFalse, reason),
		HaveField("Status.CompletionTime", Not(BeNil())),
		HaveField("Status.Duration", Not(BeNil())),
	}
	for _, part := range messageParts {
		matchers = append(matchers, WithTransform(func(r *agentv1alpha1.AgentRun) string { return succeeded(r).Message }, ContainSubstring(part)))
	}
	return And(matchers...)
}

// labelled is a pod that carries the run's label.
func labelled(run *agentv1alpha1.AgentRun) *build.PodWrapper {
	return build.MakePod(run.Name+"-pod").ForRun(run).Container("main", "registry.example/agent:1")
}
