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
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons of a member's Connected condition.
const (
	// ReasonConnected: the member is engaged and answers. Status True.
	ReasonConnected = "Connected"
	// ReasonRotationRefused: the member is engaged and answers, by its former kubeconfig; the Secret's
	// present one does not work. Status True.
	ReasonRotationRefused = "RotationRefused"
	// ReasonReconnectRefused: the member is engaged and answers; it serves other optional resources than
	// before, for which connecting anew does not work. Status True.
	ReasonReconnectRefused = "ReconnectRefused"
	// ReasonConnecting: the member has not been engaged yet. Status Unknown.
	ReasonConnecting = "Connecting"
	// ReasonUnreachable: the member does not answer. Status Unknown.
	ReasonUnreachable = "Unreachable"
	// ReasonSetUpFailed: the member answers, and the hub could not set up what watches it. Status Unknown.
	ReasonSetUpFailed = "SetUpFailed"
	// ReasonInvalidKubeconfig: the kubeconfig is missing, refused, or trusts another CA. Status False.
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
	// ReasonInvalidAnnotation: NamespacesAnnotation cannot be used. Status False.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonUnauthorized: the member does not know the credentials. Status False.
	ReasonUnauthorized = "Unauthorized"
	// ReasonForbidden: the credentials lack a right. Status False.
	ReasonForbidden = "Forbidden"
	// ReasonCRDNotInstalled: the member does not serve a required resource. Status False.
	ReasonCRDNotInstalled = "CRDNotInstalled"
	// ReasonClockUnknown: no answer of the member tells its time. Status False.
	ReasonClockUnknown = "ClockUnknown"
	// ReasonTooLarge: what is watched of the member does not fit into Options.CacheLimit. Status False.
	ReasonTooLarge = "TooLarge"
	// ReasonVersionTooOld: the member's Kubernetes is older than OldestVersion. Status False.
	ReasonVersionTooOld = "VersionTooOld"
)

// failure is why a member is not connected, in the words of its condition.
type failure struct {
	reason  string
	message string
	// settled says that only another kubeconfig can mend it, so that retrying is no use.
	settled bool
	// after is how long the member asked to be left alone.
	after time.Duration
	// tooLong says that an answer was cut, so that a part of it may be answered.
	tooLong bool
}

func (f *failure) Error() string { return f.reason + ": " + f.message }

// mendable says that somebody must act on the member or its Secret.
func (f *failure) mendable() bool {
	switch f.reason {
	case ReasonInvalidKubeconfig, ReasonInvalidAnnotation, ReasonUnauthorized, ReasonForbidden, ReasonCRDNotInstalled, ReasonVersionTooOld, ReasonClockUnknown, ReasonTooLarge:
		return true
	}
	return false
}

// invalidKubeconfig says what is wrong with the kubeconfig in a Secret.
func invalidKubeconfig(secret types.NamespacedName, err error) *failure {
	return &failure{
		reason:  ReasonInvalidKubeconfig,
		message: fmt.Sprintf("Secret %s, key %q: %v", secret, Key, err),
		settled: true,
	}
}

// invalidAnnotation says what is wrong with NamespacesAnnotation on a Secret.
func invalidAnnotation(secret types.NamespacedName, err error) *failure {
	return &failure{
		reason:  ReasonInvalidAnnotation,
		message: fmt.Sprintf("Secret %s, annotation %s: %v", secret, NamespacesAnnotation, err),
		settled: true,
	}
}

// classify turns an error met while talking to a member into a failure. Text that the
// member sent is not repeated: it may be long, or echo a credential.
func classify(err error) *failure {
	var known *failure
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &known):
		return known
	case apierrors.IsUnauthorized(err):
		return &failure{reason: ReasonUnauthorized, message: "The member does not accept the credentials (401): put a kubeconfig with valid ones into the Secret"}
	case apierrors.IsForbidden(err):
		return &failure{reason: ReasonForbidden, message: "The member forbids a request (403): apply config/rbac/member there, or register the member again"}
	case meta.IsNoMatchError(err):
		return &failure{reason: ReasonCRDNotInstalled, message: "The member lacks a resource that is needed: apply config/crd/member there"}
	case errors.As(err, &status) && status.Status().Code != 0:
		return unreachable(fmt.Sprintf("The API server answers with HTTP status %d", status.Status().Code))
	}
	if f := classifyTLS(err); f != nil {
		return f
	}
	return unreachable(networkProblem(err))
}

func classifyTLS(err error) *failure {
	var unknownCA x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var remote *net.OpError
	switch {
	case errors.As(err, &unknownCA):
		return &failure{reason: ReasonInvalidKubeconfig, message: "The CA in the kubeconfig did not sign the certificate of the API server: correct certificate-authority-data or server"}
	case errors.As(err, &hostname):
		return &failure{reason: ReasonInvalidKubeconfig, message: "The certificate of the API server is for another host: correct server or tls-server-name in the kubeconfig"}
	case errors.As(err, &remote) && remote.Op == "remote error" && strings.Contains(remote.Err.Error(), "certificate"):
		return &failure{reason: ReasonUnauthorized, message: "The member refuses the client certificate: put a kubeconfig with a valid one into the Secret"}
	}
	return nil
}

func unreachable(problem string) *failure {
	return &failure{
		reason:  ReasonUnreachable,
		message: problem + ": check that the member runs and that the hub can reach its API server; it is tried again",
	}
}

// holdsTooMuch: the limit is in bytes.
func holdsTooMuch(limit int64) *failure {
	return &failure{
		reason: ReasonTooLarge,
		message: fmt.Sprintf("What the hub watches of the member takes more than the %d MiB of memory that a member may take: "+
			"delete finished runs there, limit it to namespaces, or raise --member-cache-limit and the manager's memory", limit>>20),
	}
}

// networkProblem keeps the cause of a failed request and drops the request's URL.
func networkProblem(err error) string {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &timeout) && timeout.Timeout()) {
		return "The API server does not answer in time"
	}
	cause := err.Error()
	if request, ok := errors.AsType[*url.Error](err); ok {
		cause = request.Err.Error()
	}
	// Without the local port, which differs each time and would make each probe a change.
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil {
		cause = fmt.Sprintf("%s %s: %v", op.Op, op.Addr, op.Err)
	}
	return "The API server cannot be reached (" + printable(cause, maxCause) + ")"
}

const (
	maxCause   = 200
	maxMessage = 1024
)

func isControl(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }

// printable makes foreign text fit for a condition: valid UTF-8, no control or formatting characters, at most limit bytes.
func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if isControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("...")], "") + "..."
}
