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

package fleet

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestAnEngagedMemberEchoes: a member passes all checks and is engaged. Then its API server
// repeats each request's headers, the token among them, at length and with characters that
// drive a terminal, wherever client-go takes a text from. None of it leaves the manager,
// which works on once the member is itself again.
func TestAnEngagedMemberEchoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha")
	alpha, found := f.members["alpha"], &credentials{}
	token := found.echoed("c4n4ry-/engaged+&<=" + strings.Repeat("0123456789", 5))
	front := harness.NewFront(t, alpha.Config)
	f.put("alpha", withToken(f, front.Kubeconfig(""), token))
	echo := &echo{requests: []string{"write"}, answered: map[string]int{}}
	front.Answer(echo.answer)
	f.start("--zap-log-level=5")
	f.WithT.Eventually(f.clusterStatus("alpha")).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))

	for i := range 8 {
		run := build.MakeAgentRun(fmt.Sprintf("run-%d", i)).Obj()
		f.WithT.Expect(alpha.create(f.Context(), run, labelled(run).Scheduled().Waiting("main", "ImagePullBackOff", "no such image").Obj())).To(Succeed())
	}
	echo.await(f, "write")
	for _, request := range []string{"watch", "list"} { // who cannot list does not watch
		echo.also(request)
		front.CloseConnections()
		echo.await(f, request)
	}
	front.Answer(func(http.ResponseWriter, *http.Request) bool { return false })
	for i := range 8 {
		f.WithT.Eventually(alpha.run(f.Context(), build.DefaultNamespace, fmt.Sprintf("run-%d", i))).WithTimeout(2 * harness.EventuallyTimeout).Should(harness.HavePhase("Failed"))
	}

	for where, text := range f.outputs() {
		for what, secret := range found.pieces {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s is in %s: %.300q", what, where, text[max(0, at-200):])
			}
		}
		f.harmless(where, text)
	}
	t.Logf("Answered in the API server's place: %v", echo.answered)
}

// echoed takes note of a token in the forms in which it may be repeated.
func (c *credentials) echoed(token string) string {
	c.add("the token", token)
	c.add("the token, escaped for a URL", url.QueryEscape(token))
	escaped, _ := json.Marshal(token)
	c.add("the token in JSON", strings.Trim(string(escaped), `"`))
	for _, before := range []string{"Bearer ", "Bearer  ", "Bearer   "} {
		encoded := base64.StdEncoding.EncodeToString([]byte(before + token))
		c.add("the token in base64", encoded[len(encoded)/2:len(encoded)-4])
	}
	return token
}

func withToken(f *fleet, kubeconfig []byte, token string) []byte {
	f.Helper()
	config, err := clientcmd.Load(kubeconfig)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	out, err := clientcmd.Write(*config)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	return out
}

// echo answers writes, and later lists and watches, each kind of request in all ways by
// turns. What it lets through has a warning.
type echo struct {
	mu       sync.Mutex
	requests []string
	answered map[string]int
}

func (e *echo) also(request string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, request)
}

// await waits until a kind of request has been answered in all ways.
func (e *echo) await(f *fleet, request string) {
	f.Helper()
	for _, way := range waysOf(request) {
		f.WithT.Eventually(func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.answered[request+": "+way]
		}).WithTimeout(2*harness.EventuallyTimeout).Should(BeNumerically(">", 0), request+": "+way)
	}
}

func waysOf(request string) []string {
	var ways []string
	for way := range echoes {
		if strings.HasPrefix(way, "watched") == (request == "watch") {
			ways = append(ways, way)
		}
	}
	return ways
}

func (e *echo) answer(w http.ResponseWriter, r *http.Request) bool {
	said := fmt.Sprintf("%v %s \x1b[31m\x00\u202e", r.Header, base64.StdEncoding.EncodeToString([]byte(r.Header.Get("Authorization"))))
	said += url.QueryEscape(r.Header.Get("Authorization")) + strings.Repeat(" long\r\n", 20_000)
	for range 3 {
		w.Header().Add("Warning", fmt.Sprintf(`299 - "%q"`, r.Header.Get("Authorization")))
	}
	if way, ok := e.next(kindOf(r)); ok {
		echoes[way](w, said)
		return true
	}
	return false
}

// kindOf tells the requests that are answered from those that the member is checked by.
func kindOf(r *http.Request) string {
	switch {
	case strings.Contains(r.URL.Path, "selfsubjectaccessreviews"):
		return ""
	case r.Method != http.MethodGet:
		return "write"
	case r.URL.Query().Get("watch") == "true":
		return "watch"
	case strings.HasSuffix(r.URL.Path, "/agentruns"), strings.HasSuffix(r.URL.Path, "/pods"):
		return "list"
	}
	return ""
}

// next returns the way in which the fewest requests of a kind were answered.
func (e *echo) next(request string) (way string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Contains(e.requests, request) {
		return "", false
	}
	way = slices.MinFunc(waysOf(request), func(a, b string) int {
		return e.answered[request+": "+a] - e.answered[request+": "+b]
	})
	e.answered[request+": "+way]++
	return way, true
}

// echoes are where a client takes foreign text from.
var echoes = map[string]func(w http.ResponseWriter, said string){
	"a status":              func(w http.ResponseWriter, said string) { answerJSON(w, 500, failure(said, 500)) },
	"a short status":        func(w http.ResponseWriter, said string) { answerJSON(w, 403, failure(said[:400], 403)) },
	"a status in detail":    func(w http.ResponseWriter, said string) { answerJSON(w, 422, detailed(said[:400])) },
	"a failure that is 200": func(w http.ResponseWriter, said string) { answerJSON(w, 200, failure(said, 500)) },
	"text":                  func(w http.ResponseWriter, said string) { answerText(w, 502, "text/plain", said) },
	"an unknown type":       func(w http.ResponseWriter, said string) { answerText(w, 200, "text/"+strings.Repeat("x", 4000), said) },
	"a bad time": func(w http.ResponseWriter, said string) {
		answerJSON(w, 200, object(map[string]any{"creationTimestamp": said[:500]}))
	},
	"an unknown kind": func(w http.ResponseWriter, said string) {
		answerJSON(w, 200, map[string]any{"apiVersion": "v1", "kind": said[:500]})
	},
	"watched: a refusal": func(w http.ResponseWriter, said string) { answerJSON(w, 500, failure(said, 500)) },
	"watched: an error": func(w http.ResponseWriter, said string) {
		answerJSON(w, 200, event("ERROR", failure(said, 500)))
	},
	"watched: a long error without a credential": func(w http.ResponseWriter, said string) {
		answerJSON(w, 200, event("ERROR", failure(said[len(said)-100_000:]+"\x1b[31m\u202e", 500)))
	},
	"watched: an unknown event": func(w http.ResponseWriter, said string) {
		answerJSON(w, 200, event("ODD"+said[len(said)-10_000:]+"\u202e", object(map[string]any{"name": "\x1b[31m" + said[len(said)-1000:]})))
	},
	"watched: a bad time": func(w http.ResponseWriter, said string) {
		answerJSON(w, 200, event("ADDED", object(map[string]any{"creationTimestamp": said})))
	},
	"watched: a name": func(w http.ResponseWriter, said string) {
		answerJSON(w, 200, event("ADDED", object(map[string]any{"name": said, "namespace": said, "resourceVersion": "1"})))
	},
}

func answerJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func answerText(w http.ResponseWriter, code int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

func failure(message string, code int32) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReason(message), Code: code, Message: message,
	}
}

func detailed(said string) metav1.Status {
	status := failure("invalid", 422)
	status.Reason = metav1.StatusReasonInvalid
	status.Details = &metav1.StatusDetails{Name: said, Kind: said, Causes: []metav1.StatusCause{{Type: metav1.CauseType(said), Field: said, Message: said}}}
	return status
}

func object(metadata map[string]any) map[string]any {
	return map[string]any{"apiVersion": "konveyor.io/v1alpha1", "kind": "AgentRun", "metadata": metadata}
}

func event(kind string, object any) map[string]any {
	return map[string]any{"type": kind, "object": object}
}
