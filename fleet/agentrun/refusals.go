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
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// What is asked of runs beside their status. A member works without these rights.
const (
	verbPatch  = "patch"
	verbDelete = "delete"
)

// refusedAgain is when a member that refuses a request is asked again on the run's account:
// nothing tells when a right is granted. Up to as much again is added at random, so that
// one run that is refused does not come before the same others each time.
const refusedAgain = 5 * time.Minute

// refusalHolds is how long after one refusal the same is not asked for other runs of the
// namespace.
const refusalHolds = time.Minute

// refusals remembers who refused what lately, so that a missing right costs a request and
// a line in the log a minute, not one for each run.
type refusals struct {
	mu    sync.Mutex
	until map[refusal]time.Time
}

// refusal is what was not allowed. Rights may differ between namespaces.
type refusal struct {
	cluster   multicluster.ClusterName
	namespace string
	verb      string
}

// holds says whether the same was refused lately.
func (r *refusals) holds(what refusal, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.until[what])
}

// add notes a refusal, and forgets those that hold no longer.
func (r *refusals) add(what refusal, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.until, func(_ refusal, until time.Time) bool { return !now.Before(until) })
	if r.until == nil {
		r.until = map[refusal]time.Time{}
	}
	r.until[what] = now.Add(refusalHolds)
}

// asked makes a request about a run unless it was refused lately, and says when to come
// back. A run that has changed or gone meanwhile is left to its event.
func (r *Reconciler) asked(ctx context.Context, req mcreconcile.Request, verb string, do func() error) (time.Duration, error) {
	what := refusal{req.ClusterName, req.Namespace, verb}
	if r.refused.holds(what, r.clock.Now()) {
		return wait.Jitter(refusedAgain, 1), nil
	}
	err := do()
	switch {
	case apierrors.IsForbidden(err):
		r.refused.add(what, r.clock.Now())
		log.FromContext(ctx).Info("The member does not allow it, trying again in some minutes", "missing", verb+" agentruns.konveyor.io", "answer", err.Error())
		return wait.Jitter(refusedAgain, 1), nil
	case apierrors.IsInvalid(err): // as when its annotations have no room left
		log.FromContext(ctx).Info("The member does not take it, trying again in some minutes", "verb", verb, "answer", err.Error())
		return wait.Jitter(refusedAgain, 1), nil
	case apierrors.IsConflict(err):
		return 0, nil
	}
	return 0, client.IgnoreNotFound(err)
}
