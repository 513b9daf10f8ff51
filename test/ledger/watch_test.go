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
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// follower watches the hub, as `kubectl get -w` does, and notes each total that goes back.
type follower struct {
	mu       sync.Mutex
	last     map[string]numbers // by object
	changes  map[string]int
	problems []string
	stop     func()
}

// follow watches the summary and the members' objects until end, or the test's end.
func (f *fleet) follow() *follower {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	w := &follower{last: map[string]numbers{}, changes: map[string]int{}}
	var wg sync.WaitGroup
	for _, list := range []func() client.ObjectList{
		func() client.ObjectList { return &fleetv1alpha1.AgentRunFleetStatusList{} },
		func() client.ObjectList { return &fleetv1alpha1.AgentRunClusterStatusList{} },
	} {
		wg.Go(func() { w.watch(ctx, f.hub.Client, list) })
	}
	w.stop = func() {
		cancel()
		wg.Wait()
	}
	f.Cleanup(w.stop)
	return w
}

// watch begins anew when a watch ends; what it is then told of first counts as well.
func (w *follower) watch(ctx context.Context, hub client.WithWatch, list func() client.ObjectList) {
	for ctx.Err() == nil {
		events, err := hub.Watch(ctx, list())
		if err != nil {
			_ = pause(ctx, 100*time.Millisecond)
			continue
		}
		for event := range events.ResultChan() {
			if o, ok := event.Object.(client.Object); ok {
				w.see(fmt.Sprintf("%T %s", o, o.GetName()), numbersOf(o))
			}
		}
	}
}

func (w *follower) see(object string, now numbers) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.last[object]
	if now.Sum < before.Sum {
		w.problems = append(w.problems, fmt.Sprintf("%s: totalFailures went from %d to %d", object, before.Sum, now.Sum))
	}
	for reason, n := range before.Totals {
		if now.Totals[reason] < n { // a line that is gone is a total of zero
			w.problems = append(w.problems, fmt.Sprintf("%s: the total of %s went from %d to %d", object, reason, n, now.Totals[reason]))
		}
	}
	if now.Sum != before.Sum {
		w.changes[object]++
	}
	w.last[object] = now
}

// neverWentBack ends the watch. It must have seen the summary come to its last total, in
// several steps.
func (f *fleet) neverWentBack(w *follower, want totals) {
	f.Helper()
	sums, err := f.summary()
	f.Expect(err).NotTo(HaveOccurred())
	object := fmt.Sprintf("%T %s", sums, sums.Name)
	f.Eventually(func() totals {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.last[object].Totals
	}).Should(Equal(want))
	w.stop()
	f.Expect(w.problems).To(BeEmpty())
	f.Expect(w.changes[object]).To(BeNumerically(">=", 3))
	f.Logf("The watch saw the summary's total move %d times", w.changes[object])
}
