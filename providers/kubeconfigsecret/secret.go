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
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
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

	// NamespacesAnnotation limits what is watched, and so what is written, to the namespaces of the
	// member that it lists, separated by commas.
	NamespacesAnnotation = "fleet.konveyor.io/namespaces"
	// PausedAnnotation has a member watched and not written to. As with Cluster API's, any
	// value but "false" pauses.
	PausedAnnotation = "fleet.konveyor.io/paused"

	// maxNamespaces is how many NamespacesAnnotation may list: each has its own watches and
	// is asked for each right when the member is checked.
	maxNamespaces = 32
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

// credential is what a member's Secret says at one time of how to connect to it.
type credential struct {
	kubeconfig []byte
	// namespaces are those to be watched, sorted; nil means all.
	namespaces []string
	// invalid is why NamespacesAnnotation cannot be used.
	invalid error
	// hash tells one content from another.
	hash [sha256.Size]byte
}

func credentialOf(secret *corev1.Secret) credential {
	c := credential{kubeconfig: secret.Data[Key]}
	hash := sha256.Sum256(c.kubeconfig)
	list, limited := secret.Annotations[NamespacesAnnotation]
	if limited {
		c.namespaces, c.invalid = parseNamespaces(list)
		if c.invalid == nil { // so that spelling the same list otherwise reconnects nothing
			list = strings.Join(c.namespaces, ",")
		}
		hash = sha256.Sum256(append(hash[:], list...))
	}
	c.hash = hash
	return c
}

// parseNamespaces returns the namespaces of a list, sorted and each once. Errors do not
// quote the list, which may hold anything.
func parseNamespaces(list string) ([]string, error) {
	namespaces := strings.Split(list, ",")
	for i, namespace := range namespaces {
		namespaces[i] = strings.TrimSpace(namespace)
		if problems := validation.IsDNS1123Label(namespaces[i]); len(problems) > 0 {
			return nil, fmt.Errorf("entry %d is no name of a namespace: list names separated by commas, or remove the annotation to watch all", i+1)
		}
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	if len(namespaces) > maxNamespaces {
		return nil, fmt.Errorf("lists %d namespaces, of which %d are allowed: shorten it, or remove the annotation to watch all", len(namespaces), maxNamespaces)
	}
	return namespaces, nil
}

func pausedBy(secret *corev1.Secret) bool {
	value, present := secret.Annotations[PausedAnnotation]
	return present && value != "false"
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
