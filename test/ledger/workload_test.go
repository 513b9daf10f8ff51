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
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

// ending is how a run comes to its end.
type ending struct {
	// reason is why it fails; empty when it succeeds.
	reason string
	// run is what another controller, or the run's author, leaves on it.
	run func(*build.AgentRunWrapper) *build.AgentRunWrapper
	// report is what kubelet reports of its pod; nil when there is no pod.
	report func(*build.PodWrapper) *build.PodWrapper
}

// endings has the twelve reasons for which runs fail, in the three ways in which they come
// to be known: from kubelet, from a clock, and from another controller.
var endings = []ending{
	waits("ImagePullBackOff", corev1.PodPending),
	waits("InvalidImageName", corev1.PodPending),
	waits("CreateContainerConfigError", corev1.PodPending),
	waits("CrashLoopBackOff", corev1.PodRunning),
	terminates("OOMKilled", 137),
	terminates("Error", 1),
	terminates("ContainerCannotRun", 128),
	{reason: "Evicted", report: func(p *build.PodWrapper) *build.PodWrapper {
		return p.Scheduled().PodFailed("Evicted", "low on memory")
	}},
	{reason: "StartupDeadlineExceeded", run: func(r *build.AgentRunWrapper) *build.AgentRunWrapper { return r.StartupDeadline(1) }},
	failedByAnother("AgentCrashed"),
	failedByAnother("BudgetExceeded"),
	failedByAnother("ToolDenied"),
}

var succeeds = ending{report: func(p *build.PodWrapper) *build.PodWrapper {
	return p.Scheduled().Phase(corev1.PodSucceeded).Terminated("main", "Completed", 0)
}}

func waits(reason string, phase corev1.PodPhase) ending {
	return ending{reason: reason, report: func(p *build.PodWrapper) *build.PodWrapper {
		return p.Scheduled().Phase(phase).Waiting("main", reason, "no")
	}}
}

func terminates(reason string, code int32) ending {
	return ending{reason: reason, report: func(p *build.PodWrapper) *build.PodWrapper {
		return p.Scheduled().Phase(corev1.PodFailed).Terminated("main", reason, code)
	}}
}

func failedByAnother(reason string) ending {
	return ending{reason: reason, run: func(r *build.AgentRunWrapper) *build.AgentRunWrapper {
		return r.Failed(reason, "another controller says so", time.Now())
	}}
}

// byAnother are the endings that other controllers write.
var byAnother = endings[len(endings)-3:]

// life is a run that is to end.
type life struct {
	member, name string
	ending       ending
	ttl          *int32
}

func (l life) run() *build.AgentRunWrapper {
	run := build.MakeAgentRun(l.name)
	if l.ending.run != nil {
		run = l.ending.run(run)
	}
	if l.ttl != nil {
		run.TTLAfterFinished(*l.ttl)
	}
	return run
}

// live makes the run and what there is of its pod, which nothing owns: there is no garbage
// collector that a deletion would have to wait for.
func (m *member) live(ctx context.Context, l life) error {
	run := l.run().Obj()
	if err := m.CreateRun(ctx, run); err != nil || l.ending.report == nil {
		return err
	}
	return m.CreatePod(ctx, l.ending.report(podOf(run)).Obj())
}

func podOf(run *agentv1alpha1.AgentRun) *build.PodWrapper {
	return build.MakePod(run.Name+"-pod").ForRun(run).Container("main", "registry.example/agent:1")
}

// workload draws lives, and keeps the truth about them.
type workload struct {
	*rand.Rand
	members []string
	endings []ending
	ttl     *int32
	made    int
	truth   truth
}

// seedOf is the environment's seed, or a random one. It is printed.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FLEET_LEDGER_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("FLEET_LEDGER_SEED is no unsigned number: %v", err)
		}
	}
	t.Logf("FLEET_LEDGER_SEED=%d", seed)
	return seed
}

func (f *fleet) workload(ttl *int32, endings ...ending) *workload {
	f.Helper()
	w := &workload{Rand: rand.New(rand.NewPCG(seedOf(f.T), 0)), members: f.names, endings: endings, ttl: ttl, truth: truth{}}
	for _, name := range f.names {
		w.truth[name] = totals{}
	}
	return w
}

// draw returns the lives of n runs that fail, and of one more that succeeds. They count as
// having been.
func (w *workload) draw(n int) []life {
	lives := []life{w.life(succeeds)}
	for range n {
		l := w.life(w.endings[w.IntN(len(w.endings))])
		w.truth[l.member][l.ending.reason]++
		lives = append(lives, l)
	}
	w.Shuffle(len(lives), func(i, j int) { lives[i], lives[j] = lives[j], lives[i] })
	return lives
}

func (w *workload) life(e ending) life {
	w.made++
	return life{member: w.members[w.IntN(len(w.members))], name: fmt.Sprintf("run-%d", w.made), ending: e, ttl: w.ttl}
}

// failures is how many failures there have been.
func (w *workload) failures() int64 { return w.truth.all().sum() }

// begin makes runs in the background, each member's in order, several members at a time.
func (f *fleet) begin(lives []life) (done <-chan error) {
	out := make(chan error, 1)
	ctx := f.Context()
	go func() {
		var wg sync.WaitGroup
		errs := make([]error, len(f.names))
		for i, name := range f.names {
			wg.Go(func() { errs[i] = f.members[name].liveAll(ctx, lives, name) })
		}
		wg.Wait()
		out <- errors.Join(errs...)
	}()
	return out
}

func (m *member) liveAll(ctx context.Context, lives []life, name string) error {
	for _, l := range lives {
		if l.member != name {
			continue
		}
		if err := m.live(ctx, l); err != nil {
			return err
		}
	}
	return nil
}
