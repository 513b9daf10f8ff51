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
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
)

// endless answers with a body that has no end.
type endless struct{ req *http.Request }

func (e *endless) RoundTrip(req *http.Request) (*http.Response, error) {
	e.req = req
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(zeros{})}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestBounded(t *testing.T) {
	tests := map[string]struct {
		path string
		read int64
		err  string // empty when the body just ends
	}{
		"a list":            {"/api/v1/pods", 2 << 20, "larger than 2 MiB"},
		"a watch":           {"/api/v1/pods?watch=true", 3 << 20, ""},
		"a watch, as a 1":   {"/api/v1/pods?watch=1", 3 << 20, ""},
		"no watch, said so": {"/api/v1/pods?watch=false", 2 << 20, "larger than 2 MiB"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server := &endless{}
			b := &bounded{RoundTripper: server, call: 2 << 20, watch: 3 << 20, timeout: time.Minute}
			res, err := b.RoundTrip(request(t, tc.path))
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, res.Body)
			if n != tc.read || (tc.err == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("read %d bytes and %v, want %d and %q", n, err, tc.read, tc.err)
			}
			if _, limited := server.req.Context().Deadline(); limited != (tc.err != "") {
				t.Errorf("limited in time: %v", limited)
			}
			if err := res.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if ended := server.req.Context().Err() != nil; ended != (tc.err != "") {
				t.Errorf("its time limit ended with the body: %v", ended)
			}
		})
	}
}

func TestPatient(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := map[string]struct {
		status     int
		retryAfter string
		want       time.Duration
	}{
		"too many requests":              {429, "7", 7 * time.Second},
		"shutting down":                  {503, "7", 7 * time.Second},
		"not for ever":                   {429, "2000000000", time.Minute},
		"a number that is none":          {429, "99999999999999999999", 0},
		"less than nothing":              {429, "-1", 0},
		"a date":                         {429, now.Add(time.Hour).Format(http.TimeFormat), 0},
		"no wish":                        {429, "", 0},
		"a wish of what went well":       {200, "7", 0},
		"a wish of what was not allowed": {403, "7", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(now)
			p := &patient{RoundTripper: answers{tc.status, http.Header{"Retry-After": {tc.retryAfter}}}, clock: clock, limit: time.Minute}
			res, err := p.RoundTrip(request(t, "/version"))
			if err != nil || res.Body.Close() != nil {
				t.Fatal(err)
			}
			if res.StatusCode >= 429 && res.Header.Get("Retry-After") != "" {
				t.Error("client-go would wait in the caller's place")
			}
			if got := max(0, p.wait()); got != tc.want {
				t.Fatalf("waits %v, want %v", got, tc.want)
			}
			if tc.want == 0 {
				return
			}
			req := request(t, "/version")
			body := &closes{}
			req.Body = body
			if _, err := p.RoundTrip(req); !apierrors.IsTooManyRequests(err) { //nolint:bodyclose // there is no answer
				t.Errorf("meanwhile: %v, want too many requests", err)
			}
			if !body.closed {
				t.Error("the body of a request that was kept back is open")
			}
			clock.Step(tc.want)
			if res, err := p.RoundTrip(request(t, "/version")); err != nil || res.Body.Close() != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

type closes struct {
	zeros
	closed bool
}

func (c *closes) Close() error {
	if c.closed {
		return errors.New("closed twice")
	}
	c.closed = true
	return nil
}

func TestSupportedVersions(t *testing.T) {
	tests := map[string]struct {
		version string
		reason  string
	}{
		"the oldest":                  {"v1.29.0", ""},
		"a newer one":                 {"v1.36.3", ""},
		"a newer one of a vendor":     {"v1.31.4-eks-a1b2c3", ""},
		"too old":                     {"v1.28.15", ReasonVersionTooOld},
		"too old, of a vendor":        {"v1.28.9+k3s1", ReasonVersionTooOld},
		"nothing":                     {"", ""},
		"what is no version":          {"edge-2026", ""},
		"a major version to be":       {"v2.0.0", ""},
		"a pre-release of the oldest": {"v1.29.0-rc.1", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := supported(tc.version)
			if tc.reason == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			f := classify(err)
			if f.reason != tc.reason || !f.mendable() || !strings.Contains(f.message, "upgrade it to 1.29 or later") {
				t.Errorf("got %v", f)
			}
		})
	}
}
