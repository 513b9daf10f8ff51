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
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestUnrelatedPodsCostNothing. That 100,000 pods of others cost nothing follows from the
// API server not sending them, which the audit log proves for each list and watch,
// whatever their number; to create that many takes a quarter of an hour. The heap is
// measured beside that with as many as CI bears: in a plain cache they are 19 KiB each,
// in one that only strips them 3.6 KiB.
func TestUnrelatedPodsCostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	const pods, allowed = 3000, 256 << 10 // bytes in all, 87 for each
	crd, err := harness.SandboxCRDPath(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cp := harness.NewMember(t, "member", harness.WithAudit, harness.WithCRDs(crd))
	proxy := harness.NewProxy(t, cp)
	config := rest.CopyConfig(cp.Config)
	config.UserAgent, config.Host = "observer", proxy.URL()
	member := engageAs(t, cp, config)
	g := harness.NewGomega(t)
	before := heapInUse()
	createUnrelated(t, cp, pods)
	marker := build.MakePod("marker").Label(agentv1alpha1.AgentRunLabel, "run").Container("main", "registry.example/agent:1").Obj()
	cached := cacheOf(member.Cluster)
	// Their watches are past the unrelated pods once they have delivered what came later.
	g.Expect(cp.CreatePod(t.Context(), marker)).To(Succeed())
	g.Eventually(func() error { return cached.Get(t.Context(), client.ObjectKeyFromObject(marker), &corev1.Pod{}) }).Should(Succeed())
	g.Eventually(func() int64 { return heapInUse() - before }).Should(BeNumerically("<", allowed))
	t.Logf("%d pods of others: %d KiB of heap", pods, (heapInUse()-before)/1024)

	selectors := func() (map[string]int, error) {
		requests, err := cp.Requests(harness.ByUserAgent("observer"), harness.WithVerb("list", "watch"), harness.OnResource("pods"))
		seen := map[string]int{}
		for _, r := range requests {
			uri, err := url.Parse(r.URI)
			if err != nil {
				return nil, err
			}
			seen[uri.Query().Get("labelSelector")]++
		}
		return seen, err
	}
	ours := agentv1alpha1.AgentRunLabel
	only := And(HaveLen(2), HaveKey(ours), HaveKey(sandboxPodLabel+",!"+ours))
	g.Expect(selectors()).To(only)
	first, err := selectors()
	g.Expect(err).NotTo(HaveOccurred())
	proxy.Reset() // and those that take the place of watches that were cut
	g.Eventually(selectors).Should(And(only, HaveKeyWithValue(ours, BeNumerically(">", first[ours]))))
	list := &corev1.PodList{}
	g.Expect(cached.sandboxPods.List(t.Context(), list)).To(Succeed())
	g.Expect(list.Items).To(BeEmpty())
}

// createUnrelated creates pods of about 8 KiB that are no run's.
func createUnrelated(t *testing.T, cp *harness.ControlPlane, n int) {
	t.Helper()
	const makers = 8
	var wait sync.WaitGroup
	for maker := range makers {
		wait.Go(func() {
			for i := maker; i < n; i += makers {
				pod := build.MakePod(fmt.Sprintf("unrelated-%d", i)).Label("app", "web").Container("main", "registry.example/web:1").Obj()
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "large", strings.Repeat("x", 7<<10))
				if err := cp.Client.Create(t.Context(), pod); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}
