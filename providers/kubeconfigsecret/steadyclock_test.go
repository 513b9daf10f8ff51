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
)

// setClock is a clock that can be set while time passes. Of what it said it remembers when that was, as a
// time.Time does by its monotonic reading.
type setClock struct {
	passed, set time.Duration
	said        map[time.Time]time.Duration
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Now is the time as the clock is set.
func (c *setClock) Now() time.Time {
	now := epoch.Add(c.passed + c.set)
	c.said[now] = c.passed
	return now
}

// Since is the time that has passed, however the clock was set.
func (c *setClock) Since(t time.Time) time.Duration { return c.passed - c.said[t] }

// rightServer is a member whose clock is right, but that it is ahead.
type rightServer struct {
	hub   *setClock
	ahead time.Duration
}

// RoundTrip tells the time by Date.
func (s rightServer) RoundTrip(*http.Request) (*http.Response, error) {
	date := epoch.Add(s.hub.passed + s.ahead).Format(http.TimeFormat)
	return answers{http.StatusOK, http.Header{"Date": {date}}}.RoundTrip(nil)
}

// TestTheHubsClockIsSet: what is taken for a member's time goes on steadily when the hub's clock
// is set, before the member answers again and after it.
func TestTheHubsClockIsSet(t *testing.T) {
	tests := map[string]struct {
		set   time.Duration
		ahead time.Duration
	}{
		"not at all":                          {0, 0},
		"forward by an hour":                  {time.Hour, 0},
		"back by an hour":                     {-time.Hour, 0},
		"forward, and the member is behind":   {time.Hour, -10 * time.Minute},
		"back by years, of a clock that lied": {-50 * 8760 * time.Hour, -48 * time.Hour},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			hub := &setClock{said: map[time.Time]time.Duration{}}
			p := &Provider{steady: newSteadyClock(hub)}
			m := &member{provider: p}
			dates := &dateReader{RoundTripper: rightServer{hub, tc.ahead}, clock: p.steady, log: logr.Discard()}
			check := func(when string) {
				t.Helper()
				got, want := hub.Now().Add(m.view().ClockOffset), epoch.Add(hub.passed+tc.ahead)
				if got.Sub(want).Abs() > time.Second {
					t.Errorf("%s the member's time is taken for %v, want %v", when, got, want)
				}
			}
			answer := func() {
				res, err := dates.RoundTrip(request(t, "/version"))
				if err != nil || res.Body.Close() != nil {
					t.Fatal(err)
				}
				m.snapshot.ClockOffset = dates.offset(m.snapshot.ClockOffset)
			}
			answer()
			check("before")
			hub.passed += 9 * time.Second
			hub.set = tc.set
			check("after the clock was set")
			hub.passed += time.Second
			answer()
			check("after the next answer")
			if len(dates.estimate) != 2 {
				t.Errorf("%d samples are kept, want 2: none contradicts another", len(dates.estimate))
			}
		})
	}
}

// TestTimePassesEverywhere: time that passes is no setting of the clock.
func TestTimePassesEverywhere(t *testing.T) {
	hub := &setClock{said: map[time.Time]time.Duration{}}
	steady := newSteadyClock(hub)
	hub.passed = 3 * time.Hour
	if got := steady.Now(); !got.Equal(epoch.Add(3 * time.Hour)) {
		t.Errorf("three hours later it is %v", got)
	}
	if got := steady.ahead(); got != 0 {
		t.Errorf("ahead by %v though nobody set the hub's clock", got)
	}
}
