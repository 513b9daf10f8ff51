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

package kubeconfigsecret_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

// front is an HTTPS server before east, which a test can have say what east would not.
type front struct {
	*httptest.Server
	requests atomic.Int64 // of which the answer came from the test
	// instead answers a request in the place of east, or returns false.
	instead atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	// change changes what east answered.
	change atomic.Pointer[func(*http.Response) error]
}

// newFront starts a front that passes everything on, as an administrator of east. It ends before the fleet does.
func newFront(f *fleet) *front {
	f.t.Helper()
	target, err := url.Parse(east.URL())
	f.Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(east.Config)
	f.Expect(err).NotTo(HaveOccurred())
	front := &front{}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		ModifyResponse: func(res *http.Response) error {
			if change := front.change.Load(); change != nil { //nolint:bodyclose // the proxy closes it
				return (*change)(res)
			}
			return nil
		},
	}
	front.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if instead := front.instead.Load(); instead != nil && (*instead)(w, r) {
			front.requests.Add(1)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	front.Config.ErrorLog = proxy.ErrorLog
	front.EnableHTTP2 = true
	front.StartTLS()
	f.t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front
}

// kubeconfig is for a user of whom the front thinks nothing.
func (s *front) kubeconfig() []byte { return kubeconfigOf(s.Server) }

func kubeconfigOf(server *httptest.Server) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return harness.Kubeconfig(&rest.Config{
		Host: server.URL, BearerToken: "front", TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}, "")
}

// answer has the front answer in the place of east.
func (s *front) answer(instead func(http.ResponseWriter, *http.Request) bool) {
	s.instead.Store(&instead)
}

// rewrite has the front change what east answers.
func (s *front) rewrite(change func(*http.Response) error) { s.change.Store(&change) }
