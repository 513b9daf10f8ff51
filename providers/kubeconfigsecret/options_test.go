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
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

func TestDefaults(t *testing.T) {
	got := New(Options{}).opts
	want := Options{
		QPS: 50, Burst: 100, CacheLimit: 64 << 20,
		ConnectTimeout: 30 * time.Second, CallTimeout: 10 * time.Second, RotationOverlap: 10 * time.Second,
		ProbeInterval: 10 * time.Second, ProbeTimeout: 5 * time.Second, FailureThreshold: 3,
		BackoffBase: time.Second, BackoffMax: 5 * time.Minute, MendInterval: 30 * time.Second,
		Clock: clock.RealClock{},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Allowlist{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// limited is what a connection's clients are limited to.
type limited struct {
	QPS, ofConfig  float32
	Burst          int
	calls, watches time.Duration // 0 is no limit
}

// TestConnectionIsLimited: one bucket for all of a member's clients, and a limit of time for each
// request but a watch.
func TestConnectionIsLimited(t *testing.T) {
	tests := map[string]struct {
		options Options
		want    limited
	}{
		"by default": {Options{}, limited{QPS: 50, ofConfig: 50, Burst: 100, calls: 10 * time.Second}},
		"as is said": {Options{QPS: 7, Burst: 9, CallTimeout: time.Minute}, limited{QPS: 7, ofConfig: 7, Burst: 9, calls: time.Minute}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := New(tc.options)
			conn, err := newConnection("fleet/a", credential{}, &rest.Config{Host: "https://east.example"}, p.opts, p.steady, logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.close()
			o := cluster.Options{}
			conn.ClusterOptions(&o)
			got := limited{
				QPS: conn.Config.RateLimiter.QPS(), ofConfig: conn.Config.QPS, Burst: conn.Config.Burst,
				calls: timeout(t, o.HTTPClient, "/api/v1/pods"), watches: timeout(t, o.Cache.HTTPClient, "/api/v1/pods?watch=true"),
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(limited{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// timeout is within what time a client ends a request; 0 when it does not.
func timeout(t *testing.T, c *http.Client, path string) time.Duration {
	t.Helper()
	server := &endless{}
	limits, ok := c.Transport.(*bounded)
	if !ok {
		t.Fatalf("a client whose transport is a %T", c.Transport)
	}
	limits.RoundTripper = server
	res, err := limits.RoundTrip(request(t, path))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	deadline, limited := server.req.Context().Deadline()
	if !limited {
		return 0
	}
	return time.Until(deadline).Round(time.Second)
}
