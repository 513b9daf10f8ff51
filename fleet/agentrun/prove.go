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

package agentrun

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
)

// livePage is how many runs are asked for at a time, at first. A run may have 1.5 MiB, and
// an answer may be bounded to less than that many.
const livePage = 100

// Prove lists a member's runs as they are now, past its cache, for what that proves of
// its failures to the ledger with that ID. It is the one read of the kind: see
// docs/adr/0008.
func Prove(ctx context.Context, cl cluster.Cluster, ledger types.UID) (tally.Proof, error) {
	proof := tally.Proof{Since: map[string]string{}, Open: sets.New[types.UID]()}
	for _, namespace := range cacheOf(cl).namespaces {
		err := eachPage(ctx, cl.GetAPIReader(), namespace, func(page *agentv1alpha1.AgentRunList) {
			addTo(&proof, namespace, page, ledger)
		})
		if err != nil {
			return tally.Proof{}, fmt.Errorf("listing AgentRuns: %w", err)
		}
	}
	return proof, nil
}

func addTo(proof *tally.Proof, namespace string, page *agentv1alpha1.AgentRunList, ledger types.UID) {
	proof.Since[namespace] = page.ResourceVersion
	for i := range page.Items {
		if run := &page.Items[i]; !run.RecordedBy(ledger) {
			proof.Open.Insert(run.UID)
		}
	}
}

// eachPage has f called with the runs of a namespace, a page at a time. f must not keep
// the page, so that no more than one is held. What fails is asked for again by halves,
// from where the page before ended.
func eachPage(ctx context.Context, live client.Reader, namespace string, f func(*agentv1alpha1.AgentRunList)) error {
	limit, from := int64(livePage), ""
	for {
		page := &agentv1alpha1.AgentRunList{}
		// Without a resourceVersion the answer is as of now; its pages are of one moment.
		err := live.List(ctx, page, client.InNamespace(namespace), client.Limit(limit), client.Continue(from))
		switch {
		case err == nil:
			f(page)
			if page.Continue == "" {
				return nil
			}
			from = page.Continue
		case limit > 1 && mayBeTooLarge(ctx, err):
			limit /= 2
		default:
			return err
		}
	}
}

// mayBeTooLarge says whether a smaller page may be answered. An answer that is too large
// fails in as many ways as there are clients, proxies and slow networks.
func mayBeTooLarge(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsResourceExpired(err)
}
