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
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// largeConfigMap has most of a MiB, and cacheLimit holds some of its like beside what
// other tests make in the same API server.
const (
	largeConfigMap = 900 << 10
	cacheLimit     = 6 << 20
)

func limited(o *kubeconfigsecret.Options) { o.CacheLimit = cacheLimit }

// A member may hold what fits; how much of it changes over time is no matter. With more it is
// disengaged, says so, and comes back by itself.
func TestMembersHoldNoMoreThanTheirLimit(t *testing.T) {
	f := newFleet(t, limited, map[string][]byte{"a": admin(west)})
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	namespace := "large"
	f.Expect(west.EnsureNamespace(t.Context(), namespace)).To(Succeed())
	t.Cleanup(func() { deleteLarge(context.Background(), f, namespace) })

	t.Log("One object that changes often, of which each change counts until all is listed again")
	changing := largeIn(namespace, "changing")
	f.Expect(west.Client.Create(t.Context(), changing)).To(Succeed())
	for i := range 4 * cacheLimit / largeConfigMap {
		changing.Annotations = map[string]string{"n": fmt.Sprint(i)}
		f.Expect(west.Client.Update(t.Context(), changing)).To(Succeed())
		f.Eventually(func() (map[string]string, error) {
			cl, err := f.provider.Get(t.Context(), f.name("a"))
			if err != nil {
				return nil, err
			}
			seen := &corev1.ConfigMap{}
			err = cl.GetCache().Get(t.Context(), client.ObjectKeyFromObject(changing), seen)
			return seen.Annotations, err
		}).Should(Equal(changing.Annotations))
	}
	f.Expect(f.reason("a")()).To(Equal(kubeconfigsecret.ReasonConnected))
	f.Expect(f.made("a")).To(Equal(1))

	t.Log("More than fits")
	for i := range cacheLimit/largeConfigMap + 1 {
		f.Expect(west.Client.Create(t.Context(), largeIn(namespace, fmt.Sprint("more-", i)))).To(Succeed())
	}
	f.awaitReason("a", kubeconfigsecret.ReasonTooLarge)
	f.Expect(f.member("a").Connected.Status).To(Equal(metav1.ConditionFalse))
	f.Expect(f.member("a").Connected.Message).To(And(ContainSubstring("6 MiB"), ContainSubstring("--member-cache-limit")))
	_, err := f.provider.Get(t.Context(), f.name("a"))
	f.Expect(err).To(MatchError(multicluster.ErrClusterNotFound))

	t.Log("A member that is too large from the start")
	f.put("b", admin(west))
	f.awaitReason("b", kubeconfigsecret.ReasonTooLarge)

	deleteLarge(t.Context(), f, namespace)
	f.awaitReason("a", kubeconfigsecret.ReasonConnected)
	f.awaitReason("b", kubeconfigsecret.ReasonConnected)
	f.awaitReconciled(west, "a")
}

func largeIn(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"k": strings.Repeat("x", largeConfigMap)},
	}
}

func deleteLarge(ctx context.Context, f *fleet, namespace string) {
	f.t.Helper()
	f.Expect(west.Client.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace))).To(Succeed())
}

// lists are answers to lists that take more than they seem to, or have no end.
var lists = map[string]struct {
	answer func(page int64) string
	reason string
}{
	"many values":   {func(int64) string { return pageOf(strings.Repeat("{},", 1_000_000)+"{}", "") }, kubeconfigsecret.ReasonUnreachable},
	"endless pages": {func(page int64) string { return pageOf(configMaps(page), "more") }, kubeconfigsecret.ReasonTooLarge},
	"empty pages":   {func(int64) string { return pageOf("", "more") }, kubeconfigsecret.ReasonUnreachable},
	"large objects": {func(int64) string {
		return pageOf(`{"metadata":{"name":"a"},"data":{"a":"`+strings.Repeat("x", 9<<20)+`"}}`, "")
	}, kubeconfigsecret.ReasonUnreachable},
}

func TestListsWithoutMeasure(t *testing.T) {
	f := newFleet(t, limited, nil)
	for name, tc := range lists {
		front := harness.NewFront(t, east.Config)
		var pages atomic.Int64
		front.Answer(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/api/v1/configmaps" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, tc.answer(pages.Add(1)))
			return true
		})
		f.put(strings.ReplaceAll(name, " ", "-"), front.Kubeconfig(""))
	}
	for name, tc := range lists {
		f.awaitReason(strings.ReplaceAll(name, " ", "-"), tc.reason)
	}
}

func pageOf(items, next string) string {
	return `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"` + next + `"},"items":[` + items + `]}`
}

func configMaps(page int64) string {
	items := make([]string, 100)
	for i := range items {
		items[i] = fmt.Sprintf(`{"metadata":{"namespace":"default","name":"c-%d-%d"}}`, page, i)
	}
	return strings.Join(items, ",")
}
