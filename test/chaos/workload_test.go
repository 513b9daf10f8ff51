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
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

// ending is what becomes of a run, by what kubelet reports of its pod.
type ending struct {
	// deadline is the run's, in seconds; 0 for none.
	deadline int32
	// report is what kubelet says in the end; nil leaves the pod unschedulable.
	report func(pod *build.PodWrapper, token string) *build.PodWrapper
	// phase and reason are the run's, once the manager has seen the report.
	phase  agentv1alpha1.AgentRunPhase
	reason string
	// quotes says that the run's message must hold kubelet's words.
	quotes bool
}

var endings = map[string]ending{
	"cannot pull": waitsFor("ImagePullBackOff", corev1.PodPending),
	"bad name":    waitsFor("InvalidImageName", corev1.PodPending),
	"no config":   waitsFor("CreateContainerConfigError", corev1.PodPending),
	"crash loop":  waitsFor("CrashLoopBackOff", corev1.PodRunning),
	"out of memory": {
		report: func(pod *build.PodWrapper, token string) *build.PodWrapper {
			return pod.Scheduled().Phase(corev1.PodFailed).TerminatedMessage("main", "OOMKilled", token, 137)
		},
		phase: agentv1alpha1.AgentRunFailed, reason: "OOMKilled", quotes: true,
	},
	"evicted": {
		report: func(pod *build.PodWrapper, token string) *build.PodWrapper {
			return pod.Scheduled().PodFailed("Evicted", token)
		},
		phase: agentv1alpha1.AgentRunFailed, reason: "Evicted", quotes: true,
	},
	"succeeds": {
		report: func(pod *build.PodWrapper, token string) *build.PodWrapper {
			return pod.Scheduled().Phase(corev1.PodSucceeded).TerminatedMessage("main", "Completed", token, 0)
		},
		phase: agentv1alpha1.AgentRunSucceeded, reason: "Completed",
	},
	"runs": {
		report: func(pod *build.PodWrapper, _ string) *build.PodWrapper {
			return pod.Scheduled().Phase(corev1.PodRunning).Running("main")
		},
		phase: agentv1alpha1.AgentRunRunning, reason: "Running",
	},
	"stays pending": {phase: agentv1alpha1.AgentRunPending, reason: "Unschedulable", quotes: true},
	// The pod may be made after the deadline, when the machine is busy; then there
	// are no words to quote.
	"too late": {deadline: 2, phase: agentv1alpha1.AgentRunFailed, reason: "StartupDeadlineExceeded"},
}

func endingNames() []string { return slices.Sorted(maps.Keys(endings)) }

// waitsFor is a container that waits for a reason that fails its run.
func waitsFor(reason string, phase corev1.PodPhase) ending {
	return ending{
		report: func(pod *build.PodWrapper, token string) *build.PodWrapper {
			return pod.Scheduled().Phase(phase).Waiting("main", reason, token)
		},
		phase: agentv1alpha1.AgentRunFailed, reason: reason, quotes: true,
	}
}

// fatalWhileWaiting says whether the pod could still recover.
func (e ending) fatalWhileWaiting() bool {
	return e.quotes && e.phase == agentv1alpha1.AgentRunFailed && e.reason != "OOMKilled" && e.reason != "Evicted"
}

// event is one step of a life.
type event struct {
	at   time.Duration
	life *life
	do   func(*member, context.Context, *life) error
}

// eventsOf are the events of one member's lives, in the order of their times. Of the
// same time, the order is that of the lives: a run is removed before it is made anew.
func (p plan) eventsOf(member string) []event {
	var events []event
	for _, l := range p.lives {
		if l.member == member {
			events = append(events, l.events()...)
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return events
}

func (l *life) events() []event {
	events := []event{{l.created, l, (*member).create}}
	podOutlives := func(at time.Duration) bool { return l.removed == 0 || at < l.removed || l.leavesPod }
	if endings[l.ending].report != nil && podOutlives(l.reported) {
		events = append(events, event{l.reported, l, (*member).report})
	}
	if l.recovers > 0 && endings[l.ending].fatalWhileWaiting() && podOutlives(l.recovers) {
		events = append(events, event{l.recovers, l, (*member).recover})
	}
	if l.removed > 0 {
		events = append(events, event{l.removed, l, (*member).remove})
	}
	return events
}

// live has the runs come and go. What falls into a time without API server comes
// after it, in order.
func (m *member) live(ctx context.Context, c clock, events []event) error {
	for _, e := range events {
		if err := c.until(ctx, e.at); err != nil {
			return err
		}
		m.serving.Lock()
		err := e.do(m, ctx, e.life)
		m.serving.Unlock()
		if err != nil {
			return fmt.Errorf("%s, %s: %w", e.life.token(), e.life.ending, err)
		}
	}
	return nil
}

// create makes the run and its pod, which no node has room for yet.
func (m *member) create(ctx context.Context, l *life) error {
	run := l.run()
	if err := m.Client.Create(ctx, run); err != nil {
		return err
	}
	m.lives[run.UID] = l
	pod := l.pod().Unschedulable(l.token()).Obj()
	if !l.ownerless {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(run, agentv1alpha1.GroupVersion.WithKind("AgentRun"))}
	}
	return m.CreatePod(ctx, pod)
}

// report has the pod come to its ending.
func (m *member) report(ctx context.Context, l *life) error {
	return m.SetPodStatus(ctx, endings[l.ending].report(l.pod(), l.token()).Obj())
}

// recover has the pod run after all, once the run has failed.
func (m *member) recover(ctx context.Context, l *life) error {
	run := l.run()
	err := m.Client.Get(ctx, client.ObjectKeyFromObject(run), run)
	if err != nil || m.lives[run.UID] != l || !run.Terminal() {
		return client.IgnoreNotFound(err)
	}
	return m.SetPodStatus(ctx, endings["runs"].report(l.pod(), l.token()).Obj())
}

// remove deletes the run and then, as the garbage collector would, its pod, unless that
// is left behind. In the other order the run could rightly end as Deleted before it goes.
func (m *member) remove(ctx context.Context, l *life) error {
	if err := m.Client.Delete(ctx, l.run()); err != nil || l.leavesPod {
		return err
	}
	return m.Client.Delete(ctx, l.pod().Obj(), client.GracePeriodSeconds(0))
}

func (l *life) run() *agentv1alpha1.AgentRun {
	run := build.MakeAgentRun(l.name)
	if deadline := endings[l.ending].deadline; deadline > 0 {
		run.StartupDeadline(deadline)
	}
	return run.Obj()
}

func (l *life) pod() *build.PodWrapper {
	return build.MakePod(l.podName()).ForRun(l.run()).Container("main", "registry.example/agent:1")
}
