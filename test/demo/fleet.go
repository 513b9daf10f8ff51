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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

// managerStopLimit is how long the manager may take to end.
const managerStopLimit = 15 * time.Second

// memberNames in the order in which they are shown.
var memberNames = []string{east, west, edge}

// fleet is everything that runs.
type fleet struct {
	dir     string // of the manager, its log and the kubeconfig
	hub     *harness.ControlPlane
	members map[string]*harness.ControlPlane
	proxy   *harness.Proxy // in front of edge
	manager *harness.Manager

	played sync.WaitGroup
	stop   context.CancelFunc // ends what is played, and ctx of whoever waits
}

// startFleet starts the hub and the members. The caller must close the fleet, also
// when there is an error.
func startFleet(ctx context.Context) (*fleet, error) {
	f := &fleet{members: map[string]*harness.ControlPlane{}}
	var err error
	if f.dir, err = os.MkdirTemp("", "agentrun-fleet-demo-"); err != nil {
		return f, err
	}
	options, err := clusterOptions(ctx)
	if err != nil {
		return f, err
	}
	planes, err := harness.StartAll(ctx, options...)
	if err != nil {
		return f, err
	}
	f.hub = planes[0]
	for _, cp := range planes[1:] {
		f.members[cp.Name] = cp
	}
	return f, errors.Join(f.equipMembers(ctx), f.writeKubeconfig())
}

func clusterOptions(ctx context.Context) ([]harness.Options, error) {
	sandboxes, err := harness.SandboxCRDPath(ctx)
	if err != nil {
		return nil, err
	}
	hub, err := harness.HubOptions()
	if err != nil {
		return nil, err
	}
	options := []harness.Options{hub}
	for _, name := range memberNames {
		// The controller manager has the garbage collector, which takes Sandbox and pod
		// when a run is deleted.
		member, err := harness.MemberOptions(name, harness.WithScheduler, harness.WithControllerManager, harness.WithCRDs(sandboxes))
		if err != nil {
			return nil, err
		}
		options = append(options, member)
	}
	return options, nil
}

// equipMembers gives the members nodes, KWOK and agent-sandbox, side by side.
func (f *fleet) equipMembers(ctx context.Context) error {
	root, err := harness.RepoRoot()
	if err != nil {
		return err
	}
	stages := filepath.Join(root, "test", "demo", "stages.yaml")
	return f.forEachMember(func(cp *harness.ControlPlane) error {
		if err := cp.EnsureNamespace(ctx, runsNamespace); err != nil {
			return err
		}
		if err := addNodes(ctx, cp, 2); err != nil {
			return err
		}
		return errors.Join(harness.StartKWOK(ctx, cp, stages), harness.StartAgentSandbox(ctx, cp))
	})
}

// forEachMember calls do for all members side by side.
func (f *fleet) forEachMember(do func(*harness.ControlPlane) error) error {
	errs := make([]error, len(memberNames))
	var wg sync.WaitGroup
	for i, name := range memberNames {
		wg.Go(func() { errs[i] = do(f.members[name]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func addNodes(ctx context.Context, cp *harness.ControlPlane, count int) error {
	for i := range count {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("%s-node-%d", cp.Name, i+1),
			Labels: map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"},
		}}
		if err := cp.Client.Create(ctx, node); err != nil {
			return fmt.Errorf("creating Node %s: %w", node.Name, err)
		}
		// A new node is tainted until the node lifecycle controller, which does not run
		// here, has seen it Ready.
		before := node.DeepCopy()
		node.Spec.Taints = nil
		if err := cp.Client.Patch(ctx, node, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("removing the taint of Node %s: %w", node.Name, err)
		}
	}
	return nil
}

// konveyorRetry is how long konveyor's stand-in waits after an error.
const konveyorRetry = 5 * time.Second

// playKonveyor starts playing konveyor's controller in every member. After an error, as
// when somebody deletes the CRD, it begins again until ctx is done.
func (f *fleet) playKonveyor(ctx context.Context, say func(format string, args ...any)) {
	ctx, f.stop = context.WithCancel(ctx)
	for _, cp := range f.members {
		f.played.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				if err := playKonveyor(ctx, cp); err != nil {
					say("Konveyor's stand-in tries again: %v", err)
				}
			}, konveyorRetry)
		})
	}
}

// startManager builds and starts fleet-manager against the hub.
func (f *fleet) startManager(ctx context.Context) error {
	binary, err := harness.BuildManager(ctx, f.dir)
	if err != nil {
		return err
	}
	kubeconfig, err := managerKubeconfig(ctx, f.hub, hubAccount, "")
	if err != nil {
		return err
	}
	file := filepath.Join(f.dir, "manager.kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return err
	}
	f.manager, err = harness.StartManager(ctx, binary, file, f.managerLog(), "--leader-elect-resource-namespace="+accountsNamespace)
	return err
}

func (f *fleet) managerLog() string { return filepath.Join(f.dir, "fleet-manager.log") }

// register makes the members known to the hub; edge by the address of a proxy, so that
// it can be cut off.
func (f *fleet) register(ctx context.Context) error {
	if err := f.hub.EnsureNamespace(ctx, clustersNamespace); err != nil {
		return err
	}
	var err error
	if f.proxy, err = harness.StartProxy(f.members[edge].Addr()); err != nil {
		return err
	}
	for _, name := range memberNames {
		server := ""
		if name == edge {
			server = f.proxy.URL()
		}
		kubeconfig, err := managerKubeconfig(ctx, f.members[name], memberAccount, server)
		if err != nil {
			return err
		}
		if err := f.hub.Client.Create(ctx, harness.MemberSecret(clustersNamespace, name, kubeconfig)); err != nil {
			return fmt.Errorf("creating the kubeconfig Secret of %s: %w", name, err)
		}
	}
	return nil
}

// accountsNamespace is where the manifests put accounts, and the manager's Lease.
const accountsNamespace = "agentrun-fleet-system"

// account is a ServiceAccount that the manifests in config grant rights to.
type account struct {
	manifests []string // folders in config
	name      string
}

// The manager gets the rights that it would get in an installation, and no more.
var (
	hubAccount    = account{[]string{"namespace", "rbac/hub"}, "agentrun-fleet-manager"}
	memberAccount = account{[]string{"member/rbac-only"}, "agentrun-fleet"}
)

// managerKubeconfig installs the account and returns a kubeconfig of it. The server is
// the URL to connect to, the control plane's own when empty.
func managerKubeconfig(ctx context.Context, cp *harness.ControlPlane, a account, server string) ([]byte, error) {
	const validity = 30 * 24 * time.Hour
	root, err := harness.RepoRoot()
	if err != nil {
		return nil, err
	}
	for _, folder := range a.manifests {
		if _, err := cp.Kubectl(ctx, "apply", "-k", filepath.Join(root, "config", folder)); err != nil {
			return nil, err
		}
	}
	config, err := cp.ServiceAccountUntil(ctx, accountsNamespace, a.name, time.Now().Add(validity))
	if err != nil {
		return nil, err
	}
	return harness.Kubeconfig(config, server), nil
}

// kubeconfigPath is a kubeconfig with a context for the hub, the current one, and one
// for each member.
func (f *fleet) kubeconfigPath() string { return filepath.Join(f.dir, "kubeconfig") }

func (f *fleet) writeKubeconfig() error {
	merged := clientcmdapi.NewConfig()
	add := func(cp *harness.ControlPlane) error {
		config, err := clientcmd.LoadFromFile(cp.KubeconfigPath())
		if err != nil {
			return err
		}
		from := config.Contexts[config.CurrentContext]
		merged.Clusters[cp.Name] = config.Clusters[from.Cluster]
		merged.AuthInfos[cp.Name] = config.AuthInfos[from.AuthInfo]
		merged.Contexts[cp.Name] = &clientcmdapi.Context{Cluster: cp.Name, AuthInfo: cp.Name}
		return nil
	}
	if err := add(f.hub); err != nil {
		return err
	}
	for _, cp := range f.members {
		if err := add(cp); err != nil {
			return err
		}
		merged.Contexts[cp.Name].Namespace = runsNamespace
	}
	merged.CurrentContext = f.hub.Name
	return clientcmd.WriteToFile(*merged, f.kubeconfigPath())
}

// close stops everything: the manager first, so that it does not take the end of the
// members for outages.
func (f *fleet) close() error {
	var errs []error
	if f.manager != nil {
		_, err := f.manager.Stop(managerStopLimit)
		errs = append(errs, err)
	}
	if f.stop != nil {
		f.stop()
		f.played.Wait()
	}
	if f.proxy != nil {
		f.proxy.Close()
	}
	planes := append(slices.Collect(maps.Values(f.members)), f.hub)
	errs = append(errs, harness.StopAll(planes...))
	if f.dir != "" {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	return errors.Join(errs...)
}
