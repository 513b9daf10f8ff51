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

package ledger

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rbacmember "github.com/konveyor/agentrun-fleet/config/rbac/member"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

const (
	// clusters is the hub's namespace that holds the members' Secrets, and system the
	// one that holds the Lease.
	clusters, system = "clusters", "agentrun-fleet-system"
	// managers is the group that has the manager's rights, and no more, on the hub and in
	// members; fleetUser is who the manager is in a member.
	managers, fleetUser   = "fleet-managers", "fleet"
	hubRole, memberRole   = "agentrun-fleet-hub", "agentrun-fleet-member"
	stopLimit             = 10 * time.Second
	atATime               = 8
	settled, settlePolled = 3 * time.Minute, 250 * time.Millisecond
)

var managerBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait most of the time: the number of processors is no measure for them.
	if err := flag.Set("test.parallel", fmt.Sprint(atATime)); err != nil {
		panic(err)
	}
	os.Exit(harness.RunWithManager(m, &managerBinary))
}

// fleet is a hub, and members in front of which proxies stand.
type fleet struct {
	*testing.T
	*WithT
	hub     *harness.ControlPlane
	members map[string]*member
	names   []string
}

// member is a member cluster.
type member struct {
	*harness.ControlPlane
	proxy *harness.Proxy
}

// newFleet starts a hub and members. No manager is started, and no member is known yet.
func newFleet(t *testing.T, more []harness.Option, names ...string) *fleet {
	t.Helper()
	f := &fleet{T: t, WithT: harness.NewGomega(t), members: map[string]*member{}, names: names}
	hub, err := harness.HubOptions(more...)
	f.Expect(err).NotTo(HaveOccurred())
	options := []harness.Options{hub}
	for _, name := range names {
		o, err := harness.MemberOptions(name, more...)
		f.Expect(err).NotTo(HaveOccurred())
		options = append(options, o)
	}
	planes := harness.NewControlPlanes(t, options...)
	f.hub = planes[0]
	for _, namespace := range []string{clusters, system} {
		f.Expect(f.hub.EnsureNamespace(t.Context(), namespace)).To(Succeed())
	}
	f.grantHub()
	for i, name := range names {
		f.members[name] = &member{ControlPlane: planes[i+1], proxy: harness.NewProxy(t, planes[i+1])}
		f.grant(planes[i+1], memberRole, rbacmember.RoleYAML)
	}
	return f
}

// on is the same fleet in a subtest.
func (f *fleet) on(t *testing.T) *fleet {
	t.Helper()
	out := *f
	out.T, out.WithT = t, harness.NewGomega(t)
	return &out
}

func (f *fleet) grantHub() {
	f.Helper()
	root, err := harness.RepoRoot()
	f.Expect(err).NotTo(HaveOccurred())
	roles, err := os.ReadFile(filepath.Join(root, "config", "rbac", "hub", "role.yaml"))
	f.Expect(err).NotTo(HaveOccurred())
	f.grant(f.hub, hubRole, roles)
	f.Expect(f.hub.Client.Create(f.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: hubRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: hubRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: managers}},
	})).To(Succeed())
}

// grant gives the managers a ClusterRole of that name, which is in the manifest.
func (f *fleet) grant(cp *harness.ControlPlane, role string, manifest []byte) {
	f.Helper()
	f.Expect(createAll(f.Context(), cp.Client, manifest)).To(Succeed())
	f.Expect(cp.Client.Create(f.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: managers}},
	})).To(Succeed())
}

// createAll creates the objects of a manifest.
func createAll(ctx context.Context, c client.Client, manifest []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && o.Object != nil {
			err = c.Create(ctx, o)
		}
		if err != nil {
			return err
		}
	}
}

// join makes the Secrets by which the hub knows members.
func (f *fleet) join(names ...string) {
	f.Helper()
	for _, name := range names {
		f.Expect(f.hub.Client.Create(f.Context(), harness.MemberSecret(clusters, name, f.kubeconfig(name)))).To(Succeed())
	}
}

// kubeconfig is the manager's for a member, through its proxy.
func (f *fleet) kubeconfig(name string) []byte {
	f.Helper()
	user, err := f.members[name].AddUser(fleetUser, managers)
	f.Expect(err).NotTo(HaveOccurred())
	return harness.Kubeconfig(user, f.members[name].proxy.URL())
}

// pod is where a manager runs, one process after another. It is a user of its own on the
// hub, through a proxy of its own.
type pod struct {
	*fleet
	*harness.Manager
	name, kubeconfig string
	proxy            *harness.Proxy
	logs             []string
}

// newPod makes a pod. No manager runs in it yet.
func (f *fleet) newPod(name string) *pod {
	f.Helper()
	user, err := f.hub.AddUser(name, managers)
	f.Expect(err).NotTo(HaveOccurred())
	p := &pod{fleet: f, name: name, proxy: harness.NewProxy(f.T, f.hub)}
	p.kubeconfig = filepath.Join(f.TempDir(), "kubeconfig")
	f.Expect(os.WriteFile(p.kubeconfig, harness.Kubeconfig(user, p.proxy.URL()), 0o600)).To(Succeed())
	f.Cleanup(p.inspect)
	return p
}

// start runs a manager in the pod, and returns once it is ready.
func (p *pod) start(flags ...string) {
	p.Helper()
	logFile := fmt.Sprintf("%s.%d.log", p.kubeconfig, len(p.logs))
	p.logs = append(p.logs, logFile)
	manager, err := harness.StartManagerInPod(p.Context(), p.name, managerBinary, p.kubeconfig, logFile,
		append([]string{"--leader-elect-resource-namespace=" + system}, flags...)...)
	p.Expect(err).NotTo(HaveOccurred())
	p.Manager = manager
}

// inspect ends the manager, and looks for what no manager may write.
func (p *pod) inspect() {
	if p.Manager != nil {
		p.Kill()
	}
	for _, logFile := range p.logs {
		content, err := os.ReadFile(logFile)
		if err != nil {
			p.Error(err)
		}
		for _, bad := range []string{"panic", "DATA RACE", "fatal error:"} {
			if i := bytes.Index(content, []byte(bad)); i >= 0 {
				p.Errorf("the log of %s has %q:\n%s", p.name, bad, content[i:min(len(content), i+4000)])
			}
		}
		if p.Failed() && logFile == p.logs[len(p.logs)-1] {
			p.Logf("log of %s (end):\n%s", p.name, content[max(0, len(content)-6000):])
		}
	}
}

// errorLines are the lines of the manager's logs that tell of an error.
func (p *pod) errorLines() []string {
	p.Helper()
	var out []string
	for _, logFile := range p.logs {
		content, err := os.ReadFile(logFile)
		p.Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, `"level":"error"`) {
				out = append(out, line)
			}
		}
	}
	return out
}

// pause waits for so long, or for the test's end.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
