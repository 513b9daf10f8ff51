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

package rollup

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

const labelCluster = "cluster"

// Reasons are bounded, and at most MaxFailureReasons for each member.
var (
	runsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "agentrunfleet_runs",
		Help: "AgentRuns that exist, by member cluster and phase; unknown are those that were active when the member was last observed.",
	}, []string{labelCluster, "phase"})
	failedGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "agentrunfleet_failed_runs",
		Help: "Failed AgentRuns that exist, by member cluster and reason.",
	}, []string{labelCluster, "reason"})
	upGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "agentrunfleet_member_up",
		Help: "1 when the member cluster is connected, else 0.",
	}, []string{labelCluster})
)

// recordedFailures is the metric of the totals: a counter that is read from the hub, so
// that it goes on where it was after a restart.
var recordedFailures = &totals{
	desc: prometheus.NewDesc("agentrunfleet_recorded_failures_total",
		"Failures of AgentRuns on record, by member cluster and reason, including those of runs deleted since.",
		[]string{labelCluster, "reason"}, nil),
	members: map[multicluster.ClusterName][]fleetv1alpha1.FailureCount{},
}

func init() {
	metrics.Registry.MustRegister(runsGauge, failedGauge, upGauge, recordedFailures)
}

// totals collects counters whose values are kept elsewhere.
type totals struct {
	desc    *prometheus.Desc
	mu      sync.Mutex
	members map[multicluster.ClusterName][]fleetv1alpha1.FailureCount
}

// Describe implements prometheus.Collector.
func (t *totals) Describe(descs chan<- *prometheus.Desc) { descs <- t.desc }

// Collect implements prometheus.Collector.
func (t *totals) Collect(out chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, failures := range t.members {
		for _, f := range failures {
			if f.Total > 0 {
				out <- prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(f.Total), name.String(), f.Reason)
			}
		}
	}
}

// set keeps a member's failures, which must not be changed afterwards; nil are none.
func (t *totals) set(name multicluster.ClusterName, failures []fleetv1alpha1.FailureCount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if failures == nil {
		delete(t.members, name)
		return
	}
	t.members[name] = failures
}

func (r *Rollup) setMetrics(m Member, status fleetv1alpha1.AgentRunClusterStatusStatus) {
	name := m.Name.String()
	up := 0.0
	if observed(m) {
		up = 1
	}
	upGauge.WithLabelValues(name).Set(up)
	if status.Runs == nil {
		return // never observed: no series rather than zeros
	}
	for phase, n := range map[string]int32{
		"pending":   status.Runs.Pending,
		"running":   status.Runs.Running,
		"succeeded": status.Runs.Succeeded,
		"failed":    status.Runs.Failed,
		"unknown":   status.Runs.Unknown,
	} {
		runsGauge.WithLabelValues(name, phase).Set(float64(n))
	}
	r.setFailures(m, status.Failures)
}

// setFailures also removes the series of reasons that are no longer listed. A reason that
// is only on record keeps one, at 0.
func (r *Rollup) setFailures(m Member, failures []fleetv1alpha1.FailureCount) {
	s := r.state(m.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := sets.New(s.reasons...)
	s.reasons = nil
	for _, f := range failures {
		failedGauge.WithLabelValues(m.Name.String(), f.Reason).Set(float64(f.Current))
		s.reasons = append(s.reasons, f.Reason)
		gone.Delete(f.Reason)
	}
	for reason := range gone {
		failedGauge.DeleteLabelValues(m.Name.String(), reason)
	}
}

// deleteMetrics removes every series of a member.
func deleteMetrics(name multicluster.ClusterName) {
	series := prometheus.Labels{labelCluster: name.String()}
	runsGauge.DeletePartialMatch(series)
	failedGauge.DeletePartialMatch(series)
	upGauge.DeletePartialMatch(series)
	recordedFailures.set(name, nil)
}
