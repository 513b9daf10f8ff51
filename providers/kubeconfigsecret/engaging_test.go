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
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// engaging asks for a member while it is engaged, as controllers do that begin to decide then.
type engaging struct {
	*fleet
	seen chan kubeconfigsecret.Member
	err  error
}

// Start waits until ctx is done.
func (e *engaging) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage notes what is known of the member.
func (e *engaging) Engage(_ context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	m, _ := e.provider.Lookup(name)
	select {
	case e.seen <- m:
	default:
	}
	return e.err
}

// newEngaging is a fleet without members in which each Engage is noted, and returns err.
func newEngaging(t *testing.T, err error) *engaging {
	t.Helper()
	e := &engaging{seen: make(chan kubeconfigsecret.Member, 1), err: err}
	e.fleet = newFleetWith(t, func(f *fleet) {
		e.fleet = f
		f.Expect(f.manager.Add(e)).To(Succeed())
	}, nil, nil)
	return e
}

// TestKnownBeforeEngaging: controllers decide from the first event on, so that what decisions
// depend on is known before they are engaged.
func TestKnownBeforeEngaging(t *testing.T) {
	tests := map[string]struct {
		away bool // at first
	}{
		"a member that answers at once":       {away: false},
		"a member that did not answer before": {away: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEngaging(t, nil)
			front := harness.NewFront(t, east.Config)
			front.ShiftDate(-10 * time.Minute)
			away := answerAway(front, tc.away)
			secret := harness.MemberSecret(e.namespace, "behind", front.Kubeconfig(""))
			secret.Annotations = map[string]string{kubeconfigsecret.PausedAnnotation: "true"}
			e.Expect(hub.Client.Create(t.Context(), secret)).To(Succeed())
			if tc.away {
				e.awaitReason("behind", kubeconfigsecret.ReasonUnreachable)
				away.Store(false)
			}
			var seen kubeconfigsecret.Member
			e.Eventually(e.seen).Should(Receive(&seen))
			e.Expect(seen.ClockOffset).To(BeNumerically("~", -10*time.Minute, 2*time.Second))
			e.Expect(seen.Paused).To(BeTrue())
			e.Expect(seen.Lost).To(BeFalse(), "it was just there")
			e.awaitReason("behind", kubeconfigsecret.ReasonConnected)
		})
	}
}

// answerAway has a front answer that the API server is away, as long as the result says so.
func answerAway(front *harness.Front, now bool) *atomic.Bool {
	away := &atomic.Bool{}
	away.Store(now)
	front.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
		return away.Load()
	})
	return away
}

// TestSetUpFails: a member that answers, and cannot be engaged, is said to have been tried.
func TestSetUpFails(t *testing.T) {
	e := newEngaging(t, errors.New("no controller wants it"))
	e.put("a", admin(east))
	e.awaitReason("a", kubeconfigsecret.ReasonSetUpFailed)
	got := e.member("a").Connected
	e.Expect(got.Status).To(Equal(metav1.ConditionUnknown))
	e.Expect(got.Message).To(And(ContainSubstring("no controller wants it"), ContainSubstring("restart the manager")))
	_, err := e.provider.Get(t.Context(), e.name("a"))
	e.Expect(err).To(MatchError(multicluster.ErrClusterNotFound))
}
