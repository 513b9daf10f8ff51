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
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
)

// clockCase is a replay in which the clocks of a policy run.
type clockCase struct {
	recording string
	// fatal is added to the default fatal reasons.
	fatal    map[string]time.Duration
	deadline time.Duration
	// seen are the events that the manager sees, when not all: it is away between
	// them, and comes back with nothing but the persisted status.
	seen []int
	// want is what it comes to, and when: "#4 Running" is at the event itself,
	// "#3+59.58s Failed Error" so long after it, as asked for by RequeueAfter.
	want string
	says []string
}

func TestClocksOverRecordings(t *testing.T) {
	const backOff, config, crash = startup.ReasonImagePullBackOff, startup.ReasonCreateContainerConfigError, startup.ReasonCrashLoopBackOff
	grace := func(reason string, d time.Duration) map[string]time.Duration {
		return map[string]time.Duration{reason: d}
	}
	atOnce := func(reason string) map[string]time.Duration { return grace(reason, 0) }
	for name, tc := range map[string]clockCase{
		"ErrImageNeverPull fails a run where it is asked for": {
			recording: "s07-never-absent", fatal: atOnce("ErrImageNeverPull"), want: "#4 Failed ErrImageNeverPull",
			says: []string{`container "main"`, `image "127.0.0.1:5000/absent:1"`, "pull policy of Never"},
		},
		"CreateContainerError fails a run where it is asked for": {
			recording: "s34b-bad-seccomp", fatal: atOnce("CreateContainerError"), want: "#4 Failed CreateContainerError",
			says: []string{`container "main"`, "cannot load seccomp profile"},
		},
		"CreateContainerError fails a run on its first message, whatever comes after": {
			recording: "s47-no-entrypoint", fatal: atOnce("CreateContainerError"), want: "#4 Failed CreateContainerError",
			says: []string{`container "main"`, "4917f6b63af5", "no command specified"},
		},
		"RunContainerError fails a run in a pod that says Running": {
			recording: "s12-cmd-notfound-always", fatal: atOnce("RunContainerError"), want: "#4 Failed RunContainerError",
			says: []string{`container "main"`, `exec: "/no/such"`},
		},

		"a grace runs from the first ErrImagePull and over every flip": {
			recording: "s01b-missing-tag", fatal: grace(backOff, time.Minute), want: "#8+10.82s Failed ImagePullBackOff",
			says: []string{`container "main"`, `image "127.0.0.1:5000/ok:nope"`, "not found"},
		},
		"a grace that is over before kubelet has backed off once does not make ErrImagePull fatal": {
			recording: "s01b-missing-tag", fatal: grace(backOff, 5*time.Second), want: "#5 Failed ImagePullBackOff",
		},
		"a manager that is restarted in mid-grace goes on with the clock that was persisted": {
			recording: "s01b-missing-tag", fatal: grace(backOff, time.Minute), seen: []int{4, 5, 8}, want: "#8+10.82s Failed ImagePullBackOff",
		},
		"a manager that comes back when the grace is long over fails the run at once": {
			recording: "s01b-missing-tag", fatal: grace(backOff, time.Minute), seen: []int{5, 11}, want: "#11 Failed ImagePullBackOff",
		},
		"a manager that comes late starts the grace when it first looks": {
			recording: "s01b-missing-tag", fatal: grace(backOff, time.Minute), seen: []int{9, 10, 11}, want: "#11+2.81s Failed ImagePullBackOff",
		},
		"a grace is an init container's as well": {
			recording: "s16-init-image-missing", fatal: grace(backOff, time.Minute), want: "#8+6.18s Failed ImagePullBackOff",
			says: []string{`init container "init"`},
		},
		"a grace is run out by one container though the other is ready": {
			recording: "s26-one-runs-one-missing", fatal: grace(backOff, time.Minute), want: "#8+3.3s Failed ImagePullBackOff",
			says: []string{`container "bad"`},
		},
		"a tag that comes within the grace lets the run start": {
			recording: "s27-late-tag-40s", fatal: grace(backOff, 90*time.Second), want: "#10 Running",
		},
		"a tag that comes within the grace is too late when kubelet does not look in time": {
			recording: "s27-late-tag-40s", fatal: grace(backOff, time.Minute), want: "#8+5.83s Failed ImagePullBackOff",
		},
		"a ConfigMap that comes within the grace lets the run start": {
			recording: "s28-late-cm-40s", fatal: grace(config, time.Minute), want: "#5 Running",
		},
		"a ConfigMap that comes after the grace is too late": {
			recording: "s28-late-cm-40s", fatal: grace(config, 30*time.Second), want: "#4+29.59s Failed CreateContainerConfigError",
			says: []string{`configmap "late-cm" not found`},
		},
		"a grace is over before kubelet is restarted": {
			recording: "sq20-restart-backoff", fatal: grace(backOff, time.Minute), want: "#8+7.31s Failed ImagePullBackOff",
		},
		"a restart of kubelet does not start the grace of a failing pull anew": {
			recording: "sq20-restart-backoff", fatal: grace(backOff, 65*time.Second), want: "#10 Failed ImagePullBackOff",
		},
		"a restart of kubelet does not start the grace of a missing ConfigMap anew": {
			recording: "sq22-restart-config", fatal: grace(config, 70*time.Second), want: "#6 Failed CreateContainerConfigError",
		},
		"a pull that kubelet throttles starts no grace (-22)": {
			recording: "sq10-qps-22", fatal: grace(backOff, 10*time.Second), want: "#6 Running",
		},
		"a pull that kubelet throttles starts no grace (-26)": {
			recording: "sq10-qps-26", fatal: grace(backOff, 10*time.Second), want: "#6 Running",
		},
		"a pull that kubelet throttles starts no grace (-29)": {
			recording: "sq10-qps-29", fatal: grace(backOff, 10*time.Second), want: "#6 Running",
		},
		"a crash loop's grace runs over the container's attempts": {
			recording: "s13-exit3-always", fatal: grace(crash, time.Minute), want: "#14 Failed CrashLoopBackOff",
		},
		"a sidecar's crash loop in a pending pod runs out its grace": {
			recording: "s21f-sidecar-crash-before-started", fatal: grace(crash, time.Minute), want: "#14+22.72s Failed CrashLoopBackOff",
			says: []string{`init container "side"`},
		},
		"the pod's own end comes before a grace that still runs": {
			recording: "s32-deadline-while-backoff", fatal: grace(backOff, time.Minute), want: "#8 Failed DeadlineExceeded",
			says: []string{"Pod was active on the node longer than the specified deadline"},
		},
		"a pod deleted in its grace was deleted": {
			recording: "s36b-deleted-in-backoff", fatal: grace(backOff, time.Minute), want: "#9 Failed Deleted",
		},
		"a pod whose node is lost in its grace was disrupted": {
			recording: "s33b-backoff-twonodes", fatal: grace(backOff, 10*time.Minute), want: "#10 Failed DeletionByPodGC",
		},
		"a startup deadline comes before a grace that still runs": {
			recording: "s01b-missing-tag", fatal: grace(backOff, time.Minute), deadline: 30 * time.Second, want: "#6+6.82s Failed StartupDeadlineExceeded",
			says: []string{`container "main"`, "ErrImagePull", "not found"},
		},

		"a failure and a deadline found over in one pass: the failure": {
			recording: "s17-init-exit1-never", deadline: time.Second, seen: []int{6}, want: "#6 Failed Error",
			says: []string{`init container "init"`},
		},
		"a rejection and a deadline found over in one pass: the rejection": {
			recording: "s53b-hostport-conflict", deadline: time.Second, seen: []int{3}, want: "#3 Failed NodePorts",
		},
		"a success and a deadline found over in one pass: the success": {
			recording: "s41b-good-ends", deadline: time.Second, seen: []int{8}, want: "#8 Succeeded Completed",
		},
		"a fatal reason and a deadline found over in one pass: the reason": {
			recording: "s08-env-missing-cm", deadline: time.Second, seen: []int{4}, want: "#4 Failed CreateContainerConfigError",
		},
		"a pod that runs when its deadline is found over runs": {
			recording: "s05c-slow-40s", deadline: 30 * time.Second, seen: []int{4, 5}, want: "#4 Running",
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := startup.Policy{Fatal: startup.DefaultFatal(), Deadline: tc.deadline}
			maps.Copy(policy.Fatal, tc.fatal)
			p, events := newPlayer(t, tc.recording, policy)
			if got, _ := p.play(events, tc.seen); got != tc.want {
				t.Errorf("Came to %q, want %q", got, tc.want)
			}
			p.checkMessage(tc.says, nil)
		})
	}
}

// The first time left is hard-coded, so that the others can be seen to be it.
func TestGraceAsksToBeCalledWhenItRunsOut(t *testing.T) {
	fatal := map[string]time.Duration{startup.ReasonImagePullBackOff: time.Minute}
	p, events := newPlayer(t, "s01b-missing-tag", startup.Policy{Fatal: fatal})
	var got []string
	for _, e := range events[:9] {
		got = append(got, p.decide(e.pod, e.at).RequeueAfter.String())
	}
	// kubelet said ErrImagePull at 1.22 s, which is stamped as 1 s.
	want := []string{"0s", "0s", "0s", "0s", "59.78s", "48.82s", "37.82s", "22.82s", "10.82s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("RequeueAfter at each event (-want +got):\n%s", diff)
	}
}

// TestDeadlineOverRecordings replays what never reports anything fatal, and what
// comes close to it, with startup deadlines of 60 s and 300 s.
func TestDeadlineOverRecordings(t *testing.T) {
	const exceeded = " Failed StartupDeadlineExceeded"
	for name, want := range map[string]struct{ in60s, in300s string }{
		"s05-hang-header":                        {"#3+59.58s" + exceeded, "#3+4m59.58s" + exceeded},
		"s05b-hang-blob":                         {"#3+59.58s" + exceeded, "#3+4m59.58s" + exceeded},
		"s05c-slow-40s":                          {"#4 Running", "#4 Running"},
		"s07-never-absent":                       {"#4+59.47s" + exceeded, "#4+4m59.47s" + exceeded},
		"s12-cmd-notfound-always":                {"#6 Failed CrashLoopBackOff", "#6 Failed CrashLoopBackOff"},
		"s15-vol-missing-cm":                     {"#2+59.98s" + exceeded, "#2+4m59.98s" + exceeded},
		"s15b-vol-missing-secret":                {"#2+59.98s" + exceeded, "#2+4m59.98s" + exceeded},
		"s15c-pvc-missing":                       {"#1+59.99s" + exceeded, "#1+4m59.99s" + exceeded},
		"s15e-pvc-unbound":                       {"#1+59.99s" + exceeded, "#1+4m59.99s" + exceeded},
		"s19-init-long":                          {"#4+59.51s" + exceeded, "#6 Running"},
		"s21c-sidecar-startupprobe-never":        {"#4+59.5s" + exceeded, "#4+4m59.5s" + exceeded},
		"s22-huge-cpu":                           {"#1+1m0s" + exceeded, "#1+5m0s" + exceeded},
		"s23-nodeselector":                       {"#1+59.99s" + exceeded, "#1+4m59.99s" + exceeded},
		"s24-gates":                              {"#0 Pending", "#0 Pending"},
		"s25-hostpath-file-missing":              {"#2+59.97s" + exceeded, "#2+4m59.97s" + exceeded},
		"s28b-late-vol-cm-40s":                   {"#2+59.98s" + exceeded, "#4 Running"},
		"s32c-deadline-unschedulable":            {"#1+59.99s" + exceeded, "#1+4m59.99s" + exceeded},
		"s33d-created-after-stop":                {"#1+59.98s" + exceeded, "#1+4m59.98s" + exceeded},
		"s33d-created-after-stop-twonodes":       {"#1+1m0s" + exceeded, "#1+5m0s" + exceeded},
		"s33e-created-when-unreachable-twonodes": {"#1+59.99s" + exceeded, "#1+4m59.99s" + exceeded},
		"s34b-bad-seccomp":                       {"#4+59.03s" + exceeded, "#4+4m59.03s" + exceeded},
		"s34d-memory-too-small":                  {"#2+59.98s" + exceeded, "#2+4m59.98s" + exceeded},
		"s34f-bad-seccomp-always":                {"#4+59.51s" + exceeded, "#4+4m59.51s" + exceeded},
		"s35b-runtimeclass-no-handler":           {"#2+59.98s" + exceeded, "#2+4m59.98s" + exceeded},
		"s36-deleted-while-pulling":              {"#4+39.93s" + exceeded, "#4+4m39.93s" + exceeded},
		"s43-ghost-node":                         {"#1 Failed DeletionByPodGC", "#1 Failed DeletionByPodGC"},
		"s47-no-entrypoint":                      {"#8+590ms" + exceeded, "#17+2m5.59s" + exceeded},
		"s49-vol-missing-and-image-missing":      {"#2+59.98s" + exceeded, "#2+4m59.98s" + exceeded},
		"s61-resourceclaim-missing":              {"#0+1m0s" + exceeded, "#0+5m0s" + exceeded},
		"sq01-serial-hang":                       {"#3+59.57s" + exceeded, "#7 Failed Deleted"},
		"sq03-serial-missing-behind-hang":        {"#3+59.59s" + exceeded, "#6 Failed ImagePullBackOff"},
	} {
		t.Run(name, func(t *testing.T) {
			checkDeadline(t, name, time.Minute, want.in60s)
			checkDeadline(t, name, 5*time.Minute, want.in300s)
		})
	}
}

// checkDeadline replays a recording with a deadline and checks when it comes to what,
// and that the deadline's message ends with what the run would say without one.
func checkDeadline(t *testing.T, name string, deadline time.Duration, want string) {
	t.Helper()
	p, events := newPlayer(t, name, startup.Policy{Fatal: startup.DefaultFatal(), Deadline: deadline})
	got, index := p.play(events, nil)
	if got != want {
		t.Errorf("With a deadline of %s: came to %q, want %q", deadline, got, want)
	}
	if !strings.HasSuffix(p.label(), startup.ReasonStartupDeadlineExceeded) {
		return
	}
	without, events := newPlayer(t, name, startup.Policy{Fatal: startup.DefaultFatal()})
	for _, e := range events[:index+1] {
		without.decide(e.pod, e.at)
	}
	if detail := without.succeeded().Message; !strings.HasSuffix(p.succeeded().Message, detail) || detail == "" {
		t.Errorf("With a deadline of %s: message is %q, want it to end with %q", deadline, p.succeeded().Message, detail)
	}
	if took := time.Duration(*p.run.Status.Duration) * time.Second; took != deadline {
		t.Errorf("With a deadline of %s: the run took %s", deadline, took)
	}
}

// play replays the events that are seen, and between them comes back when asked to.
// It returns what the run came to and after which event; see clockCase.want.
func (p *player) play(events []recorded, seen []int) (outcome string, index int) {
	p.t.Helper()
	var reached string
	for i, e := range events {
		if seen != nil && !slices.Contains(seen, i) {
			continue
		}
		d := p.decide(e.pod, e.at)
		p.checkAsked(e, d)
		if p.run.Terminal() {
			return fmt.Sprintf("#%d %s", i, p.label()), i
		}
		if reached == "" || !strings.HasSuffix(reached, " "+p.label()) {
			reached, index = fmt.Sprintf("#%d %s", i, p.label()), i
		}
		if p.waitFor(e, d.RequeueAfter, next(events, seen, i)) {
			return fmt.Sprintf("#%d+%s %s", i, d.RequeueAfter, p.label()), i
		}
	}
	return reached, index
}

// waitFor comes back after the time that was asked for, unless the next event is
// first. It says whether that ended the run.
func (p *player) waitFor(e recorded, asked, nextAt time.Duration) bool {
	p.t.Helper()
	if asked <= 0 || e.at+asked > nextAt {
		return false
	}
	if again := p.decide(e.pod, e.at+asked); !p.run.Terminal() && again.RequeueAfter > 0 {
		p.t.Errorf("At %s: called back as asked, and asked again for %s", e.at+asked, again.RequeueAfter)
	}
	return p.run.Terminal()
}

// checkAsked checks that a run with nothing but a deadline asks for exactly the time
// that is left of it.
func (p *player) checkAsked(e recorded, d startup.Decision) {
	p.t.Helper()
	left := p.policy.Deadline - e.at
	if p.policy.Deadline == 0 || p.policy.Fatal[startup.ReasonImagePullBackOff] > 0 {
		return
	}
	if p.run.Status.Phase != agentv1alpha1.AgentRunPending || held(e.pod) {
		left = 0
	}
	if d.RequeueAfter != left {
		p.t.Errorf("At %s: RequeueAfter is %s, want %s", e.at, d.RequeueAfter, left)
	}
}

func held(pod *corev1.Pod) bool {
	return len(pod.Spec.SchedulingGates) > 0
}

// next returns until when the manager waits after event i: the next event, the end of
// time after the last one it sees, no time at all when it is away until another.
func next(events []recorded, seen []int, i int) time.Duration {
	later := func(j int) bool { return j > i }
	switch {
	case seen != nil && !slices.ContainsFunc(seen, later), i+1 == len(events):
		return math.MaxInt64
	case seen != nil && !slices.Contains(seen, i+1):
		return events[i].at
	default:
		return events[i+1].at
	}
}
