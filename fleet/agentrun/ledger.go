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
	// WantedMark returns the ID of the member's ledger when that counts the failure of the
	// run with that UID and does not know yet that the run bears its mark; else nothing.
	WantedMark(cluster multicluster.ClusterName, uid types.UID) (ledger types.UID)
	// OnWantsMark has f called with each run that comes to want its mark. f must not block,
	// nor call the Ledger.
	OnWantsMark(f func(cluster multicluster.ClusterName, run types.NamespacedName))
}

// enqueueUnmarked has runs marked that come to want it. What happens in members comes
// first: a mark that is late is no loss.
func enqueueUnmarked(ledger Ledger, queue *fairQueue) {
	ledger.OnWantsMark(func(cluster multicluster.ClusterName, run types.NamespacedName) {
		req := mcreconcile.Request{ClusterName: cluster}
		req.NamespacedName = run
		queue.AddLow(req)
	})
}
