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
	"crypto/sha256"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// A member is a Secret on which type, label, name and key agree, as Cluster API writes them.
const (
	// SecretType is the type of the Secrets that Cluster API writes.
	SecretType corev1.SecretType = "cluster.x-k8s.io/secret" //nolint:gosec // a type, no credential
	// ClusterNameLabel holds the name of the cluster, which is the Secret's name without NameSuffix.
	ClusterNameLabel = "cluster.x-k8s.io/cluster-name"
	// NameSuffix ends the name of each kubeconfig Secret. Cluster API gives the same type
	// and label to <cluster>-ca, -etcd, -sa and -proxy, which are not members.
	NameSuffix = "-kubeconfig"
	// Key holds the kubeconfig.
	Key = "value"
)

// MemberName is the name of the cluster whose kubeconfig is in that namespace of the hub.
func MemberName(namespace, cluster string) multicluster.ClusterName {
	return multicluster.ClusterName(namespace + "/" + cluster)
}

// clusterOf returns the cluster whose kubeconfig Secret would have that name.
func clusterOf(secretName string) (string, bool) {
	cluster, ok := strings.CutSuffix(secretName, NameSuffix)
	return cluster, ok && cluster != ""
}

// selects says whether the Secret makes its cluster a member. A missing or empty key
// is no reason to ignore it: that is reported on the member.
func selects(secret *corev1.Secret) bool {
	cluster, ok := clusterOf(secret.Name)
	return ok && secret.Type == SecretType && secret.Labels[ClusterNameLabel] == cluster &&
		secret.DeletionTimestamp.IsZero()
}

// credential is what a member's Secret says at one time.
type credential struct {
	kubeconfig []byte
	hash       [sha256.Size]byte
}

func credentialOf(secret *corev1.Secret) credential {
	kubeconfig := secret.Data[Key]
	return credential{kubeconfig: kubeconfig, hash: sha256.Sum256(kubeconfig)}
}

// withdrawn says that the Secret holds no kubeconfig at all, as opposed to a bad one.
func (c credential) withdrawn() bool { return len(c.kubeconfig) == 0 }

// HubCacheByObject is what the hub's cache may hold of Secrets, for cache.Options.ByObject:
// only those of SecretType with ClusterNameLabel, in the given namespaces (none means all), and
// of these no data but the kubeconfigs of members. CA, etcd and service account keys
// never stay in memory.
func HubCacheByObject(namespaces ...string) (client.Object, cache.ByObject) {
	labelled, err := labels.NewRequirement(ClusterNameLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	byObject := cache.ByObject{
		Label:     labels.NewSelector().Add(*labelled),
		Field:     fields.OneTermEqualSelector("type", string(SecretType)),
		Transform: stripSecret,
	}
	if len(namespaces) > 0 {
		byObject.Namespaces = map[string]cache.Config{}
		for _, namespace := range namespaces {
			byObject.Namespaces[namespace] = cache.Config{}
		}
	}
	return &corev1.Secret{}, byObject
}

// stripSecret drops what the hub does not need of a Secret before it is cached.
func stripSecret(in any) (any, error) {
	secret, ok := in.(*corev1.Secret)
	if !ok {
		return in, nil
	}
	kubeconfig, ok := secret.Data[Key]
	secret.Data, secret.StringData = nil, nil
	secret.ManagedFields = nil
	// kubectl apply keeps a copy of the data here.
	delete(secret.Annotations, corev1.LastAppliedConfigAnnotation)
	if ok && selects(secret) {
		secret.Data = map[string][]byte{Key: kubeconfig}
	}
	return secret, nil
}

// watched says whether Secrets of that namespace and name concern this provider.
func (p *Provider) watched(key types.NamespacedName) bool {
	_, ok := clusterOf(key.Name)
	return ok && (len(p.opts.Namespaces) == 0 || slices.Contains(p.opts.Namespaces, key.Namespace))
}
