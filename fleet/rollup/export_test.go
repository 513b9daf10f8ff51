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
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
)

// MarkChanged is what a run's event does.
func MarkChanged(r *Rollup, name multicluster.ClusterName) { r.runsChanged(name) }

// TellLate is what a connection that has been replaced tells of a run that is gone.
func TellLate(r *Rollup, name multicluster.ClusterName, run *agentv1alpha1.AgentRun) {
	r.runGone(name, &engagement{}, toolscache.DeletedFinalStateUnknown{Obj: run})
}

// Engaged says whether the member has a connection in use.
func Engaged(r *Rollup, name multicluster.ClusterName) bool {
	s := r.state(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engagement != nil
}

// Early is how many runs are held that went before the member's first look.
func Early(r *Rollup, name multicluster.ClusterName) int {
	s := r.state(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.early)
}

// StatusOf is what is written of a member with that tally, all of which may be recorded.
func StatusOf(m Member, counted tally.Tally) fleetv1alpha1.AgentRunClusterStatusStatus {
	status := tally.Observe(fleetv1alpha1.AgentRunClusterStatusStatus{}, tally.Observation{
		Tally: &counted, Now: time.Now(), Record: true, MayCount: func(tally.Run) bool { return true },
	})
	(&Rollup{clock: clock.RealClock{}}).setConnection(&status, m)
	return status
}
