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
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// ownerSuffix ends the name of a member's Secret, whose beginning is the cluster's.
const ownerSuffix = "-kubeconfig"

// Limits of texts, in characters, as the markers in api/fleet/v1alpha1 state them.
const (
	maxVersion  = 63
	maxEndpoint = 512
	maxMessage  = 1024
)

// syncCluster brings a member's AgentRunClusterStatus up to date.
func (r *Rollup) syncCluster(ctx context.Context, name multicluster.ClusterName) (wrote bool, err error) {
	stored, err := r.stored(ctx, name)
	if err != nil {
		return false, err
	}
	m, exists := r.roster()[name]
	if !exists {
		return r.removeCluster(ctx, name, stored)
	}
	if stored != nil && !ownedBy(stored, m) {
		// The Secret was made anew: what is known is another member's.
		r.forget(name)
		return true, r.delete(ctx, stored)
	}
	if stored != nil {
		recordedFailures.set(name, stored.Status.Failures)
	}
	status, news := r.statusOf(ctx, m, stored, true)
	r.setMetrics(m, status)
	if !news {
		return false, nil
	}
	r.comeBack(m, status)
	if r.holdsBack(name, stored) {
		return false, nil
	}
	return r.writeCluster(ctx, m, stored, status)
}

// comeBack has the member looked at again when time alone may have changed its status.
// The queue keeps one such entry.
func (r *Rollup) comeBack(m Member, status fleetv1alpha1.AgentRunClusterStatusStatus) {
	if observed(m) {
		r.queue.AddAfter(clusterKey(m.Name), contactInterval)
	}
	if len(status.Ledger.Windows) > 0 {
		r.queue.AddAfter(clusterKey(m.Name), tally.NextBucket(r.clock.Now()))
	}
}

func (r *Rollup) writeCluster(ctx context.Context, m Member, stored *fleetv1alpha1.AgentRunClusterStatus,
	status fleetv1alpha1.AgentRunClusterStatusStatus,
) (wrote bool, err error) {
	if stored == nil {
		stored = newClusterStatus(m)
		if err := r.client().Create(ctx, stored); err != nil {
			return false, err
		}
		status.Ledger.ID = ledgerID(stored)
		// Whose marks those are that failed before is looked at next.
		status.TotalExact = status.TotalExact && status.Counts().Failed == 0
	} else if !tally.WorthWriting(stored.Status, status) {
		return false, nil
	}
	// A copy, since the answer is decoded into it. An update fails unless stored is
	// the latest version, whose numbers may stand in the status.
	status.DeepCopyInto(&stored.Status)
	if err := r.client().Status().Update(ctx, stored); err != nil {
		return true, err
	}
	r.wroteLedger(m.Name, status.Ledger)
	return true, nil
}

// removeCluster deletes what was written of a member that is gone.
func (r *Rollup) removeCluster(ctx context.Context, name multicluster.ClusterName, stored *fleetv1alpha1.AgentRunClusterStatus) (wrote bool, err error) {
	if !r.source.Synced() {
		r.queue.AddAfter(clusterKey(name), writeInterval)
		return false, nil
	}
	r.forget(name)
	deleteMetrics(name)
	if stored == nil || !managed(stored) {
		return false, nil
	}
	return true, r.delete(ctx, stored)
}

// delete deletes this very object as it was read: not one that has taken its name, and none
// that another manager, which knows better, has written since.
func (r *Rollup) delete(ctx context.Context, o *fleetv1alpha1.AgentRunClusterStatus) error {
	return client.IgnoreNotFound(r.client().Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}))
}

// stored returns the member's AgentRunClusterStatus, or nil when there is none.
func (r *Rollup) stored(ctx context.Context, name multicluster.ClusterName) (*fleetv1alpha1.AgentRunClusterStatus, error) {
	o := &fleetv1alpha1.AgentRunClusterStatus{}
	if err := r.client().Get(ctx, objectOf(name), o); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return o, nil
}

// ledgerID is what the ledger that is kept in an object is known by. One that is begun again,
// since the object was deleted, has another, so that what exists is counted from the start.
func ledgerID(stored *fleetv1alpha1.AgentRunClusterStatus) types.UID {
	return cmp.Or(stored.Status.Ledger.ID, stored.UID)
}

// statusOf is what is to be said of a member. It is no news, but what is stored, as
// long as the member has not been tried, or not been counted, since the start. With
// record, failures that are not on record yet are counted; else the ledger stays as stored.
func (r *Rollup) statusOf(ctx context.Context, m Member, stored *fleetv1alpha1.AgentRunClusterStatus, record bool) (
	status fleetv1alpha1.AgentRunClusterStatusStatus, news bool,
) {
	var version string
	if stored != nil && ownedBy(stored, m) {
		status, version = stored.Status, stored.ResourceVersion
		status.Ledger.ID = ledgerID(stored)
	}
	s := r.state(m.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := tally.Observation{Now: r.clock.Now(), ClockOffset: m.ClockOffset}
	counted, ok := r.count(ctx, m.Name, s, status.Ledger)
	switch {
	case ok:
		o.Tally = &counted
		if record {
			r.keepBook(ctx, m, s, status.Ledger, version, &o)
		}
	case observed(m):
		return status, false
	case m.Connected.Reason == fleetv1alpha1.ReasonConnecting && len(status.Conditions) > 0:
		return status, false
	}
	status = tally.Observe(status, o)
	if !observed(m) {
		status = tally.Unobserved(status)
	}
	r.setConnection(&status, m)
	return status, true
}

// setConnection sets all but the numbers. It leaves the slices of status alone.
func (r *Rollup) setConnection(status *fleetv1alpha1.AgentRunClusterStatusStatus, m Member) {
	status.Conditions = onlyCondition(status.Conditions, r.connected(m))
	status.LastContactTime = contact(status.LastContactTime, m)
	status.KubernetesVersion = text.Clip(m.KubernetesVersion, maxVersion)
	status.Endpoint = text.Clip(m.Endpoint, maxEndpoint)
}

// onlyCondition is the condition alone, with the time of its last transition. Whatever
// else stands there somebody has put there by hand, and could leave no room.
func onlyCondition(stored []metav1.Condition, c metav1.Condition) []metav1.Condition {
	var out []metav1.Condition
	if before := meta.FindStatusCondition(stored, c.Type); before != nil {
		out = append(out, *before)
	}
	meta.SetStatusCondition(&out, c)
	return out
}

// connected is the member's condition in a form that the API server accepts.
func (r *Rollup) connected(m Member) metav1.Condition {
	c := metav1.Condition{
		Type:               fleetv1alpha1.ConditionConnected,
		Status:             metav1.ConditionUnknown,
		Reason:             tally.Bounded(m.Connected.Reason),
		Message:            text.Shorten(m.Connected.Message, maxMessage),
		LastTransitionTime: m.Connected.LastTransitionTime.Rfc3339Copy(),
	}
	if s := m.Connected.Status; s == metav1.ConditionTrue || s == metav1.ConditionFalse {
		c.Status = s
	}
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.NewTime(r.clock.Now()).Rfc3339Copy()
	}
	return c
}

// contact is the time to show as the last contact: exact when the member is lost,
// else moved only when that is worth a write.
func contact(stored *metav1.Time, m Member) *metav1.Time {
	if m.LastContactTime.IsZero() {
		return stored
	}
	last := m.LastContactTime.Rfc3339Copy()
	if stored != nil && observed(m) && last.Sub(stored.Time).Abs() < contactInterval {
		return stored
	}
	return &last
}

func observed(m Member) bool { return m.Connected.Status == metav1.ConditionTrue }

func newClusterStatus(m Member) *fleetv1alpha1.AgentRunClusterStatus {
	return &fleetv1alpha1.AgentRunClusterStatus{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace,
		Name:      m.Cluster,
		Labels:    map[string]string{fleetv1alpha1.ManagedByLabel: fleetv1alpha1.ManagedByValue},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Secret", Name: m.SecretName, UID: m.SecretUID,
		}},
	}}
}

// managed says whether the manager made the object: by its label, or where somebody took
// that away, by its owner.
func managed(o *fleetv1alpha1.AgentRunClusterStatus) bool {
	return o.Labels[fleetv1alpha1.ManagedByLabel] == fleetv1alpha1.ManagedByValue ||
		slices.ContainsFunc(o.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.Kind == "Secret" && owner.Name == o.Name+ownerSuffix
		})
}

// ownedBy says whether the object is about this member, and not about one of the same
// name before it. One that the manager did not make is about whoever has its name.
func ownedBy(o *fleetv1alpha1.AgentRunClusterStatus, m Member) bool {
	return !managed(o) || slices.ContainsFunc(o.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.UID == m.SecretUID
	})
}
