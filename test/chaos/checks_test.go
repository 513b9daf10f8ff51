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
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
)

// numbers are what the hub says, and what is counted in the members.
type numbers struct {
	Runs     fleetv1alpha1.RunCounts
	Failures map[string]int32
}

// settled says what of the fleet is not yet as the rules and the members have it.
func (f *fleet) settled(ctx context.Context) error {
	var errs []error
	all := numbers{Failures: map[string]int32{}}
	for _, m := range f.members {
		runs, err := m.runsByRules(ctx)
		counted := count(runs)
		errs = append(errs, err, m.knownAs(ctx, counted))
		all.add(counted)
	}
	return errors.Join(append(errs, f.summedUpAs(ctx, all))...)
}

// runsByRules returns the member's runs, with an error for each that is not what the
// rules say of it.
func (m *member) runsByRules(ctx context.Context) ([]agentv1alpha1.AgentRun, error) {
	runs := &agentv1alpha1.AgentRunList{}
	if err := m.Client.List(ctx, runs); err != nil {
		return nil, err
	}
	var errs []error
	for i := range runs.Items {
		if err := m.byRules(ctx, &runs.Items[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s: run %s: %w", m.Name, runs.Items[i].Name, err))
		}
	}
	return runs.Items, errors.Join(errs...)
}

// byRules: the run's pod is its own, and the rules ask for no change.
func (m *member) byRules(ctx context.Context, run *agentv1alpha1.AgentRun) error {
	l := m.lives[run.UID]
	if l == nil {
		return errors.New("nobody made this run")
	}
	pods := &corev1.PodList{}
	if err := m.Client.List(ctx, pods, client.MatchingLabels{agentv1alpha1.AgentRunLabel: run.Name}); err != nil {
		return err
	}
	candidates := make([]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		candidates[i] = &pods.Items[i]
	}
	pod := startup.PodOf(run, "", candidates)
	if pod == nil || pod.Name != l.podName() {
		return fmt.Errorf("its pod should be %s, and is %v", l.podName(), pod)
	}
	in := startup.Input{Run: run, Pod: pod, Policy: startup.Policy{Fatal: startup.DefaultFatal()}, Now: time.Now()}
	if diff := cmp.Diff(startup.Decide(in).Status, run.Status); diff != "" {
		return fmt.Errorf("status is not what the rules say (-rules +stored):\n%s", diff)
	}
	return endings[l.ending].matches(l, &run.Status)
}

// matches says how a status differs from the one that the ending leads to.
func (e ending) matches(l *life, status *agentv1alpha1.AgentRunStatus) error {
	c := meta.FindStatusCondition(status.Conditions, agentv1alpha1.ConditionSucceeded)
	if c == nil {
		c = &metav1.Condition{}
	}
	if status.Phase != e.phase || c.Reason != e.reason {
		return fmt.Errorf("%s is %s for %q, want %s for %q", l.token(), status.Phase, c.Reason, e.phase, e.reason)
	}
	if e.quotes && tokenPattern.FindString(c.Message) != l.token() {
		return fmt.Errorf("%s does not have its own pod's words: %q", l.token(), c.Message)
	}
	return nil
}

func count(runs []agentv1alpha1.AgentRun) numbers {
	n := numbers{Failures: map[string]int32{}}
	for i := range runs {
		switch status := runs[i].Status; status.Phase {
		case agentv1alpha1.AgentRunPending:
			n.Runs.Pending++
			n.Runs.Active++
		case agentv1alpha1.AgentRunRunning:
			n.Runs.Running++
			n.Runs.Active++
		case agentv1alpha1.AgentRunSucceeded:
			n.Runs.Succeeded++
		case agentv1alpha1.AgentRunFailed:
			n.Runs.Failed++
			if c := meta.FindStatusCondition(status.Conditions, agentv1alpha1.ConditionSucceeded); c != nil {
				n.Failures[c.Reason]++
			}
		}
	}
	return n
}

func (n *numbers) add(other numbers) {
	n.Runs.Pending += other.Runs.Pending
	n.Runs.Running += other.Runs.Running
	n.Runs.Active += other.Runs.Active
	n.Runs.Succeeded += other.Runs.Succeeded
	n.Runs.Failed += other.Runs.Failed
	for reason, count := range other.Failures {
		n.Failures[reason] += count
	}
}

// knownAs compares what the hub says of the member.
func (m *member) knownAs(ctx context.Context, want numbers) error {
	known, err := m.known(ctx)
	if err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(known.Status.Conditions, fleetv1alpha1.ConditionConnected) {
		return fmt.Errorf("%s is not connected: %v", m.Name, known.Status.Conditions)
	}
	got := numbers{Failures: map[string]int32{}}
	if known.Status.Runs != nil {
		got.Runs = *known.Status.Runs
	}
	for _, failure := range known.Status.Failures {
		if failure.Current > 0 { // or else it is on record alone
			got.Failures[failure.Reason] = failure.Current
		}
	}
	return differs("the hub's numbers of "+m.Name, want, got)
}

// summedUpAs compares what the hub says of all members.
func (f *fleet) summedUpAs(ctx context.Context, want numbers) error {
	known := &fleetv1alpha1.AgentRunFleetStatus{}
	if err := f.hub.Client.Get(ctx, client.ObjectKey{Name: fleetv1alpha1.DefaultFleetStatusName}, known); err != nil {
		return err
	}
	got := numbers{Runs: known.Status.Runs, Failures: map[string]int32{}}
	for _, failure := range known.Status.Failures {
		if failure.Current > 0 { // or else it is on record alone
			got.Failures[failure.Reason] = failure.Current
		}
	}
	observed := differs("members", [2]int32{members, members}, [2]int32{known.Status.Clusters.Total, known.Status.Clusters.Observed})
	return errors.Join(observed, differs("the hub's sums", want, got))
}

func differs(what string, want, got any) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s (-want +got):\n%s", what, diff)
	}
	return nil
}

// history says what was ever wrong with any run, of those that are gone too.
func (m *member) history() []string {
	m.recorder.mu.Lock()
	defer m.recorder.mu.Unlock()
	problems := m.recorder.broken
	for uid, r := range m.recorder.runs {
		if problem := m.lifeWas(uid, r); problem != nil {
			problems = append(problems, fmt.Sprintf("UID %s: %v", uid, problem))
		}
	}
	return problems
}

// lifeWas: a run quotes its own pod alone, and ended as its pod did.
func (m *member) lifeWas(uid types.UID, r *record) error {
	l := m.lives[uid]
	if l == nil {
		return errors.New("nobody made this run")
	}
	if foreign := r.tokens.Clone().Delete(l.token()); foreign.Len() > 0 {
		return fmt.Errorf("%s has the words of other runs' pods: %v", l.token(), foreign.UnsortedList())
	}
	if !r.ended {
		return nil
	}
	return endings[l.ending].matches(l, &r.status)
}

// ended counts the runs, of those that are gone too, that were seen to end.
func (m *member) ended() int {
	m.recorder.mu.Lock()
	defer m.recorder.mu.Unlock()
	n := 0
	for _, r := range m.recorder.runs {
		if r.ended {
			n++
		}
	}
	return n
}

// checkLogs looks for what no manager may write.
func checkLogs(files []string) error {
	var errs []error
	for _, file := range files {
		content, err := os.ReadFile(file)
		errs = append(errs, err)
		for _, bad := range []string{"panic", "DATA RACE", "fatal error:"} {
			if i := bytes.Index(content, []byte(bad)); i >= 0 {
				errs = append(errs, fmt.Errorf("the manager's log has %q:\n%s", bad, content[i:min(len(content), i+4000)]))
			}
		}
	}
	return errors.Join(errs...)
}
