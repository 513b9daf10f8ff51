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

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
)

const (
	none    = "<none>"
	unknown = "<unknown>"
)

// member is what the hub has of one: its Secret, without the data, and its status. Either
// may be missing.
type member struct {
	client.ObjectKey
	secret *metav1.PartialObjectMetadata
	status *fleetv1alpha1.AgentRunClusterStatus
}

// members prints a table of them.
func members(ctx context.Context, o *options, out io.Writer) error {
	contexts, err := loadContexts(o.kubeconfig)
	if err != nil {
		return err
	}
	name, err := contexts.hub(o.hubContext)
	if err != nil {
		return err
	}
	hub, err := connect(contexts, "hub", name, false, out)
	if err != nil {
		return err
	}
	found, err := hub.members(ctx, o.namespace)
	if err != nil {
		return err
	}
	return printMembers(out, found, o.output == "wide", time.Now())
}

// members joins Secrets and statuses, by namespace and name.
func (c *cluster) members(ctx context.Context, namespace string) ([]*member, error) {
	statuses := &fleetv1alpha1.AgentRunClusterStatusList{}
	if err := c.List(ctx, statuses, client.InNamespace(namespace)); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("%s does not serve AgentRunClusterStatuses: install the hub, by `kubectl apply -k config/default`, or give the hub's --context", c.title)
		}
		return nil, fmt.Errorf("%s: listing AgentRunClusterStatuses: %w", c.title, err)
	}
	secrets, err := c.secrets(ctx, namespace)
	if err != nil {
		return nil, err
	}
	byKey := map[client.ObjectKey]*member{}
	of := func(key client.ObjectKey) *member {
		if byKey[key] == nil {
			byKey[key] = &member{ObjectKey: key}
		}
		return byKey[key]
	}
	for i := range statuses.Items {
		of(client.ObjectKeyFromObject(&statuses.Items[i])).status = &statuses.Items[i]
	}
	for i := range secrets {
		cluster := secrets[i].Labels[kubeconfigsecret.ClusterNameLabel]
		if secrets[i].Name == cluster+kubeconfigsecret.NameSuffix {
			of(client.ObjectKey{Namespace: secrets[i].Namespace, Name: cluster}).secret = &secrets[i]
		}
	}
	return sorted(byKey), nil
}

// secrets are those of members and others of the type. Whoever may not list Secrets sees the rest.
func (c *cluster) secrets(ctx context.Context, namespace string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := c.List(ctx, list, client.InNamespace(namespace), client.HasLabels{kubeconfigsecret.ClusterNameLabel},
		client.MatchingFields{"type": string(kubeconfigsecret.SecretType)})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%s: listing Secrets: %w", c.title, err)
	}
	return list.Items, nil
}

func sorted(byKey map[client.ObjectKey]*member) []*member {
	all := make([]*member, 0, len(byKey))
	for _, m := range byKey {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *member) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all
}

// printMembers prints as kubectl does.
func printMembers(out io.Writer, found []*member, wide bool, now time.Time) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(out, "No members found")
		return err
	}
	w := tabwriter.NewWriter(out, 6, 4, 3, ' ', 0)
	columns := wideColumns
	if !wide {
		columns = narrowColumns
	}
	rows := [][]string{{"NAMESPACE", "NAME", "CONNECTED", "REASON", "AGE", "LAST CONTACT", "TOKEN EXPIRES", "SINCE", "ENDPOINT", "MESSAGE"}}
	for _, m := range found {
		rows = append(rows, m.row(now))
	}
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row[:columns], "\t")) // Flush tells of an error
	}
	return w.Flush()
}

// How many of the columns are printed.
const (
	narrowColumns = 7
	wideColumns   = 10
)

func (m *member) row(now time.Time) []string {
	c := m.connected()
	return []string{
		m.Namespace, m.Name, string(c.Status), c.Reason, m.age(now), m.lastContact(now), m.tokenExpires(now),
		since(c.LastTransitionTime, now), m.endpoint(), c.Message,
	}
}

// connected is the status's condition, or one that says that there is none.
func (m *member) connected() metav1.Condition {
	if m.status != nil {
		if c := meta.FindStatusCondition(m.status.Status.Conditions, fleetv1alpha1.ConditionConnected); c != nil {
			return *c
		}
	}
	return metav1.Condition{
		Status:  metav1.ConditionUnknown,
		Reason:  none,
		Message: "No manager has reported on it yet: check that one runs and looks for Secrets in this namespace",
	}
}

// age is for how long it has been a member.
func (m *member) age(now time.Time) string {
	if m.secret != nil {
		return since(m.secret.CreationTimestamp, now)
	}
	return since(m.status.CreationTimestamp, now)
}

func (m *member) lastContact(now time.Time) string {
	if m.status == nil || m.status.Status.LastContactTime == nil {
		return none
	}
	return since(*m.status.Status.LastContactTime, now)
}

func (m *member) endpoint() string {
	if m.status == nil || m.status.Status.Endpoint == "" {
		return none
	}
	return m.status.Status.Endpoint
}

// tokenExpires is known only where register wrote it down.
func (m *member) tokenExpires(now time.Time) string {
	if m.secret == nil {
		return unknown
	}
	expires, err := time.Parse(time.RFC3339, m.secret.Annotations[expiryAnnotation])
	switch {
	case err != nil:
		return unknown
	case !expires.After(now):
		return "expired"
	}
	return duration.HumanDuration(expires.Sub(now))
}

func since(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return none
	}
	return duration.HumanDuration(now.Sub(t.Time))
}
