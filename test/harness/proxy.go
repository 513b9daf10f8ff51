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

package harness

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds the proxy's connection to its target.
const dialTimeout = 5 * time.Second

// Proxy is a TCP proxy in front of an API server that can play the outages of a
// network. TLS passes through it, so that the server's certificate, which is for
// 127.0.0.1, stays valid.
type Proxy struct {
	port string

	mu       sync.Mutex
	listener net.Listener // nil while refusing
	target   string
	open     chan struct{} // closed while data may pass
	links    map[*link]struct{}
	delay    time.Duration // of each piece of data
	accepted int
	closed   bool

	wg sync.WaitGroup
}

// link is one accepted connection and, once dialled, the target's.
type link struct {
	client net.Conn
	server net.Conn
	cut    chan struct{} // closed when the link is cut from outside
}

// StartProxy listens on a free port of 127.0.0.1 and passes connections on to
// the target, a host:port. The caller must Close it.
func StartProxy(target string) (*Proxy, error) {
	p := &Proxy{target: target, port: "0", open: make(chan struct{}), links: map[*link]struct{}{}}
	close(p.open)
	if err := p.Accept(); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr is the proxy's address, as host:port.
func (p *Proxy) Addr() string { return net.JoinHostPort("127.0.0.1", p.port) }

// URL is the URL of an API server behind the proxy.
func (p *Proxy) URL() string { return httpsURL(p.Addr()) }

// SetTarget directs new connections to another address.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Accepted is the number of connections accepted so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Pause makes a black hole of the proxy: connections stay open and new ones are
// accepted, but nothing passes.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused() {
		p.open = make(chan struct{})
	}
}

// Resume ends a Pause. What was sent meanwhile is delivered.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused() {
		close(p.open)
	}
}

// Slow makes a slow link of the proxy: each piece of data that passes from now on is
// late by the delay. 0 ends it.
func (p *Proxy) Slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// paused needs the lock.
func (p *Proxy) paused() bool {
	select {
	case <-p.open:
		return false
	default:
		return true
	}
}

// Reset cuts all connections with RST. New ones are accepted.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
	clear(p.links)
}

// Refuse has new connections refused. Those that exist are left alone.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopListening()
}

// stopListening needs the lock.
func (p *Proxy) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Accept ends a Refuse, on the same port.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	listener, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return fmt.Errorf("proxy to %s: %w", p.target, err)
	}
	if _, p.port, err = net.SplitHostPort(listener.Addr().String()); err != nil {
		return err
	}
	p.listener = listener
	p.wg.Go(func() { p.acceptFrom(listener) })
	return nil
}

// Close cuts all connections and returns once every goroutine has ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.stopListening()
	p.mu.Unlock()
	p.Reset()
	p.wg.Wait()
}

func (p *Proxy) acceptFrom(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client gave up before it was accepted
		}
		p.serve(&link{client: conn, cut: make(chan struct{})})
	}
}

// serve passes data on in both directions until either side closes.
func (p *Proxy) serve(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	if p.closed {
		l.reset()
		return
	}
	p.links[l] = struct{}{}
	p.wg.Go(func() {
		defer p.remove(l)
		if p.connect(l) != nil {
			return
		}
		answers := make(chan struct{})
		go func() {
			defer close(answers)
			p.pass(l, l.client, l.server)
		}()
		p.pass(l, l.server, l.client)
		<-answers
	})
}

// remove closes what is left of a link.
func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// connect dials the target once data may pass.
func (p *Proxy) connect(l *link) error {
	if err := p.awaitOpen(l); err != nil {
		return err
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.server = server
	if _, live := p.links[l]; !live {
		return net.ErrClosed
	}
	return nil
}

// pass copies one direction, and closes both sides when it ends.
func (p *Proxy) pass(l *link, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32*1024)
	for {
		n, readErr := from.Read(buffer)
		if p.awaitOpen(l) != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil || readErr != nil {
			return
		}
	}
}

// awaitOpen blocks for the delay of a slow link, and then while the proxy is paused.
func (p *Proxy) awaitOpen(l *link) error {
	if err := p.lag(l); err != nil {
		return err
	}
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-l.cut:
		return io.ErrClosedPipe
	}
}

func (p *Proxy) lag(l *link) error {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay == 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.cut:
		return io.ErrClosedPipe
	}
}

// reset needs the proxy's lock, and is called once for each link.
func (l *link) reset() {
	close(l.cut)
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // close sends RST
			_ = tcp.Close()
		}
	}
}
