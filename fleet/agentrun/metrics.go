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

package agentrun

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
)

var (
	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agentrunfleet_failures_total",
		Help: "AgentRuns that this manager failed, by member cluster and reason. Reasons that are no CamelCase word count as Other.",
	}, []string{"cluster", "reason"})

	failFast = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "agentrunfleet_fail_fast_seconds",
		Help:    "Time from seeing kubelet's status on a pod to the AgentRun's Failed status being stored, in seconds.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	})

	ttlDeletions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agentrunfleet_ttl_deletions_total",
		Help: "Finished AgentRuns that this manager deleted because their TTL was over, by member cluster.",
	}, []string{"cluster"})
)

func init() {
	metrics.Registry.MustRegister(failures, failFast, ttlDeletions)
}

// membersSeries has series of members made and deleted one at a time: none comes back when
// the member of a reconcile that is under way has gone.
var membersSeries sync.Mutex

// ForgetMember deletes the metric series of a member that is gone: GetCluster must not find
// it any more.
func ForgetMember(name multicluster.ClusterName) {
	membersSeries.Lock()
	defer membersSeries.Unlock()
	failures.DeletePartialMatch(prometheus.Labels{"cluster": name.String()})
	ttlDeletions.DeleteLabelValues(name.String())
	delete(reasonsOf, name)
}

// count counts on a series of a member, unless it has gone.
func (r *Reconciler) count(ctx context.Context, name multicluster.ClusterName, series func() prometheus.Counter) {
	membersSeries.Lock()
	defer membersSeries.Unlock()
	if _, err := r.clusters.GetCluster(ctx, name); err == nil {
		series().Inc()
	}
}

func (r *Reconciler) countFailure(ctx context.Context, req mcreconcile.Request, reason string) {
	r.count(ctx, req.ClusterName, func() prometheus.Counter {
		return failures.WithLabelValues(req.ClusterName.String(), reasonsOf.bounded(req.ClusterName, tally.Bounded(reason)))
	})
	if seenAt := r.seen.take(req); !seenAt.IsZero() {
		failFast.Observe(r.clock.Now().Sub(seenAt).Seconds())
	}
}

func (r *Reconciler) countDeletion(ctx context.Context, name multicluster.ClusterName) {
	r.count(ctx, name, func() prometheus.Counter { return ttlDeletions.WithLabelValues(name.String()) })
}

// labelledReasons bounds the series of one member: a pod's reason is what somebody in the
// member wrote. membersSeries guards it.
type labelledReasons map[multicluster.ClusterName]map[string]bool

var reasonsOf = labelledReasons{}

// bounded returns the reason, or Other when the member has had too many.
func (l labelledReasons) bounded(name multicluster.ClusterName, reason string) string {
	known := l[name]
	if known == nil {
		known = map[string]bool{}
		l[name] = known
	}
	if !known[reason] && len(known) >= fleetv1alpha1.MaxFailureReasons {
		return fleetv1alpha1.ReasonOther
	}
	known[reason] = true
	return reason
}

// firstSeen remembers when the pod event behind a queued request was seen. An entry
// lives as long as its request is queued, so that there are never more than the queue
// holds.
type firstSeen struct {
	mu sync.Mutex
	at map[mcreconcile.Request]time.Time
}

func newFirstSeen() *firstSeen {
	return &firstSeen{at: map[mcreconcile.Request]time.Time{}}
}

func (f *firstSeen) mark(req mcreconcile.Request, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.at[req]; !ok {
		f.at[req] = now
	}
}

func (f *firstSeen) take(req mcreconcile.Request) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.at[req]
	delete(f.at, req)
	return at
}
