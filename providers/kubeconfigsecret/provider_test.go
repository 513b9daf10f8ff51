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
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/yaml"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

func TestMemberJoinsLeavesAndRejoins(t *testing.T) {
	f := newFleet(t, nil, nil)
	f.Eventually(f.provider.Synced).Should(BeTrue())
	f.Expect(f.provider.Members()).To(BeEmpty())

	f.put("a", admin(east))
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.awaitReconciled(east, "a")
	m := f.member("a")
	f.Expect(m.KubernetesVersion).To(HavePrefix("v1."))
	f.Expect(m.Endpoint).To(Equal(east.Config.Host))
	f.Expect(m.LastContactTime.Time).To(BeTemporally("~", time.Now(), time.Minute))
	f.Expect(m.SecretUID).NotTo(BeEmpty())

	f.remove("a")
	f.Eventually(f.provider.Members).Should(BeEmpty())
	_, err := f.manager.GetCluster(t.Context(), f.name("a"))
	f.Expect(err).To(MatchError(multicluster.ErrClusterNotFound))

	f.put("a", admin(west))
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.awaitReconciled(west, "a")

	_, err = f.provider.Get(t.Context(), "")
	f.Expect(err).To(MatchError(multicluster.ErrClusterNotFound), "the hub is no member")
}

// TestDeadMemberDelaysNobody: one of four members takes connections and never answers. It is the first: of
// Secrets that are there at the start the order is chance, so that in one case the others come
// once it is being dialled. CacheSyncTimeout is 2 s, both the manager's and the controller's: a
// member that was engaged without having synced would end the manager then.
func TestDeadMemberDelaysNobody(t *testing.T) {
	tests := map[string]struct{ atStart bool }{
		"all are there when the manager starts": {atStart: true},
		"the others come when it is dialled":    {atStart: false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { deadMemberDelaysNobody(t, tc.atStart) })
	}
}

func deadMemberDelaysNobody(t *testing.T, atStart bool) {
	t.Helper()
	proxy := harness.NewProxy(t, east)
	proxy.Pause()
	live := map[string]*harness.ControlPlane{"b": east, "c": west, "d": east}
	secrets := map[string][]byte{"a-dead": harness.Kubeconfig(east.Config, proxy.URL())}
	if atStart {
		for cluster, cp := range live {
			secrets[cluster] = admin(cp)
		}
	}
	f := newFleet(t, nil, secrets)
	began := f.started
	if !atStart {
		f.Eventually(proxy.Accepted).Should(BeNumerically(">", 0))
		began = time.Now()
		for cluster, cp := range live {
			f.put(cluster, admin(cp))
		}
	}
	for cluster, cp := range live {
		f.awaitReconciled(cp, cluster)
	}
	took := time.Since(began)
	t.Logf("Three members were reconciled in %s, beside a dead one", took)
	f.Expect(took).To(BeNumerically("<", 5*time.Second))
	f.Expect(f.reason("a-dead")()).To(Equal(kubeconfigsecret.ReasonConnecting))
	f.Expect(proxy.Accepted()).To(BeNumerically(">", 0), "the dead member was not even dialled")

	f.Consistently(f.ended, cacheSyncTimeout+time.Second).ShouldNot(Receive(), "the manager ended")
	for cluster, cp := range live {
		f.awaitReconciled(cp, cluster)
	}

	f.remove("a-dead") // while it is being dialled
	f.Eventually(f.reason("a-dead"), 5*time.Second).Should(BeEmpty())
	f.put("a-dead", harness.Kubeconfig(east.Config, proxy.URL()))
	proxy.Resume()
	f.awaitReason("a-dead", kubeconfigsecret.ReasonConnected)
}

func TestBadInputIsShownAndMended(t *testing.T) {
	refusing := harness.NewProxy(t, east)
	refusing.Refuse()
	stranger, strangerKubeconfig := newUser(t)
	expired, err := east.ServiceAccountUntil(t.Context(), "default", "expired", time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	wrongCA := rest.CopyConfig(east.Config)
	wrongCA.CAData = west.Config.CAData
	unknown := rest.AnonymousClientConfig(east.Config)
	unknown.BearerToken = "not-known-there"

	var f *fleet
	rotate := func(cluster string) { f.put(cluster, admin(east)) }
	tests := map[string]struct {
		cluster    string
		kubeconfig []byte
		reason     string
		message    string
		remedy     string
		mend       func(cluster string)
	}{
		"the kubeconfig is not YAML":                    {"no-yaml", []byte("{{ .Values.kubeconfig }}: ["), kubeconfigsecret.ReasonInvalidKubeconfig, "not YAML", "put a kubeconfig there", rotate},
		"the kubeconfig is empty":                       {"empty", []byte{}, kubeconfigsecret.ReasonInvalidKubeconfig, "missing or empty", "put a kubeconfig there", rotate},
		"the key is missing":                            {"keyless", nil, kubeconfigsecret.ReasonInvalidKubeconfig, `key "value"`, "put a kubeconfig there", rotate},
		"the server is not there":                       {"refused", harness.Kubeconfig(east.Config, refusing.URL()), kubeconfigsecret.ReasonUnreachable, "connection refused", "check that the member runs and that the hub can reach its API server", func(string) { _ = refusing.Accept() }},
		"the CA is another cluster's":                   {"wrong-ca", harness.Kubeconfig(wrongCA, ""), kubeconfigsecret.ReasonInvalidKubeconfig, "did not sign", "correct certificate-authority-data or server", rotate},
		"the token is unknown":                          {"unknown", harness.Kubeconfig(unknown, ""), kubeconfigsecret.ReasonUnauthorized, "401", "put a kubeconfig with valid ones into the Secret", rotate},
		"the token has expired":                         {"expired", harness.Kubeconfig(expired, ""), kubeconfigsecret.ReasonUnauthorized, "401", "put a kubeconfig with valid ones into the Secret", rotate},
		"the client certificate is not of this cluster": {"other-cert", harness.Kubeconfig(otherCertificate(), ""), kubeconfigsecret.ReasonUnauthorized, "401", "put a kubeconfig with valid ones into the Secret", rotate},
		"the user has no rights": {
			"no-rights", strangerKubeconfig, kubeconfigsecret.ReasonForbidden, "list configmaps, watch configmaps, patch agentruns.konveyor.io/status",
			"apply config/rbac/member there, or register the member again",
			func(string) { grant(f, stranger) },
		},
		"the CRD is not installed": {
			"no-crd", admin(bare), kubeconfigsecret.ReasonCRDNotInstalled, "agentruns.konveyor.io (v1alpha1)", "apply config/crd/member there", func(string) { installCRD(f, bare) },
		},
	}
	secrets := map[string][]byte{"good": admin(west)}
	for _, tc := range tests {
		secrets[tc.cluster] = tc.kubeconfig
	}
	f = newFleet(t, nil, secrets)
	f.awaitReason("good", kubeconfigsecret.ReasonConnected)
	var goodChanged atomic.Bool
	f.provider.Subscribe(func(name multicluster.ClusterName) {
		if name == f.name("good") && f.reason("good")() != kubeconfigsecret.ReasonConnected {
			goodChanged.Store(true)
		}
	})
	for name, tc := range tests {
		t.Run(name, func(*testing.T) {
			f.awaitReason(tc.cluster, tc.reason)
			got := f.member(tc.cluster).Connected
			f.Expect(got.Message).To(And(ContainSubstring(tc.message), ContainSubstring(tc.remedy)))
			f.Expect(f.made(tc.cluster)).To(BeZero(), "a cluster was made before the checks had passed")
			want := metav1.ConditionFalse
			if tc.reason == kubeconfigsecret.ReasonUnreachable {
				want = metav1.ConditionUnknown
			}
			f.Expect(got.Status).To(Equal(want))
			tc.mend(tc.cluster)
			f.awaitReason(tc.cluster, kubeconfigsecret.ReasonConnected)
		})
	}
	f.Expect(goodChanged.Load()).To(BeFalse(), "the good member was disturbed")
}

func TestRotation(t *testing.T) {
	f := newFleet(t, nil, map[string][]byte{"a": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	first, err := f.provider.Get(t.Context(), f.name("a"))
	f.Expect(err).NotTo(HaveOccurred())
	inUse := func() any { cl, _ := f.provider.Get(t.Context(), f.name("a")); return cl }

	t.Log("A bad kubeconfig leaves the former one working, and says so")
	f.put("a", []byte("nonsense"))
	f.awaitReason("a", kubeconfigsecret.ReasonRotationRefused)
	f.Expect(f.member("a").Connected.Status).To(Equal(metav1.ConditionTrue))
	f.Expect(inUse()).To(BeIdenticalTo(first))
	f.awaitReconciled(east, "a")

	t.Log("The former kubeconfig put back reconnects nothing")
	f.put("a", admin(east))
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.Expect(inUse()).To(BeIdenticalTo(first))
	f.Expect(f.made("a")).To(Equal(1))

	t.Log("A good one replaces it without a gap")
	var gap atomic.Bool
	f.provider.Subscribe(func(multicluster.ClusterName) {
		if m := f.member("a"); m == nil || m.Connected.Status != metav1.ConditionTrue || inUse() == nil {
			gap.Store(true)
		}
	})
	user, kubeconfig := newUser(t, "system:masters")
	f.put("a", kubeconfig)
	f.Eventually(inUse).ShouldNot(BeIdenticalTo(first))
	f.awaitReconciled(east, "a")
	f.Expect(gap.Load()).To(BeFalse())
	f.Eventually(func() error { return first.GetAPIReader().List(t.Context(), &corev1.NamespaceList{}) }).
		Should(MatchError(ContainSubstring("member is disengaged")), "the former connection ends after the overlap")
	requests, err := east.Requests(harness.ByUser(user), harness.OnResource("configmaps"))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(requests).NotTo(BeEmpty())
}

func TestLabelsReconnectNothing(t *testing.T) {
	f := newFleet(t, nil, map[string][]byte{"a": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	secret := harness.MemberSecret(f.namespace, "a", admin(east))
	secret.Labels["tier"] = "gold"
	secret.Annotations = map[string]string{"note": "changed"}
	f.Expect(hub.Client.Update(t.Context(), secret)).To(Succeed())
	f.Eventually(func() string { return f.member("a").Labels["tier"] }).Should(Equal("gold"))
	f.Expect(f.made("a")).To(Equal(1))
	f.Expect(f.member("a").Connected.Reason).To(Equal(kubeconfigsecret.ReasonConnected))
}

func TestLostMemberRecoversAndCanBeRemoved(t *testing.T) {
	proxy := harness.NewProxy(t, east)
	short := func(o *kubeconfigsecret.Options) { o.ProbeTimeout = 500 * time.Millisecond }
	f := newFleet(t, short, map[string][]byte{"a": harness.Kubeconfig(east.Config, proxy.URL()), "b": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)

	proxy.Pause()
	f.awaitReason("a", kubeconfigsecret.ReasonUnreachable)
	lost := f.member("a")
	f.Expect(lost.Connected.Status).To(Equal(metav1.ConditionUnknown))
	_, err := f.provider.Get(t.Context(), f.name("a"))
	f.Expect(err).NotTo(HaveOccurred(), "what was last known stays readable")
	f.Consistently(func() metav1.Time { return f.member("a").Connected.LastTransitionTime }).
		Should(Equal(lost.Connected.LastTransitionTime), "the loss is stamped once")

	proxy.Resume()
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.awaitReconciled(east, "a")

	proxy.Pause()
	f.awaitReason("a", kubeconfigsecret.ReasonUnreachable)
	cl, err := f.provider.Get(t.Context(), f.name("a"))
	f.Expect(err).NotTo(HaveOccurred())
	f.remove("a")
	f.Eventually(f.reason("a"), 5*time.Second).Should(BeEmpty())
	f.Eventually(func() error { return cl.GetAPIReader().List(t.Context(), &corev1.NamespaceList{}) }).
		Should(MatchError(ContainSubstring("member is disengaged")))
	accepted := proxy.Accepted()
	proxy.Resume()
	f.Consistently(proxy.Accepted).Should(Equal(accepted), "something still dials the member")
	f.awaitReconciled(east, "b")
}

func TestRightsTakenAwayAreNoticed(t *testing.T) {
	user, kubeconfig := newUser(t)
	f := newFleet(t, nil, map[string][]byte{"a": kubeconfig})
	f.awaitReason("a", kubeconfigsecret.ReasonForbidden)
	binding := grant(f, user)
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)

	f.Expect(east.Client.Delete(t.Context(), binding)).To(Succeed())
	// A watch that is open stays open, and no watch needs the right to write: the checks
	// that are made now and then find it.
	f.awaitReason("a", kubeconfigsecret.ReasonForbidden)
	grant(f, user)
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.awaitReconciled(east, "a")
}

func TestHubCacheHoldsKubeconfigsOnly(t *testing.T) {
	f := newFleet(t, nil, map[string][]byte{"a": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	want := map[string]int{"a-kubeconfig": 1}
	for _, suffix := range []string{"-ca", "-etcd", "-sa", "-proxy"} {
		other := harness.MemberSecret(f.namespace, "a", []byte("private key"))
		other.Name = "a" + suffix
		other.Data["tls.key"] = []byte("private key")
		f.Expect(hub.Client.Create(t.Context(), other)).To(Succeed())
		want[other.Name] = 0
	}
	plain := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "plain"}}
	f.Expect(hub.Client.Create(t.Context(), plain)).To(Succeed())

	cached := func() map[string]int {
		secrets := &corev1.SecretList{}
		f.Expect(f.manager.GetLocalManager().GetClient().List(t.Context(), secrets)).To(Succeed())
		sizes := map[string]int{}
		for _, s := range secrets.Items {
			sizes[s.Name] = len(s.Data)
		}
		return sizes
	}
	f.Eventually(cached).Should(Equal(want))
	f.Consistently(func() int { return len(f.provider.Members()) }).Should(Equal(1))
}

func TestSameClusterNameInTwoNamespaces(t *testing.T) {
	other := newNamespace(t)
	long := strings.Repeat("x", 63) // as long as the label may be
	f := newFleet(t, func(o *kubeconfigsecret.Options) { o.Namespaces = append(o.Namespaces, other) }, map[string][]byte{long: admin(east)})
	f.Expect(hub.Client.Create(t.Context(), harness.MemberSecret(other, long, admin(west)))).To(Succeed())
	f.Eventually(func() map[multicluster.ClusterName]string {
		connected := map[multicluster.ClusterName]string{}
		for _, m := range f.provider.Members() {
			if m.Connected.Status == metav1.ConditionTrue {
				connected[m.Name] = m.Endpoint
			}
		}
		return connected
	}).Should(Equal(map[multicluster.ClusterName]string{
		kubeconfigsecret.MemberName(f.namespace, long): east.Config.Host, kubeconfigsecret.MemberName(other, long): west.Config.Host,
	}))
}

func TestIndexesReachEveryMember(t *testing.T) {
	f := newFleet(t, nil, map[string][]byte{"a": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	cl, err := f.provider.Get(t.Context(), f.name("a"))
	f.Expect(err).NotTo(HaveOccurred())
	found := &corev1.ConfigMapList{}
	f.Expect(cl.GetClient().List(t.Context(), found, client.InNamespace("default"), client.MatchingFields{nameIndex: "kube-root-ca.crt"})).To(Succeed())
	f.Expect(f.provider.IndexField(t.Context(), &corev1.Pod{}, nameIndex, nil)).
		To(MatchError(ContainSubstring("before the manager is started")))
}

// otherCertificate is east's address with a client certificate that west issued.
func otherCertificate() *rest.Config {
	cfg := rest.CopyConfig(east.Config)
	cfg.CertData, cfg.KeyData = west.Config.CertData, west.Config.KeyData
	return cfg
}

// grant gives a user of east all rights.
func grant(f *fleet, user string) *rbacv1.ClusterRoleBinding {
	f.t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	f.Expect(east.Client.Create(f.t.Context(), binding)).To(Succeed())
	return binding
}

func installCRD(f *fleet, cp *harness.ControlPlane) {
	f.t.Helper()
	path, err := harness.MemberCRDPath()
	f.Expect(err).NotTo(HaveOccurred())
	crd, err := os.ReadFile(filepath.Join(path, "konveyor.io_agentruns.yaml"))
	f.Expect(err).NotTo(HaveOccurred())
	object := &apiextensionsv1.CustomResourceDefinition{}
	f.Expect(yaml.UnmarshalStrict(crd, object)).To(Succeed())
	f.install(cp, object)
}
