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

package kubeconfigsecret

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

const (
	// ConditionConnected is the type of a member's condition.
	ConditionConnected = "Connected"

	// contactGranularity is how often LastContactTime moves while nothing else changes.
	contactGranularity = 30 * time.Second

	maxVersion  = 63
	maxEndpoint = 512
)

// Member is what is known of one member at one time.
type Member struct {
	// Name is "<namespace>/<cluster>".
	Name               multicluster.ClusterName
	Namespace, Cluster string
	// SecretName and SecretUID name the Secret that makes it a member; Labels are that
	// Secret's, and must not be changed.
	SecretName string
	SecretUID  types.UID
	Labels     map[string]string
	// Connected is True while the member is engaged and answers, False while somebody
	// must mend it, Unknown while it is being connected or does not answer.
	// LastTransitionTime of a loss is the time of the first probe that failed, until the member answers again.
	Connected metav1.Condition
	// LastContactTime is when the member last answered, to 30 s while it is connected. Zero means never.
	LastContactTime metav1.Time
	// KubernetesVersion and Endpoint are of the connection in use, or last in use.
	KubernetesVersion, Endpoint string
	// Paused says that PausedAnnotation asks not to write to the member.
	Paused bool
	// Lost says that the connection in use counts as lost: what is asked of it is not answered.
	Lost bool
	// ClockOffset is how far the member's clock is ahead of Options.Clock as that is set now, right to
	// 2 s. It is known before the member is engaged.
	ClockOffset time.Duration
}

// observation is what a member's condition is computed from.
type observation struct {
	// engaged says that there is a connection in use.
	engaged bool
	// failure is why there is none, or why the one in use counts as lost.
	failure *failure
	// refusal is why the connection in use could not be replaced: by one with the Secret's
	// present kubeconfig or, with sameKubeconfig, by one that knows what the member serves now.
	refusal        *failure
	sameKubeconfig bool
	// namespaces are those that the connection in use is limited to; nil means all.
	namespaces []string
	// since is when the probes of the connection in use began to fail; zero for other failures.
	since time.Time
}

// condition computes Connected, without its transition time.
func (o observation) condition(paused bool) metav1.Condition {
	c := metav1.Condition{Type: ConditionConnected}
	switch {
	case o.failure != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, o.failure.reason, o.failure.message
		if o.failure.mendable() {
			c.Status = metav1.ConditionFalse
		}
		if o.refusal != nil && !o.sameKubeconfig {
			c.Message += ". What the Secret says now does not work either: " + o.refusal.message
		}
	case !o.engaged:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonConnecting, "Being connected for the first time"
	case o.refusal != nil && o.sameKubeconfig:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonReconnectRefused
		c.Message = "The member is watched, but not what it has come to serve since, as connecting anew fails: " + o.refusal.message
	case o.refusal != nil:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonRotationRefused
		c.Message = "The former kubeconfig stays in use; what the Secret says now does not work: " + o.refusal.message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonConnected, "The member is watched"
		if o.namespaces != nil {
			c.Message += ", limited by the annotation " + NamespacesAnnotation + " to: " + strings.Join(o.namespaces, ", ")
		}
	}
	suffix := ""
	if paused {
		suffix = "; writes are paused by the annotation " + PausedAnnotation
	}
	c.Message = printable(c.Message, maxMessage-len(suffix)) + suffix
	return c
}

// transition is when the status became what it is now. A loss counts from the first failed probe, not from the
// one that reached the threshold, and stays one though its cause, and with it the status, changes.
func (o observation) transition(old, cond metav1.Condition, now time.Time) metav1.Time {
	switch {
	case o.failure != nil && !o.since.IsZero():
		return metav1.NewTime(o.since)
	case old.Status == cond.Status:
		return old.LastTransitionTime
	}
	return metav1.NewTime(now)
}
