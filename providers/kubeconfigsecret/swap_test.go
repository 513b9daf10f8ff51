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
	"errors"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// refusing is a controller that cannot be engaged while refuse says so.
type refusing struct {
	refuse atomic.Bool
}

// Start waits until ctx is done.
func (*refusing) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage fails once for each time that refuse was set.
func (r *refusing) Engage(context.Context, multicluster.ClusterName, cluster.Cluster) error {
	if r.refuse.Swap(false) {
		return errors.New("no controller wants it")
	}
	return nil
}

// TestControllerRefusesRotation: the former connection goes on, for the controllers too that had changed
// over already, and the condition says why the new one is not in use.
func TestControllerRefusesRotation(t *testing.T) {
	controller := &refusing{}
	f := newFleetWith(t, func(f *fleet) {
		f.addController()
		f.Expect(f.manager.Add(controller)).To(Succeed()) // engaged after the others
	}, func(o *kubeconfigsecret.Options) {
		o.BackoffBase, o.BackoffMax = o.ConnectTimeout, o.ConnectTimeout // so that it is seen
	}, map[string][]byte{"a": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	first := f.inUse("a")

	controller.refuse.Store(true)
	user, kubeconfig := newUser(t, "system:masters")
	f.put("a", kubeconfig)
	f.awaitReason("a", kubeconfigsecret.ReasonRotationRefused)
	got := f.member("a").Connected
	f.Expect(got.Status).To(Equal(metav1.ConditionTrue))
	f.Expect(got.Message).To(And(ContainSubstring("former kubeconfig stays in use"), ContainSubstring("no controller wants it")))
	f.Expect(f.inUse("a")).To(BeIdenticalTo(first))
	f.awaitReconciled(east, "a")
	f.Expect(first.GetAPIReader().List(t.Context(), &corev1.NamespaceList{})).To(Succeed(), "the former connection is closed")

	t.Log("It is tried again by itself")
	f.Eventually(func() any { return f.inUse("a") }).ShouldNot(BeIdenticalTo(first))
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.awaitReconciled(east, "a")
	f.Expect(east.Requests(harness.ByUser(user), harness.OnResource("configmaps"))).NotTo(BeEmpty())
}

// mortal is a cluster that ends by itself once dies is closed.
type mortal struct {
	cluster.Cluster
	dies chan struct{}
}

// Start runs the cluster until it dies or ctx is done.
func (m mortal) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.Cluster.Start(ctx) }()
	select {
	case <-m.dies:
		cancel()
		return errors.Join(<-ended, errors.New("the cluster died"))
	case err := <-ended:
		return err
	}
}

// TestClusterEndsDuringRefusedRotation: while nothing but another Secret would help, the connection in use may end. The
// member is disengaged then, and not shown as connected for ever.
func TestClusterEndsDuringRefusedRotation(t *testing.T) {
	dies := make(chan struct{})
	f := newFleet(t, func(o *kubeconfigsecret.Options) {
		newCluster := o.NewCluster
		o.NewCluster = func(ctx context.Context, conn *kubeconfigsecret.Connection) (cluster.Cluster, error) {
			cl, err := newCluster(ctx, conn)
			return mortal{cl, dies}, err
		}
	}, map[string][]byte{"a": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.put("a", []byte("nonsense"))
	f.awaitReason("a", kubeconfigsecret.ReasonRotationRefused)

	close(dies)
	f.awaitReason("a", kubeconfigsecret.ReasonInvalidKubeconfig)
	f.Expect(f.member("a").Connected.Status).To(Equal(metav1.ConditionFalse))
	_, err := f.provider.Get(t.Context(), f.name("a"))
	f.Expect(err).To(MatchError(multicluster.ErrClusterNotFound))
}
