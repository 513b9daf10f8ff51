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
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// watchHub has what changes on the hub looked at. The handlers live as long as the
// hub's cache.
func (r *Rollup) watchHub(ctx context.Context) error {
	if err := r.watch(ctx, &fleetv1alpha1.AgentRunFleetStatus{}, r.fleetChanged); err != nil {
		return err
	}
	return r.watch(ctx, &fleetv1alpha1.AgentRunClusterStatus{}, r.clusterStatusChanged)
}

func (r *Rollup) watch(ctx context.Context, object client.Object, changed func(o client.Object, exists bool)) error {
	informer, err := r.hub.GetCache().GetInformer(ctx, object)
	if err != nil {
		return fmt.Errorf("watching %T on the hub: %w: check that the CRDs in config/crd/hub are installed", object, err)
	}
	call := func(o any, exists bool) {
		if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		if o, ok := o.(client.Object); ok {
			changed(o, exists)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { call(o, true) },
		UpdateFunc: func(_, o any) { call(o, true) },
		DeleteFunc: func(o any) { call(o, false) },
	})
	return err
}

// fleetChanged keeps the names of the summaries. When one goes, the default one may
// have to be made.
func (r *Rollup) fleetChanged(o client.Object, exists bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := fleetKey(o.GetName())
	if exists {
		if r.fleets[k.name] == nil {
			r.fleets[k.name] = &pace{}
		}
		r.queue.Add(k)
		return
	}
	delete(r.fleets, k.name)
	r.queue.Add(fleetKey(fleetv1alpha1.DefaultFleetStatusName))
}

// clusterStatusChanged has the member looked at: its object may have been left by a
// former manager, deleted or edited by somebody.
func (r *Rollup) clusterStatusChanged(o client.Object, _ bool) {
	r.queue.Add(clusterKey(memberOf(o.GetNamespace(), o.GetName())))
	r.markFleets()
}
