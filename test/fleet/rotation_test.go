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

package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// staysEngaged is how long a member must stay connected after a rotation. A replaced
// connection lives on for 10 s, and took its replacement with it if that was not told apart.
const staysEngaged = 60 * time.Second

// TestRotation: a member's kubeconfig changes under the running manager while its runs
// fail, is spoilt and mended.
func TestRotation(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha")
	m := f.members["alpha"]
	first := m.user
	f.join("alpha")
	f.start()
	f.WithT.Eventually(f.clusterStatus("alpha")).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	statuses := recordCluster(f, "alpha")
	connected := f.clusterStatus("alpha")

	t.Log("runs fail before, while and after the connection is replaced: each once")
	const runs, before, after = 150, 20, 20
	for i := range runs {
		f.waits(m, fmt.Sprintf("swap-%d", i))
	}
	for i := range runs {
		f.awaitWaiting(m, fmt.Sprintf("swap-%d", i))
	}
	m.user = "fleet-of-alpha-renewed"
	renewed := f.kubeconfig("alpha")
	start := time.Now()
	failed, swapped := 0, runs
	for ; failed < min(runs, swapped+after); failed++ {
		if failed == before {
			f.mend("alpha", renewed)
		}
		if swapped == runs && f.watched(m, m.user) {
			swapped = failed
		}
		f.fail(m, fmt.Sprintf("swap-%d", failed))
	}
	f.WithT.Expect(failed).To(Equal(swapped+after), "the renewed kubeconfig was not taken in use while %d runs failed", runs)
	for i := range failed {
		name := fmt.Sprintf("swap-%d", i)
		f.WithT.Eventually(m.run(t.Context(), build.DefaultNamespace, name)).Should(failedWith("ImagePullBackOff"))
	}
	t.Logf("Of %d runs %d failed before, %d during and %d after the swap", failed, before, swapped-before, after)

	t.Log("the member stays connected")
	f.WithT.Consistently(connected).WithTimeout(staysEngaged).WithPolling(200 * time.Millisecond).
		Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	for i := range failed {
		name := fmt.Sprintf("swap-%d", i)
		f.WithT.Expect(f.writes(m, name, start, first, m.user)).To(HaveLen(1), name)
	}
	f.WithT.Expect(f.failureEvents(m)).To(And(HaveLen(failed), HaveEach(1)), "Events of each run's failure")
	f.failOnce(m, "after-the-overlap", m.user)

	t.Log("annotations and labels reconnect nothing")
	accepted := m.proxy.Accepted()
	f.annotate("alpha", map[string]string{"fleet.konveyor.io/paused": "true"})
	f.WithT.Eventually(connected).Should(WithTransform(connectedMessage, ContainSubstring("paused")))
	f.annotate("alpha", map[string]string{"note": "changed"})
	f.WithT.Eventually(connected).ShouldNot(WithTransform(connectedMessage, ContainSubstring("paused")))
	f.WithT.Consistently(m.proxy.Accepted).Should(Equal(accepted))

	t.Log("a kubeconfig that is refused leaves the former one in use, and says why")
	working := f.kubeconfig("alpha")
	stranger := rest.AnonymousClientConfig(m.Config)
	stranger.BearerToken = "a-token-that-nobody-issued"
	f.mend("alpha", harness.Kubeconfig(stranger, m.proxy.URL()))
	f.WithT.Eventually(connected).Should(And(
		harness.HaveCondition("Connected", metav1.ConditionTrue, "RotationRefused"),
		WithTransform(connectedMessage, And(ContainSubstring("former kubeconfig stays in use"), ContainSubstring("401"))),
	))
	f.failOnce(m, "while-refused", m.user)

	t.Log("and is mended")
	f.mend("alpha", working)
	f.WithT.Eventually(connected).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	f.failOnce(m, "when-mended", m.user)

	for _, s := range statuses.all() {
		f.WithT.Expect(s).To(harness.HaveCondition("Connected", metav1.ConditionTrue, ""), "Connected was left on the way")
	}
}

// about creates a run that is observed, and whose pod is about to fail.
func (f *fleet) about(m *member, name string) {
	f.Helper()
	f.waits(m, name)
	f.awaitWaiting(m, name)
}

// waits creates a run whose pod is about to fail.
func (f *fleet) waits(m *member, name string) {
	f.Helper()
	run := build.MakeAgentRun(name).Obj()
	f.WithT.Expect(m.create(f.Context(), run, labelled(run).Scheduled().Waiting("main", "ContainerCreating", "").Obj())).To(Succeed())
}

// awaitWaiting waits until that is observed.
func (f *fleet) awaitWaiting(m *member, name string) {
	f.Helper()
	f.WithT.Eventually(m.run(f.Context(), build.DefaultNamespace, name)).Should(harness.HaveCondition("Succeeded", metav1.ConditionUnknown, "ContainerCreating"))
}

// fail lets the pod fail.
func (f *fleet) fail(m *member, name string) {
	f.Helper()
	run := build.MakeAgentRun(name).Obj()
	f.WithT.Expect(m.SetPodStatus(f.Context(), labelled(run).Scheduled().Waiting("main", "ImagePullBackOff", "").Obj())).To(Succeed())
}

// failOnce has a run fail, by one request of the user.
func (f *fleet) failOnce(m *member, name, user string) {
	f.Helper()
	f.about(m, name)
	start := time.Now()
	f.fail(m, name)
	f.WithT.Eventually(m.run(f.Context(), build.DefaultNamespace, name)).Should(failedWith("ImagePullBackOff"))
	f.WithT.Expect(f.writes(m, name, start, user)).To(HaveLen(1), name)
}

// watched says whether the user watches the member's runs.
func (f *fleet) watched(m *member, user string) bool {
	f.Helper()
	requests, err := m.Requests(harness.ByUser(user), harness.WithVerb("watch"), harness.OnResource("agentruns"))
	f.WithT.Expect(err).NotTo(HaveOccurred())
	return len(requests) > 0
}

// writes are what was written to a run's status after a moment by any of the users. A
// write that was decided on what has changed since is refused by the API server: when a
// connection is replaced, the new one's cache may be a moment behind the old one's write.
func (f *fleet) writes(m *member, run string, after time.Time, users ...string) []harness.Request {
	f.Helper()
	var all []harness.Request
	for _, user := range users {
		requests, err := m.Requests(harness.ByUser(user), harness.OnResource("agentruns/status"),
			harness.OnObject(build.DefaultNamespace, run), harness.ReceivedAfter(after))
		f.WithT.Expect(err).NotTo(HaveOccurred())
		all = append(all, slices.DeleteFunc(requests, func(r harness.Request) bool { return r.Code == http.StatusConflict })...)
	}
	return all
}

// failureEvents are how often each run's failure was told by an Event.
func (f *fleet) failureEvents(m *member) map[string]int {
	f.Helper()
	list := &eventsv1.EventList{}
	f.WithT.Expect(m.Client.List(f.Context(), list)).To(Succeed())
	told := map[string]int{}
	for i := range list.Items {
		if e := &list.Items[i]; e.Action == "Fail" {
			told[e.Regarding.Name]++
			if e.Series != nil {
				told[e.Regarding.Name] += int(e.Series.Count)
			}
		}
	}
	return told
}

// annotate gives a member's Secret these annotations and no others, and a label.
func (f *fleet) annotate(name string, annotations map[string]string) {
	f.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKeyFromObject(harness.MemberSecret(clusters, name, nil))
	f.WithT.Expect(f.hub.Client.Get(f.Context(), key, secret)).To(Succeed())
	secret.Annotations = annotations
	secret.Labels["tier"] = "gold"
	f.WithT.Expect(f.hub.Client.Update(f.Context(), secret)).To(Succeed())
}
