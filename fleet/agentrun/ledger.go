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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Ledger is the hub's record of failures, as far as the reconciler needs it. Its methods
// are called from several goroutines at a time.
type Ledger interface {
	// Recorded says whether the failure of the run with that UID stands in the hub's totals.
	Recorded(cluster multicluster.ClusterName, uid types.UID) bool
	// OnRecorded has f called, without blocking, with each run that becomes recorded and
	// wants its mark.
	OnRecorded(f func(cluster multicluster.ClusterName, run types.NamespacedName))
}

// enqueueRecorded has runs marked that become recorded. What happens in members comes
// first: a mark that is late is no loss.
func enqueueRecorded(ledger Ledger, queue *fairQueue) {
	ledger.OnRecorded(func(cluster multicluster.ClusterName, run types.NamespacedName) {
		req := mcreconcile.Request{ClusterName: cluster}
		req.NamespacedName = run
		queue.AddLow(req)
	})
}
