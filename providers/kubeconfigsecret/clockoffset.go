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
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// datePrecision is that of the Date header (RFC 9110, 5.6.7), which drops the fraction of a second.
	datePrecision = time.Second
	// maxClockOffset is the most that is believed of a member's clock: the difference of two such offsets
	// is still a time.Duration, which ends at 292 years.
	maxClockOffset = 100 * 365 * 24 * time.Hour
	// clockSamples is how many of the latest answers are kept.
	clockSamples = 8
)

// clockSample is what one answer tells of the member's clock: it is ahead of the steady clock by offset, give or
// take error.
type clockSample struct {
	offset, error time.Duration
}

// sampleClock supposes that the server looked at its clock halfway between sent and
// received, and half a second after what date says.
func sampleClock(sent, received, date time.Time) clockSample {
	roundTrip := received.Sub(sent)
	return clockSample{
		offset: date.Add(datePrecision / 2).Sub(sent.Add(roundTrip / 2)),
		error:  (roundTrip + datePrecision) / 2,
	}
}

// contradicts says that both cannot be true of the same clock: it was set in between.
func (s clockSample) contradicts(other clockSample) bool {
	return (s.offset - other.offset).Abs() > s.error+other.error
}

// clockEstimate is the latest samples, oldest first.
type clockEstimate []clockSample

// add takes a sample in, and drops those that it contradicts and the oldest.
func (e clockEstimate) add(s clockSample) clockEstimate {
	e = append(slices.DeleteFunc(e, s.contradicts), s)
	return e[max(0, len(e)-clockSamples):]
}

// settled returns the offset by the best of the samples. One that differs from the published
// offset by less than a date can tell is no news.
func (e clockEstimate) settled(published time.Duration) time.Duration {
	if len(e) == 0 {
		return published
	}
	best := e[0]
	for _, s := range e[1:] {
		if s.error <= best.error {
			best = s
		}
	}
	if (best.offset - published).Abs() <= datePrecision {
		return published
	}
	return best.offset
}

// dateReader takes a sample of each answer that comes from the API server itself, as those
// that say that something went wrong may not.
type dateReader struct {
	http.RoundTripper
	clock steadyClock
	log   logr.Logger

	mu       sync.Mutex
	estimate clockEstimate
	absurd   bool
}

// RoundTrip passes the request on.
func (d *dateReader) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := d.clock.Now()
	res, err := d.RoundTripper.RoundTrip(req)
	if err != nil || res.StatusCode >= http.StatusMultipleChoices {
		return res, err
	}
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		d.add(sampleClock(sent, d.clock.Now(), date))
	}
	return res, nil
}

func (d *dateReader) add(s clockSample) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.offset.Abs() <= maxClockOffset {
		d.estimate = d.estimate.add(s)
		return
	}
	if !d.absurd {
		d.absurd = true
		d.log.Info("The clock of a member is not believed: set it", "ahead", s.offset.String())
	}
}

// known returns an error when no answer has told the member's time.
func (d *dateReader) known() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.estimate) > 0 {
		return nil
	}
	return &failure{
		reason: ReasonClockUnknown,
		message: "The API server's answers carry no Date header, or one that is off by more than 100 years, and deadlines go by its clock: " +
			"have proxies before it pass the header on, and set the member's clock",
	}
}

// offset is how far the member's clock is ahead of the steady clock, given what was last said of it.
func (d *dateReader) offset(published time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.estimate.settled(published)
}
