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

// Bounds of the lists below. They stand in the validation markers too, and keep
// every object far below the API server's size limit whatever the fleet's size.
const (
	// MaxFailureReasons bounds the reasons listed in one object; the rest are
	// summed under ReasonOther.
	MaxFailureReasons = 40
	// MaxRecentFailures bounds AgentRunClusterStatus.status.recentFailures.
	MaxRecentFailures = 20
	// MaxInFlight bounds AgentRunClusterStatus.status.ledger.inFlight.
	MaxInFlight = 1000
	// HistoryHours is the number of hourly counts in a history.
	HistoryHours = 24
	// MaxClusterSummaries bounds AgentRunFleetStatus.status.clusterSummaries.
	MaxClusterSummaries = 50
)

// ReasonOther counts failures whose reason is not a CamelCase word of at most 63
// characters, and those of the reasons that a bounded list has no room for.
const ReasonOther = "Other"

// RunCounts counts runs by phase, as they exist now.
type RunCounts struct {
	// pending is the number of runs whose pod is not running yet.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Pending int32 `json:"pending"`

	// running is the number of runs whose pod is running.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Running int32 `json:"running"`

	// succeeded is the number of runs that ended well.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Succeeded int32 `json:"succeeded"`

	// failed is the number of runs that ended otherwise, or never started.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Failed int32 `json:"failed"`

	// active is pending and running together.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Active int32 `json:"active"`

	// unknown is the number of runs that were pending or running when their member
	// was last observed, and of which nothing is known now, and of runs in a phase
	// that this version does not know.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Unknown int32 `json:"unknown"`
}

// RunReference names an AgentRun.
type RunReference struct {
	// cluster is the member that holds the run, as namespace/name of its
	// AgentRunClusterStatus. Empty where the member is plain from the object.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// namespace is the run's namespace in the member.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`

	// name is the run's name.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// FailureCount counts the failed runs of one reason.
type FailureCount struct {
	// reason is why the runs failed: the word that kubelet or the scheduler put on
	// the pod, or Other.
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]{0,62}$`
	// +required
	Reason string `json:"reason"`

	// current is the number of Failed runs of this reason that exist now.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Current int32 `json:"current"`

	// total is the number of failures of this reason on record: each failed run is
	// counted once in its life, and stays counted when it is deleted.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Total int64 `json:"total"`

	// lastHour is the number of failures of this reason in the current five minutes
	// and the 55 minutes before, by the runs' completionTime.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LastHour int64 `json:"lastHour"`

	// lastDay is the number of failures of this reason in the current hour (UTC) and
	// the 23 before it, by the runs' completionTime.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LastDay int64 `json:"lastDay"`

	// lastFailureTime is when the latest failure of this reason on record happened.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// lastRun is the run that failed then. It may have been deleted since.
	// +optional
	LastRun *RunReference `json:"lastRun,omitempty"`
}
