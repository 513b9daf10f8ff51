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

package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// What the manifests name.
const (
	namespace      = "agentrun-fleet-system"
	managerAccount = "agentrun-fleet-manager"
	memberAccount  = "agentrun-fleet"
	tokenSecret    = "agentrun-fleet-token" // #nosec G101 -- the name of a Secret
	hubRole        = "agentrun-fleet-hub"
	memberRole     = "agentrun-fleet-member"
)

// stopLimit is how long the manager may take to end.
const stopLimit = 10 * time.Second

// olderCRD is the AgentRun CRD that members had before.
const olderCRD = "testdata/agentruns-older.yaml"

// installation is a hub and two members that have the older CRD. The member upgraded
// also has Sandboxes, and gets the CRD of this project; the other keeps its own.
type installation struct {
	*testing.T
	*WithT
	hub, upgraded, older *harness.ControlPlane

	binary  string
	manager *harness.Manager
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	i := &installation{T: t, WithT: harness.NewGomega(t)}
	sandboxes, err := harness.SandboxCRDPath(t.Context())
	i.Expect(err).NotTo(HaveOccurred())
	// The controller manager puts the token into the member's Secret.
	planes := harness.NewControlPlanes(t,
		harness.Options{Name: "hub", Audit: true},
		harness.Options{Name: "upgraded", Audit: true, ControllerManager: true, CRDPaths: []string{olderCRD, sandboxes}},
		harness.Options{Name: "older", Audit: true, ControllerManager: true, CRDPaths: []string{olderCRD}},
	)
	i.hub, i.upgraded, i.older = planes[0], planes[1], planes[2]
	i.binary, err = harness.BuildManager(t.Context(), t.TempDir())
	i.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if i.manager != nil {
			i.manager.Kill()
		}
	})
	return i
}

// kubectl runs kubectl as the administrator.
func (i *installation) kubectl(cp *harness.ControlPlane, args ...string) string {
	i.Helper()
	out, err := cp.Kubectl(i.Context(), args...)
	i.Expect(err).NotTo(HaveOccurred())
	return out
}

// apply applies a folder of config and waits for its CRDs.
func (i *installation) apply(cp *harness.ControlPlane, dir string) {
	i.Helper()
	i.kubectl(cp, "apply", "-k", config(i.T, dir))
	i.kubectl(cp, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
}

// register makes a member known to the hub by the commands of docs/install-by-hand.md.
func (i *installation) register(cluster string, member *harness.ControlPlane) {
	i.Helper()
	var kubeconfig string
	i.Eventually(func() (err error) {
		kubeconfig, err = member.Kubectl(i.Context(), "get", "secret", tokenSecret, "-n", namespace,
			"-o", "go-template-file="+config(i.T, "member/kubeconfig.gotmpl"))
		return err
	}).Should(Succeed(), "the token is made")
	file := filepath.Join(i.TempDir(), cluster+".kubeconfig")
	i.Expect(os.WriteFile(file, []byte(strings.Replace(kubeconfig, "SERVER", member.URL(), 1)), 0o600)).To(Succeed())

	secret := cluster + "-kubeconfig"
	i.kubectl(i.hub, "create", "secret", "generic", secret, "-n", namespace,
		"--type=cluster.x-k8s.io/secret", "--from-file=value="+file)
	i.kubectl(i.hub, "label", "secret", secret, "-n", namespace, "cluster.x-k8s.io/cluster-name="+cluster)
}

func (i *installation) deployment() *appsv1.Deployment {
	i.Helper()
	deployment := &appsv1.Deployment{}
	i.Expect(i.hub.Client.Get(i.Context(), client.ObjectKey{Namespace: namespace, Name: managerAccount}, deployment)).To(Succeed())
	return deployment
}

// startManager runs what the Deployment would: the manager with its arguments, as its
// ServiceAccount.
func (i *installation) startManager() {
	i.Helper()
	pod := i.deployment().Spec.Template.Spec
	i.Expect(pod.ServiceAccountName).To(Equal(managerAccount))
	i.Expect(i.hub.Client.Get(i.Context(), client.ObjectKey{Namespace: namespace, Name: managerAccount}, &corev1.ServiceAccount{})).To(Succeed())
	user, err := i.hub.ServiceAccount(i.Context(), namespace, managerAccount)
	i.Expect(err).NotTo(HaveOccurred())
	dir := i.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	i.Expect(os.WriteFile(kubeconfig, harness.Kubeconfig(user, ""), 0o600)).To(Succeed())
	i.manager, err = harness.StartManager(i.Context(), i.binary, kubeconfig, filepath.Join(dir, "manager.log"),
		append(pod.Containers[0].Args, "--leader-elect-resource-namespace="+namespace)...) // the pod's own, where there is a pod
	i.Expect(err).NotTo(HaveOccurred())
}

func (i *installation) stopManager() {
	i.Helper()
	_, err := i.manager.Stop(stopLimit)
	i.Expect(err).NotTo(HaveOccurred())
}

func (i *installation) clusterStatus(cluster string) func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
	return func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
		o := &fleetv1alpha1.AgentRunClusterStatus{}
		return o, i.hub.Client.Get(i.Context(), client.ObjectKey{Namespace: namespace, Name: cluster}, o)
	}
}

func (i *installation) fleetStatus() (*fleetv1alpha1.AgentRunFleetStatus, error) {
	o := &fleetv1alpha1.AgentRunFleetStatus{}
	return o, i.hub.Client.Get(i.Context(), client.ObjectKey{Name: fleetv1alpha1.DefaultFleetStatusName}, o)
}

// haveFailures matches a status with that many failed runs of a reason.
func haveFailures(reason string, current int32) types.GomegaMatcher {
	return HaveField("Status.Failures", ContainElement(And(HaveField("Reason", reason), HaveField("Current", current))))
}
