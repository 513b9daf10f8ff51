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
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// NewClusterFunc makes the cluster of one member. It is called after the member has
// passed all checks, and again after each rotation and each time that others of the
// optional resources are served. It must pass
// conn.ClusterOptions to cluster.New, must ask the cache for every informer that
// controllers will use (a controller that asks later would wait for its sync while
// holding a lock that all members share), must not start the cluster, and must
// return soon after ctx is done.
type NewClusterFunc func(ctx context.Context, conn *Connection) (cluster.Cluster, error)

// Options configure a Provider. The zero value of each field but NewCluster has a default.
type Options struct {
	// Namespaces are the hub's namespaces in which Secrets are looked for; empty means all.
	Namespaces []string
	// NewCluster makes a member's cluster. Required.
	NewCluster NewClusterFunc
	// Policy is what a kubeconfig may ask of the hub.
	Policy Policy
	// RequiredResources must be served by a member before it is engaged, else it is CRDNotInstalled.
	RequiredResources []schema.GroupVersionResource
	// RequiredAccess is what the kubeconfig must be allowed to do, asked by
	// SelfSubjectAccessReviews before the member is engaged, else it is Forbidden. Where
	// NamespacesAnnotation limits the member, it is asked in each of its namespaces.
	RequiredAccess []authorizationv1.ResourceAttributes
	// OptionalResources may be served by a member or not: NewCluster learns by
	// Connection.Serves which are. They are asked for again every MendInterval, and the
	// member is connected anew when others are served than before.
	OptionalResources []schema.GroupVersionResource
	// OptionalAccess is required as RequiredAccess is, but only where one of
	// OptionalResources with its group and resource is served.
	OptionalAccess []authorizationv1.ResourceAttributes

	// QPS and Burst bound the requests of one member's cluster, all types together. Defaults 50 and 100.
	QPS   float32
	Burst int
	// CacheLimit bounds what the cache of one member's cluster may hold, in bytes as estimated.
	// Default 64 MiB.
	CacheLimit int64
	// UserAgent is sent to members. Default rest.DefaultKubernetesUserAgent().
	UserAgent string

	// ConnectTimeout bounds one attempt to connect, from dialling to synced informers. Default 30 s.
	ConnectTimeout time.Duration
	// CallTimeout bounds each call to a member that is not a watch or a cache's list; the
	// latter is bounded by ConnectTimeout. Default 10 s.
	CallTimeout time.Duration
	// ProbeInterval is the time between two health probes of a member. Default 10 s.
	ProbeInterval time.Duration
	// ProbeTimeout bounds one health probe. Default 5 s.
	ProbeTimeout time.Duration
	// FailureThreshold is the number of probes in a row that must fail before a member
	// counts as lost, whatever the cause. Default 3.
	FailureThreshold int
	// BackoffBase is the wait after the first failed attempt; it doubles up to BackoffMax, which
	// also bounds how long a member is left alone that asks for it by Retry-After. Defaults 1 s and 5 min.
	BackoffBase, BackoffMax time.Duration
	// MendInterval takes the place of BackoffMax for what is mended on the member, where
	// no event tells the hub: rights, CRDs, credentials, CA. It is also the longest time,
	// to a probe, between two questions for OptionalResources. Default 30 s.
	MendInterval time.Duration
	// RotationOverlap is how long the replaced connection lives on after a rotation, so
	// that requests in flight end by themselves. Default CallTimeout.
	RotationOverlap time.Duration

	// Clock is read for conditions, back-off and probes. Its Since must tell the time that has passed, though
	// the clock was set meanwhile, as the real one's does. Default the real clock.
	Clock clock.WithTicker
}

func (o *Options) setDefaults() {
	setDefault(&o.QPS, 50)
	setDefault(&o.Burst, 100)
	setDefault(&o.CacheLimit, 64<<20)
	setDefault(&o.ConnectTimeout, 30*time.Second)
	setDefault(&o.CallTimeout, 10*time.Second)
	setDefault(&o.ProbeInterval, 10*time.Second)
	setDefault(&o.ProbeTimeout, 5*time.Second)
	setDefault(&o.FailureThreshold, 3)
	setDefault(&o.BackoffBase, time.Second)
	setDefault(&o.BackoffMax, 5*time.Minute)
	setDefault(&o.MendInterval, 30*time.Second)
	setDefault(&o.RotationOverlap, o.CallTimeout)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}
