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

package chaos

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

// recorder remembers what a member's API server has ever said of each run. It watches
// the server itself, not through the proxy.
type recorder struct {
	mu     sync.Mutex
	runs   map[types.UID]*record
	broken []string
}

// record is one run, by its UID.
type record struct {
	status agentv1alpha1.AgentRunStatus
	ended  bool
	// tokens are those in any message that the run ever had.
	tokens sets.Set[string]
	// mark is its latest RecordedAnnotation.
	mark string
}

var tokenPattern = regexp.MustCompile(`\[[^\]/ ]+/[^\]/ ]+/\d+\]`)

// follow watches until ctx is done, and anew when the server was away.
func (r *recorder) follow(ctx context.Context, c client.WithWatch) {
	const again = 100 * time.Millisecond
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		// The server is killed now and then: errors are expected, and looking again is the remedy.
		_ = r.followOnce(ctx, c)
	}, again)
}

func (r *recorder) followOnce(ctx context.Context, c client.WithWatch) error {
	version, err := r.look(ctx, c)
	if err != nil {
		return err
	}
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}}
	w, err := c.Watch(ctx, &agentv1alpha1.AgentRunList{}, from)
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if run, ok := event.Object.(*agentv1alpha1.AgentRun); ok {
			r.observe(run)
		}
	}
	return nil
}

// look records all runs as they are now, and returns the version of the list.
func (r *recorder) look(ctx context.Context, c client.Client) (string, error) {
	list := &agentv1alpha1.AgentRunList{}
	if err := c.List(ctx, list); err != nil {
		return "", err
	}
	for i := range list.Items {
		r.observe(&list.Items[i])
	}
	return list.ResourceVersion, nil
}

// observe may be told of the same state twice, but not of an older one: a list and the
// watch that follows it are in order.
func (r *recorder) observe(run *agentv1alpha1.AgentRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.runs[run.UID]
	if known == nil {
		known = &record{tokens: sets.New[string]()}
		r.runs[run.UID] = known
	}
	if known.ended && !cmp.Equal(known.status, run.Status) {
		r.broken = append(r.broken, fmt.Sprintf("run %s (UID %s) was changed after its end:\n%s",
			run.Name, run.UID, cmp.Diff(known.status, run.Status)))
	}
	known.status, known.ended = *run.Status.DeepCopy(), run.Terminal()
	known.mark = run.Annotations[agentv1alpha1.RecordedAnnotation]
	for _, c := range run.Status.Conditions {
		known.tokens.Insert(tokenPattern.FindAllString(c.Message, -1)...)
	}
}
