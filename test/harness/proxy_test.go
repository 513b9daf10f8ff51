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
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

func TestProxyPlaysOutagesUnderAWatch(t *testing.T) {
	g := NewGomega(t)
	proxy := NewProxy(t, member)
	c := clientThrough(t, proxy)
	events := watchRuns(t, c)
	create := func(name string) {
		g.Expect(member.Client.Create(t.Context(), build.MakeAgentRun(name).Obj())).To(gomega.Succeed())
	}
	create("proxy-before")
	g.Eventually(events).Should(gomega.Receive(beRun("proxy-before")))

	proxy.Pause()
	create("proxy-paused")
	g.Consistently(events).ShouldNot(gomega.Receive(), "a paused proxy passes nothing")
	accepted := proxy.Accepted()
	g.Expect(callWithin(t, clientThrough(t, proxy), 500*time.Millisecond)).To(gomega.MatchError(context.DeadlineExceeded))
	g.Expect(proxy.Accepted()).To(gomega.BeNumerically(">", accepted), "a paused proxy accepts connections")

	proxy.Resume()
	g.Eventually(events).Should(gomega.Receive(beRun("proxy-paused")), "what was held back is delivered")

	proxy.Refuse()
	g.Expect(callWithin(t, clientThrough(t, proxy), EventuallyTimeout)).To(gomega.MatchError(syscall.ECONNREFUSED))
	create("proxy-refused")
	g.Eventually(events).Should(gomega.Receive(beRun("proxy-refused")), "the watch goes on")

	g.Expect(proxy.Accept()).To(gomega.Succeed())
	g.Expect(callWithin(t, clientThrough(t, proxy), EventuallyTimeout)).To(gomega.Succeed())

	proxy.Reset()
	g.Eventually(events).Should(gomega.BeClosed(), "a reset ends the watch")
	g.Expect(callWithin(t, c, EventuallyTimeout)).To(gomega.Succeed(), "and new connections are served")
}

func TestProxyResetsWithRST(t *testing.T) {
	g := NewGomega(t)
	proxy, conn := proxyToEcho(t)
	g.Expect(echo(conn, "a")).To(gomega.Equal("a"))
	proxy.Reset()
	g.Expect(conn.SetReadDeadline(time.Now().Add(EventuallyTimeout))).To(gomega.Succeed())
	_, err := conn.Read(make([]byte, 1))
	g.Expect(err).To(gomega.MatchError(syscall.ECONNRESET))
}

func TestProxyIsSlow(t *testing.T) {
	g := NewGomega(t)
	const delay = 200 * time.Millisecond
	proxy, conn := proxyToEcho(t)
	proxy.Slow(delay)
	begun := time.Now()
	g.Expect(echo(conn, "a")).To(gomega.Equal("a"))
	g.Expect(time.Since(begun)).To(gomega.BeNumerically(">=", 2*delay), "there and back")

	proxy.Slow(time.Hour)
	_, err := conn.Write([]byte("b"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	proxy.Reset()
	g.Expect(conn.SetReadDeadline(time.Now().Add(EventuallyTimeout))).To(gomega.Succeed())
	_, err = conn.Read(make([]byte, 1))
	g.Expect(err).To(gomega.MatchError(syscall.ECONNRESET), "a slow link is cut at once")
}

func TestProxyGoesToItsNewTarget(t *testing.T) {
	g := NewGomega(t)
	proxy, _ := proxyToEcho(t)
	proxy.SetTarget(member.Addr())
	g.Expect(callWithin(t, clientThrough(t, proxy), EventuallyTimeout)).To(gomega.Succeed())
}

func TestProxyLeavesNoGoroutine(t *testing.T) {
	cases := map[string]func(*Proxy){
		"while data pass":         func(*Proxy) {},
		"while it is paused":      func(p *Proxy) { p.Pause() },
		"while it is slow":        func(p *Proxy) { p.Slow(time.Hour) },
		"while it refuses":        func(p *Proxy) { p.Refuse() },
		"after it was reset":      func(p *Proxy) { p.Reset() },
		"when it is closed again": func(p *Proxy) { p.Close() },
	}
	for name, act := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewGomega(t)
			ignored := goleak.IgnoreCurrent()
			// Nothing answers here: the kernel accepts, and nobody reads.
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			g.Expect(err).NotTo(gomega.HaveOccurred())
			defer silent.Close()
			proxy, err := StartProxy(silent.Addr().String())
			g.Expect(err).NotTo(gomega.HaveOccurred())
			conn, err := net.Dial("tcp", proxy.Addr())
			g.Expect(err).NotTo(gomega.HaveOccurred())
			defer conn.Close()
			g.Eventually(proxy.Accepted).Should(gomega.Equal(1))
			act(proxy)
			proxy.Close()
			goleak.VerifyNone(t, ignored)
		})
	}
}

func clientThrough(t *testing.T, proxy *Proxy) client.WithWatch {
	t.Helper()
	config := rest.CopyConfig(member.Config)
	config.Host = proxy.URL()
	// A dialler of its own keeps the client from sharing connections.
	config.Dial = (&net.Dialer{}).DialContext
	c, err := client.NewWithWatch(config, client.Options{Scheme: member.Scheme, Mapper: member.Client.RESTMapper()})
	must(t, err)
	return c
}

func callWithin(t *testing.T, c client.Client, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return c.List(ctx, &agentv1alpha1.AgentRunList{})
}

func watchRuns(t *testing.T, c client.WithWatch) <-chan watch.Event {
	t.Helper()
	list := &agentv1alpha1.AgentRunList{}
	must(t, c.List(t.Context(), list))
	w, err := c.Watch(t.Context(), &agentv1alpha1.AgentRunList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion},
	})
	must(t, err)
	t.Cleanup(w.Stop)
	return w.ResultChan()
}

func beRun(name string) types.GomegaMatcher {
	return gomega.HaveField("Object.Name", name)
}

func proxyToEcho(t *testing.T) (*Proxy, net.Conn) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	proxy, err := StartProxy(server.Addr().String())
	must(t, err)
	t.Cleanup(proxy.Close)
	conn, err := net.Dial("tcp", proxy.Addr())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return proxy, conn
}

func echo(conn net.Conn, text string) (string, error) {
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	answer := make([]byte, len(text))
	_, err := io.ReadFull(conn, answer)
	return string(answer), err
}
