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
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// present has every member, until it is gone.
type present struct {
	gone atomic.Bool
}

func (p *present) GetCluster(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	if p.gone.Load() {
		return nil, multicluster.ErrClusterNotFound
	}
	return nil, nil
}

func TestFailureMetricIsBounded(t *testing.T) {
	before := testutil.CollectAndCount(failures)
	t.Cleanup(func() { ForgetMember("ns/many") })
	r := &Reconciler{clusters: &present{}, seen: newFirstSeen()}
	for i := range 5000 {
		r.countFailure(t.Context(), of("ns/many", "run"), fmt.Sprintf("Reason%d", i))
	}
	if n := testutil.CollectAndCount(failures) - before; n > fleetv1alpha1.MaxFailureReasons+1 {
		t.Errorf("5,000 reasons make %d series", n)
	}
	other := testutil.ToFloat64(failures.WithLabelValues("ns/many", fleetv1alpha1.ReasonOther))
	if want := float64(5000 - fleetv1alpha1.MaxFailureReasons); other != want {
		t.Errorf("Other counts %v failures, want %v", other, want)
	}
	ForgetMember("ns/many")
	if n := testutil.CollectAndCount(failures) - before; n != 0 {
		t.Errorf("%d series are left of a member that is gone", n)
	}
}

// TestNoSeriesComesBack: reconciles are under way when their member goes, and each is done
// after that or before.
func TestNoSeriesComesBack(t *testing.T) {
	members := &present{}
	r := &Reconciler{clusters: members, seen: newFirstSeen()}
	before := [2]int{testutil.CollectAndCount(failures), testutil.CollectAndCount(ttlDeletions)}
	count := func() {
		r.countFailure(t.Context(), of("ns/leaving", "run"), "ImagePullBackOff")
		r.countDeletion(t.Context(), "ns/leaving")
	}
	count()
	series := func() [2]int {
		return [2]int{testutil.CollectAndCount(failures) - before[0], testutil.CollectAndCount(ttlDeletions) - before[1]}
	}
	if diff := cmp.Diff([2]int{1, 1}, series()); diff != "" {
		t.Errorf("series of a member that is there (-want +got):\n%s", diff)
	}
	var underWay sync.WaitGroup
	for range 100 {
		underWay.Go(count)
	}
	members.gone.Store(true)
	ForgetMember("ns/leaving")
	underWay.Wait()
	count()
	if diff := cmp.Diff([2]int{}, series()); diff != "" {
		t.Errorf("series of a member that is gone (-want +got):\n%s", diff)
	}
	if kept := reasonsOf["ns/leaving"]; kept != nil {
		t.Errorf("its reasons are kept: %v", kept)
	}
}
