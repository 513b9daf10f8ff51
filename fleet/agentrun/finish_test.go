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

package agentrun

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/ttl"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// noon is the hub's time in these tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ledgerID is that of the ledger in these tests.
const ledgerID types.UID = "ledger"

// books is a Ledger that holds what a test puts down.
type books map[types.UID]bool

// WantedMark is the ledger's own for what it holds.
func (b books) WantedMark(_ multicluster.ClusterName, uid types.UID) types.UID {
	if b[uid] {
		return ledgerID
	}
	return ""
}

// OnWantsMark does nothing: a test says itself when a run is looked at.
func (books) OnWantsMark(func(multicluster.ClusterName, types.NamespacedName)) {}

// bookkeeper is a member's reconciler at noon, with its ledger.
type bookkeeper struct {
	*Reconciler
	*WithT
	t      *testing.T
	member *engaged
	books  books
	wall   *clocktesting.FakePassiveClock
}

func keepBooks(t *testing.T, member *engaged) *bookkeeper {
	t.Helper()
	own := *member // with a state and a client of its own
	k := &bookkeeper{
		Reconciler: own.reconciler(), WithT: harness.NewGomega(t), t: t, member: &own, books: books{},
		wall: clocktesting.NewFakePassiveClock(noon),
	}
	k.ledger, k.clock = k.books, k.wall
	return k
}

// store stores a run, and records it where the case wants that.
func (k *bookkeeper) store(run *agentv1alpha1.AgentRun, recorded bool) *agentv1alpha1.AgentRun {
	k.t.Helper()
	k.Expect(k.member.plane.CreateRun(k.t.Context(), run)).To(Succeed())
	k.books[run.UID] = recorded
	return run
}

// stored is the run as its API server has it, nil when it is gone.
func (k *bookkeeper) stored(name string) *agentv1alpha1.AgentRun {
	k.t.Helper()
	return k.read(k.member.plane.Client, name)
}

func (k *bookkeeper) read(from client.Reader, name string) *agentv1alpha1.AgentRun {
	k.t.Helper()
	run := &agentv1alpha1.AgentRun{}
	err := from.Get(k.t.Context(), request(name).NamespacedName, run)
	if apierrors.IsNotFound(err) {
		return nil
	}
	k.Expect(err).NotTo(HaveOccurred())
	return run
}

// seen waits until the cache has what is stored of the run.
func (k *bookkeeper) seen(name string) {
	k.t.Helper()
	k.Eventually(func() string { return versionOf(k.read(k.member.GetCache(), name)) }).Should(Equal(versionOf(k.stored(name))))
}

// once reconciles the run as it is stored.
func (k *bookkeeper) once(name string) reconcile.Result {
	k.t.Helper()
	k.seen(name)
	result, err := k.Reconcile(k.t.Context(), request(name))
	k.Expect(err).NotTo(HaveOccurred())
	return result
}

// toRest reconciles the run until that changes nothing, and returns the last result.
func (k *bookkeeper) toRest(name string) reconcile.Result {
	k.t.Helper()
	for {
		before := versionOf(k.stored(name))
		result := k.once(name)
		if versionOf(k.stored(name)) == before {
			return result
		}
	}
}

func versionOf(run *agentv1alpha1.AgentRun) string {
	if run == nil {
		return "gone"
	}
	return run.ResourceVersion
}

// event returns the Event with that reason on a run.
func (k *bookkeeper) event(run, reason string) func() (*eventsv1.Event, error) {
	return func() (*eventsv1.Event, error) {
		list := &eventsv1.EventList{}
		if err := k.member.plane.Client.List(k.t.Context(), list, client.InNamespace(build.DefaultNamespace)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.Name == run && e.Reason == reason {
				return e, nil
			}
		}
		return nil, fmt.Errorf("no Event %s on AgentRun %s", reason, run)
	}
}

func succeededAt(name string, end time.Time) *build.AgentRunWrapper {
	return build.MakeAgentRun(name).Phase(agentv1alpha1.AgentRunSucceeded).Completed(end).Condition(metav1.Condition{
		Type: agentv1alpha1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: "Completed", LastTransitionTime: metav1.NewTime(end),
	})
}

func failedAt(name string, end time.Time) *build.AgentRunWrapper {
	return build.MakeAgentRun(name).Failed("OOMKilled", "the container used too much memory", end)
}

// revived is a run that has failed, moved to another phase by whoever may write its status.
func revived(phase agentv1alpha1.AgentRunPhase) func(name string) *build.AgentRunWrapper {
	return func(name string) *build.AgentRunWrapper { return build.MakeAgentRun(name).Phase(phase) }
}

// TestFinish: what becomes of runs that have ended, with and without the ledger's word.
func TestFinish(t *testing.T) {
	member := engage(t)
	hourAgo := noon.Add(-time.Hour)
	ended := func(name string) *build.AgentRunWrapper { return succeededAt(name, hourAgo) }
	failed := func(name string) *build.AgentRunWrapper { return failedAt(name, hourAgo) }
	cases := map[string]struct {
		run        func(name string) *build.AgentRunWrapper
		recorded   bool
		policy     ttl.Policy
		state      MemberState
		wantMarked bool
		wantGone   bool
		wantAgain  time.Duration
	}{
		"a recorded failure is marked, and stays without a TTL": {
			run: failed, recorded: true, wantMarked: true,
		},
		"a failure that is not recorded is neither marked nor deleted": {
			run:    func(name string) *build.AgentRunWrapper { return failed(name).TTLAfterFinished(0) },
			policy: ttl.Policy{Failed: time.Second},
		},
		"a recorded failure is marked and then deleted": {
			run: failed, recorded: true, policy: ttl.Policy{Failed: time.Minute}, wantGone: true,
		},
		"a recorded failure is marked though its time is not over": {
			run: failed, recorded: true, policy: ttl.Policy{Failed: 3 * time.Hour}, wantMarked: true, wantAgain: 2 * time.Hour,
		},
		"a success of which the ledger knows nothing is not marked": {
			run: ended,
		},
		"a recorded failure that somebody calls a success is marked": {
			run: ended, recorded: true, wantMarked: true,
		},
		"a recorded failure that somebody calls running is marked": {
			run: revived(agentv1alpha1.AgentRunRunning), recorded: true, wantMarked: true,
		},
		"a recorded failure that somebody calls pending is marked": {
			run: revived(agentv1alpha1.AgentRunPending), recorded: true, wantMarked: true,
		},
		"a recorded failure of which somebody took the status away is marked": {
			run: revived(""), recorded: true, wantMarked: true,
		},
		"a success goes by the policy for successes": {
			run: ended, policy: ttl.Policy{Succeeded: time.Minute}, wantGone: true,
		},
		"a success does not go by the policy for failures": {
			run: ended, policy: ttl.Policy{Failed: time.Second},
		},
		"a failure does not go by the policy for successes": {
			run: failed, recorded: true, policy: ttl.Policy{Succeeded: time.Second}, wantMarked: true,
		},
		"0 in the spec means at once": {
			run: func(name string) *build.AgentRunWrapper { return succeededAt(name, noon).TTLAfterFinished(0) }, wantGone: true,
		},
		"the spec's TTL wins over the policy's": {
			run:    func(name string) *build.AgentRunWrapper { return ended(name).TTLAfterFinished(2 * 3600) },
			policy: ttl.Policy{Succeeded: time.Second}, wantAgain: time.Hour,
		},
		"a completionTime in the future defers": {
			run: func(name string) *build.AgentRunWrapper {
				return succeededAt(name, noon.Add(time.Hour)).TTLAfterFinished(60)
			},
			wantAgain: time.Hour + time.Minute,
		},
		"a member's clock that is ahead has its own noon": {
			run:   func(name string) *build.AgentRunWrapper { return succeededAt(name, noon).TTLAfterFinished(600) },
			state: MemberState{ClockOffset: 10 * time.Minute}, wantGone: true,
		},
		"a member's clock that is behind has its noon later": {
			run:   func(name string) *build.AgentRunWrapper { return succeededAt(name, noon).TTLAfterFinished(60) },
			state: MemberState{ClockOffset: -10 * time.Minute}, wantAgain: 11 * time.Minute,
		},
		"a paused member is not written to; what is to be done is looked for": {
			run: failed, recorded: true, state: MemberState{Paused: true}, wantAgain: pausedAgain,
		},
		"nothing is deleted in a paused member": {
			run: ended, policy: ttl.Policy{Succeeded: time.Minute}, state: MemberState{Paused: true}, wantAgain: pausedAgain,
		},
		"in a paused member the time that is not over is waited for": {
			run: ended, policy: ttl.Policy{Succeeded: 2 * time.Hour}, state: MemberState{Paused: true}, wantAgain: time.Hour,
		},
		"nothing is asked of a lost member": {
			run: failed, recorded: true, policy: ttl.Policy{Failed: time.Minute}, state: MemberState{Lost: true}, wantAgain: lostAgain,
		},
		"a run that has not ended has no TTL": {
			run: func(name string) *build.AgentRunWrapper { return build.MakeAgentRun(name).TTLAfterFinished(0) },
		},
	}
	n := 0
	for name, tc := range cases {
		n++
		runName := fmt.Sprintf("finish-%d", n)
		t.Run(name, func(t *testing.T) {
			k := keepBooks(t, member)
			k.member.state, k.ttl = tc.state, tc.policy
			run := k.store(tc.run(runName).Obj(), tc.recorded)
			result := k.toRest(runName)
			k.Expect(result.RequeueAfter).To(Equal(tc.wantAgain))
			stored := k.stored(runName)
			if tc.wantGone {
				k.Expect(stored).To(BeNil())
				return
			}
			k.Expect(stored).NotTo(BeNil())
			want := map[string]string(nil)
			if tc.wantMarked {
				want = markedBy(run, ledgerID)
			}
			k.Expect(stored.Annotations).To(Equal(want))
		})
	}
}

// TestMarkIsOneWrite: the mark leaves all else of the run alone, is written once, and is
// not taken from a manifest.
func TestMarkIsOneWrite(t *testing.T) {
	k := keepBooks(t, engage(t, harness.WithAudit))
	copied := failedAt("run", noon).Label("team", "red").Obj()
	copied.Annotations = map[string]string{agentv1alpha1.RecordedAnnotation: "of-another-run", "note": "kept"}
	copied.Spec.Instructions = "kept too"
	run := k.store(copied, true)
	before := k.stored("run")
	since := time.Now()
	for range 3 {
		k.once("run")
	}
	marked := k.stored("run")
	k.Expect(marked.Recorded()).To(BeTrue())
	before.Annotations[agentv1alpha1.RecordedAnnotation] = run.Mark(ledgerID)
	before.ResourceVersion, before.ManagedFields = marked.ResourceVersion, marked.ManagedFields
	k.Expect(marked).To(Equal(before))
	k.Expect(k.member.plane.Requests(harness.OnObject(build.DefaultNamespace, "run"), harness.ReceivedAfter(since), harness.WithVerb("patch"))).To(HaveLen(1))

	// What the cache holds of it is the mark, and not the rest.
	held := k.read(k.member.GetCache(), "run")
	k.Expect(held.Annotations).To(Equal(markedBy(run, ledgerID)))
}

// TestMarkWithUnknownOutcome: a mark that was written though the answer says otherwise is
// found, and not written again.
func TestMarkWithUnknownOutcome(t *testing.T) {
	k := keepBooks(t, engage(t))
	run := k.store(failedAt("run", noon).Obj(), true)
	patches := 0
	k.member.client = interceptor.NewClient(k.member.plane.Client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			patches++
			return errors.Join(c.Patch(ctx, obj, patch, opts...), errors.New("injected: the answer is lost"))
		},
	})
	k.seen("run")
	_, err := k.Reconcile(t.Context(), request("run"))
	k.Expect(err).To(MatchError(ContainSubstring("the answer is lost")))
	k.toRest("run")
	k.Expect(patches).To(Equal(1))
	k.Expect(k.stored("run").Annotations).To(Equal(markedBy(run, ledgerID)))
}

// TestMarkBesideAnothers: a run that the ledger of another hub has counted too bears the
// marks of both, and is proved to be open to this one until then.
func TestMarkBesideAnothers(t *testing.T) {
	k := keepBooks(t, engage(t))
	run := failedAt("run", noon).Obj()
	run = k.store(run, true)
	patched := run.DeepCopy()
	patched.Annotations = markedBy(run, "another")
	k.Expect(k.member.plane.Client.Patch(t.Context(), patched, client.MergeFrom(run))).To(Succeed())
	proves := func(ledger types.UID) []types.UID {
		proof, err := Prove(t.Context(), k.member, ledger)
		k.Expect(err).NotTo(HaveOccurred())
		return proof.Open.UnsortedList()
	}
	k.Expect(proves("another")).To(BeEmpty())
	k.Expect(proves(ledgerID)).To(ConsistOf(run.UID))
	k.toRest("run")
	k.Expect(k.stored("run").Annotations).To(Equal(markedBy(run, "another", ledgerID)))
	k.Expect(proves(ledgerID)).To(BeEmpty())
}

func markedBy(run *agentv1alpha1.AgentRun, ledgers ...types.UID) map[string]string {
	return map[string]string{agentv1alpha1.RecordedAnnotation: run.Mark(ledgers...)}
}

// TestMarkOnTheWayOut: a run that a finalizer holds is marked, and nothing else happens to it.
func TestMarkOnTheWayOut(t *testing.T) {
	k := keepBooks(t, engage(t))
	k.ttl = ttl.Policy{Failed: time.Second}
	held := failedAt("run", noon.Add(-time.Hour)).Obj()
	held.Finalizers = []string{"example.com/hold"}
	held.Status.Conditions = nil // were it to stay, the condition would be completed
	k.store(held, true)
	k.Expect(k.member.plane.Client.Delete(t.Context(), held)).To(Succeed())
	k.Expect(k.toRest("run").RequeueAfter).To(BeZero())
	stored := k.stored("run")
	k.Expect(stored.Recorded()).To(BeTrue())
	k.Expect(stored.Status.Conditions).To(BeEmpty())
	released := stored.DeepCopy()
	released.Finalizers = nil
	k.Expect(k.member.plane.Client.Patch(t.Context(), released, client.MergeFrom(stored))).To(Succeed())
}

// TestFinishLosesTheRace lets somebody else come between the decision and its request.
func TestFinishLosesTheRace(t *testing.T) {
	member := engage(t)
	madeAnew := func(k *bookkeeper, run *agentv1alpha1.AgentRun) {
		k.Expect(k.member.plane.Client.Delete(k.t.Context(), run)).To(Succeed())
		k.Expect(k.member.plane.CreateRun(k.t.Context(), failedAt(run.Name, noon.Add(-time.Hour)).Obj())).To(Succeed())
	}
	changed := func(k *bookkeeper, run *agentv1alpha1.AgentRun) {
		labelled := run.DeepCopy()
		labelled.Labels = map[string]string{"keep": "me"}
		k.Expect(k.member.plane.Client.Patch(k.t.Context(), labelled, client.MergeFrom(run))).To(Succeed())
	}
	deleted := func(k *bookkeeper, run *agentv1alpha1.AgentRun) {
		k.Expect(k.member.plane.Client.Delete(k.t.Context(), run)).To(Succeed())
	}
	marked := func(run *agentv1alpha1.AgentRun) { run.Annotations = markedBy(run, ledgerID) }
	unmarked := func(*agentv1alpha1.AgentRun) {}
	unwritten := HaveField("Annotations", BeEmpty())
	cases := map[string]struct {
		before  func(*agentv1alpha1.AgentRun) // what has happened to the run already
		between func(*bookkeeper, *agentv1alpha1.AgentRun)
		want    OmegaMatcher
	}{
		"a run made anew is not marked":               {unmarked, madeAnew, unwritten},
		"a run changed meanwhile is not marked":       {unmarked, changed, And(unwritten, HaveField("Labels", HaveKey("keep")))},
		"a run deleted meanwhile is no error to mark": {unmarked, deleted, BeNil()},
		"a run made anew is not deleted":              {marked, madeAnew, unwritten},
		"a run changed meanwhile is not deleted":      {marked, changed, HaveField("Labels", HaveKey("keep"))},
		"a run deleted meanwhile is no error":         {marked, deleted, BeNil()},
	}
	n := 0
	for name, tc := range cases {
		n++
		runName := fmt.Sprintf("race-%d", n)
		t.Run(name, func(t *testing.T) {
			k := keepBooks(t, member)
			k.ttl = ttl.Policy{Failed: time.Minute}
			run := k.store(failedAt(runName, noon.Add(-time.Hour)).Obj(), true)
			stored := run.DeepCopy()
			stored.Annotations = map[string]string{}
			tc.before(stored)
			k.Expect(k.member.plane.Client.Patch(t.Context(), stored, client.MergeFrom(run))).To(Succeed())
			requests := 0
			first := func() {
				if requests++; requests == 1 {
					tc.between(k, k.stored(runName))
				}
			}
			k.member.client = interceptor.NewClient(k.member.plane.Client, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					first()
					return c.Patch(ctx, obj, patch, opts...)
				},
				Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
					first()
					return c.Delete(ctx, obj, opts...)
				},
			})
			k.Expect(k.once(runName).RequeueAfter).To(BeZero())
			k.Expect(requests).To(Equal(1))
			k.Expect(k.stored(runName)).To(tc.want)
		})
	}
}

// TestDeletionIsTold: by an Event that says where the time of the end is from, and a counter.
func TestDeletionIsTold(t *testing.T) {
	k := keepBooks(t, engage(t))
	t.Cleanup(func() { ForgetMember("ns/member") })
	ForgetMember("ns/member")
	k.store(succeededAt("stamped", noon.Add(-time.Hour)).TTLAfterFinished(60).Obj(), false)
	unstamped := succeededAt("unstamped", noon.Add(-2*time.Hour)).TTLAfterFinished(90).Obj()
	unstamped.Status.CompletionTime = nil
	k.store(unstamped, false)
	for name, note := range map[string]string{
		"stamped":   "Deleted: the AgentRun Succeeded at 2026-03-01T11:00:00Z (by its completionTime), and its TTL of 1m0s is over",
		"unstamped": "Deleted: the AgentRun Succeeded at 2026-03-01T10:00:00Z (by its condition Succeeded, for want of a completionTime), and its TTL of 1m30s is over",
	} {
		k.toRest(name)
		k.Expect(k.stored(name)).To(BeNil())
		k.Eventually(k.event(name, "TTLExpired")).Should(And(HaveField("Type", "Normal"), HaveField("Note", note)))
	}
	k.Expect(testutil.ToFloat64(ttlDeletions.WithLabelValues("ns/member"))).To(Equal(2.0))
	ForgetMember("ns/member")
	k.Expect(testutil.CollectAndCount(ttlDeletions)).To(BeZero())
}
