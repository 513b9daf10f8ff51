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

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// TestTheLogIsBounded: foreign text gets into the log by messages, values and errors,
// those of libraries too.
func TestTheLogIsBounded(t *testing.T) {
	long := strings.Repeat("x", 5000)
	cut := strings.Repeat("x", 341) + "…" + strings.Repeat("x", 682)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s\x1b"}, Data: map[string][]byte{"token": []byte("t")}}
	tests := map[string]struct {
		log  func(logr.Logger)
		want map[string]any
	}{
		"an honest line": {
			func(l logr.Logger) {
				l.WithValues("run", types.NamespacedName{Namespace: "n", Name: "r"}).Info("Hello", "n", 1)
			},
			map[string]any{"level": "info", "msg": "Hello", "run": map[string]any{"namespace": "n", "name": "r"}, "n": 1.0},
		},
		"a long message":        {func(l logr.Logger) { l.Info(long) }, map[string]any{"level": "info", "msg": cut}},
		"a value of many lines": {func(l logr.Logger) { l.Info("m", "v", "a\nb\x1b[31m\u202ec") }, map[string]any{"level": "info", "msg": "m", "v": "a b[31mc"}},
		"a bound value":         {func(l logr.Logger) { l.WithValues("v", long).Info("m") }, map[string]any{"level": "info", "msg": "m", "v": cut}},
		"an error":              {func(l logr.Logger) { l.Error(errors.New(long), "m") }, map[string]any{"level": "error", "msg": "m", "error": cut}},
		"an error as a value":   {func(l logr.Logger) { l.Info("m", "err", errors.New("a\nb")) }, map[string]any{"level": "info", "msg": "m", "err": "a b"}},
		"an object":             {func(l logr.Logger) { l.Info("m", "o", secret) }, map[string]any{"level": "info", "msg": "m", "o": map[string]any{"namespace": "n", "name": "s"}}},
		"a struct":              {func(l logr.Logger) { l.Info("m", "s", struct{ A, B string }{"a\x1b", "<"}) }, map[string]any{"level": "info", "msg": "m", "s": `{"A":"a","B":"<"}`}},
		"what cannot be written": {func(l logr.Logger) { l.Info("m", "f", struct{ F func() }{func() {}}) },
			map[string]any{"level": "info", "msg": "m", "f": "cannot be written"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			tc.log(newLogger(&zap.Options{}, zap.WriteTo(&out)))
			var got map[string]any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s", err, out.String())
			}
			delete(got, "ts")
			delete(got, "stacktrace")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the line (-want +got):\n%s", diff)
			}
		})
	}
}
