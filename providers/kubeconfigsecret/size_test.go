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

package kubeconfigsecret

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSizesAreNotTooSmall holds the estimate to the heap: it must not be much less, or else
// the limit would be none.
func TestSizesAreNotTooSmall(t *testing.T) {
	tests := map[string]func(i int) any{
		"an empty pod": func(int) any { return &corev1.Pod{} },
		"a long text":  func(i int) any { return &corev1.Pod{Status: corev1.PodStatus{Message: strings.Repeat("x", 5000+i)}} },
		"many values": func(int) any {
			return &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 50)}}
		},
		"pointers": func(i int) any {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Controller: new(true), Name: fmt.Sprint(i)}}}}
		},
		"maps": func(i int) any {
			labels := map[string]string{}
			for j := range 20 {
				labels[fmt.Sprintf("label-%d-%d", i, j)] = "v"
			}
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		},
		"what has no type": func(i int) any {
			conditions := []any{map[string]any{"type": fmt.Sprint(i), "message": strings.Repeat("x", 100)}, map[string]any{"n": int64(i)}}
			return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
		},
	}
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			const n = 2000
			kept := make([]any, n)
			before := heap()
			var estimate int64
			for i := range kept {
				kept[i] = build(i)
				estimate += sizeOf(kept[i]) - perObject
			}
			held := heap() - before
			if ratio := float64(estimate) / float64(held); ratio < 0.7 || ratio > 2.5 {
				t.Errorf("estimated at %d bytes each, and takes %d", estimate/n, held/n)
			}
			runtime.KeepAlive(kept)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
