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
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// errDisengaged is what requests get that come after the member went away.
var errDisengaged = errors.New("member is disengaged")

// dialer makes the TCP connections of one Connection. Once closed it has closed all
// of them and makes no more, so that nothing reaches a member that was
// disengaged: neither a request in flight, nor a delayed one, nor a late watch. It
// connects only to what servers permits, whatever a name resolves to.
type dialer struct {
	net.Dialer
	servers Allowlist

	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

func newDialer(servers Allowlist) *dialer {
	d := &dialer{
		servers: servers,
		Dialer:  net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second},
		conns:   map[*trackedConn]struct{}{},
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// DialContext dials until ctx is done or the dialer is closed.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.ctx.Err() != nil {
		return nil, errDisengaged
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()

	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	checked := d.Dialer
	checked.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
		return d.servers.permit(host, resolved)
	}
	conn, err := checked.DialContext(ctx, network, address)
	switch {
	case err != nil && d.ctx.Err() != nil:
		return nil, errDisengaged
	case err != nil:
		return nil, err
	}
	return d.track(conn)
}

func (d *dialer) track(conn net.Conn) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		_ = conn.Close()
		return nil, errDisengaged
	}
	tracked := &trackedConn{Conn: conn, dialer: d}
	d.conns[tracked] = struct{}{}
	return tracked, nil
}

// roundTripper answers what a closed dialer interrupted by errDisengaged, whatever became of it: client-go
// tries a read again, after a second, whose connection was cut.
func (d *dialer) roundTripper(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		res, err := next.RoundTrip(req)
		if err != nil && d.ctx.Err() != nil {
			return nil, errDisengaged
		}
		return res, err
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func (d *dialer) close() {
	d.cancel()
	d.mu.Lock()
	conns := d.conns
	d.conns = map[*trackedConn]struct{}{}
	d.mu.Unlock()
	for conn := range conns {
		_ = conn.Conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	dialer *dialer
}

// Close closes the connection and forgets it.
func (c *trackedConn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.conns, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}
