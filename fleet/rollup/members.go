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
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Member is what is known of one member, apart from its runs.
type Member struct {
	// Name is Namespace/Cluster.
	Name multicluster.ClusterName
	// Namespace is that of the member's Secret; Cluster is the cluster's name.
	Namespace, Cluster string
	// SecretName and SecretUID name the kubeconfig Secret, the owner of what is
	// written of the member; Labels are its labels, which selectors select by.
	SecretName string
	SecretUID  types.UID
	Labels     map[string]string
	// Connected is the member's condition of that type. Unknown with the reason
	// Connecting means that the member has not been tried yet.
	Connected metav1.Condition
	// LastContactTime is when the member last answered; zero when it never did.
	LastContactTime metav1.Time
	// KubernetesVersion and Endpoint are of the connection that is or was in use.
	KubernetesVersion, Endpoint string
	// ClockOffset is how far the member's clock is ahead of the hub's.
	ClockOffset time.Duration
	// Paused says that the manager writes nothing in the member.
	Paused bool
}

// Members tells which members there are. It is safe for concurrent use.
type Members interface {
	// Members returns every member.
	Members() []Member
	// Synced says whether Members is complete. Until then nothing is deleted or
	// summed up for want of a member.
	Synced() bool
	// Subscribe has changed called with the name of each member that appears, goes or
	// changes, after Members tells so. It does not block.
	Subscribe(changed func(multicluster.ClusterName))
}

// roster returns the members by name, as of the last change, or at most one
// writeInterval ago: Members copies them all, and a pass needs one.
func (r *Rollup) roster() map[multicluster.ClusterName]Member {
	r.mu.Lock()
	known, stale := r.members, r.clock.Since(r.membersAt) >= writeInterval
	generation := r.membersGeneration
	r.mu.Unlock()
	if known != nil && !stale {
		return known
	}
	fresh := map[multicluster.ClusterName]Member{}
	for _, m := range r.source.Members() {
		fresh[m.Name] = m
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if generation == r.membersGeneration { // or else they have changed meanwhile
		r.members, r.membersAt = fresh, r.clock.Now()
	}
	return fresh
}

// memberChanged is called by Members.
func (r *Rollup) memberChanged(name multicluster.ClusterName) {
	r.mu.Lock()
	r.members = nil
	r.membersGeneration++
	r.mu.Unlock()
	r.queue.Add(clusterKey(name))
	r.markFleets()
}

// objectOf is where a member's AgentRunClusterStatus stands.
func objectOf(name multicluster.ClusterName) types.NamespacedName {
	namespace, cluster, _ := strings.Cut(name.String(), "/")
	return types.NamespacedName{Namespace: namespace, Name: cluster}
}

func memberOf(namespace, name string) multicluster.ClusterName {
	return multicluster.ClusterName(namespace + "/" + name)
}
