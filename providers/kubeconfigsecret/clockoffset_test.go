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
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestClockEstimate(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	// answer is what a member's server, whose clock is ahead, says to a request that takes roundTrip,
	// of which it looks at its clock after a part.
	answer := func(at, ahead, roundTrip time.Duration, part float64) clockSample {
		sent := start.Add(at)
		looked := sent.Add(time.Duration(part * float64(roundTrip)))
		return sampleClock(sent, sent.Add(roundTrip), looked.Add(ahead).Truncate(time.Second))
	}
	const fast, slow = 10 * time.Millisecond, 8 * time.Second
	tests := map[string]struct {
		samples   []clockSample
		published time.Duration
		want      time.Duration
		within    time.Duration
	}{
		"nothing known leaves what was said":   {nil, time.Minute, time.Minute, 0},
		"clocks that agree":                    {[]clockSample{answer(990*time.Millisecond, 0, fast, 0.5)}, 0, 0, 0},
		"clocks that agree to 0.4 s":           {[]clockSample{answer(500*time.Millisecond, 400*time.Millisecond, fast, 0.5)}, 0, 0, 0},
		"ten minutes ahead":                    {[]clockSample{answer(0, 10*time.Minute, fast, 0.5)}, 0, 10 * time.Minute, 505 * time.Millisecond},
		"ten minutes behind, late in a second": {[]clockSample{answer(990*time.Millisecond, -10*time.Minute, fast, 0.5)}, 0, -10 * time.Minute, 505 * time.Millisecond},
		"a slow answer is worth less than a fast one": {
			[]clockSample{answer(0, time.Minute, fast, 0.5), answer(time.Second, time.Minute, slow, 0)}, 0, time.Minute, 505 * time.Millisecond,
		},
		"whichever comes first": {
			[]clockSample{answer(0, time.Minute, slow, 1), answer(10*time.Second, time.Minute, fast, 0.5)}, 0, time.Minute, 505 * time.Millisecond,
		},
		"a clock that was set is believed at once": {
			[]clockSample{answer(0, time.Minute, fast, 0.5), answer(10*time.Second, -time.Minute, slow, 0.5)}, time.Minute, -time.Minute, slow / 2,
		},
		"a clock that was set right": {
			[]clockSample{answer(0, time.Minute, fast, 0.5), answer(10*time.Second, 0, fast, 0.5)}, time.Minute, 0, 505 * time.Millisecond,
		},
		"what a date cannot tell is no news": {
			[]clockSample{answer(0, time.Minute, fast, 0.5)}, time.Minute - 300*time.Millisecond, time.Minute - 300*time.Millisecond, 0,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			estimate := clockEstimate{}
			for _, s := range tc.samples {
				estimate = estimate.add(s)
			}
			if got := estimate.settled(tc.published); (got - tc.want).Abs() > tc.within {
				t.Errorf("got %v, want %v give or take %v", got, tc.want, tc.within)
			}
		})
	}
}

func TestClockEstimateForgets(t *testing.T) {
	estimate := clockEstimate{}
	for range 100 {
		estimate = estimate.add(clockSample{error: time.Second})
	}
	if len(estimate) != clockSamples {
		t.Errorf("%d samples are kept, want %d", len(estimate), clockSamples)
	}
}

// answers is a server that answers all requests alike.
type answers struct {
	status int
	header http.Header
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: a.header.Clone(), Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

func TestDateReader(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 500_000_000, time.UTC)
	dated := func(ahead time.Duration) http.Header {
		return http.Header{"Date": {now.Add(ahead).Format(http.TimeFormat)}}
	}
	const unknown = "ClockUnknown"
	tests := map[string]struct {
		server answers
		want   time.Duration
		reason string
		logged int
	}{
		"a date":                          {answers{200, dated(time.Hour)}, time.Hour, "", 0},
		"two days behind":                 {answers{200, dated(-48 * time.Hour)}, -48 * time.Hour, "", 0},
		"a year ahead":                    {answers{200, dated(8760 * time.Hour)}, 8760 * time.Hour, "", 0},
		"a clock without a battery":       {answers{200, http.Header{"Date": {"Thu, 01 Jan 1970 00:00:05 GMT"}}}, time.Unix(5, 500_000_000).Sub(now), "", 0},
		"no date":                         {answers{200, http.Header{}}, 0, unknown, 0},
		"no date that can be read":        {answers{200, http.Header{"Date": {"yesterday"}}}, 0, unknown, 0},
		"the date of something before":    {answers{502, dated(time.Hour)}, 0, unknown, 0},
		"a century is not believed":       {answers{200, dated(1e6 * time.Hour)}, 0, unknown, 1},
		"nor so far behind":               {answers{200, dated(-1e6 * time.Hour)}, 0, unknown, 1},
		"nor what a Duration cannot hold": {answers{200, http.Header{"Date": {"Fri, 31 Dec 9999 23:59:59 GMT"}}}, 0, unknown, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			logged := 0
			reader := &dateReader{
				RoundTripper: tc.server, clock: newSteadyClock(clocktesting.NewFakePassiveClock(now)),
				log: logr.New(funcr.New(func(string, string) { logged++ }, funcr.Options{}).GetSink()),
			}
			for range 3 {
				if res, err := reader.RoundTrip(request(t, "/version")); err != nil || res.Body.Close() != nil {
					t.Fatal(err)
				}
			}
			if got := reader.offset(0); got != tc.want {
				t.Errorf("offset %v, want %v", got, tc.want)
			}
			reason := ""
			if err := reader.known(); err != nil {
				reason = classify(err).reason
			}
			if reason != tc.reason {
				t.Errorf("known: %q, want %q", reason, tc.reason)
			}
			if logged != tc.logged {
				t.Errorf("logged %d times, want %d", logged, tc.logged)
			}
		})
	}
}

func request(t *testing.T, path string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://east.example"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
