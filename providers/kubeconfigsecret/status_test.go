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
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDelay(t *testing.T) {
	tests := map[string]struct {
		failures int
		jitter   float64
		want     time.Duration
	}{
		"the first is at least half the base":   {1, 0, 500 * time.Millisecond},
		"and at most the base":                  {1, 1, time.Second},
		"it doubles":                            {3, 1, 4 * time.Second},
		"jitter scales the second half only":    {3, 0.5, 3 * time.Second},
		"it never passes the limit":             {10, 1, 5 * time.Minute},
		"and does not overflow after very many": {1 << 30, 1, 5 * time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := delay(tc.failures, time.Second, 5*time.Minute, tc.jitter); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestClassify(t *testing.T) {
	request := func(err error) error { return &url.Error{Op: "Get", URL: "https://east.example/version", Err: err} }
	runs := schema.GroupResource{Group: "konveyor.io", Resource: "agentruns"}
	tests := map[string]struct {
		err     error
		reason  string
		message string // contained
	}{
		"an unknown user":             {apierrors.NewUnauthorized("Bearer s3cret"), ReasonUnauthorized, "401"},
		"a missing right":             {apierrors.NewForbidden(runs, "s3cret", nil), ReasonForbidden, "403"},
		"a missing kind":              {&meta.NoKindMatchError{}, ReasonCRDNotInstalled, "apply config/crd/member"},
		"a server that is overloaded": {apierrors.NewTooManyRequests("s3cret", 1), ReasonUnreachable, "status 429"},
		"a server that redirects":     {apierrors.NewGenericServerResponse(302, "get", runs, "", "s3cret", 0, true), ReasonUnreachable, "status 302"},
		"another CA":                  {request(x509.UnknownAuthorityError{}), ReasonInvalidKubeconfig, "certificate-authority-data"},
		"another host's certificate":  {request(x509.HostnameError{Certificate: &x509.Certificate{}}), ReasonInvalidKubeconfig, "tls-server-name"},
		"a refused client certificate": {
			request(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), ReasonUnauthorized, "client certificate",
		},
		"nobody listens": {request(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}), ReasonUnreachable, "(dial tcp: connection refused)"},
		"a reset, without the local port": {
			request(&net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 54321}, Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}, Err: errors.New("connection reset by peer")}),
			ReasonUnreachable, "(read 192.0.2.1:6443: connection reset by peer)",
		},
		"no answer":          {request(context.DeadlineExceeded), ReasonUnreachable, "in time"},
		"a known failure":    {fmt.Errorf("wrapped: %w", &failure{reason: ReasonForbidden, message: "m"}), ReasonForbidden, "m"},
		"control characters": {errors.New("a\x1b[31m\nb\u202e"), ReasonUnreachable, "(a[31mb)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := classify(tc.err)
			if got.reason != tc.reason || !strings.Contains(got.message, tc.message) {
				t.Errorf("got %v, want %s with %q", got, tc.reason, tc.message)
			}
			if strings.Contains(got.message, "s3cret") {
				t.Errorf("the message repeats what the member said: %s", got.message)
			}
		})
	}
}

func TestCondition(t *testing.T) {
	forbidden := &failure{reason: ReasonForbidden, message: "No right"}
	lost := unreachable("Gone")
	tests := map[string]struct {
		observed observation
		paused   bool
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		"not tried yet":         {observation{}, false, metav1.ConditionUnknown, ReasonConnecting, "first time"},
		"engaged":               {observation{engaged: true}, false, metav1.ConditionTrue, ReasonConnected, "watched"},
		"never reached":         {observation{failure: lost}, false, metav1.ConditionUnknown, ReasonUnreachable, "Gone"},
		"a right is missing":    {observation{failure: forbidden}, false, metav1.ConditionFalse, ReasonForbidden, "No right"},
		"lost while engaged":    {observation{engaged: true, failure: lost}, false, metav1.ConditionUnknown, ReasonUnreachable, "Gone"},
		"rotation refused":      {observation{engaged: true, refusal: forbidden}, false, metav1.ConditionTrue, ReasonRotationRefused, "No right"},
		"reconnect refused":     {observation{engaged: true, refusal: forbidden, sameKubeconfig: true}, false, metav1.ConditionTrue, ReasonReconnectRefused, "No right"},
		"refused and then lost": {observation{engaged: true, refusal: forbidden, failure: lost}, false, metav1.ConditionUnknown, ReasonUnreachable, "No right"},
		"limited to namespaces": {
			observation{engaged: true, namespaces: []string{"a", "b"}}, false, metav1.ConditionTrue, ReasonConnected,
			"The member is watched, limited by the annotation fleet.konveyor.io/namespaces to: a, b",
		},
		"paused": {observation{engaged: true}, true, metav1.ConditionTrue, ReasonConnected, "The member is watched; writes are paused by the annotation fleet.konveyor.io/paused"},
		"paused, with a message without end": {
			observation{failure: unreachable(strings.Repeat("x", 5000))}, true, metav1.ConditionUnknown, ReasonUnreachable, "...; writes are paused",
		},
		"a message without end": {observation{failure: unreachable(strings.Repeat("x", 5000))}, false, metav1.ConditionUnknown, ReasonUnreachable, "..."},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.observed.condition(tc.paused)
			if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("got %+v", got)
			}
			if len(got.Message) > maxMessage {
				t.Errorf("message of %d bytes", len(got.Message))
			}
		})
	}
}

func TestTransition(t *testing.T) {
	first, since, now := time.Unix(100, 0), time.Unix(200, 0), time.Unix(300, 0)
	tests := map[string]struct {
		old, new metav1.ConditionStatus
		since    time.Time
		want     time.Time
	}{
		"a new member":                           {"", metav1.ConditionUnknown, time.Time{}, now},
		"a retry that fails again moves nothing": {metav1.ConditionUnknown, metav1.ConditionUnknown, time.Time{}, first},
		"nor does a probe that fails again":      {metav1.ConditionUnknown, metav1.ConditionUnknown, since, since},
		"a loss counts from the first failure":   {metav1.ConditionTrue, metav1.ConditionUnknown, since, since},
		"a recovery counts from now":             {metav1.ConditionUnknown, metav1.ConditionTrue, time.Time{}, now},
		"another cause of a loss is no new loss": {metav1.ConditionUnknown, metav1.ConditionFalse, since, since},
		"nor is the former one come back":        {metav1.ConditionFalse, metav1.ConditionUnknown, since, since},
		"a first try that fails otherwise":       {metav1.ConditionUnknown, metav1.ConditionFalse, time.Time{}, now},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := metav1.Condition{Status: tc.old, LastTransitionTime: metav1.NewTime(first)}
			got := observation{failure: unreachable("Gone"), since: tc.since}.transition(old, metav1.Condition{Status: tc.new}, now)
			if diff := cmp.Diff(metav1.NewTime(tc.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	h := health{threshold: 3}
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	steps := []struct {
		failed, lost bool
	}{{true, false}, {false, false}, {true, false}, {true, false}, {true, true}, {true, true}}
	for i, step := range steps {
		if lost := h.observe(step.failed, at(int64(i))); lost != step.lost {
			t.Errorf("probe %d: lost is %v, want %v", i, lost, step.lost)
		}
	}
	if !h.since.Equal(at(2)) {
		t.Errorf("lost since %v, want the first failure in a row", h.since)
	}
}
