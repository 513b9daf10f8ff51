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
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of what is kept of a refusal, in bytes.
const (
	maxRefusal     = 64 << 10 // read of its body
	maxRefusalText = 512
	maxRefusalName = 253
	maxCauses      = 8
	maxContentType = 256
)

// redacted takes the place of text that repeats a credential.
const redacted = "(not shown, since it repeats the credentials that the API server was sent)"

var (
	errRepeats     = unreachable("An answer of the API server repeats the credentials that it was sent")
	errContentType = unreachable("An answer of the API server is of an unknown content type")
)

// discreet makes what a member answers fit to be repeated, whoever repeats it and where: client-go,
// controller-runtime and controllers put errors into logs, conditions and Events. A refusal
// becomes a short Status without control characters; an answer that repeats a credential, or takes far more
// memory than bytes, is none; Warning headers, which client-go logs, are dropped.
type discreet struct {
	http.RoundTripper
	secrets secrets
	// timeout bounds the reading of a refusal, also of a watch.
	timeout time.Duration
}

// RoundTrip passes the request on.
func (d *discreet) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := d.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, d.secrets.clean(err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return d.refusal(req, res), nil
	}
	if !understood(res.Header.Get("Content-Type")) {
		_ = res.Body.Close()
		return nil, errContentType
	}
	res.Header.Del("Warning")
	res.Body = &guardedBody{ReadCloser: res.Body, secrets: d.secrets}
	return res, nil
}

// understood says whether it is what was asked for: JSON, of which documents knows what it takes. Without a type, client-go
// takes it for that.
func understood(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && media == runtime.ContentTypeJSON && len(contentType) <= maxContentType
}

// refusal takes the place of an answer that is no success. Of its headers the date and the wish to be left alone remain.
func (d *discreet) refusal(req *http.Request, res *http.Response) *http.Response {
	timer := time.AfterFunc(d.timeout, func() { _ = res.Body.Close() })
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what came of it has to do
	timer.Stop()
	_ = res.Body.Close()

	body, err := json.Marshal(d.status(req, res.StatusCode, body))
	if err != nil {
		body = nil // the code says enough
	}
	header := http.Header{"Content-Type": {runtime.ContentTypeJSON}}
	for _, kept := range []string{"Date", "Retry-After"} {
		if value := res.Header.Get(kept); value != "" && len(value) <= len(http.TimeFormat) {
			header.Set(kept, value)
		}
	}
	return &http.Response{
		Status: strconv.Itoa(res.StatusCode) + " " + http.StatusText(res.StatusCode), StatusCode: res.StatusCode,
		Proto: res.Proto, ProtoMajor: res.ProtoMajor, ProtoMinor: res.ProtoMinor,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Request: res.Request, TLS: res.TLS,
	}
}

// status is what a refusal says, as far as it is a Status; else what its code does.
func (d *discreet) status(req *http.Request, code int, body []byte) metav1.Status {
	said, ok := decodeStatus(body)
	if !ok {
		text := d.text(string(body), maxRefusalText)
		return named(apierrors.NewGenericServerResponse(code, req.Method, schema.GroupResource{}, "", text, 0, true).Status())
	}
	status := metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), //nolint:gosec // an HTTP status has three digits
		Reason:  metav1.StatusReason(d.word(string(said.Reason))),
		Message: d.text(said.Message, maxRefusalText),
	}
	if said.Details != nil {
		status.Details = d.details(said.Details)
	}
	return named(status)
}

func named(status metav1.Status) metav1.Status {
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}

func (d *discreet) details(said *metav1.StatusDetails) *metav1.StatusDetails {
	kept := &metav1.StatusDetails{
		Name:              d.text(said.Name, maxRefusalName),
		Group:             d.text(said.Group, maxRefusalName),
		Kind:              d.text(said.Kind, maxRefusalName),
		UID:               types.UID(d.text(string(said.UID), maxRefusalName)),
		RetryAfterSeconds: max(0, said.RetryAfterSeconds),
	}
	for _, cause := range said.Causes[:min(maxCauses, len(said.Causes))] {
		kept.Causes = append(kept.Causes, metav1.StatusCause{
			Type:    metav1.CauseType(d.word(string(cause.Type))),
			Field:   d.text(cause.Field, maxRefusalName),
			Message: d.text(cause.Message, maxRefusalName),
		})
	}
	return kept
}

// text is foreign text that is for people.
func (d *discreet) text(s string, limit int) string {
	if d.secrets.in([]byte(s)) {
		return redacted
	}
	return printable(s, limit)
}

var wordPattern = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// word is a foreign text that programs compare; empty when it is none of theirs.
func (d *discreet) word(s string) string {
	if !wordPattern.MatchString(s) || d.secrets.in([]byte(s)) {
		return ""
	}
	return s
}

func decodeStatus(body []byte) (metav1.Status, bool) {
	var status metav1.Status
	err := json.Unmarshal(body, &status)
	return status, err == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure
}

// guardedBody reads an answer as far as it does not repeat a credential and is not made of too many
// values. What it met remains.
type guardedBody struct {
	io.ReadCloser
	secrets secrets
	// tail ends what was read before; a credential may begin there.
	tail      []byte
	documents documents
	err       error
}

// Read reads on.
func (g *guardedBody) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.ReadCloser.Read(p)
	read := p[:n]
	overlap := g.secrets.overlap()
	seam := slices.Concat(g.tail, read[:min(n, overlap)])
	if g.secrets.in(seam) || g.secrets.in(read) {
		g.err = errRepeats
		return 0, g.err
	}
	if g.err = g.documents.read(read); g.err != nil {
		return 0, g.err
	}
	if n < overlap {
		read = seam
	}
	g.tail = append(g.tail[:0], read[max(0, len(read)-overlap):]...)
	if err != nil && !errors.Is(err, io.EOF) {
		err = g.secrets.clean(err)
	}
	return n, err
}
