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
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// limit bounds each wait of a benchmark.
const limit = 30 * time.Second

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// BenchmarkFailFast measures the time from kubelet's status being stored to the run's
// Failed status being visible to a watch, against the floor: a bare watch on pods whose
// every event is answered by one status patch.
func BenchmarkFailFast(b *testing.B) {
	const samples = 200
	hub, member := harness.NewHub(b), harness.NewMember(b, "member")
	must(b, hub.EnsureNamespace(b.Context(), "clusters"))
	user, err := member.AddUser("fleet", "system:masters")
	must(b, err)
	must(b, hub.Client.Create(b.Context(), harness.MemberSecret("clusters", "member", harness.Kubeconfig(user, ""))))
	binary, err := harness.BuildManager(b.Context(), b.TempDir())
	must(b, err)
	manager, err := harness.StartManager(b.Context(), binary, hub.KubeconfigPath(), filepath.Join(b.TempDir(), "manager.log"), "--member-qps=1000", "--member-burst=2000")
	must(b, err)
	b.Cleanup(func() {
		if _, err := manager.Stop(10 * time.Second); err != nil {
			b.Error(err)
		}
	})
	must(b, member.EnsureNamespace(b.Context(), "floor"))
	startFloor(b, member)
	failed := watchRuns(b, member)

	for b.Loop() {
		var product, floor []time.Duration
		for i := range samples {
			product = append(product, failOne(b, member, build.DefaultNamespace, i, true, failed))
			floor = append(floor, failOne(b, member, "floor", i, false, failed))
		}
		for _, p := range []float64{50, 99} {
			at, base := percentile(product, p), percentile(floor, p)
			b.ReportMetric(float64(at)/float64(base), fmt.Sprintf("p%.0f-ratio", p))
			b.Logf("p%.0f: %s, floor %s, ratio %.2f", p, at, base, float64(at)/float64(base))
		}
	}
}

// startFloor answers each failing pod in namespace floor by one patch of its run's status.
func startFloor(b *testing.B, member *harness.ControlPlane) {
	b.Helper()
	w, err := member.Client.Watch(b.Context(), &corev1.PodList{}, client.InNamespace("floor"))
	must(b, err)
	b.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type != watch.Modified || len(pod.Status.ContainerStatuses) == 0 {
				continue
			}
			run := build.MakeAgentRun(strings.TrimSuffix(pod.Name, "-pod")).Namespace("floor").Obj()
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed"}}`))
			if err := member.Client.Status().Patch(context.WithoutCancel(b.Context()), run, patch); err != nil {
				return // the benchmark is over, or will say so by its limit
			}
		}
	}()
}

// watchRuns tells when a run is seen Failed.
func watchRuns(b *testing.B, member *harness.ControlPlane) <-chan client.ObjectKey {
	b.Helper()
	w, err := member.Client.Watch(b.Context(), &agentv1alpha1.AgentRunList{})
	must(b, err)
	b.Cleanup(w.Stop)
	failed := make(chan client.ObjectKey, 1000)
	go func() {
		for event := range w.ResultChan() {
			if run, ok := event.Object.(*agentv1alpha1.AgentRun); ok && run.Status.Phase == agentv1alpha1.AgentRunFailed {
				failed <- client.ObjectKeyFromObject(run)
			}
		}
	}()
	return failed
}

// failOne makes a run and its pod, lets the pod fail, and returns how long it took from
// the pod's status being stored to the run being seen Failed.
func failOne(b *testing.B, member *harness.ControlPlane, namespace string, i int, labelled bool, failed <-chan client.ObjectKey) time.Duration {
	b.Helper()
	run := build.MakeAgentRun(fmt.Sprintf("run-%d", i)).Namespace(namespace).Obj()
	must(b, client.IgnoreAlreadyExists(member.Client.Create(b.Context(), run)))
	pod := build.MakePod(run.Name+"-pod").Namespace(namespace).Container("main", "registry.example/agent:1")
	if labelled {
		pod = pod.Label(agentv1alpha1.AgentRunLabel, run.Name)
	}
	must(b, member.Client.Create(b.Context(), pod.Obj()))
	if labelled {
		awaitPending(b, member, run)
	}
	stored := pod.Scheduled().Waiting("main", "ImagePullBackOff", "no such tag").Obj()
	must(b, member.SetPodStatus(b.Context(), stored))
	start := time.Now()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		select {
		case key := <-failed:
			if key == client.ObjectKeyFromObject(run) {
				return max(time.Since(start), time.Microsecond)
			}
		case <-timeout.C:
			b.Fatalf("AgentRun %s/%s was not seen Failed within %s", namespace, run.Name, limit)
		}
	}
}

// awaitPending waits until the manager has said that the run waits for its node, so
// that nothing but the failure is measured.
func awaitPending(b *testing.B, member *harness.ControlPlane, run *agentv1alpha1.AgentRun) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	must(b, wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := member.Client.Get(ctx, client.ObjectKeyFromObject(run), run); err != nil {
			return false, err
		}
		condition := meta.FindStatusCondition(run.Status.Conditions, agentv1alpha1.ConditionSucceeded)
		return condition != nil && condition.Message == "waiting for the scheduler", nil
	}))
}

func percentile(samples []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[int(math.Ceil(p/100*float64(len(sorted))))-1]
}
