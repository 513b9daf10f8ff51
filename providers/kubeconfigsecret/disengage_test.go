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
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// disengagedWithin is how long a member may stay after its Secret stopped to make it one.
const disengagedWithin = 5 * time.Second

// finalizer keeps a Secret that is being deleted.
const finalizer = "example.com/hold"

// ways are what a Secret stops to make a member by.
var ways = map[string]func(f *fleet, secret *corev1.Secret){
	"deleted": func(f *fleet, secret *corev1.Secret) {
		f.Expect(hub.Client.Delete(f.t.Context(), secret)).To(Succeed())
	},
	"unlabelled": func(f *fleet, secret *corev1.Secret) {
		secret.Labels = nil
		f.Expect(hub.Client.Update(f.t.Context(), secret)).To(Succeed())
	},
	"keyless": func(f *fleet, secret *corev1.Secret) {
		secret.Data = nil
		f.Expect(hub.Client.Update(f.t.Context(), secret)).To(Succeed())
	},
	"being-deleted": func(f *fleet, secret *corev1.Secret) {
		secret.Finalizers = []string{finalizer}
		f.Expect(hub.Client.Update(f.t.Context(), secret)).To(Succeed())
		f.Expect(hub.Client.Delete(f.t.Context(), secret)).To(Succeed())
		f.t.Cleanup(func() {
			secret = harness.MemberSecret(secret.Namespace, strings.TrimSuffix(secret.Name, kubeconfigsecret.NameSuffix), nil)
			f.Expect(hub.Client.Patch(context.Background(), secret, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		})
	},
}

// states are what a member may be in meanwhile; each returns once it is.
var states = map[string]func(f *fleet, name string, proxy *harness.Proxy){
	"connected": func(f *fleet, name string, _ *harness.Proxy) {
		f.awaitReason(name, kubeconfigsecret.ReasonConnected)
	},
	"unreachable": func(f *fleet, name string, proxy *harness.Proxy) {
		f.awaitReason(name, kubeconfigsecret.ReasonConnected)
		proxy.Pause()
		f.awaitReason(name, kubeconfigsecret.ReasonUnreachable)
	},
	"dialled": func(f *fleet, name string, proxy *harness.Proxy) {
		f.Eventually(proxy.Accepted).Should(BeNumerically(">", 0))
		f.Expect(f.reason(name)()).To(Equal(kubeconfigsecret.ReasonConnecting))
	},
}

func TestDisengageInEveryWay(t *testing.T) {
	f := newFleet(t, func(o *kubeconfigsecret.Options) {
		o.ProbeTimeout = 500 * time.Millisecond
		// So that nothing ends by itself.
		o.ConnectTimeout, o.CallTimeout = time.Minute, time.Minute
	}, nil)
	proxies := []*harness.Proxy{}
	for state, reach := range states {
		for way, change := range ways {
			t.Run(way+" while "+state, func(*testing.T) {
				name := way + "-" + state
				proxy := harness.NewProxy(f.t, east)
				proxies = append(proxies, proxy)
				if state == "dialled" {
					proxy.Pause()
				}
				f.put(name, harness.Kubeconfig(east.Config, proxy.URL()))
				reach(f, name, proxy)
				calls := f.callsInFlight(name, proxy)

				secret := harness.MemberSecret(f.namespace, name, harness.Kubeconfig(east.Config, proxy.URL()))
				change(f, secret)
				f.Eventually(func() error {
					_, err := f.provider.Get(t.Context(), f.name(name))
					return err
				}, disengagedWithin).Should(MatchError(multicluster.ErrClusterNotFound))
				for _, call := range calls {
					f.Eventually(call, time.Second).Should(Receive(MatchError(ContainSubstring("disengaged"))), "a call in flight goes on")
				}
				if way == "keyless" { // docs/adr/0011
					f.Eventually(f.reason(name), disengagedWithin).Should(Equal(kubeconfigsecret.ReasonInvalidKubeconfig))
				} else {
					f.Eventually(f.reason(name), disengagedWithin).Should(BeEmpty())
				}
			})
		}
	}
	accepted := func() (sum int) {
		for _, proxy := range proxies {
			proxy.Resume()
			sum += proxy.Accepted()
		}
		return sum
	}
	f.Consistently(accepted).Should(Equal(accepted()), "something still dials a former member")
}

// callsInFlight starts a read and a write that the member does not answer, if it is engaged.
func (f *fleet) callsInFlight(name string, proxy *harness.Proxy) []chan error {
	f.t.Helper()
	cl, err := f.provider.Get(f.t.Context(), f.name(name))
	if err != nil {
		return nil
	}
	// So that none of them waits for the mapping of kinds, which the first call asks the member for.
	if f.reason(name)() == kubeconfigsecret.ReasonConnected {
		f.Expect(cl.GetAPIReader().List(f.t.Context(), &corev1.ConfigMapList{}, client.Limit(1))).To(Succeed())
	}
	proxy.Pause()
	read, write := make(chan error, 1), make(chan error, 1)
	go func() { read <- cl.GetAPIReader().List(f.t.Context(), &corev1.ConfigMapList{}, client.Limit(1)) }()
	go func() {
		write <- cl.GetClient().Create(f.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "late-"}})
	}()
	f.Consistently(read, 200*time.Millisecond).ShouldNot(Receive())
	f.Expect(write).NotTo(Receive())
	return []chan error{read, write}
}

func TestRemovingMembersLeavesTheOthersAlone(t *testing.T) {
	const members, removed = 50, 10
	f := newFleet(t, nil, nil)
	for i := range members {
		f.putLimited(fmt.Sprintf("m%02d", i))
	}
	for i := range members {
		f.awaitReason(fmt.Sprintf("m%02d", i), kubeconfigsecret.ReasonConnected)
	}
	gone := f.engagedBy("m00")
	for i := range removed {
		f.remove(fmt.Sprintf("m%02d", i))
	}
	f.Eventually(f.provider.Members).Should(HaveLen(members - removed))
	f.Eventually(gone.Done()).Should(BeClosed(), "the removed ones' contexts end")
	for i := removed; i < members; i++ {
		name := fmt.Sprintf("m%02d", i)
		f.Expect(f.engagedBy(name).Err()).NotTo(HaveOccurred(), name)
		f.Expect(f.made(name)).To(Equal(1), name)
		f.Expect(f.reason(name)()).To(Equal(kubeconfigsecret.ReasonConnected), name)
	}
	f.Expect(f.ended).NotTo(Receive())
}

// putLimited makes a member whose kubeconfig may see one namespace of east.
func (f *fleet) putLimited(name string) {
	f.t.Helper()
	namespace := "limited-" + string(uuid.NewUUID())
	cfg, err := east.ServiceAccount(f.t.Context(), namespace, "member")
	f.Expect(err).NotTo(HaveOccurred())
	f.grantIn(namespace, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "member"})
	secret := harness.MemberSecret(f.namespace, name, harness.Kubeconfig(cfg, ""))
	secret.Annotations = map[string]string{kubeconfigsecret.NamespacesAnnotation: namespace}
	f.Expect(hub.Client.Create(f.t.Context(), secret)).To(Succeed())
}

// After 1,000 engagements there may be no more than this: a connection that was forgotten has some ten goroutines and 100 KiB.
const (
	goroutinesAllowed = 20
	heapAllowed       = 8 << 20
)

func TestEngagingLeavesNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	const members, rounds = 10, 50 // of two engagements each
	f := newFleetWith(t, func(*fleet) {}, func(o *kubeconfigsecret.Options) { o.RotationOverlap = time.Millisecond }, nil)
	f.cycle(members, 1)
	goroutines, heap := measure()

	f.cycle(members, rounds)
	f.mu.Lock()
	engages := f.engages
	f.mu.Unlock()
	f.Expect(engages).To(BeNumerically(">=", members*2*(rounds+1)))
	var moreGoroutines int
	var moreHeap int64
	// net/http's timers keep the buffers of a closed connection for its IdleConnTimeout.
	f.Eventually(func() bool {
		nowGoroutines, nowHeap := measure()
		moreGoroutines, moreHeap = nowGoroutines-goroutines, nowHeap-heap
		return moreGoroutines <= goroutinesAllowed && moreHeap <= heapAllowed
	}, 3*time.Minute, time.Second).Should(BeTrue(), func() string {
		return fmt.Sprintf("%d goroutines and %d KiB of heap are left", moreGoroutines, moreHeap>>10)
	})
	t.Logf("%d engagements: goroutines %+d, heap %+d KiB", engages, moreGoroutines, moreHeap>>10)
}

// cycle has members join, rotate and leave, all at a time.
func (f *fleet) cycle(members, rounds int) {
	f.t.Helper()
	kubeconfig := admin(east)
	rotated := append(admin(east), "# rotated\n"...)
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() {
			name := fmt.Sprintf("m%02d", i)
			for range rounds {
				f.put(name, kubeconfig)
				f.awaitReason(name, kubeconfigsecret.ReasonConnected)
				first := f.engagedBy(name)
				f.put(name, rotated)
				f.Eventually(func() bool { return f.engagedBy(name) != first }).Should(BeTrue())
				f.remove(name)
				f.Eventually(f.reason(name)).Should(BeEmpty())
			}
		})
	}
	all.Wait()
}

// measure returns the goroutines and the bytes of heap in use.
func measure() (goroutines int, heap int64) {
	runtime.GC()
	runtime.GC() // what the first one finalized
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return runtime.NumGoroutine(), int64(stats.HeapAlloc)
}
