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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
)

// livePage is how many runs are asked for at a time.
const livePage = 500

// Prove lists a member's runs as they are now, past its cache, for what that proves of
// its failures. It is the one read of the kind: see docs/adr/0008.
func Prove(ctx context.Context, cl cluster.Cluster) (tally.Proof, error) {
	proof := tally.Proof{Since: map[string]string{}, Open: sets.New[types.UID]()}
	for _, namespace := range cacheOf(cl).namespaces {
		if err := proveNamespace(ctx, cl.GetAPIReader(), namespace, &proof); err != nil {
			return tally.Proof{}, fmt.Errorf("listing AgentRuns: %w", err)
		}
	}
	return proof, nil
}

func proveNamespace(ctx context.Context, live client.Reader, namespace string, proof *tally.Proof) error {
	page := &agentv1alpha1.AgentRunList{}
	for {
		// Without a resourceVersion the answer is as of now; its pages are of one moment.
		err := live.List(ctx, page, client.InNamespace(namespace), client.Limit(livePage), client.Continue(page.Continue))
		if err != nil {
			return err
		}
		proof.Since[namespace] = page.ResourceVersion
		for i := range page.Items {
			if run := &page.Items[i]; run.Status.Phase == agentv1alpha1.AgentRunFailed && !run.Recorded() {
				proof.Open.Insert(run.UID)
			}
		}
		if page.Continue == "" {
			return nil
		}
		page = &agentv1alpha1.AgentRunList{ListMeta: metav1.ListMeta{Continue: page.Continue}}
	}
}
