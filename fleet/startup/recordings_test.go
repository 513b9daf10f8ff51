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

package startup_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
)

const recordingsDir = "testdata/recordings"

// scenario is what is expected of one recording, read off the recording and the
// decision rules by hand.
type scenario struct {
	// story is what happens to the pod.
	story string
	// want is the expected phase, and the reason where it is terminal, at every
	// event: "0-4 Pending, 5-7 Failed ImagePullBackOff".
	want string
	// says are parts of the message after the last event.
	says []string
	// never are texts that must not be in that message.
	never []string
	// times are "startTime completionTime duration" after the last event, "-" for
	// one that must not be set; empty where kubelet's times add nothing.
	times string
}

// recorded is one watch event of a recording; pod is nil when it was deleted.
type recorded struct {
	at  time.Duration
	pod *corev1.Pod
}

func TestEveryRecording(t *testing.T) {
	scenarios := allScenarios(t)
	if diff := cmp.Diff(recordingNames(t), slices.Sorted(maps.Keys(scenarios))); diff != "" {
		t.Errorf("Recordings (-) and scenarios (+) differ:\n%s", diff)
	}
	for name, tc := range scenarios {
		t.Run(name, func(t *testing.T) {
			p, events := newPlayer(t, name, startup.Policy{Fatal: startup.DefaultFatal()})
			var got []string
			for i, e := range events {
				d := p.decide(e.pod, e.at)
				if d.RequeueAfter != 0 {
					t.Errorf("#%d: RequeueAfter is %s, but no clock runs", i, d.RequeueAfter)
				}
				got = append(got, fmt.Sprintf("#%d %s", i, p.label()))
			}
			if diff := cmp.Diff(expand(t, tc.want), got); diff != "" {
				t.Errorf("%s: decisions (-want +got):\n%s", tc.story, diff)
			}
			p.checkMessage(tc.says, tc.never)
			if got := p.times(); tc.times != "" && got != tc.times {
				t.Errorf("Times are %q, want %q", got, tc.times)
			}
		})
	}
}

func TestSidecarThatLoopsBesideAStartedAgentIsOnlyDetail(t *testing.T) {
	p, events := newPlayer(t, "s21-sidecar-crashloop", startup.Policy{Fatal: startup.DefaultFatal()})
	loops := []int{8, 11, 14, 17, 20, 23}
	for i, e := range events {
		p.decide(e.pod, e.at)
		if slices.Contains(loops, i) {
			p.checkMessage([]string{`sidecar init container "side"`, "CrashLoopBackOff"}, nil)
		}
	}
	if got := p.label(); got != "Running" {
		t.Errorf("Phase is %q, want Running", got)
	}
}

func allScenarios(t *testing.T) map[string]scenario {
	t.Helper()
	all := map[string]scenario{}
	for _, group := range []map[string]scenario{waitingScenarios, outcomeScenarios, pendingScenarios, runningScenarios} {
		for name, tc := range group {
			if _, twice := all[name]; twice {
				t.Errorf("Scenario %s stands in two groups", name)
			}
			all[name] = tc
		}
	}
	return all
}

func recordingNames(t *testing.T) []string {
	t.Helper()
	files, err := os.ReadDir(recordingsDir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".jsonl"))
	}
	slices.Sort(names)
	return names
}

// load returns the events of a recording; its last line holds the Kubernetes Events,
// which no decision may rest on.
func load(t *testing.T, name string) []recorded {
	t.Helper()
	f, err := os.Open(filepath.Join(recordingsDir, name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var events []recorded
	for dec := json.NewDecoder(f); ; {
		var line struct {
			T    float64     `json:"t"`
			Type string      `json:"type"`
			Pod  *corev1.Pod `json:"pod"`
		}
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("Recording %s: %v", name, err)
		}
		if line.Pod == nil {
			continue
		}
		e := recorded{at: time.Duration(math.Round(line.T*1000)) * time.Millisecond, pod: line.Pod}
		if line.Type == "DELETED" {
			e.pod = nil
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		t.Fatalf("Recording %s has no events", name)
	}
	return events
}

// player replays a recording through Decide and carries the run's status from one
// decision to the next, as an API server would keep it.
type player struct {
	t      *testing.T
	policy startup.Policy
	run    *agentv1alpha1.AgentRun
}

func newPlayer(t *testing.T, name string, policy startup.Policy) (*player, []recorded) {
	t.Helper()
	events := load(t, name)
	run := &agentv1alpha1.AgentRun{}
	run.Name, run.Namespace, run.UID, run.Generation = name, "rec", "run-uid", 1
	run.CreationTimestamp = events[0].pod.CreationTimestamp
	for _, e := range events {
		if e.pod != nil {
			e.pod.Labels = map[string]string{agentv1alpha1.AgentRunLabel: name}
		}
	}
	return &player{t: t, policy: policy, run: run}, events
}

// decide decides on the pod as it was at the given time since its creation, and
// checks what must hold of every decision.
func (p *player) decide(pod *corev1.Pod, at time.Duration) startup.Decision {
	p.t.Helper()
	in := startup.Input{Run: p.run.DeepCopy(), Policy: p.policy, Now: p.run.CreationTimestamp.Add(at)}
	if pod != nil {
		in.Pod = startup.PodOf(p.run, "", []*corev1.Pod{pod})
	}
	before := p.run.Status
	d := startup.Decide(in)
	if diff := cmp.Diff(p.run, in.Run); diff != "" {
		p.t.Errorf("%s: Decide modified the run (-before +after):\n%s", at, diff)
	}
	p.run.Status = persisted(p.t, d.Status)
	if p.run.Terminal() && (before.Phase == p.run.Status.Phase) {
		p.checkUntouched(at, before, d)
		return d
	}
	p.checkShape(at, in, d)
	in.Run = p.run.DeepCopy()
	if again := startup.Decide(in); inJSON(p.t, again.Status) != inJSON(p.t, d.Status) {
		p.t.Errorf("%s: deciding again on the same state would write again:\n%s\n%s", at, inJSON(p.t, d.Status), inJSON(p.t, again.Status))
	}
	return d
}

// checkUntouched: once terminal, nothing is ever written again.
func (p *player) checkUntouched(at time.Duration, before agentv1alpha1.AgentRunStatus, d startup.Decision) {
	p.t.Helper()
	if inJSON(p.t, before) != inJSON(p.t, d.Status) || d.Failure != nil || d.RequeueAfter != 0 {
		p.t.Errorf("%s: a terminal run was decided on again: failure %v, requeue %s\n%s\n%s", at, d.Failure, d.RequeueAfter, inJSON(p.t, before), inJSON(p.t, d.Status))
	}
}

// checkShape checks that the parts of a status agree with its phase.
func (p *player) checkShape(at time.Duration, in startup.Input, d startup.Decision) {
	p.t.Helper()
	s, c := p.run.Status, p.succeeded()
	want := map[agentv1alpha1.AgentRunPhase]metav1.ConditionStatus{
		agentv1alpha1.AgentRunPending:   metav1.ConditionUnknown,
		agentv1alpha1.AgentRunRunning:   metav1.ConditionUnknown,
		agentv1alpha1.AgentRunSucceeded: metav1.ConditionTrue,
		agentv1alpha1.AgentRunFailed:    metav1.ConditionFalse,
	}[s.Phase]
	if c.Status != want {
		p.t.Errorf("%s: phase %q with condition Succeeded=%q, want %q", at, s.Phase, c.Status, want)
	}
	if p.run.Terminal() != (s.CompletionTime != nil) || p.run.Terminal() != (s.Duration != nil) {
		p.t.Errorf("%s: phase %q with completionTime %v and duration %v", at, s.Phase, s.CompletionTime, s.Duration)
	}
	if failed := s.Phase == agentv1alpha1.AgentRunFailed; failed != (d.Failure != nil) {
		p.t.Errorf("%s: phase %q with failure %v", at, s.Phase, d.Failure)
	} else if failed && (d.Failure.Reason != c.Reason || d.Failure.Message != c.Message) {
		p.t.Errorf("%s: failure %+v and condition %+v differ", at, *d.Failure, *c)
	}
	if detail := startup.Detail(in); s.Phase == agentv1alpha1.AgentRunPending && c.Message != detail {
		p.t.Errorf("%s: message is %q, want the detail %q", at, c.Message, detail)
	}
	p.checkTimes(at)
}

// checkTimes checks that times are in order and that the duration is theirs. Replayed
// time starts at the creation's whole second, so kubelet's clock is up to 1 s ahead.
func (p *player) checkTimes(at time.Duration) {
	p.t.Helper()
	s, created := p.run.Status, p.run.CreationTimestamp
	if s.StartTime != nil && (s.StartTime.Before(&created) || s.StartTime.After(created.Add(at+time.Second))) {
		p.t.Errorf("%s: startTime %s is not between the run's creation and now", at, s.StartTime)
	}
	if s.Phase == agentv1alpha1.AgentRunPending && s.StartTime != nil || s.Phase == agentv1alpha1.AgentRunRunning && s.StartTime == nil {
		p.t.Errorf("%s: phase %q with startTime %v", at, s.Phase, s.StartTime)
	}
	if s.CompletionTime == nil || s.Duration == nil {
		return
	}
	from := created
	if s.StartTime != nil {
		from = *s.StartTime
	}
	if took := s.CompletionTime.Sub(from.Time); took < 0 || took != time.Duration(*s.Duration)*time.Second {
		p.t.Errorf("%s: duration is %d s, but the run took %s", at, *s.Duration, took)
	}
}

func (p *player) succeeded() *metav1.Condition {
	p.t.Helper()
	c := meta.FindStatusCondition(p.run.Status.Conditions, agentv1alpha1.ConditionSucceeded)
	if c == nil {
		p.t.Fatalf("The run has no condition Succeeded: %+v", p.run.Status)
	}
	return c
}

// label is the phase, and the reason where it is terminal.
func (p *player) label() string {
	p.t.Helper()
	if !p.run.Terminal() {
		return string(p.run.Status.Phase)
	}
	return string(p.run.Status.Phase) + " " + p.succeeded().Reason
}

func (p *player) checkMessage(says, never []string) {
	p.t.Helper()
	message := p.succeeded().Message
	for _, part := range says {
		if !strings.Contains(message, part) {
			p.t.Errorf("Message is %q, want it to say %q", message, part)
		}
	}
	for _, part := range never {
		if strings.Contains(message, part) {
			p.t.Errorf("Message is %q, must not say %q", message, part)
		}
	}
}

// times is "startTime completionTime duration", "-" for what is not set.
func (p *player) times() string {
	clock := func(t *metav1.Time) string {
		if t == nil {
			return "-"
		}
		return t.UTC().Format(time.TimeOnly)
	}
	s, took := p.run.Status, "-"
	if s.Duration != nil {
		took = (time.Duration(*s.Duration) * time.Second).String()
	}
	return strings.Join([]string{clock(s.StartTime), clock(s.CompletionTime), took}, " ")
}

// expand turns "0-1 Pending, 2 Failed Error" into one line an event.
func expand(t *testing.T, want string) []string {
	t.Helper()
	var lines []string
	for part := range strings.SplitSeq(want, ", ") {
		events, label, _ := strings.Cut(part, " ")
		var first, last int
		if n, _ := fmt.Sscanf(events, "%d-%d", &first, &last); n == 1 {
			last = first
		} else if n != 2 {
			t.Fatalf("Scenario says %q, want \"first-last phase reason\"", part)
		}
		for i := first; i <= last; i++ {
			lines = append(lines, fmt.Sprintf("#%d %s", i, label))
		}
	}
	return lines
}

// persisted is the status as it comes back from an API server: times in whole
// seconds, nothing else remembered.
func persisted(t *testing.T, status agentv1alpha1.AgentRunStatus) agentv1alpha1.AgentRunStatus {
	t.Helper()
	var back agentv1alpha1.AgentRunStatus
	if err := json.Unmarshal([]byte(inJSON(t, status)), &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func inJSON(t *testing.T, status agentv1alpha1.AgentRunStatus) string {
	t.Helper()
	out, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
