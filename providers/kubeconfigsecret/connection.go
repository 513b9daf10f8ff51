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
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Connection is one kubeconfig at work: the transport to a member, and the cluster on top of it.
// It lives from the attempt to connect until the member is removed or another connection takes its place.
type Connection struct {
	// Name is the member's.
	Name multicluster.ClusterName
	// Config is the checked kubeconfig with QPS, burst and user agent. It has no
	// timeout, since that would cut watches; use it with HTTPClient.
	Config *rest.Config
	// Namespaces are those that NamespacesAnnotation limits the member to, sorted; nil means all.
	Namespaces []string

	credential credential
	calls      *http.Client // ends each call after CallTimeout
	watches    *http.Client // never ends a watch
	dialer     *dialer
	transport  *http.Transport
	check      checker

	// cluster runs under ctx; stopped is closed once its Start has returned.
	cluster cluster.Cluster
	ctx     context.Context
	cancel  context.CancelFunc
	stopped chan struct{}
	// found is what the checks learnt before the cluster was started.
	found findings
	// outdated says that the member serves other optional resources by now. Guarded by member.mu.
	outdated bool
	// lost says that the member does not answer; stale, that it was lost and is back. Guarded by member.mu.
	lost, stale bool

	// checksPatience and patience keep requests back, those of check and all others.
	checksPatience, patience *patient
	// dates tells how far the member's clock is from the steady one.
	dates *dateReader

	// budget is what the cluster's cache may hold; tooLarge is why it was stopped, if it held more.
	budget   *budget
	tooLarge atomic.Pointer[failure]

	// watchFailed holds the latest unread error of an informer; unauthorized, that one was a 401.
	watchFailed  chan error
	unauthorized chan struct{}
}

// HTTPClient is for calls: it ends each after Options.CallTimeout. It works until the member is disengaged.
func (c *Connection) HTTPClient() *http.Client { return c.calls }

// Serves says whether the member served one of Options.OptionalResources when the
// connection was made. The answer never changes: another connection takes the place of
// this one when it would.
func (c *Connection) Serves(resource schema.GroupVersionResource) bool {
	return c.found.serves.Has(resource)
}

// ClusterOptions is a cluster.Option, to be given to cluster.New before others, but after one that sets NewInformer: clients get
// the HTTP client with a timeout, the cache gets the one without, and holds Namespaces only,
// of which no more than Options.CacheLimit.
func (c *Connection) ClusterOptions(o *cluster.Options) {
	o.HTTPClient = c.calls
	o.Cache.HTTPClient = c.watches
	o.Cache.DefaultWatchErrorHandler = c.onWatchError
	o.Cache.NewInformer = c.budget.informers(o.Cache.NewInformer)
	for _, namespace := range c.Namespaces {
		if o.Cache.DefaultNamespaces == nil {
			o.Cache.DefaultNamespaces = map[string]cache.Config{}
		}
		o.Cache.DefaultNamespaces[namespace] = cache.Config{}
	}
}

var _ cluster.Option = (*Connection)(nil).ClusterOptions

// headerTable is the size in bytes of the tables by which HTTP/2 compresses headers.
const headerTable = 256

// newConnection prepares a transport of its own, apart from client-go's process-wide
// cache of them, so that it can be closed. Nothing is dialled.
func newConnection(name multicluster.ClusterName, cred credential, cfg *rest.Config, o Options, steady steadyClock, logger logr.Logger) (*Connection, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = o.UserAgent
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	// One form for all, of which documents knows what it takes.
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, errors.New("kubeconfig has TLS settings that cannot be used: check the certificates in it")
	}
	dialer := newDialer(o.Policy.Servers)
	transport := utilnet.SetTransportDefaults(&http.Transport{
		Proxy:               proxyFor(cfg, o.Policy.Servers),
		DialContext:         dialer.DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		// A closed connection keeps its buffers, of some 60 KiB, until this has passed.
		IdleConnTimeout:    30 * time.Second,
		DisableCompression: cfg.DisableCompression,
		// What an idle connection remembers of headers takes 7 KiB otherwise, and spares few requests little.
		HTTP2: &http.HTTP2Config{MaxDecoderHeaderTableSize: headerTable, MaxEncoderHeaderTableSize: headerTable},
	})
	authenticated, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, err
	}
	authenticated = &discreet{RoundTripper: dialer.roundTripper(authenticated), secrets: secretsOf(cfg), timeout: o.CallTimeout}
	// The checks have their own patience, so that a member that turns away one kind of request is
	// not taken for one that turns away all.
	others := &patient{RoundTripper: authenticated, clock: o.Clock, limit: o.BackoffMax}
	checks := &patient{RoundTripper: authenticated, clock: o.Clock, limit: o.BackoffMax}
	dates := &dateReader{RoundTripper: checks, clock: steady, log: logger}
	c := &Connection{
		Name: name, Config: cfg, Namespaces: cred.namespaces,
		credential: cred, dialer: dialer, transport: transport,
		checksPatience: checks, patience: others, dates: dates,
		calls:        httpClient(&bounded{RoundTripper: others, call: maxPageBody, watch: maxWatchBody, timeout: o.CallTimeout}),
		watches:      httpClient(&bounded{RoundTripper: others, call: maxPageBody, watch: maxWatchBody, timeout: o.ConnectTimeout}),
		stopped:      make(chan struct{}),
		watchFailed:  make(chan error, 1),
		unauthorized: make(chan struct{}, 1),
	}
	c.budget = &budget{limit: o.CacheLimit, tooLarge: c.giveUp}
	c.check, err = newChecker(cfg, httpClient(&bounded{RoundTripper: dates, call: maxCheckBody, timeout: o.CallTimeout}), cred.namespaces, o)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	// One bucket for all clients of the member; the checks above go past it, so that a
	// burst of writes does not make the member look unreachable.
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.QPS, o.Burst)
	return c, nil
}

// proxyFor is the proxy that Policy lets the kubeconfig choose, or else the hub's own. What a proxy
// resolves is not seen by the dialer, so that names must be allowed as such.
func proxyFor(cfg *rest.Config, servers Allowlist) func(*http.Request) (*url.URL, error) {
	choose := cfg.Proxy
	if choose == nil {
		choose = http.ProxyFromEnvironment
	}
	return func(req *http.Request) (*url.URL, error) {
		proxy, err := choose(req)
		if proxy == nil || err != nil {
			return nil, err
		}
		return proxy, servers.permitUnresolved(req.URL.Hostname())
	}
}

func httpClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport,
		// An API server does not redirect; a hostile one would aim the hub, and its
		// credentials, at a third party.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// start makes the cluster, starts it under lifetime and waits until its informers have synced or attempt is done.
func (c *Connection) start(attempt, lifetime context.Context, newCluster NewClusterFunc, indexes []index) error {
	cl, err := newCluster(attempt, c)
	if err != nil {
		return setUpFailed(err)
	}
	for _, i := range indexes {
		if err := cl.GetFieldIndexer().IndexField(attempt, i.object, i.field, i.extract); err != nil {
			return setUpFailed(err)
		}
	}
	c.cluster = cl
	c.ctx, c.cancel = context.WithCancel(lifetime)
	attempt, giveUp := context.WithCancel(attempt)
	defer context.AfterFunc(c.ctx, giveUp)()
	defer giveUp()
	// Whoever ends the lifetime ends the traffic with it.
	context.AfterFunc(c.ctx, c.dialer.close)
	go func() {
		defer close(c.stopped)
		if err := cl.Start(c.ctx); err != nil {
			log.FromContext(c.ctx).Info("Cluster of a member ended", "cluster", c.Name, "cause", classify(err).message)
		}
	}()
	if cl.GetCache().WaitForCacheSync(attempt) {
		return nil
	}
	if f := c.tooLarge.Load(); f != nil {
		return f
	}
	if err := c.watchError(); err != nil {
		return classify(err)
	}
	return unreachable("The informers did not sync in time")
}

// giveUp ends a cluster that is too large to be watched.
func (c *Connection) giveUp(f *failure) {
	if c.tooLarge.CompareAndSwap(nil, f) {
		c.cancel()
	}
}

// watchError takes the latest error of an informer since it was last asked.
func (c *Connection) watchError() error {
	select {
	case err := <-c.watchFailed:
		return err
	default:
		return nil
	}
}

// setUpFailed keeps what is known of the cause; the rest is between the domain and its cluster.
func setUpFailed(err error) *failure {
	if f := classify(err); f.mendable() {
		return f
	}
	return &failure{
		reason: ReasonSetUpFailed,
		message: "The member answers, and setting up what watches it failed (" + printable(err.Error(), maxCause) +
			"): it is tried again; if it stays so, restart the manager and report it as a bug",
	}
}

// close ends everything that the connection started. Requests end at once, and later ones are refused.
func (c *Connection) close() {
	if c.cancel != nil {
		c.cancel()
	}
	c.dialer.close()
	c.transport.CloseIdleConnections()
	if c.cancel != nil {
		<-c.stopped
	}
}

// onWatchError takes the place of client-go's handler, which logs what the member
// answered. It must not block: reflectors call it.
func (c *Connection) onWatchError(ctx context.Context, _ *toolscache.Reflector, err error) {
	if ctx.Err() != nil {
		return
	}
	select {
	case c.watchFailed <- err:
	default:
	}
	if !apierrors.IsUnauthorized(err) {
		return
	}
	select {
	case c.unauthorized <- struct{}{}:
	default:
	}
}
