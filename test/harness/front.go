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
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Front is an HTTPS server before an API server, which a test can have say what the
// API server would not. Whoever comes to it is to the API server the user of its config.
type Front struct {
	server   *httptest.Server
	answered atomic.Int64
	instead  atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	change   atomic.Pointer[func(*http.Response) error]
}

// NewFront starts a front that passes everything on, as the config's user. It is closed
// when the test ends.
func NewFront(tb testing.TB, config *rest.Config) *Front {
	tb.Helper()
	target, err := url.Parse(config.Host)
	must(tb, err)
	transport, err := rest.TransportFor(config)
	must(tb, err)
	f := &Front{}
	proxy := f.proxy(target, transport)
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if instead := f.instead.Load(); instead != nil && (*instead)(w, r) {
			f.answered.Add(1)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	f.server.Config.ErrorLog = proxy.ErrorLog
	f.server.EnableHTTP2 = true
	f.server.StartTLS()
	tb.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

func (f *Front) proxy(target *url.URL, transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		ModifyResponse: func(res *http.Response) error {
			if change := f.change.Load(); change != nil { //nolint:bodyclose // the proxy closes it
				return (*change)(res)
			}
			return nil
		},
	}
}

// Addr is the front's address, as host:port.
func (f *Front) Addr() string { return f.server.Listener.Addr().String() }

// Kubeconfig is for a user of whom the front thinks nothing. The server is the URL of
// what stands before the front, for example a Proxy's; the front's own when empty.
func (f *Front) Kubeconfig(server string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	return Kubeconfig(&rest.Config{
		Host: f.server.URL, BearerToken: "front", TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}, server)
}

// CloseConnections cuts all connections. New ones are accepted.
func (f *Front) CloseConnections() { f.server.CloseClientConnections() }

// Answer has a function answer requests in the place of the API server, unless it
// returns false.
func (f *Front) Answer(instead func(http.ResponseWriter, *http.Request) bool) {
	f.instead.Store(&instead)
}

// Answered is how many requests were answered in the place of the API server.
func (f *Front) Answered() int64 { return f.answered.Load() }

// Rewrite has a function change what the API server answers.
func (f *Front) Rewrite(change func(*http.Response) error) { f.change.Store(&change) }

// ShiftDate has the API server's clock look ahead by so much, in the Date of its answers.
// It takes the place of a Rewrite.
func (f *Front) ShiftDate(by time.Duration) {
	f.Rewrite(func(res *http.Response) error {
		date, err := http.ParseTime(res.Header.Get("Date"))
		if err != nil {
			return err
		}
		res.Header.Set("Date", date.Add(by).Format(http.TimeFormat))
		return nil
	})
}
