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

package bench

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// The budget of heap, in bytes. A heap is not a timing: it is the same on each machine.
const (
	heapOfMember = 150 << 10 // with nothing in it, Sandboxes served
	heapOfRun    = 5 << 10   // with its pod
	heapOfOthers = 256 << 10 // of all pods that are no run's, together
)

// TestHeapOfAnEmptyMember holds to the budget what BenchmarkHeap compares, in seconds.
func TestHeapOfAnEmptyMember(t *testing.T) {
	hub, empty := hubAndMembers(t, "empty")
	each := ours.heapOf(t, hub, empty[0], 20, 0)
	t.Logf("An empty member takes %.1f KiB of heap", each/1024)
	if each > heapOfMember {
		t.Errorf("An empty member takes %.1f KiB of heap, %d are allowed", each/1024, heapOfMember>>10)
	}
}

// BenchmarkHeap measures what an empty member, a live run with its pod, and a member's many pods of others cost on
// the heap of the whole manager: provider, connection, cache, controller and rollup. It
// fails above the budget. The plain set-up is measured beside it.
func BenchmarkHeap(b *testing.B) {
	const members, runs, unrelated = 40, 500, 100_000
	hub, planes := hubAndMembers(b, "empty", "runs", "others")
	empty, full, others := planes[0], planes[1], planes[2]
	for _, cp := range []*harness.ControlPlane{full, others} {
		populate(b, cp, runs)
	}
	storeUnrelated(b, others, unrelated)
	for b.Loop() {
		got, base := ours.costs(b, hub, empty, full, others, members, runs), plain.costs(b, hub, empty, full, others, members, runs)
		report(b, "member", got.member, base.member, heapOfMember)
		report(b, "run", got.run, base.run, heapOfRun)
		report(b, "unrelated-pods", got.others, base.others, heapOfOthers)
	}
}

// costs are of one set-up, in bytes of heap.
type costs struct{ member, run, others float64 }

func (s setUp) costs(b *testing.B, hub, empty, full, others *harness.ControlPlane, members, runs int) (c costs) {
	b.Helper()
	c.member = s.heapOf(b, hub, empty, members, 0)
	withRuns := s.heapOf(b, hub, full, 4, runs)
	c.run = (withRuns - c.member) / float64(runs)
	c.others = s.heapOf(b, hub, others, 1, runs) - withRuns
	return c
}

func report(b *testing.B, what string, got, plain float64, allowed int) {
	b.Helper()
	b.ReportMetric(got/1024, "KiB/"+what)
	b.ReportMetric(plain/1024, "plain-KiB/"+what)
	b.Logf("%s: %.1f KiB, in a plain set-up %.1f KiB", what, got/1024, plain/1024)
	if got > float64(allowed) {
		b.Errorf("%s: %.1f KiB of heap, %d are allowed", what, got/1024, allowed>>10)
	}
}

// hubAndMembers starts a hub and members that serve Sandboxes.
func hubAndMembers(tb testing.TB, names ...string) (hub *harness.ControlPlane, members []*harness.ControlPlane) {
	tb.Helper()
	crd, err := harness.SandboxCRDPath(tb.Context())
	must(tb, err)
	options := make([]harness.Options, len(names)+1)
	options[0], err = harness.HubOptions()
	must(tb, err)
	for i, name := range names {
		options[i+1], err = harness.MemberOptions(name, harness.WithCRDs(crd))
		must(tb, err)
	}
	planes := harness.NewControlPlanes(tb, options...)
	must(tb, planes[0].EnsureNamespace(tb.Context(), memberNamespace))
	return planes[0], planes[1:]
}

// populate stores runs with pods as large as real ones.
func populate(b *testing.B, member *harness.ControlPlane, runs int) {
	b.Helper()
	for i := range runs {
		run := build.MakeAgentRun(fmt.Sprintf("run-%d", i)).Obj()
		run.Spec.Instructions = strings.Repeat("do this and that. ", 50)
		must(b, member.Client.Create(b.Context(), run))
		pod := build.MakePod(run.Name+"-pod").ForRun(run).InitContainer("loader", "registry.example/loader:1").
			Container("main", "registry.example/agent:1").Scheduled().Phase(corev1.PodRunning).Running("main").Obj()
		for n := range 40 {
			pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", n), Value: strings.Repeat("v", 80)})
		}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
		pod.Annotations = map[string]string{"example.com/large": strings.Repeat("a", 1500)}
		must(b, member.CreatePod(b.Context(), pod))
	}
}

// storeUnrelated stores pods that are no run's.
func storeUnrelated(b *testing.B, member *harness.ControlPlane, n int) {
	b.Helper()
	pod := build.MakePod("").Label("app", "web").Container("main", "registry.example/web:1")
	pods := make([]client.Object, n)
	for i := range pods {
		pods[i] = pod.Obj()
		pods[i].SetName(fmt.Sprintf("unrelated-%d", i))
	}
	must(b, member.Store(b.Context(), pods...))
}
