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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// longestLife is how long a manager is left alive at most.
const longestLife = 8 * time.Second

// TestKilledAtRandomMoments: 2,000 runs fail for twelve reasons in four members, and go by
// their TTL, while the manager is killed twenty times. Each is counted once.
func TestKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	failures, kills := 2000, 20
	if testing.Short() {
		failures, kills = 300, 5
	}
	f := newFleet(t, nil, "alpha", "beta", "gamma", "delta")
	f.join(f.names...)
	w := f.workload(new(int32(1)), endings...)
	watch := f.follow()
	p := f.newPod("manager")
	p.start()
	begun, busy := time.Now(), 0
	for i := range kills {
		made := f.begin(w.draw(failures / (kills + 1)))
		f.Expect(pause(t.Context(), w.lifetime())).To(Succeed())
		p.Kill()
		if left := f.leftUndone(w); left > 0 {
			busy++
			t.Logf("Kill %d: of %d failures %d were not recorded, or not marked yet", i+1, w.failures(), left)
		}
		p.start()
		f.Expect(<-made).To(Succeed())
	}
	f.Expect(<-f.begin(w.draw(failures - int(w.failures())))).To(Succeed())
	t.Logf("%d failures of %d runs and %d kills in %s, %d of them in the midst of work", w.failures(), w.made, kills, time.Since(begun).Round(time.Second), busy)

	f.comesTo(w.truth)
	f.empty()
	f.neverWentBack(watch, w.truth.all())
	f.Expect(w.truth.all()).To(HaveLen(len(endings)), "not every reason was drawn")
	f.Expect(busy).To(BeNumerically(">", 0), "no kill came in the midst of work")
	t.Logf("Exact and at rest %s after the first", time.Since(begun).Round(time.Second))
}

// lifetime is how long a manager is left alive once it is ready: mostly for short, in the
// midst of what it does first, and now and then until it has nothing left to do.
func (w *workload) lifetime() time.Duration {
	u := w.Float64()
	return time.Duration(u * u * float64(longestLife))
}

// leftUndone counts failures that a manager has left without their record, which may be
// still to come, or in flight.
func (f *fleet) leftUndone(w *workload) (left int64) {
	f.Helper()
	left = w.failures()
	for _, name := range f.names {
		status, err := f.clusterStatus(name)
		f.Expect(client.IgnoreNotFound(err)).To(Succeed())
		left += int64(len(status.Status.Ledger.InFlight)) - status.Status.TotalFailures
	}
	return left
}
