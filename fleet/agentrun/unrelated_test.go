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
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// unrelatedPods is how many pods of others a member has, and unrelatedHeap what they may
// cost in all, in bytes. A cache without selectors that strips them needs 180 MiB.
const (
	unrelatedPods = 100_000
	unrelatedHeap = 256 << 10
)

// TestUnrelatedPodsCostNothing: a member gets very many pods that are no run's. Neither a
// hub that watches meanwhile has more on its heap afterwards, nor one that comes later; and
// the API server was asked for none of them, as its audit log says of each list and watch.
func TestUnrelatedPodsCostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
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
	storeUnrelated(t, cp, 0, unrelatedPods/100) // what is made once, and stays
	g.Eventually(func() int64 { return podsIn(t, cp) }).Should(BeNumerically("==", unrelatedPods/100))
	before := heapInUse()
	storeUnrelated(t, cp, unrelatedPods/100, unrelatedPods)
	g.Eventually(func() int64 { return podsIn(t, cp) }).Should(BeNumerically("==", unrelatedPods))
	marker := build.MakePod("marker").Label(agentv1alpha1.AgentRunLabel, "run").Container("main", "registry.example/agent:1").Obj()
	cached := cacheOf(member.Cluster)
	// Their watches are past the unrelated pods once they have delivered what came later.
	g.Expect(cp.CreatePod(t.Context(), marker)).To(Succeed())
	g.Eventually(func() error { return cached.Get(t.Context(), client.ObjectKeyFromObject(marker), &corev1.Pod{}) }).Should(Succeed())
	g.Eventually(func() int64 { return heapInUse() - before }).Should(BeNumerically("<", unrelatedHeap))
	t.Logf("%d pods of others: %d KiB of heap", unrelatedPods, (heapInUse()-before)/1024)

	before = heapInUse()
	late := engageAs(t, cp, config)
	g.Eventually(func() int64 { return heapInUse() - before }).Should(BeNumerically("<", unrelatedHeap))
	t.Logf("A member engaged when they are there: %d KiB of heap", (heapInUse()-before)/1024)
	g.Expect(cacheOf(late.Cluster).Get(t.Context(), client.ObjectKeyFromObject(marker), &corev1.Pod{})).To(Succeed())

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

// podsIn is how many pods an API server holds.
func podsIn(t *testing.T, cp *harness.ControlPlane) int64 {
	t.Helper()
	page := &corev1.PodList{}
	if err := cp.Client.List(t.Context(), page, client.Limit(1)); err != nil {
		t.Fatal(err)
	}
	return int64(len(page.Items)) + ptr.Deref(page.RemainingItemCount, 0)
}

// storeUnrelated stores pods that are no run's, from a number up to another.
func storeUnrelated(t *testing.T, cp *harness.ControlPlane, from, to int) {
	t.Helper()
	batch := make([]client.Object, 0, 1000)
	for i := from; i < to; i++ {
		pod := build.MakePod(fmt.Sprintf("unrelated-%d", i)).Label("app", "web").Container("main", "registry.example/web:1").Obj()
		batch = append(batch, pod)
		if len(batch) < cap(batch) && i < to-1 {
			continue
		}
		if err := cp.Store(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
		batch = batch[:0]
	}
}
