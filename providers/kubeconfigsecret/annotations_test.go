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
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

func TestNamespacesAnnotation(t *testing.T) {
	user, kubeconfig := newUser(t)
	f := newFleet(t, nil, map[string][]byte{"a": kubeconfig})
	one, two := f.namespaceFor(user), f.namespaceFor(user)
	f.awaitReason("a", kubeconfigsecret.ReasonForbidden)
	for _, namespace := range []string{one, two, "default"} {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "limited-"}}
		f.Expect(east.Client.Create(t.Context(), configMap)).To(Succeed())
	}
	held := func() sets.Set[string] {
		f.t.Helper()
		cl, err := f.provider.Get(t.Context(), f.name("a"))
		f.Expect(err).NotTo(HaveOccurred())
		configMaps := &corev1.ConfigMapList{}
		f.Expect(cl.GetCache().List(t.Context(), configMaps)).To(Succeed())
		namespaces := sets.Set[string]{}
		for _, c := range configMaps.Items {
			namespaces.Insert(c.Namespace)
		}
		return namespaces
	}

	t.Log("A kubeconfig that may see only these works")
	f.annotate("a", kubeconfigsecret.NamespacesAnnotation, one+", "+two)
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.Expect(held()).To(Equal(sets.New(one, two)))

	t.Log("The same list in other words reconnects nothing, another list does")
	f.annotate("a", kubeconfigsecret.NamespacesAnnotation, two+","+one)
	f.annotate("a", kubeconfigsecret.NamespacesAnnotation, one)
	f.Eventually(held).Should(Equal(sets.New(one)))
	f.Expect(f.made("a")).To(Equal(2))

	t.Log("A namespace without rights is refused, and named")
	f.annotate("a", kubeconfigsecret.NamespacesAnnotation, one+",kube-system")
	f.awaitReason("a", kubeconfigsecret.ReasonRotationRefused)
	f.Expect(f.member("a").Connected.Message).To(ContainSubstring("list configmaps in namespace kube-system"))
	f.Expect(f.member("a").Connected.Message).NotTo(ContainSubstring(one))

	t.Log("A list that is none leaves the former one, and says so")
	f.annotate("a", kubeconfigsecret.NamespacesAnnotation, one+",No_Namespace")
	f.Eventually(func() string { return f.member("a").Connected.Message }).
		Should(ContainSubstring("annotation fleet.konveyor.io/namespaces: entry 2 is no name"))
	f.Expect(f.member("a").Connected.Reason).To(Equal(kubeconfigsecret.ReasonRotationRefused))
	f.Expect(held()).To(Equal(sets.New(one)))

	t.Log("A member that begins with one is not connected until it is corrected")
	secret := harness.MemberSecret(f.namespace, "b", kubeconfig)
	secret.Annotations = map[string]string{kubeconfigsecret.NamespacesAnnotation: ""}
	f.Expect(hub.Client.Create(t.Context(), secret)).To(Succeed())
	f.awaitReason("b", kubeconfigsecret.ReasonInvalidAnnotation)
	f.Expect(f.member("b").Connected.Status).To(Equal(metav1.ConditionFalse))
	f.annotate("b", kubeconfigsecret.NamespacesAnnotation, two)
	f.awaitReason("b", kubeconfigsecret.ReasonConnected)
}

func TestPausedAnnotation(t *testing.T) {
	f := newFleet(t, nil, map[string][]byte{"a": admin(east)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	paused := func() bool { m, known := f.provider.Lookup(f.name("a")); return known && m.Paused }
	f.Expect(paused()).To(BeFalse())

	f.annotate("a", kubeconfigsecret.PausedAnnotation, "true")
	f.Eventually(paused).Should(BeTrue())
	got := f.member("a").Connected
	f.Expect(got.Status).To(Equal(metav1.ConditionTrue))
	f.Expect(got.Message).To(ContainSubstring("writes are paused by the annotation fleet.konveyor.io/paused"))
	f.awaitReconciled(east, "a")

	f.annotate("a", kubeconfigsecret.PausedAnnotation, "false")
	f.Eventually(paused).Should(BeFalse())
	f.Expect(f.member("a").Connected.Message).NotTo(ContainSubstring("paused"))
	f.Expect(f.made("a")).To(Equal(1), "pausing has reconnected the member")
	_, known := f.provider.Lookup(f.name("nobody"))
	f.Expect(known).To(BeFalse())
}

func TestClockOffset(t *testing.T) {
	f := newFleet(t, nil, map[string][]byte{"right": admin(east)})
	front := harness.NewFront(t, east.Config)
	offset := func(cluster string) func() time.Duration {
		return func() time.Duration { m, _ := f.provider.Lookup(f.name(cluster)); return m.ClockOffset }
	}
	around := func(d time.Duration) OmegaMatcher { return BeNumerically("~", d, 2*time.Second) }

	front.ShiftDate(10 * time.Minute)
	f.put("wrong", front.Kubeconfig(""))
	f.awaitReason("wrong", kubeconfigsecret.ReasonConnected)
	f.Expect(offset("wrong")()).To(around(10*time.Minute), "it is known as soon as the member is engaged")

	t.Log("A clock that is set is noticed, however far off; one that nobody can believe changes nothing")
	const year, century = 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour
	for _, ahead := range []time.Duration{-10 * time.Minute, -48 * time.Hour, year} {
		front.ShiftDate(ahead)
		f.Eventually(offset("wrong")).Should(around(ahead))
	}
	front.ShiftDate(century + time.Hour)
	f.Consistently(offset("wrong")).Should(around(year))
	front.ShiftDate(0)
	f.Eventually(offset("wrong")).Should(around(0))
	f.Expect(offset("right")()).To(BeNumerically("~", 0, time.Second))
	f.Expect(f.made("wrong")).To(Equal(1))
}

// TestMemberWhoseClockIsUnknown: nobody decides by a clock that is not known.
func TestMemberWhoseClockIsUnknown(t *testing.T) {
	f := newFleet(t, nil, nil)
	front := harness.NewFront(t, east.Config)
	front.Rewrite(func(res *http.Response) error {
		res.Header.Set("Date", "today")
		return nil
	})
	f.put("a", front.Kubeconfig(""))
	f.awaitReason("a", kubeconfigsecret.ReasonClockUnknown)
	got := f.member("a").Connected
	f.Expect(got.Status).To(Equal(metav1.ConditionFalse))
	f.Expect(got.Message).To(ContainSubstring("have proxies before it pass the header on"))
	f.Expect(f.made("a")).To(BeZero(), "controllers may decide already")

	front.ShiftDate(0)
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
}

func TestMemberThatIsTooOld(t *testing.T) {
	f := newFleet(t, nil, nil)
	front := harness.NewFront(t, east.Config)
	front.Rewrite(func(res *http.Response) error {
		if res.Request.URL.Path == "/version" {
			return replaceVersion(res, "v1.28.15")
		}
		return nil
	})
	f.put("a", front.Kubeconfig(""))
	f.awaitReason("a", kubeconfigsecret.ReasonVersionTooOld)
	got := f.member("a").Connected
	f.Expect(got.Status).To(Equal(metav1.ConditionFalse))
	f.Expect(got.Message).To(ContainSubstring("v1.28.15: upgrade it to 1.29 or later"))

	front.Rewrite(func(*http.Response) error { return nil })
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
}

func replaceVersion(res *http.Response, version string) error {
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	content, err := json.Marshal(map[string]string{"gitVersion": version})
	res.Body = io.NopCloser(bytes.NewReader(content))
	res.Header.Set("Content-Length", strconv.Itoa(len(content)))
	res.Header.Del("Content-Encoding")
	return err
}

// annotate changes one annotation of a member's Secret.
func (f *fleet) annotate(cluster, annotation, value string) {
	f.t.Helper()
	secret := harness.MemberSecret(f.namespace, cluster, nil)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: value}}})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(hub.Client.Patch(f.t.Context(), secret, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

// namespaceFor makes a namespace in east in which a user has the rights that newFleet requires.
func (f *fleet) namespaceFor(user string) string {
	f.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "limited-"}}
	f.Expect(east.Client.Create(f.t.Context(), namespace)).To(Succeed())
	f.grantIn(namespace.Name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	return namespace.Name
}

// grantIn gives a subject the rights that newFleet requires in one namespace of east.
func (f *fleet) grantIn(namespace string, subject rbacv1.Subject) {
	f.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "member"}, Rules: requiredRules}
	f.Expect(east.Client.Create(f.t.Context(), role)).To(Succeed())
	f.Expect(east.Client.Create(f.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "member"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{subject},
	})).To(Succeed())
}
