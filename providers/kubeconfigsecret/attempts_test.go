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

package kubeconfigsecret_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// timerClock is a clock that a test steps, and that tells for how long each timer is set.
type timerClock struct {
	*clocktesting.FakeClock
	timers chan time.Duration
}

// NewTimer tells of the timer once it is set.
func (c timerClock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.timers <- d
	return timer
}

// TestAttemptsBackOff: a member that answers nothing of use is tried again after a second, and then after twice as
// long each time, up to five minutes, by default. Half of that is chance. Not before the time has passed is it tried.
func TestAttemptsBackOff(t *testing.T) {
	const attempts = 14
	steps := timerClock{clocktesting.NewFakeClock(time.Now()), make(chan time.Duration, 1)}
	var asked atomic.Int64
	front := harness.NewFront(t, east.Config)
	front.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
		return true
	})
	f := newFleet(t, func(o *kubeconfigsecret.Options) {
		o.BackoffBase, o.BackoffMax, o.MendInterval = 0, 0, 0 // the defaults
		o.Clock = steps
	}, map[string][]byte{"a": front.Kubeconfig("")})

	most := time.Second
	atMost := map[time.Duration]bool{}
	for n := range int64(attempts) {
		var wait time.Duration
		f.Eventually(steps.timers).Should(Receive(&wait), "attempt %d", n+1)
		f.Expect(wait).To(And(BeNumerically(">=", most/2), BeNumerically("<=", most)), "after attempt %d", n+1)
		f.Expect(asked.Load()).To(Equal(n+1), "each attempt is one request")
		if most == 5*time.Minute {
			atMost[wait] = true
		}
		steps.Step(wait - 1)
		f.Consistently(asked.Load, 50*time.Millisecond).Should(Equal(n+1), "it was tried before its time")
		steps.Step(1)
		most = min(2*most, 5*time.Minute)
	}
	f.Expect(len(atMost)).To(BeNumerically(">", 1), "members that were lost together return together")
}

// TestGoodKubeconfigWinsOverAnAttempt: what a Secret says now does not wait for what it said before, though that is being
// dialled and has a minute left to answer, or waits for its next attempt.
func TestGoodKubeconfigWinsOverAnAttempt(t *testing.T) {
	tests := map[string]struct {
		dead   func(*harness.Proxy)
		reason string
	}{
		"while it is dialled":              {(*harness.Proxy).Pause, kubeconfigsecret.ReasonConnecting},
		"while it waits for its next turn": {(*harness.Proxy).Refuse, kubeconfigsecret.ReasonUnreachable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			proxy := harness.NewProxy(t, east)
			tc.dead(proxy)
			f := newFleet(t, func(o *kubeconfigsecret.Options) {
				o.ConnectTimeout, o.CallTimeout, o.BackoffBase, o.BackoffMax = time.Hour, time.Hour, time.Hour, time.Hour
			}, map[string][]byte{"a": harness.Kubeconfig(east.Config, proxy.URL())})
			f.awaitReason("a", tc.reason)
			if tc.reason == kubeconfigsecret.ReasonConnecting {
				f.Eventually(proxy.Accepted).Should(BeNumerically(">", 0))
			}
			f.put("a", admin(east))
			f.awaitReason("a", kubeconfigsecret.ReasonConnected)
			proxy.Resume()
		})
	}
}

// TestProbesHaveATimeoutOfTheirOwn: a member that does not answer is lost after so many probe timeouts, though calls may take
// an hour.
func TestProbesHaveATimeoutOfTheirOwn(t *testing.T) {
	proxy := harness.NewProxy(t, east)
	f := newFleet(t, func(o *kubeconfigsecret.Options) {
		o.ProbeTimeout, o.CallTimeout, o.ConnectTimeout = 300*time.Millisecond, time.Hour, time.Hour
		o.RotationOverlap = time.Millisecond
	}, map[string][]byte{"a": harness.Kubeconfig(east.Config, proxy.URL())})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	proxy.Pause()
	f.awaitReason("a", kubeconfigsecret.ReasonUnreachable)
	f.Expect(f.member("a").Connected.Message).To(ContainSubstring("does not answer in time"))
	proxy.Resume()
}

// TestOneLossIsStampedOnce though its cause changes, from Unknown to False and back.
func TestOneLossIsStampedOnce(t *testing.T) {
	var status atomic.Int64
	front := harness.NewFront(t, east.Config)
	front.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
		code := int(status.Load())
		if code == 0 {
			return false
		}
		w.WriteHeader(code)
		return true
	})
	f := newFleet(t, nil, map[string][]byte{"a": front.Kubeconfig("")})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	condition := func() metav1.Condition { return f.member("a").Connected }
	status.Store(http.StatusBadGateway)
	f.awaitReason("a", kubeconfigsecret.ReasonUnreachable)
	lost := condition()
	for _, next := range []struct {
		code   int
		status metav1.ConditionStatus
	}{{http.StatusUnauthorized, metav1.ConditionFalse}, {http.StatusBadGateway, metav1.ConditionUnknown}} {
		status.Store(int64(next.code))
		f.Eventually(condition).Should(HaveField("Status", next.status))
		f.Expect(condition().LastTransitionTime).To(Equal(lost.LastTransitionTime))
	}
	status.Store(0)
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.Expect(condition().LastTransitionTime.Time).To(BeTemporally(">", lost.LastTransitionTime.Time))
}

// TestNothingReachesAFormerMember: whoever still holds its cluster may call for ever, and has an error each time; the API
// server is asked for nothing any more.
func TestNothingReachesAFormerMember(t *testing.T) {
	user, kubeconfig := newUser(t, "system:masters")
	f := newFleet(t, nil, map[string][]byte{"former": kubeconfig})
	f.awaitReason("former", kubeconfigsecret.ReasonConnected)
	cl := f.inUse("former")
	f.Expect(cl.GetAPIReader().List(t.Context(), &corev1.ConfigMapList{})).To(Succeed())
	requests := func() int {
		made, err := east.Requests(harness.ByUser(user))
		f.Expect(err).NotTo(HaveOccurred())
		return len(made)
	}
	f.Expect(requests()).To(BeNumerically(">", 0))

	f.remove("former")
	f.Eventually(func() error { _, err := f.provider.Get(t.Context(), f.name("former")); return err }).Should(MatchError(multicluster.ErrClusterNotFound))
	f.Eventually(f.engagedBy("former").Done()).Should(BeClosed())
	before, still := requests(), 0
	f.Eventually(func() int { // what was in flight ends within a second
		now := requests()
		if still++; now != before {
			before, still = now, 0
		}
		return still
	}).WithPolling(time.Second).Should(BeNumerically(">=", 2))
	refused := 0
	f.Consistently(func() int {
		read := cl.GetAPIReader().List(t.Context(), &corev1.ConfigMapList{})
		write := cl.GetClient().Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "late-"}})
		f.Expect(read).To(MatchError(ContainSubstring("member is disengaged")))
		f.Expect(write).To(MatchError(ContainSubstring("member is disengaged")))
		refused++
		return requests()
	}, 4*time.Second).Should(Equal(before), "the member is still asked")
	f.Expect(refused).To(BeNumerically(">", 10))
}
