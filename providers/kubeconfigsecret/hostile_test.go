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
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// misbehave are servers that hurt whoever waits for them, or holds what they send.
var misbehave = map[string]func(http.ResponseWriter, *http.Request) bool{
	"too-many-requests": func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	},
	"garbage": func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "\x00\x1b[31m{{{")
		return true
	},
	"endless-body": func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"gitVersion":"`)
		chunk := make([]byte, 1<<20)
		for i := range chunk {
			chunk[i] = 'x'
		}
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				break
			}
		}
		return true
	},
	"dripping-body": func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		drip := time.NewTicker(50 * time.Millisecond)
		defer drip.Stop()
		for {
			if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
				return true
			}
			select {
			case <-drip.C:
			case <-r.Context().Done():
				return true
			}
		}
	},
}

func TestMisbehavingMembersHurtOnlyThemselves(t *testing.T) {
	f := newFleet(t, nil, map[string][]byte{"good": admin(west)})
	for name, answer := range misbehave {
		never, later := harness.NewFront(t, east.Config), harness.NewFront(t, east.Config)
		never.Answer(answer)
		f.put(name, never.Kubeconfig(""))
		f.put(name+"-later", later.Kubeconfig(""))
		f.awaitReason(name+"-later", kubeconfigsecret.ReasonConnected)
		later.Answer(answer)
		// Its watches are asked for anew.
		later.CloseConnections()
	}
	f.awaitReconciled(west, "good")
	for name := range misbehave {
		f.awaitReason(name, kubeconfigsecret.ReasonUnreachable)
		f.awaitReason(name+"-later", kubeconfigsecret.ReasonUnreachable)
		f.Expect(f.member(name).Connected.Message).NotTo(ContainSubstring("\x1b"))
		cl, err := f.provider.Get(t.Context(), f.name(name+"-later"))
		f.Expect(err).NotTo(HaveOccurred())
		began := time.Now()
		err = cl.GetAPIReader().List(t.Context(), &corev1.NamespaceList{})
		f.Expect(err).To(HaveOccurred(), name)
		f.Expect(time.Since(began)).To(BeNumerically("<", 20*time.Second), "a caller waits for "+name)
	}
	f.Expect(f.member("good").Connected.Reason).To(Equal(kubeconfigsecret.ReasonConnected))
	f.awaitReconciled(west, "good")
	f.Expect(f.made("good")).To(Equal(1))
}

func TestRetryAfterIsHonoured(t *testing.T) {
	f := newFleet(t, nil, nil)
	front := harness.NewFront(t, east.Config)
	f.put("a", front.Kubeconfig(""))
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	cl, err := f.provider.Get(t.Context(), f.name("a"))
	f.Expect(err).NotTo(HaveOccurred())
	var secrets atomic.Int64
	front.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/secrets" {
			return false
		}
		secrets.Add(1)
		return misbehave["too-many-requests"](w, r)
	})
	began := time.Now()
	for range 20 {
		f.Expect(cl.GetAPIReader().List(t.Context(), &corev1.SecretList{})).To(MatchError(apierrors.IsTooManyRequests, "429"))
	}
	f.Expect(secrets.Load()).To(BeEquivalentTo(1), "the member was asked again before its time")
	f.Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second), "the caller was held up")

	t.Log("One kind of request turned away does not make the member look lost")
	f.Consistently(f.reason("a")).Should(Equal(kubeconfigsecret.ReasonConnected))
	t.Log("Nor is it for ever: BackoffMax, of 1 s here, is the most")
	front.Answer(func(http.ResponseWriter, *http.Request) bool { return false })
	f.Eventually(func() error { return cl.GetAPIReader().List(t.Context(), &corev1.SecretList{}) }).Should(Succeed())
}

func TestUnauthorizedTriesTheSecretAtOnce(t *testing.T) {
	tests := map[string]struct {
		probeEvery time.Duration
	}{
		"found by a probe":     {100 * time.Millisecond},
		"found by an informer": {time.Hour},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, func(o *kubeconfigsecret.Options) {
				o.ProbeInterval = tc.probeEvery
				// Nothing but the 401 has the Secret tried again, nor the condition change.
				o.BackoffBase, o.BackoffMax, o.MendInterval = time.Hour, time.Hour, time.Hour
				o.FailureThreshold = 1 << 30
			}, nil)
			proxy := harness.NewProxy(t, east)
			account := "account-" + string(uuid.NewUUID())
			cfg, err := east.ServiceAccount(t.Context(), "default", account)
			f.Expect(err).NotTo(HaveOccurred())
			binding := f.bind(account)
			f.put("a", harness.Kubeconfig(cfg, proxy.URL()))
			f.awaitReason("a", kubeconfigsecret.ReasonConnected)

			t.Log("The Secret's content is refused, for want of rights that come later")
			user, kubeconfig := newUser(t)
			f.put("a", kubeconfig)
			f.awaitReason("a", kubeconfigsecret.ReasonRotationRefused)
			grant(f, user)
			f.Consistently(f.reason("a")).Should(Equal(kubeconfigsecret.ReasonRotationRefused))

			t.Log("Then the credentials in use are not accepted any longer")
			var gap atomic.Bool
			f.watchFor(&gap, "a")
			f.Expect(east.Client.Delete(t.Context(), &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: account},
			})).To(Succeed())
			stop := resetEvery(proxy, 500*time.Millisecond)
			f.awaitReason("a", kubeconfigsecret.ReasonConnected)
			stop()
			f.Expect(f.made("a")).To(Equal(2))
			f.Expect(gap.Load()).To(BeFalse())
			f.awaitReconciled(east, "a")
			f.Expect(east.Client.Delete(t.Context(), binding)).To(Succeed())
		})
	}
}

func TestUnauthorizedPassesTheThreshold(t *testing.T) {
	const threshold = 5
	f := newFleet(t, func(o *kubeconfigsecret.Options) { o.FailureThreshold = threshold }, nil)
	front := harness.NewFront(t, east.Config)
	f.put("a", front.Kubeconfig(""))
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	refused := atomic.Int64{}
	lastSeen := atomic.Int64{} // refusals while the member was still connected
	front.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/version" {
			return false
		}
		if f.reason("a")() == kubeconfigsecret.ReasonConnected {
			lastSeen.Store(refused.Add(1))
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	f.awaitReason("a", kubeconfigsecret.ReasonUnauthorized)
	f.Expect(lastSeen.Load()).To(BeEquivalentTo(threshold))
	f.Expect(f.member("a").Connected.Status).To(Equal(metav1.ConditionFalse))
	f.Expect(f.made("a")).To(Equal(1), "there was nothing new to try")

	front.Answer(func(http.ResponseWriter, *http.Request) bool { return false })
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
}

// bind gives a ServiceAccount in east's namespace default all rights.
func (f *fleet) bind(account string) client.Object {
	f.t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "account-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
	}
	f.Expect(east.Client.Create(f.t.Context(), binding)).To(Succeed())
	return binding
}

// watchFor notes when a member is seen without being connected.
func (f *fleet) watchFor(gap *atomic.Bool, cluster string) {
	f.provider.Subscribe(func(multicluster.ClusterName) {
		if m := f.member(cluster); m == nil || m.Connected.Status != metav1.ConditionTrue {
			gap.Store(true)
		}
	})
}

// resetEvery cuts the connections through a proxy again and again, so that watches are made anew.
func resetEvery(proxy *harness.Proxy, d time.Duration) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				proxy.Reset()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
