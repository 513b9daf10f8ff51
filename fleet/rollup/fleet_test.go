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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

func fleetOf(name string, selector *metav1.LabelSelector) *fleetv1alpha1.AgentRunFleetStatus {
	return &fleetv1alpha1.AgentRunFleetStatus{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       fleetv1alpha1.AgentRunFleetStatusSpec{ClusterSelector: selector},
	}
}

func matchRegion(region string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"region": region}}
}

// Each summary sums up what it selects; one that cannot be used says why and hurts no
// other; and two clusters of one name in two namespaces are two members.
func TestSelectors(t *testing.T) {
	w := newWorld(t)
	for _, fleet := range []*fleetv1alpha1.AgentRunFleetStatus{
		fleetOf("europe", matchRegion("eu")),
		fleetOf("everything", &metav1.LabelSelector{}),
		fleetOf("moon", matchRegion("moon")),
		fleetOf("broken", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: "Near"}}}),
	} {
		w.Expect(hub.Client.Create(w.ctx, fleet)).To(Succeed())
	}
	eu, us := w.member("sel-eu", "prod"), w.member("sel-us", "prod")
	eu.Labels, us.Labels = map[string]string{"region": "eu"}, map[string]string{"region": "us"}
	w.create("sel-eu-runs", build.MakeAgentRun("a").Phase(agentv1alpha1.AgentRunRunning))
	w.create("sel-us-runs", build.MakeAgentRun("b").Failed("ErrImagePull", "no", time.Now()))
	w.start()
	w.members.set(eu)
	w.members.set(us)
	w.engage(eu.Name, "sel-eu-runs")
	w.engage(us.Name, "sel-us-runs")

	running := fleetv1alpha1.RunCounts{Running: 1, Active: 1}
	w.Eventually(w.cluster(eu.Name)).Should(haveRuns(running))
	w.Eventually(w.cluster(us.Name)).Should(haveRuns(fleetv1alpha1.RunCounts{Failed: 1}))
	w.Eventually(w.fleet("europe")).Should(And(haveRuns(running), HaveField("Status.Clusters.Ratio", "1/1")))
	w.Eventually(w.fleet("everything")).Should(And(haveRuns(fleetv1alpha1.RunCounts{Running: 1, Active: 1, Failed: 1}),
		HaveField("Status.Clusters.Ratio", "2/2")))
	w.Eventually(w.fleet("moon")).Should(harness.HaveCondition("Ready", metav1.ConditionFalse, "NoMembers"))
	w.Eventually(w.fleet("broken")).Should(And(
		harness.HaveCondition("Ready", metav1.ConditionFalse, "InvalidSelector"),
		HaveField("Status.Conditions", ConsistOf(HaveField("Message", ContainSubstring("spec.clusterSelector.matchExpressions[0].operator")))),
	))
	_, err := w.fleet("fleet")()
	w.Expect(err).To(notFound, "the default summary is only made when there is none")

	for _, fleet := range []string{"europe", "everything"} {
		w.Eventually(w.fleet(fleet)).Should(HaveField("Status.TotalExact", true))
	}
	t.Log("only the summaries whose numbers change are written")
	quiet := time.Now()
	w.create("sel-us-runs", build.MakeAgentRun("c").Failed("ErrImagePull", "no", time.Now()))
	w.Eventually(w.fleet("everything")).Should(haveRuns(fleetv1alpha1.RunCounts{Running: 1, Active: 1, Failed: 2}))
	w.Eventually(w.fleet("everything")).Should(And(HaveField("Status.TotalFailures", int64(2)), HaveField("Status.TotalExact", true)))
	w.Consistently(func() []harness.Request { return w.writes("agentrunfleetstatuses/status", quiet) }).
		Should(And(Not(BeEmpty()), HaveEach(HaveField("Name", "everything"))))

	t.Log("a mended selector, and labels that move a member, take effect")
	broken, err := w.fleet("broken")()
	w.Expect(err).NotTo(HaveOccurred())
	broken.Spec.ClusterSelector = matchRegion("eu")
	w.Expect(hub.Client.Update(w.ctx, broken)).To(Succeed())
	w.Eventually(w.fleet("broken")).Should(And(haveRuns(running), HaveField("Status.ObservedGeneration", int64(2)),
		harness.HaveCondition("Ready", metav1.ConditionTrue, "")))
	us.Labels = map[string]string{"region": "eu"}
	w.members.set(us)
	w.Eventually(w.fleet("europe")).Should(HaveField("Status.Clusters.Ratio", "2/2"))
}

// The tables are what people read.
func TestPrintedTables(t *testing.T) {
	w := newWorld(t)
	w.start()
	end := time.Now().Add(-time.Hour)
	east, west := w.member("tables", "east"), w.member("tables", "west")
	w.create("tables-east", build.MakeAgentRun("a").Phase(agentv1alpha1.AgentRunRunning))
	w.create("tables-east", build.MakeAgentRun("b").Failed("ImagePullBackOff", "no", end))
	w.create("tables-east", build.MakeAgentRun("c").Failed("ImagePullBackOff", "no", end))
	w.create("tables-west", build.MakeAgentRun("d").Failed("CreateContainerConfigError", "no", end))
	w.create("tables-west", build.MakeAgentRun("e"))
	w.members.set(east)
	w.members.set(west)
	w.engage(east.Name, "tables-east")
	w.engage(west.Name, "tables-west")
	w.Eventually(w.fleet("fleet")).Should(haveRuns(fleetv1alpha1.RunCounts{Pending: 1, Running: 1, Active: 2, Failed: 3}))
	w.Eventually(w.fleet("fleet")).Should(And(HaveField("Status.TotalFailures", int64(3)), HaveField("Status.TotalExact", true)))
	w.members.set(lost(west, metav1.ConditionUnknown, "Unreachable"))
	w.Eventually(w.fleet("fleet")).Should(haveRuns(fleetv1alpha1.RunCounts{Running: 1, Active: 1, Failed: 3, Unknown: 1}))
	w.Eventually(w.cluster(west.Name)).Should(haveRuns(fleetv1alpha1.RunCounts{Failed: 1, Unknown: 1}))

	cases := map[string]struct {
		command []string
		want    string
	}{
		"the fleet at a glance": {[]string{"get", "agentrunfleetstatus"}, `
NAME    CLUSTERS   ACTIVE   FAILED   TOTAL FAILED   TOP REASON         COUNT   LAST FAILURE
fleet   1/2        1        3        3              ImagePullBackOff   2       <age>
`},
		"the fleet in full": {[]string{"get", "arfs", "-o", "wide"}, `
NAME    CLUSTERS   ACTIVE   FAILED   TOTAL FAILED   TOP REASON         COUNT   LAST FAILURE   READY   EXACT   PENDING   RUNNING   SUCCEEDED   UNKNOWN   AGE
fleet   1/2        1        3        3              ImagePullBackOff   2       <age>          False   true    0         1         0           1         <age>
`},
		"which member": {[]string{"get", "arcs", "-A"}, `
NAMESPACE   NAME   CONNECTED   REASON        ACTIVE   FAILED   UNKNOWN   TOTAL FAILED   TOP REASON                   COUNT   LAST FAILURE   LAST CONTACT
tables      east   True        Connected     1        2        0         2              ImagePullBackOff             2       <age>          <age>
tables      west   Unknown     Unreachable   0        1        1         1              CreateContainerConfigError   1       <age>          <age>
`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			printed, err := hub.Kubectl(t.Context(), tc.command...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, "\n"+harness.NormalizeAges(printed)); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}
