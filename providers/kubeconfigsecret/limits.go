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
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// The most that is read of one answer of a member.
const (
	// maxCheckBody is for checks; a group's resource list has some 10 kB.
	maxCheckBody = 4 << 20
	// maxPageBody is for calls, and for the pages of lists.
	maxPageBody = 8 << 20
	// maxWatchBody is for a watch. A longer one is ended and made again from where it was.
	maxWatchBody = 256 << 20
)

// bounded bounds the size of each answer, and the time of those that are no watch's, body included.
type bounded struct {
	http.RoundTripper
	call, watch int64
	timeout     time.Duration
}

// RoundTrip passes the request on. What is a watch is for the hub to say, not for the member.
func (b *bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		res, err := b.RoundTripper.RoundTrip(req)
		if err == nil {
			res.Body = &boundedBody{ReadCloser: res.Body, left: b.watch, beyond: io.EOF, done: func() {}}
		}
		return res, err
	}
	ctx, cancel := context.WithTimeout(req.Context(), b.timeout)
	res, err := b.RoundTripper.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	res.Body = &boundedBody{ReadCloser: res.Body, left: b.call, beyond: tooLarge(b.call), done: cancel}
	return res, nil
}

func isWatch(req *http.Request) bool {
	watch, err := strconv.ParseBool(req.URL.Query().Get("watch"))
	return err == nil && watch
}

func tooLarge(limit int64) *failure {
	f := unreachable("An answer of the API server is larger than " + strconv.FormatInt(limit>>20, 10) + " MiB")
	f.tooLong = true
	return f
}

type boundedBody struct {
	io.ReadCloser
	left   int64
	beyond error
	done   context.CancelFunc
}

// Read reads up to the limit.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.beyond
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Close ends the request's time limit too.
func (b *boundedBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// patient leaves a member alone for as long as it asks by Retry-After, at most limit. Requests
// fail meanwhile, at once: client-go would have each wait, and whoever made it with it.
type patient struct {
	http.RoundTripper
	clock clock.PassiveClock
	limit time.Duration

	mu    sync.Mutex
	until time.Time
}

// RoundTrip passes the request on unless the member asked to be left alone.
func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	if wait := p.wait(); wait > 0 {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, apierrors.NewTooManyRequests("the member has asked to be left alone for a while", int(wait/time.Second)+1)
	}
	res, err := p.RoundTripper.RoundTrip(req)
	if err == nil && (res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= http.StatusInternalServerError) {
		p.leaveAlone(res.Header.Get("Retry-After"))
		res.Header.Del("Retry-After")
	}
	return res, err
}

func (p *patient) wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until.Sub(p.clock.Now())
}

// leaveAlone takes a number of seconds; dates are not sent by API servers.
func (p *patient) leaveAlone(retryAfter string) {
	seconds, err := strconv.ParseUint(retryAfter, 10, 31)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = p.clock.Now().Add(min(time.Duration(seconds)*time.Second, p.limit))
}
