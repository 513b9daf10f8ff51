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
)

// DefaultFleetStatusName is the name of the AgentRunFleetStatus over all members
// that the manager makes when there is none.
const DefaultFleetStatusName = "fleet"

// ConditionReady is True on an AgentRunFleetStatus only when every selected
// member is observed, so that its numbers are complete.
const ConditionReady = "Ready"

// Reasons of the Ready condition.
const (
	// ReasonAllMembersObserved means that the numbers are complete.
	ReasonAllMembersObserved = "AllMembersObserved"
	// ReasonMembersNotObserved means that some selected members cannot be observed;
	// the message names up to five.
	ReasonMembersNotObserved = "MembersNotObserved"
	// ReasonNoMembers means that the selector selects no member.
	ReasonNoMembers = "NoMembers"
	// ReasonInvalidSelector means that spec.clusterSelector cannot be used.
	ReasonInvalidSelector = "InvalidSelector"
)

// AgentRunFleetStatusSpec says which members are summed up.
type AgentRunFleetStatusSpec struct {
	// clusterSelector selects members by the labels of their kubeconfig Secrets.
	// Absent or empty selects every member.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
}

// ClusterCounts says how many members were observed out of how many.
type ClusterCounts struct {
	// total is the number of selected members.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Total int32 `json:"total"`

	// observed is the number of selected members that are connected.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Observed int32 `json:"observed"`

	// ratio is observed/total for reading, for example 4/5.
	// +kubebuilder:validation:MaxLength=23
	// +optional
	Ratio string `json:"ratio,omitempty"`

	// oldestContactTime is when the selected member that has been away longest last
	// answered. Absent when every member is observed.
	// +optional
	OldestContactTime *metav1.Time `json:"oldestContactTime,omitempty"`
}

// FleetFailureCount counts the failed runs of one reason over all selected members.
type FleetFailureCount struct {
	FailureCount `json:",inline"`

	// clusters is the number of members that hold failed runs of this reason, or in
	// which runs failed for it in the last day.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Clusters int32 `json:"clusters"`
}

// ClusterSummary is one member in the list of a fleet's members.
type ClusterSummary struct {
	// name is the member, as namespace/name of its AgentRunClusterStatus.
	// +kubebuilder:validation:MaxLength=317
	// +required
	Name string `json:"name"`

	// connected is the status of the member's Connected condition.
	// +kubebuilder:validation:Enum=True;False;Unknown
	// +optional
	Connected metav1.ConditionStatus `json:"connected,omitempty"`

	// reason is the reason of the member's Connected condition.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Reason string `json:"reason,omitempty"`

	// active is the number of the member's runs that are pending or running.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Active int32 `json:"active"`

	// failed is the number of the member's failed runs.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Failed int32 `json:"failed"`

	// totalFailures is the number of the member's failures on record.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TotalFailures int64 `json:"totalFailures"`

	// unknown is the number of runs that were active when the member was last observed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Unknown int32 `json:"unknown"`

	// topReason is the first reason in the member's failures.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TopReason string `json:"topReason,omitempty"`
}

// AgentRunFleetStatusStatus sums up the selected members.
type AgentRunFleetStatusStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions has one condition, Ready, which is True only when every selected
	// member is observed.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// clusters says how many members were observed out of how many.
	// +optional
	Clusters ClusterCounts `json:"clusters"`

	// runs counts runs by phase over all selected members. Pending and running runs
	// of members that are not observed are counted as unknown.
	// +optional
	Runs RunCounts `json:"runs"`

	// failures counts failed runs by reason over all selected members: those that exist
	// now, most first, then those that are only on record. Where there are more than 40
	// reasons, the total of Other shrinks when a reason gets an entry of its own.
	// +kubebuilder:validation:MaxItems=40
	// +listType=map
	// +listMapKey=reason
	// +optional
	Failures []FleetFailureCount `json:"failures,omitempty"`

	// reasonsOmitted is the number of reasons in the members' failures that failures has
	// no room for and counts under Other.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReasonsOmitted int32 `json:"reasonsOmitted,omitempty"`

	// totalFailures is the number of failures on record in the selected members. It
	// shrinks only when a member is removed or no longer selected.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TotalFailures int64 `json:"totalFailures"`

	// totalExact is true when it is true of every selected member.
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

	// clusterSummaries lists members, worst first: not connected, then most failed.
	// +kubebuilder:validation:MaxItems=50
	// +listType=map
	// +listMapKey=name
	// +optional
	ClusterSummaries []ClusterSummary `json:"clusterSummaries,omitempty"`

	// clusterSummariesOmitted is the number of members that clusterSummaries has no
	// room for.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ClusterSummariesOmitted int32 `json:"clusterSummariesOmitted,omitempty"`
}

// AgentRunFleetStatus answers what is failing in the fleet, where, since when and
// why. The manager makes one named fleet that selects every member when there is none
// at all; others may select some.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=agentrunfleetstatuses,singular=agentrunfleetstatus,scope=Cluster,shortName=arfs
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.clusters.ratio`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.runs.active`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.runs.failed`
// +kubebuilder:printcolumn:name="Total Failed",type=integer,JSONPath=`.status.totalFailures`
// +kubebuilder:printcolumn:name="Top Reason",type=string,JSONPath=`.status.failures[0].reason`
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=`.status.failures[0].current`
// +kubebuilder:printcolumn:name="Last Failure",type=date,JSONPath=`.status.lastFailureTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,priority=1
// +kubebuilder:printcolumn:name="Exact",type=boolean,JSONPath=`.status.totalExact`,priority=1
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.runs.pending`,priority=1
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runs.running`,priority=1
// +kubebuilder:printcolumn:name="Succeeded",type=integer,JSONPath=`.status.runs.succeeded`,priority=1
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.runs.unknown`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
type AgentRunFleetStatus struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which members are summed up.
	// +optional
	Spec AgentRunFleetStatusSpec `json:"spec,omitempty"`
	// status sums them up.
	// +optional
	Status AgentRunFleetStatusStatus `json:"status,omitempty"`
}

// AgentRunFleetStatusList is a list of AgentRunFleetStatuses.
//
// +kubebuilder:object:root=true
type AgentRunFleetStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgentRunFleetStatus `json:"items"`
}
