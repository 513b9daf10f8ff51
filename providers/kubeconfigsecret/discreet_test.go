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
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const token = "c4n4ry-0123456789/abcdefghijklmnopqrstuvwxyz+&<=ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// says answers with one body, with headers that nobody wants.
type says struct {
	status      int
	contentType string
	body        []byte
}

func (s says) RoundTrip(*http.Request) (*http.Response, error) {
	header := http.Header{
		"Content-Type": {s.contentType}, "Warning": {`299 - "odd"`}, "Retry-After": {"7"}, "Date": {http.TimeFormat}, "X-Odd": {"odd"},
	}
	return &http.Response{StatusCode: s.status, Header: header, Body: io.NopCloser(bytes.NewReader(s.body))}, nil
}

func inJSON(t *testing.T, o any) []byte {
	t.Helper()
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRefusalsAreBounded: what programs read of a refusal stays, and people get a short text.
func TestRefusalsAreBounded(t *testing.T) {
	runs := schema.GroupResource{Group: "konveyor.io", Resource: "agentruns"}
	conflict := named(apierrors.NewConflict(runs, "a", errors.New("it was changed")).Status())
	long := named(apierrors.NewForbidden(runs, strings.Repeat("n", 300), errors.New(strings.Repeat("m\x1b[31m\u202e", 300))).Status())
	long.Reason, long.Details.Causes = "Odd reason", make([]metav1.StatusCause, 20)
	echoing := named(apierrors.NewForbidden(runs, token, errors.New("x "+token+" x")).Status())
	expired := named(apierrors.NewResourceExpired("the token has expired").Status())
	busy := named(apierrors.NewTooManyRequests("busy", 5).Status())
	tests := map[string]struct {
		status      int
		contentType string
		body        []byte
		is          func(error) bool
		message     string
		details     *metav1.StatusDetails
	}{
		"a conflict":                {409, "application/json", inJSON(t, conflict), apierrors.IsConflict, conflict.Message, conflict.Details},
		"a refusal that is no JSON": {409, "application/vnd.kubernetes.protobuf", []byte("k8s\x00\x0a"), apierrors.IsConflict, "", nil},
		"an expired list":           {410, "application/json", inJSON(t, expired), apierrors.IsResourceExpired, expired.Message, nil},
		"too many requests":         {429, "application/json", inJSON(t, busy), apierrors.IsTooManyRequests, "busy", &metav1.StatusDetails{RetryAfterSeconds: 5}},
		"plain text":                {403, "text/plain", []byte("no\x1b[31m\u202e\n"), apierrors.IsForbidden, "no[31m", nil},
		"no body":                   {404, "", nil, apierrors.IsNotFound, "could not find", nil},
		"bytes of an unknown type":  {503, "application/odd", []byte{0xff, 0, 1}, apierrors.IsServiceUnavailable, "unable to handle", nil},
		"endless":                   {500, "application/json", inJSON(t, metav1.Status{Message: strings.Repeat("x", 900_000)}), apierrors.IsInternalError, "", nil},
		"a long and odd one": {403, "application/json", inJSON(t, long), apierrors.IsForbidden, "m[31mm[31m", &metav1.StatusDetails{
			Name: strings.Repeat("n", 250) + "...", Group: runs.Group, Kind: runs.Resource, Causes: make([]metav1.StatusCause, 8),
		}},
		"one that repeats the token": {403, "application/json", inJSON(t, echoing), apierrors.IsForbidden, redacted, &metav1.StatusDetails{
			Name: redacted, Group: runs.Group, Kind: runs.Resource,
		}},
		"a token in text": {403, "text/plain", []byte("x " + token), apierrors.IsForbidden, redacted, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := &discreet{RoundTripper: says{tc.status, tc.contentType, tc.body}, secrets: secretsOf(&rest.Config{BearerToken: token}), timeout: time.Minute}
			res, err := d.RoundTrip(request(t, "/"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			want := http.Header{"Content-Type": {"application/json"}, "Date": {http.TimeFormat}, "Retry-After": {"7"}}
			if diff := cmp.Diff(want, res.Header); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			var status metav1.Status
			body, err := io.ReadAll(res.Body)
			if err != nil || len(body) > 8<<10 || json.Unmarshal(body, &status) != nil {
				t.Fatalf("an answer of %d bytes: %v, %.300s", len(body), err, body)
			}
			if err := apierrors.FromObject(&status); !tc.is(err) || !strings.Contains(err.Error(), tc.message) || len(err.Error()) > 600 {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(tc.details, status.Details); tc.details != nil && diff != "" {
				t.Errorf("details (-want +got):\n%s", diff)
			}
			if printable(string(body), len(body)) != string(body) || strings.Contains(string(body), `\u00`) || bytes.Contains(body, []byte(token[20:40])) {
				t.Errorf("not clean: %q", body)
			}
		})
	}
}

func TestAnswersThatRepeatACredentialAreNone(t *testing.T) {
	config := &rest.Config{BearerToken: token, Username: "fleet", Password: "pa55-w0rd"}
	in64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	tests := map[string]struct {
		contentType string
		body        string
		repeats     bool
	}{
		"the token":                    {"application/json", token, true},
		"the end of the token":         {"application/json", token[len(token)-comparedSecret:], true},
		"in JSON":                      {"application/json", string(inJSON(t, token)), true},
		"in JSON, each character":      {"application/json", escapeAll(token), true},
		"for a URL":                    {"application/json", url.QueryEscape(token), true},
		"in base64":                    {"application/json", in64(token), true},
		"in base64, with a scheme":     {"application/json", in64("Bearer " + token), true},
		"in base64, one further":       {"application/json", in64("Bearer: " + token + "."), true},
		"the password":                 {"application/json", "pa55-w0rd", true},
		"basic authentication":         {"application/json", in64("fleet:pa55-w0rd"), true},
		"none, in an odd content type": {"text/html", "hello", true},
		"none":                         {"application/json", strings.Repeat("x", 100_000), false},
		"none, without a type":         {"", "{}", false},
		"none, in protobuf":            {"application/vnd.kubernetes.protobuf;stream=watch", "k8s", true},
		"none, of many values":         {"application/json", "[" + strings.Repeat("{},", maxValues/2+1), true},
		"none, of many documents":      {"application/json;stream=watch", strings.Repeat(`{"a":"{[,\\\"{[,"}`, maxValues), false},
		"a token that begins as ours":  {"application/json", token[:len(token)-1], false},
		"none, discovered":             {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "{}", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat("x", 1000) + tc.body + "y"
			for how, reader := range map[string]func(io.Reader) io.Reader{"at once": nil, "by bytes": iotest.OneByteReader, "by halves": iotest.HalfReader} {
				d := &discreet{RoundTripper: says{200, tc.contentType, []byte(body)}, secrets: secretsOf(config), timeout: time.Minute}
				d.RoundTripper = roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					res, err := says{200, tc.contentType, []byte(body)}.RoundTrip(req)
					if reader != nil {
						res.Body = io.NopCloser(reader(res.Body))
					}
					return res, err
				})
				res, err := d.RoundTrip(request(t, "/"))
				var got []byte
				if err == nil {
					got, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
					if res.Header.Get("Warning") != "" {
						t.Error("it warns")
					}
				}
				if tc.repeats != (err != nil) || (!tc.repeats && string(got) != body) {
					t.Errorf("%s: read %d of %d bytes and %v", how, len(got), len(body), err)
				}
			}
		})
	}
}

func escapeAll(s string) string {
	var out strings.Builder
	for _, b := range []byte(s) {
		out.WriteString(`\u00` + strings.ToUpper(string("0123456789abcdef"[b>>4])) + string("0123456789abcdef"[b&15]))
	}
	return out.String()
}

func TestErrorsOfTransportsAreClean(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"an honest one":              {errDisengaged, errDisengaged.Error()},
		"a long one":                 {errors.New(strings.Repeat("x\n", 1000)), strings.Repeat("x", 509) + "..."},
		"one that repeats the token": {errors.New("malformed HTTP response " + token), redacted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := secretsOf(&rest.Config{BearerToken: token}).clean(tc.err)
			if got.Error() != tc.want || !errors.Is(got, tc.err) {
				t.Errorf("got %v", got)
			}
		})
	}
}
