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

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// syncFleet brings one summary up to date.
func (r *Rollup) syncFleet(ctx context.Context, name string) (wrote bool, err error) {
	fleet := &fleetv1alpha1.AgentRunFleetStatus{}
	err = r.client().Get(ctx, client.ObjectKey{Name: name}, fleet)
	if apierrors.IsNotFound(err) {
		return false, r.makeDefault(ctx, name)
	}
	if err != nil {
		return false, err
	}
	if !r.source.Synced() {
		// A sum over some of the members would be wrong; the last one stands.
		r.queue.AddAfter(fleetKey(name), writeInterval)
		return false, nil
	}
	status, err := r.summary(ctx, fleet)
	if err != nil {
		return false, err
	}
	if equality.Semantic.DeepEqual(fleet.Status, status) {
		return false, nil
	}
	// An update fails unless fleet is the latest version: the selector may have changed.
	// A copy, since the answer is decoded into it.
	status.DeepCopyInto(&fleet.Status)
	return true, r.client().Status().Update(ctx, fleet)
}

// makeDefault makes the summary over all members when there is no summary at all.
func (r *Rollup) makeDefault(ctx context.Context, name string) error {
	if name != fleetv1alpha1.DefaultFleetStatusName {
		return nil
	}
	var all fleetv1alpha1.AgentRunFleetStatusList
	if err := r.client().List(ctx, &all); err != nil || len(all.Items) > 0 {
		return err
	}
	fleet := &fleetv1alpha1.AgentRunFleetStatus{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return client.IgnoreAlreadyExists(r.client().Create(ctx, fleet))
}

// summary sums up the members that the object selects. A selector that cannot be
// used selects none, and the condition says why.
func (r *Rollup) summary(ctx context.Context, fleet *fleetv1alpha1.AgentRunFleetStatus) (fleetv1alpha1.AgentRunFleetStatusStatus, error) {
	selector, err := selectorOf(fleet.Spec)
	if err != nil {
		status := fleetv1alpha1.AgentRunFleetStatusStatus{}
		r.setReady(fleet, &status, metav1.Condition{
			Type: fleetv1alpha1.ConditionReady, Status: metav1.ConditionFalse,
			Reason: fleetv1alpha1.ReasonInvalidSelector, Message: text.Shorten(err.Error(), maxMessage),
		})
		return status, nil
	}
	members, err := r.selected(ctx, selector)
	if err != nil {
		return fleetv1alpha1.AgentRunFleetStatusStatus{}, err
	}
	status := tally.Summary(fleet.Status, members, r.clock.Now())
	if status.History != nil {
		r.queue.AddAfter(fleetKey(fleet.Name), tally.NextBucket(r.clock.Now()))
	}
	r.setReady(fleet, &status, status.Conditions[0])
	return status, nil
}

// setReady sets the condition, with the time at which its status last changed.
func (r *Rollup) setReady(fleet *fleetv1alpha1.AgentRunFleetStatus, status *fleetv1alpha1.AgentRunFleetStatusStatus, ready metav1.Condition) {
	ready.ObservedGeneration = fleet.Generation
	ready.LastTransitionTime = metav1.NewTime(r.clock.Now()).Rfc3339Copy()
	status.Conditions = onlyCondition(fleet.Status.Conditions, ready)
	status.ObservedGeneration = fleet.Generation
}

// selected returns what is known of the members whose Secret's labels match.
func (r *Rollup) selected(ctx context.Context, selector labels.Selector) ([]tally.Member, error) {
	stored, err := r.allStored(ctx)
	if err != nil {
		return nil, err
	}
	var out []tally.Member
	for name, m := range r.roster() {
		if selector.Matches(labels.Set(m.Labels)) {
			status, _ := r.statusOf(ctx, m, stored[name], false)
			out = append(out, tally.Member{Name: name.String(), Status: status})
		}
	}
	return out, nil
}

// allStored returns every AgentRunClusterStatus. They are the cache's own: read only.
func (r *Rollup) allStored(ctx context.Context) (map[multicluster.ClusterName]*fleetv1alpha1.AgentRunClusterStatus, error) {
	var list fleetv1alpha1.AgentRunClusterStatusList
	if err := r.client().List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := make(map[multicluster.ClusterName]*fleetv1alpha1.AgentRunClusterStatus, len(list.Items))
	for i := range list.Items {
		out[memberOf(list.Items[i].Namespace, list.Items[i].Name)] = &list.Items[i]
	}
	return out, nil
}

// selectorOf returns the selector of a spec; none selects everything. The error names
// the field.
func selectorOf(spec fleetv1alpha1.AgentRunFleetStatusSpec) (labels.Selector, error) {
	if spec.ClusterSelector == nil {
		return labels.Everything(), nil
	}
	errs := metav1validation.ValidateLabelSelector(spec.ClusterSelector,
		metav1validation.LabelSelectorValidationOptions{}, field.NewPath("spec", "clusterSelector"))
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return metav1.LabelSelectorAsSelector(spec.ClusterSelector)
}
