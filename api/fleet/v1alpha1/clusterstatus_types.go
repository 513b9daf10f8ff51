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

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConditionConnected says whether the hub can observe and act on a member: True
// when it can, False when its kubeconfig, rights or CRDs keep it from doing so,
// Unknown when the member cannot be reached or has not been tried yet.
const ConditionConnected = "Connected"

// ReasonConnecting is the reason of an Unknown Connected condition of a member that
// this manager has not tried yet. It says nothing about the member, so what was last
// known of it stands.
const ReasonConnecting = "Connecting"

// ManagedByLabel is on every AgentRunClusterStatus that the manager made, with the
// value ManagedByValue. Only those does it delete.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByValue = "agentrun-fleet"
)

// RecentFailure is one failed run, with enough to act on it.
type RecentFailure struct {
	// namespace is the run's namespace in the member.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`

	// name is the run's name.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// reason is why the run failed, verbatim.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Reason string `json:"reason,omitempty"`

	// message says what failed. It is cut to 256 characters, out of its middle.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`

	// container is the name of the container that kept the run from starting.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Container string `json:"container,omitempty"`

	// image is the image that container, or one of its volumes, wanted.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Image string `json:"image,omitempty"`

	// node is the node the pod was on.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`

	// time is when the run failed, by the hub's clock.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// AgentRunClusterStatusStatus is what was last observed of one member.
type AgentRunClusterStatusStatus struct {
	// conditions has one condition, Connected, whose reason and message say what to
	// do when it is not True.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// lastContactTime is when the member last answered. What stands below is as of
	// then when Connected is not True. It moves at most twice a minute.
	// +optional
	LastContactTime *metav1.Time `json:"lastContactTime,omitempty"`

	// kubernetesVersion is the version that the member's API server reports.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// endpoint is the URL of the member's API server, as the kubeconfig gives it.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// runs counts the member's runs by phase. Absent until the member has been
	// observed once.
	// +optional
	Runs *RunCounts `json:"runs,omitempty"`

	// failures counts the member's failed runs by reason: those that exist now, most
	// first, then those that are only on record. Absent when there are none.
	// +kubebuilder:validation:MaxItems=40
	// +listType=map
	// +listMapKey=reason
	// +optional
	Failures []FailureCount `json:"failures,omitempty"`

	// reasonsOmitted is the number of reasons of runs that exist now which failures
	// has no room for and counts under Other.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReasonsOmitted int32 `json:"reasonsOmitted,omitempty"`

	// totalFailures is the number of failures on record since this object was created,
	// whatever their reason. Deleting the object, or restoring it without its status,
	// starts the count again; runs that bear the mark of being counted are not counted
	// again.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TotalFailures int64 `json:"totalFailures"`

	// totalExact is true when every failure that was seen is on record. It is false
	// while some wait to be: for a moment after the member was connected, and as long as
	// there is no room in ledger.inFlight, which happens when the manager is not allowed
	// to mark runs in the member (it is paused, or patch on agentruns is not granted). The
	// totals are too low then. It is false for good once ledger.missed is above 0, and
	// before the member has been observed.
	// +optional
	TotalExact bool `json:"totalExact"`

	// history counts failures by hour (UTC), oldest first; the last is the hour of
	// historyTime. Absent when there were none in these 24 hours.
	// +kubebuilder:validation:MaxItems=24
	// +kubebuilder:validation:items:Minimum=0
	// +listType=atomic
	// +optional
	History []int64 `json:"history,omitempty"`

	// historyTime is when the last hour of history began.
	// +optional
	HistoryTime *metav1.Time `json:"historyTime,omitempty"`

	// lastFailureTime is when the latest failure on record happened.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// recentFailures are the latest failures on record, newest first. Their runs may
	// have been deleted since.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	RecentFailures []RecentFailure `json:"recentFailures,omitempty"`

	// recentFailuresOmitted is the number of failures on record that recentFailures
	// has no room for.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RecentFailuresOmitted int64 `json:"recentFailuresOmitted,omitempty"`

	// ledger is the manager's bookkeeping for counting each failure exactly once. Its
	// layout may change: do not edit it or depend on it.
	// +optional
	Ledger FailureLedger `json:"ledger,omitempty,omitzero"`
}

// FailureLedger is the manager's bookkeeping of the failures on record. It stands in the
// same object as the totals, so that one write moves both; unlike other status it cannot
// be made again from what is observed.
type FailureLedger struct {
	// id names this ledger in the annotation fleet.konveyor.io/recorded of the runs that it
	// counts. It is the UID of the object in which the ledger was begun, and stays when the
	// status is restored into another.
	// +optional
	ID types.UID `json:"id,omitempty"`

	// writer is the manager process that wrote the ledger last.
	// +optional
	Writer types.UID `json:"writer,omitempty"`

	// inFlight lists the UIDs of runs that are counted in the totals but not yet known to
	// carry the annotation fleet.konveyor.io/recorded with this ledger's id, or to be gone.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	// +optional
	InFlight []types.UID `json:"inFlight,omitempty"`

	// namespaces are those that the member has been limited to since inFlight was last
	// empty. Absent when it was not limited.
	// +kubebuilder:validation:MaxItems=100
	// +listType=set
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`

	// waiting is the number of failed runs that are not in the totals yet.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Waiting int32 `json:"waiting,omitempty"`

	// held is the number of those waiting whose runs are gone already: the manager that wrote
	// the ledger has them in memory alone. If it ends before they are recorded they are missed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Held int32 `json:"held,omitempty"`

	// missed is the number of failures that were seen and could not be recorded before
	// their runs were deleted. They are not in the totals.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Missed int64 `json:"missed,omitempty"`

	// windowTime is the start of the last bucket of fiveMinutes. The last entry of hours is
	// the hour that contains it.
	// +optional
	WindowTime *metav1.Time `json:"windowTime,omitempty"`

	// windows are the failures of the last 24 hours, by reason and time.
	// +kubebuilder:validation:MaxItems=40
	// +listType=map
	// +listMapKey=reason
	// +optional
	Windows []FailureWindow `json:"windows,omitempty"`
}

// FailureWindow is the failures of one reason, by time.
type FailureWindow struct {
	// reason is that of an entry in failures.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Reason string `json:"reason"`

	// fiveMinutes counts failures by five minutes, oldest first. Absent when there
	// were none in the last hour.
	// +kubebuilder:validation:MaxItems=12
	// +listType=atomic
	// +optional
	FiveMinutes []int32 `json:"fiveMinutes,omitempty"`

	// hours counts failures by hour, oldest first.
	// +kubebuilder:validation:MaxItems=24
	// +listType=atomic
	// +optional
	Hours []int32 `json:"hours,omitempty"`
}

// AgentRunClusterStatus is what the hub knows of the AgentRuns in one member
// cluster. The manager writes one beside each member's kubeconfig Secret, named
// after the cluster, and deletes it with the Secret.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=agentrunclusterstatuses,singular=agentrunclusterstatus,shortName=arcs
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].reason`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.runs.active`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.runs.failed`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.runs.unknown`
// +kubebuilder:printcolumn:name="Total Failed",type=integer,JSONPath=`.status.totalFailures`
// +kubebuilder:printcolumn:name="Top Reason",type=string,JSONPath=`.status.failures[0].reason`
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=`.status.failures[0].current`
// +kubebuilder:printcolumn:name="Last Failure",type=date,JSONPath=`.status.lastFailureTime`
// +kubebuilder:printcolumn:name="Last Contact",type=date,JSONPath=`.status.lastContactTime`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.runs.pending`,priority=1
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runs.running`,priority=1
// +kubebuilder:printcolumn:name="Succeeded",type=integer,JSONPath=`.status.runs.succeeded`,priority=1
// +kubebuilder:printcolumn:name="Exact",type=boolean,JSONPath=`.status.totalExact`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`,priority=1
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].message`,priority=1
type AgentRunClusterStatus struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what was last observed of the member.
	// +optional
	Status AgentRunClusterStatusStatus `json:"status,omitempty"`
}

// Counts returns runs, or zeros for a member that has never been observed.
func (s *AgentRunClusterStatusStatus) Counts() RunCounts {
	if s.Runs == nil {
		return RunCounts{}
	}
	return *s.Runs
}

// AgentRunClusterStatusList is a list of AgentRunClusterStatuses.
//
// +kubebuilder:object:root=true
type AgentRunClusterStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgentRunClusterStatus `json:"items"`
}
