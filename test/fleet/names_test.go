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
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestLongNames: two clusters of one name, as long as a label's value may be, are members in
// two namespaces of the hub, of which one has a name as long as may be.
func TestLongNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "site")
	site := f.members["site"]
	cluster := strings.Repeat("c", 63)
	namespaces := []string{clusters, strings.Repeat("n", 63)}
	f.start()
	for i, namespace := range namespaces {
		f.WithT.Expect(f.hub.EnsureNamespace(t.Context(), namespace)).To(Succeed())
		work := f.namespace(fmt.Sprintf("work-%d", i))
		run := build.MakeAgentRun("run").Namespace(work).Obj()
		f.WithT.Expect(site.create(t.Context(), run, labelled(run).Scheduled().Waiting("main", "ImagePullBackOff", "").Obj())).To(Succeed())
		secret := harness.MemberSecret(namespace, cluster, f.kubeconfig("site"))
		secret.Annotations = map[string]string{"fleet.konveyor.io/namespaces": work}
		f.WithT.Expect(f.hub.Client.Create(t.Context(), secret)).To(Succeed())
	}
	for i, namespace := range namespaces {
		f.WithT.Eventually(site.run(t.Context(), fmt.Sprintf("work-%d", i), "run")).Should(failedWith("ImagePullBackOff"))
		f.WithT.Eventually(func() (*fleetv1alpha1.AgentRunClusterStatus, error) {
			status := &fleetv1alpha1.AgentRunClusterStatus{}
			return status, f.hub.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: cluster}, status)
		}).Should(And(
			harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"),
			HaveField("Status.Runs.Failed", int32(1)),
			HaveField("Status.RecentFailures", ConsistOf(HaveField("Namespace", fmt.Sprintf("work-%d", i)))),
		))
		f.WithT.Eventually(func() (string, error) { return f.manager.Metrics(t.Context()) }).Should(And(
			ContainSubstring(fmt.Sprintf(`agentrunfleet_member_up{cluster="%s/%s"} 1`, namespace, cluster)),
			ContainSubstring(fmt.Sprintf(`agentrunfleet_recorded_failures_total{cluster="%s/%s",reason="ImagePullBackOff"} 1`, namespace, cluster)),
		))
	}
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status", And(
		HaveField("Clusters.Ratio", "2/2"), HaveField("Runs.Failed", int32(2)),
		HaveField("ClusterSummaries", ConsistOf(
			HaveField("Name", namespaces[0]+"/"+cluster),
			HaveField("Name", namespaces[1]+"/"+cluster),
		)),
	)))
}
