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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
`

// Request is one request that an API server received.
type Request struct {
	// Verb is as in RBAC: get, list, watch, create, update, patch, delete, ...
	Verb string
	// Resource is as in RBAC, with the subresource: "agentruns/status". Empty for
	// requests that name no resource, such as those for /version.
	Resource string
	// Namespace and Name are of the object. Name is empty for lists and watches.
	Namespace, Name string
	// URI is the path and query.
	URI             string
	User, UserAgent string
	// Code is the HTTP status, or 0 while the request is being served.
	Code     int32
	Received time.Time
}

// RequestFilter selects requests.
type RequestFilter func(Request) bool

// ByUser selects the requests of a user, for example
// "system:serviceaccount:ns:name".
func ByUser(name string) RequestFilter {
	return func(r Request) bool { return r.User == name }
}

// ByUserAgent selects the requests of a client.
func ByUserAgent(userAgent string) RequestFilter {
	return func(r Request) bool { return r.UserAgent == userAgent }
}

// WithVerb selects the requests with one of the verbs.
func WithVerb(verbs ...string) RequestFilter {
	return func(r Request) bool { return slices.Contains(verbs, r.Verb) }
}

// OnResource selects the requests for a resource as RBAC writes it:
// "agentruns" does not select those for "agentruns/status".
func OnResource(resource string) RequestFilter {
	return func(r Request) bool { return r.Resource == resource }
}

// OnObject selects the requests that name an object.
func OnObject(namespace, name string) RequestFilter {
	return func(r Request) bool { return r.Namespace == namespace && r.Name == name }
}

// ReceivedAfter selects the requests that came later.
func ReceivedAfter(t time.Time) RequestFilter {
	return func(r Request) bool { return r.Received.After(t) }
}

// Requests returns the requests that pass every filter, in the order in which
// they came. A request is in it before it has any effect, so that none is missed
// by a test that has seen the effect. It needs Options.Audit.
func (cp *ControlPlane) Requests(filters ...RequestFilter) ([]Request, error) {
	if cp.audit == nil {
		return nil, fmt.Errorf("control plane %q records no requests: start it with Options.Audit", cp.Name)
	}
	return cp.audit.requests(filters)
}

// auditLog reads the API server's audit log as it grows.
type auditLog struct {
	policy, path string

	mu     sync.Mutex
	offset int64
	byID   map[string]int // index in seen, by audit ID
	seen   []Request
}

func newAuditLog(dir string) (*auditLog, error) {
	l := &auditLog{
		policy: filepath.Join(dir, "audit-policy.yaml"),
		path:   filepath.Join(dir, "audit.log"),
		byID:   map[string]int{},
	}
	return l, os.WriteFile(l.policy, []byte(auditPolicy), 0o600)
}

// flags of the API server. In blocking mode an event is written before the
// request goes on; rotation would lose what has not been read yet.
func (l *auditLog) flags() map[string]string {
	return map[string]string{
		"audit-policy-file": l.policy,
		"audit-log-path":    l.path,
		"audit-log-mode":    "blocking",
		"audit-log-maxsize": "100000",
	}
}

func (l *auditLog) requests(filters []RequestFilter) ([]Request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readOn(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", l.path, err)
	}
	return slices.DeleteFunc(slices.Clone(l.seen), func(r Request) bool {
		return slices.ContainsFunc(filters, func(passes RequestFilter) bool { return !passes(r) })
	}), nil
}

// readOn takes in the complete lines that were added since the last call.
func (l *auditLog) readOn() error {
	file, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	added, err := io.ReadAll(io.NewSectionReader(file, l.offset, 1<<62))
	if err != nil {
		return err
	}
	added = added[:bytes.LastIndexByte(added, '\n')+1]
	for line := range bytes.Lines(added) {
		event := auditv1.Event{}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		l.take(event)
	}
	l.offset += int64(len(added))
	return nil
}

// take joins the events of a request's stages.
func (l *auditLog) take(event auditv1.Event) {
	index, known := l.byID[string(event.AuditID)]
	if !known {
		index = len(l.seen)
		l.byID[string(event.AuditID)] = index
		l.seen = append(l.seen, newRequest(event))
	}
	if event.ResponseStatus != nil {
		l.seen[index].Code = event.ResponseStatus.Code
	}
}

func newRequest(event auditv1.Event) Request {
	r := Request{
		Verb:      event.Verb,
		URI:       event.RequestURI,
		User:      event.User.Username,
		UserAgent: event.UserAgent,
		Received:  event.RequestReceivedTimestamp.Time,
	}
	if ref := event.ObjectRef; ref != nil {
		r.Resource, r.Namespace, r.Name = ref.Resource, ref.Namespace, ref.Name
		if ref.Subresource != "" {
			r.Resource += "/" + ref.Subresource
		}
	}
	return r
}
