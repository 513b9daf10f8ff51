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

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

const (
	// settleTimeout is how long the fleet may take to come to rest after the last fault.
	settleTimeout = 90 * time.Second
	// lookInterval is how often it is looked at.
	lookInterval = 250 * time.Millisecond
)

// TestChaos disturbs the fleet as planned, and then holds it against what the members'
// API servers hold.
func TestChaos(t *testing.T) {
	g := harness.NewGomega(t)
	begun := time.Now()
	p := newPlan(seedAndDuration(t))
	t.Logf("%s", p)
	f := newFleet(t, p)
	stopRecording := f.record(t)
	t.Logf("started after %s", time.Since(begun).Round(time.Second))

	g.Expect(f.chaos(t.Context())).To(Succeed())
	calm := time.Now()
	t.Logf("CHAOS_SEED=%d CHAOS_DURATION=%s: faults injected: %s", p.seed, p.duration, f.report())
	g.Expect(f.faults()).To(BeNumerically(">=", len(f.members)), "too few faults were injected for a verdict")
	// Deferred, so that a fleet that does not come to rest is explained as well.
	defer func() {
		stopRecording()
		f.checkHistory(t)
		t.Logf("took %s", time.Since(begun).Round(time.Second))
	}()

	g.Eventually(f.settled).WithContext(t.Context()).WithTimeout(settleTimeout).WithPolling(lookInterval).Should(Succeed())
	g.Eventually(f.totals).WithContext(t.Context()).WithTimeout(settleTimeout).WithPolling(lookInterval).Should(Succeed())
	f.logTotals(t)
	t.Logf("at rest %s after the last fault", time.Since(calm).Round(time.Second))
	g.Consistently(f.settled).WithContext(t.Context()).WithPolling(lookInterval).Should(Succeed())
}

// chaos runs the plan to its end; what it disturbs is healed when it returns.
func (f *fleet) chaos(ctx context.Context) error {
	f.clock = clock{start: time.Now()}
	work := []func() error{func() error { return f.crashManager(ctx, f.plan.of(managerTarget)) }}
	for _, m := range f.members {
		work = append(work,
			func() error { return f.disturb(ctx, m, f.plan.of(m.Name)) },
			func() error { return m.live(ctx, f.clock, f.plan.eventsOf(m.Name)) })
	}
	errs := make([]error, len(work))
	var wg sync.WaitGroup
	for i, do := range work {
		wg.Go(func() { errs[i] = do() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// record has every member's runs watched until the returned function is called, or the
// test ends.
func (f *fleet) record(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, m := range f.members {
		wg.Go(func() { m.recorder.follow(ctx, m.Client) })
	}
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// checkHistory holds every run that ever was against its own life.
func (f *fleet) checkHistory(t *testing.T) {
	t.Helper()
	for _, m := range f.members {
		if _, err := m.recorder.look(t.Context(), m.Client); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		for _, problem := range m.history() {
			t.Errorf("%s: %s", m.Name, problem)
		}
		ended := m.ended()
		t.Logf("%s: %d of %d lives were seen to end", m.Name, ended, len(m.lives))
		if ended == 0 {
			t.Errorf("%s: no run was seen to end; there was nothing to check", m.Name)
		}
	}
}

// faults is how many were injected.
func (f *fleet) faults() int {
	total := 0
	for _, n := range f.injected.counts {
		total += n
	}
	return total
}

// report lists the faults injected by kind.
func (f *fleet) report() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(f.injected.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", f.injected.counts[k], k))
	}
	return fmt.Sprintf("%d (%s)", f.faults(), strings.Join(parts, ", "))
}
