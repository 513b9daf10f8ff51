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
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// fair is how much longer a run of a member may take to fail, by the median, while thousands
// of another are to fail.
const fair = 2

// BenchmarkFairness measures the time that a failing run takes while another member of the
// same manager has thousands that are to fail, against a manager that has nothing else to do.
// Both serve a namespace of the same cluster in turn, so that the machine is as busy for one
// as for the other.
func BenchmarkFairness(b *testing.B) {
	const crowd, samples = 5000, 200
	hub, quietHub, busy, well := fairPlanes(b)
	binary, err := harness.BuildManager(b.Context(), b.TempDir())
	must(b, err)
	joinLimited(b, hub, well, "beside-busy")
	joinLimited(b, hub, busy, build.DefaultNamespace)
	joinLimited(b, quietHub, well, "quiet")
	for _, h := range []*harness.ControlPlane{hub, quietHub} {
		// The rate keeps the busy member at it for as long as is measured.
		manager, err := harness.StartManager(b.Context(), binary, h.KubeconfigPath(), filepath.Join(b.TempDir(), "manager.log"), "--member-qps=100", "--member-burst=200")
		must(b, err)
		b.Cleanup(func() {
			if _, err := manager.Stop(10 * time.Second); err != nil {
				b.Error(err)
			}
		})
	}
	failed := watchRuns(b, well)
	for b.Loop() {
		failAtOnce(b, busy, crowd)
		var disturbed, quiet []time.Duration
		for i := range samples {
			disturbed = append(disturbed, failOne(b, well, "beside-busy", i, true, failed))
			quiet = append(quiet, failOne(b, well, "quiet", i, true, failed))
		}
		if left := crowd - failedRuns(b, hub, "busy"); left < crowd/4 {
			b.Fatalf("%d of %d runs of the busy member are yet to fail, which is no longer busy", left, crowd)
		}
		for _, p := range []float64{50, 99} {
			at, base := percentile(disturbed, p), percentile(quiet, p)
			ratio := float64(at) / float64(base)
			b.ReportMetric(ratio, fmt.Sprintf("p%.0f-ratio", p))
			b.Logf("p%.0f: %s beside a busy member, %s in quiet, ratio %.2f", p, at, base, ratio)
			if p == 50 && ratio > fair {
				b.Errorf("p50 is %.2f times that in quiet, allowed are %d", ratio, fair)
			}
		}
	}
}

func fairPlanes(b *testing.B) (hub, quietHub, busy, well *harness.ControlPlane) {
	b.Helper()
	options := make([]harness.Options, 4)
	for i, name := range []string{"hub", "quiet-hub"} {
		o, err := harness.HubOptions()
		must(b, err)
		options[i], options[i].Name = o, name
	}
	for i, name := range []string{"busy", "well"} {
		o, err := harness.MemberOptions(name)
		must(b, err)
		options[2+i] = o
	}
	planes := harness.NewControlPlanes(b, options...)
	return planes[0], planes[1], planes[2], planes[3]
}

// joinLimited makes a namespace of a cluster a member.
func joinLimited(b *testing.B, hub, member *harness.ControlPlane, namespace string) {
	b.Helper()
	must(b, hub.EnsureNamespace(b.Context(), memberNamespace))
	must(b, member.EnsureNamespace(b.Context(), namespace))
	user, err := member.AddUser("fleet-of-"+hub.Name, "system:masters")
	must(b, err)
	secret := harness.MemberSecret(memberNamespace, member.Name, harness.Kubeconfig(user, ""))
	secret.Annotations = map[string]string{"fleet.konveyor.io/namespaces": namespace}
	must(b, hub.Client.Create(b.Context(), secret))
}

// failAtOnce stores runs that are to fail.
func failAtOnce(b *testing.B, member *harness.ControlPlane, n int) {
	b.Helper()
	created := time.Now().Truncate(time.Second) // a pod that is older than the run is not the run's
	objects := make([]client.Object, 0, 2*n)
	for i := range n {
		run := build.MakeAgentRun(fmt.Sprintf("run-%d", i)).Created(created).Obj()
		pod := build.MakePod(run.Name+"-pod").ForRun(run).Container("main", "registry.example/agent:1").
			Created(created).Scheduled().Waiting("main", "ImagePullBackOff", "no such tag").Obj()
		objects = append(objects, run, pod)
	}
	must(b, member.Store(b.Context(), objects...))
}

// failedRuns is how many runs of a member have failed, as the hub says.
func failedRuns(b *testing.B, hub *harness.ControlPlane, member string) int {
	b.Helper()
	status := &fleetv1alpha1.AgentRunClusterStatus{}
	must(b, hub.Client.Get(b.Context(), client.ObjectKey{Namespace: memberNamespace, Name: member}, status))
	if status.Status.Runs == nil {
		b.Fatalf("member %q has not been observed", member)
	}
	return int(status.Status.Runs.Failed)
}
