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

package rollup_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/rollup"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// No run and no member makes a status that the API server refuses.
func TestHostileInputIsStored(t *testing.T) {
	w := newWorld(t)
	w.Expect(hub.EnsureNamespace(w.ctx, "hostile")).To(Succeed())
	rng := rand.New(rand.NewPCG(5, 6))
	clusterStatus := &fleetv1alpha1.AgentRunClusterStatus{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "m"}}
	fleet := fleetOf("hostile", nil)
	w.Expect(hub.Client.Create(w.ctx, clusterStatus)).To(Succeed())
	w.Expect(hub.Client.Create(w.ctx, fleet)).To(Succeed())

	for range 12 {
		var members []tally.Member
		for i := range rng.IntN(80) {
			clusterStatus.Status = rollup.StatusOf(hostileMember(rng), tally.Of(hostileRuns(rng), nil))
			if i == 0 { // each has passed through the same code: one write tells
				w.Expect(hub.Client.Status().Update(w.ctx, clusterStatus.DeepCopy())).NotTo(HaveOccurred())
				w.Expect(hub.Client.Get(w.ctx, types.NamespacedName{Namespace: "hostile", Name: "m"}, clusterStatus)).To(Succeed())
			}
			name := strings.Repeat("n", 63) + "/" + fmt.Sprintf("%0253d", i)
			members = append(members, tally.Member{Name: name, Status: *clusterStatus.Status.DeepCopy()})
		}
		fleet.Status = tally.Summary(fleet.Status, members, time.Now())
		fleet.Status.Conditions[0].LastTransitionTime = metav1.Now()
		w.Expect(hub.Client.Status().Update(w.ctx, fleet)).NotTo(HaveOccurred())
	}
}

// The same, by way of a member whose API server let it in: a time that is in the year
// 10000 in UTC, a reason of 1,024 characters, a message of 32 KiB with control
// characters.
func TestHostileRunOfAMemberIsStored(t *testing.T) {
	w := newWorld(t)
	w.start()
	m := w.member("hostilerun", "m")
	m.Connected.Reason, m.Connected.Message = "not a reason", strings.Repeat("\x1b[31m", 10000)
	m.KubernetesVersion, m.Endpoint = strings.Repeat("v", 100), strings.Repeat("e\n", 1000)
	m.LastContactTime, m.Connected.LastTransitionTime = metav1.Time{}, metav1.Time{}
	end := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	w.create("hostilerun-runs", build.MakeAgentRun("a").Failed("A"+strings.Repeat("_x", 511), strings.Repeat("\x1b[2Jé\u202e\n", 4000), end))
	late := w.create("hostilerun-runs", build.MakeAgentRun("b").Failed("ErrImagePull", "no", end))
	patch := `{"status":{"completionTime":"9999-12-31T23:59:59-14:00"}}`
	w.Expect(hub.Client.Status().Patch(w.ctx, late, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
	w.members.set(m)
	w.engage(m.Name, "hostilerun-runs")

	w.Eventually(w.cluster(m.Name)).Should(And(haveRuns(fleetv1alpha1.RunCounts{Failed: 2}),
		harness.HaveCondition("Connected", metav1.ConditionTrue, "Other")))
	w.Eventually(w.fleet("fleet")).Should(And(haveRuns(fleetv1alpha1.RunCounts{Failed: 2}),
		HaveField("Status.Failures", ConsistOf(HaveField("Reason", "Other"), HaveField("Reason", "ErrImagePull")))))
}

func hostileMember(rng *rand.Rand) rollup.Member {
	return rollup.Member{
		Connected: metav1.Condition{
			Type: hostileText(rng), Status: metav1.ConditionStatus(hostileText(rng)),
			Reason: hostileText(rng), Message: hostileText(rng),
		},
		KubernetesVersion: hostileText(rng), Endpoint: hostileText(rng),
	}
}

func hostileRuns(rng *rand.Rand) []tally.Run {
	var runs []tally.Run
	for range rng.IntN(90) {
		runs = append(runs, tally.Run{
			Namespace: hostileText(rng), Name: hostileText(rng), Phase: agentv1alpha1.AgentRunFailed,
			Reason: hostileText(rng), Message: hostileText(rng), Completed: hostileTime(rng),
			Evidence: tally.Evidence{Container: hostileText(rng), Image: hostileText(rng), Node: hostileText(rng)},
		})
	}
	return runs
}

func hostileTime(rng *rand.Rand) time.Time {
	return []time.Time{
		{}, time.Unix(0, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -14*3600)), time.Now(),
	}[rng.IntN(6)]
}

func hostileText(rng *rand.Rand) string {
	switch rng.IntN(6) {
	case 0:
		return ""
	case 1:
		return "Reason" + fmt.Sprint(rng.IntN(100))
	case 2:
		return strings.Repeat("😀", rng.IntN(2000))
	}
	var b strings.Builder
	for range rng.IntN(600) {
		b.WriteByte(byte(rng.IntN(256)))
	}
	return b.String()
}
