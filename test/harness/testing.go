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
	"testing"
	"time"

	"github.com/onsi/gomega"
)

// Limits of NewGomega: how long to wait for what must come, for how long to see
// that nothing comes, and how often to look.
const (
	EventuallyTimeout    = 60 * time.Second
	ConsistentlyDuration = 2 * time.Second
	PollingInterval      = 20 * time.Millisecond
)

// Option changes what a control plane consists of.
type Option func(*Options)

// WithAudit records requests, for ControlPlane.Requests.
func WithAudit(o *Options) { o.Audit = true }

// WithScheduler runs kube-scheduler.
func WithScheduler(o *Options) { o.Scheduler = true }

// WithControllerManager runs kube-controller-manager.
func WithControllerManager(o *Options) { o.ControllerManager = true }

// WithCRDs installs more CRDs.
func WithCRDs(paths ...string) Option {
	return func(o *Options) { o.CRDPaths = append(o.CRDPaths, paths...) }
}

// HubOptions are those of a hub: this project's hub CRDs.
func HubOptions(options ...Option) (Options, error) {
	crds, err := HubCRDPath()
	return apply(Options{Name: "hub", CRDPaths: []string{crds}}, options), err
}

// MemberOptions are those of a member: the AgentRun CRD.
func MemberOptions(name string, options ...Option) (Options, error) {
	crds, err := MemberCRDPath()
	return apply(Options{Name: name, CRDPaths: []string{crds}}, options), err
}

func apply(o Options, options []Option) Options {
	for _, option := range options {
		option(&o)
	}
	return o
}

// NewHub starts a hub that is stopped when the test ends.
func NewHub(tb testing.TB, options ...Option) *ControlPlane {
	tb.Helper()
	o, err := HubOptions(options...)
	must(tb, err)
	return NewControlPlanes(tb, o)[0]
}

// NewMember starts a member that is stopped when the test ends.
func NewMember(tb testing.TB, name string, options ...Option) *ControlPlane {
	tb.Helper()
	o, err := MemberOptions(name, options...)
	must(tb, err)
	return NewControlPlanes(tb, o)[0]
}

// NewControlPlanes starts control planes side by side; they are stopped when the
// test ends.
func NewControlPlanes(tb testing.TB, options ...Options) []*ControlPlane {
	tb.Helper()
	planes, err := StartAll(tb.Context(), options...)
	must(tb, err)
	tb.Cleanup(func() {
		if err := StopAll(planes...); err != nil {
			tb.Errorf("Stopping control planes: %v", err)
		}
	})
	return planes
}

// NewProxy starts a proxy in front of a control plane; it is closed when the test
// ends.
func NewProxy(tb testing.TB, cp *ControlPlane) *Proxy {
	tb.Helper()
	proxy, err := StartProxy(cp.Addr())
	must(tb, err)
	tb.Cleanup(proxy.Close)
	return proxy
}

// NewGomega is gomega with limits that a busy machine keeps.
func NewGomega(tb testing.TB) *gomega.WithT {
	tb.Helper()
	g := gomega.NewWithT(tb)
	g.SetDefaultEventuallyTimeout(EventuallyTimeout)
	g.SetDefaultEventuallyPollingInterval(PollingInterval)
	g.SetDefaultConsistentlyDuration(ConsistentlyDuration)
	g.SetDefaultConsistentlyPollingInterval(PollingInterval)
	return g
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
