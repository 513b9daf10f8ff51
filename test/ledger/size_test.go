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
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

const (
	// sizeLimit is what every object of the hub stays under, as stored.
	sizeLimit = 256 << 10

	sizeMembers, sizeReasons, sizeFailures = 5000, 40, 10_000
	// moreReasons are in the fleet than an object lists.
	moreReasons = 60
)

// wide returns a text of so many characters, each of which takes six bytes in JSON as it
// is stored: more than any other character that may be printed.
func wide(n int) string { return strings.Repeat("<", n) }

// longName is a name of so many characters, with a number.
func longName(n, i int) string { return fmt.Sprintf("%0*d", n, i) }

// longReason is a reason as long as may be.
func longReason(i int) string { return fmt.Sprintf("R%062d", i) }

// TestSize: a hub of 5,000 members with 40 reasons each, one of which has had 10,000
// failures of the most verbose kind, holds no object of 256 KiB, and says what it leaves out.
func TestSize(t *testing.T) {
	if testing.Short() {
		t.Skip("measures sizes, in which nothing is concurrent")
	}
	t.Parallel()
	f := &fleet{T: t, WithT: harness.NewGomega(t), hub: harness.NewHub(t)}
	f.Expect(f.hub.EnsureNamespace(t.Context(), longName(63, 0))).To(Succeed())
	now := time.Now().UTC()
	worst := f.verbose(now)
	f.Expect(worst).To(And(
		HaveField("RecentFailures", HaveLen(fleetv1alpha1.MaxRecentFailures)),
		HaveField("RecentFailuresOmitted", BeEquivalentTo(sizeFailures-fleetv1alpha1.MaxRecentFailures)),
		HaveField("Failures", HaveLen(fleetv1alpha1.MaxFailureReasons)),
		HaveField("ReasonsOmitted", BeEquivalentTo(moreReasons-fleetv1alpha1.MaxFailureReasons+1)),
		HaveField("Ledger.InFlight", HaveLen(fleetv1alpha1.MaxInFlight)),
		HaveField("TotalFailures", BeEquivalentTo(sizeFailures)),
	))
	f.storesMember(worst)

	members := []tally.Member{{Name: longName(63, 0) + "/" + longName(253, 0), Status: worst}}
	for i := range sizeMembers - 1 {
		members = append(members, f.ordinary(i+1, now))
	}
	begun := time.Now()
	summary := tally.Summary(fleetv1alpha1.AgentRunFleetStatusStatus{}, members, now)
	t.Logf("One summary over %d members took %s", len(members), time.Since(begun).Round(time.Millisecond))
	f.Expect(summary).To(And(
		HaveField("Clusters.Total", BeEquivalentTo(sizeMembers)),
		HaveField("ClusterSummaries", HaveLen(fleetv1alpha1.MaxClusterSummaries)),
		HaveField("ClusterSummariesOmitted", BeEquivalentTo(sizeMembers-fleetv1alpha1.MaxClusterSummaries)),
		HaveField("Failures", HaveLen(fleetv1alpha1.MaxFailureReasons)),
		HaveField("ReasonsOmitted", BeEquivalentTo(moreReasons-fleetv1alpha1.MaxFailureReasons+1)),
		HaveField("TotalFailures", BeEquivalentTo(sizeFailures+(sizeMembers-1)*sizeReasons)),
	))
	f.storesSummary(summary)
}

// verbose is the status of a member whose failures are all of the longest texts. A thousand
// at a time are recorded, and then marked; the last thousand stay in flight.
func (f *fleet) verbose(now time.Time) fleetv1alpha1.AgentRunClusterStatusStatus {
	status := f.connection(0, now)
	runs := make([]tally.Run, sizeFailures)
	for i := range runs {
		runs[i] = verboseRun(i, now)
	}
	for from := 0; from < len(runs); from += fleetv1alpha1.MaxInFlight {
		for i := range from {
			runs[i].Marked = true
		}
		status = recordAll(status, runs[:from+fleetv1alpha1.MaxInFlight], now)
	}
	return status
}

// verboseRun failed in any of the last 24 hours, or of the last 12 five minutes. The last
// ones failed for what is no reason.
func verboseRun(i int, now time.Time) tally.Run {
	ago := time.Second + time.Duration(i%24)*time.Hour
	if i%2 == 0 {
		ago = time.Second + time.Duration(i/2%12)*5*time.Minute
	}
	run := tally.Run{
		UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)), Namespace: longName(63, i), Name: longName(253, i),
		Phase: agentv1alpha1.AgentRunFailed, Reason: longReason(i % moreReasons), Message: wide(2000), Completed: now.Add(-ago),
		Evidence: tally.Evidence{Container: wide(100), Image: wide(500), Node: wide(300)},
	}
	if i >= sizeFailures-fleetv1alpha1.MaxRecentFailures && i < sizeFailures {
		run.Reason, run.Completed = wide(300), now
	}
	return run
}

// ordinary is a member in which a run has failed for each of forty of the reasons.
func (f *fleet) ordinary(i int, now time.Time) tally.Member {
	runs := make([]tally.Run, sizeReasons)
	for j := range runs {
		runs[j] = verboseRun(i*sizeReasons+j, now)
		runs[j].Reason, runs[j].Message = longReason((i+j)%moreReasons), "no"
	}
	// The fortieth reason has no line of its own: the first 39 have, and Other.
	status := recordAll(f.connection(i, now), runs, now)
	return tally.Member{Name: longName(63, i) + "/" + longName(253, i), Status: status}
}

func recordAll(status fleetv1alpha1.AgentRunClusterStatusStatus, runs []tally.Run, now time.Time) fleetv1alpha1.AgentRunClusterStatusStatus {
	counted := tally.Of(runs, sets.New(status.Ledger.InFlight...))
	return tally.Observe(status, tally.Observation{
		Tally: &counted, Record: true, Writer: "00000000-0000-0000-0000-000000000000",
		MayCount: func(tally.Run) bool { return true }, Now: now,
	})
}

// connection is what stands in a status beside numbers. Every other member is lost.
func (f *fleet) connection(i int, now time.Time) fleetv1alpha1.AgentRunClusterStatusStatus {
	at := metav1.NewTime(now.Truncate(time.Second))
	connected := metav1.Condition{
		Type: fleetv1alpha1.ConditionConnected, Status: metav1.ConditionTrue, Reason: "Connected",
		Message: wide(1024), LastTransitionTime: at,
	}
	if i%2 == 1 {
		connected.Status, connected.Reason = metav1.ConditionUnknown, "Unreachable"
	}
	return fleetv1alpha1.AgentRunClusterStatusStatus{
		Conditions: []metav1.Condition{connected}, LastContactTime: &at, KubernetesVersion: wide(63), Endpoint: wide(512),
	}
}

func (f *fleet) storesMember(status fleetv1alpha1.AgentRunClusterStatusStatus) {
	f.Helper()
	o := &fleetv1alpha1.AgentRunClusterStatus{ObjectMeta: metav1.ObjectMeta{
		Namespace: longName(63, 0), Name: longName(253, 0),
		Labels: map[string]string{fleetv1alpha1.ManagedByLabel: fleetv1alpha1.ManagedByValue},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Secret", Name: longName(253, 0), UID: "00000000-0000-0000-0000-000000000000",
		}},
	}}
	f.stores(o, func() { o.Status = status })
}

func (f *fleet) storesSummary(status fleetv1alpha1.AgentRunFleetStatusStatus) {
	f.Helper()
	o := &fleetv1alpha1.AgentRunFleetStatus{ObjectMeta: metav1.ObjectMeta{Name: fleetv1alpha1.DefaultFleetStatusName}}
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Now()
	}
	f.stores(o, func() { o.Status = status })
}

// stores writes an object and its status, and holds what is stored of it, all metadata
// included, to the limit.
func (f *fleet) stores(o client.Object, setStatus func()) {
	f.Helper()
	f.Expect(f.hub.Client.Create(f.Context(), o)).To(Succeed())
	setStatus()
	f.Expect(f.hub.Client.Status().Update(f.Context(), o)).To(Succeed())
	stored, err := f.hub.Kubectl(f.Context(), "get", "--raw", pathOf(o))
	f.Expect(err).NotTo(HaveOccurred())
	f.Logf("%T is stored in %d bytes of JSON", o, len(stored))
	f.Expect(len(stored)).To(BeNumerically("<", sizeLimit), "%T", o)
}

func pathOf(o client.Object) string {
	prefix := "/apis/" + fleetv1alpha1.GroupVersion.String()
	if o.GetNamespace() == "" {
		return prefix + "/agentrunfleetstatuses/" + o.GetName()
	}
	return prefix + "/namespaces/" + o.GetNamespace() + "/agentrunclusterstatuses/" + o.GetName()
}
