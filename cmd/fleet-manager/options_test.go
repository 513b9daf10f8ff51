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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/fleet/ttl"
	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
)

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		args       []string
		wantErrs   []string // parts of each error, in order
		wantPolicy startup.Policy
	}{
		"without flags the four fatal reasons fail at once and there is no deadline": {
			wantPolicy: startup.Policy{Fatal: map[string]time.Duration{
				"ImagePullBackOff": 0, "InvalidImageName": 0, "CreateContainerConfigError": 0, "CrashLoopBackOff": 0,
			}},
		},
		"a deadline and reasons with and without grace": {
			args: []string{"--agentrun-startup-deadline=10m", "--fatal-waiting-reasons=ImagePullBackOff=2m,InvalidImageName,ErrImageNeverPull=0s"},
			wantPolicy: startup.Policy{Deadline: 10 * time.Minute, Fatal: map[string]time.Duration{
				"ImagePullBackOff": 2 * time.Minute, "InvalidImageName": 0, "ErrImageNeverPull": 0,
			}},
		},
		"no fatal reasons at all leaves only the deadline": {
			args:       []string{"--fatal-waiting-reasons=", "--agentrun-startup-deadline=1m"},
			wantPolicy: startup.Policy{Deadline: time.Minute, Fatal: map[string]time.Duration{}},
		},
		"a negative deadline is refused": {
			args:     []string{"--agentrun-startup-deadline=-1s"},
			wantErrs: []string{"--agentrun-startup-deadline: Invalid value: \"-1s\": must not be negative"},
		},
		"a reason that is no CamelCase word is refused": {
			args:     []string{"--fatal-waiting-reasons=image pull"},
			wantErrs: []string{"--fatal-waiting-reasons: Invalid value: \"image pull\""},
		},
		"a reason that every starting pod shows is refused": {
			args:     []string{"--fatal-waiting-reasons=ContainerCreating,PodInitializing=1h"},
			wantErrs: []string{"ContainerCreating", "PodInitializing=1h"},
		},
		"ErrImagePull is refused in favour of ImagePullBackOff": {
			args:     []string{"--fatal-waiting-reasons=ErrImagePull=1m"},
			wantErrs: []string{"use ImagePullBackOff"},
		},
		"a grace that is no duration, or negative, is refused": {
			args:     []string{"--fatal-waiting-reasons=ImagePullBackOff=soon,CrashLoopBackOff=-1s"},
			wantErrs: []string{`grace "soon"`, `grace "-1s"`},
		},
		"the same reason twice is refused": {
			args:     []string{"--fatal-waiting-reasons=CrashLoopBackOff,CrashLoopBackOff=1m"},
			wantErrs: []string{"Duplicate value: \"CrashLoopBackOff\""},
		},
		"a reason that no container waits on is refused": {
			args:     []string{"--fatal-waiting-reasons=Running,StartupDeadlineExceeded"},
			wantErrs: []string{"no container waits on it", "no container waits on it"},
		},
		"a rate that is no number is refused": {
			args:     []string{"--member-qps=NaN"},
			wantErrs: []string{`--member-qps: Invalid value: "NaN"`},
		},
		"every bad number is named": {
			args:     []string{"--member-qps=0", "--member-burst=0", "--member-cache-limit=1Ki", "--max-concurrent-reconciles=0"},
			wantErrs: []string{"--member-qps", "--member-cache-limit", "--member-burst", "--max-concurrent-reconciles"},
		},
		"a server that is neither a network nor a name is refused": {
			args:     []string{"--member-server-allowlist=10.0.0.0/8,.example.com,10.0.0.256"},
			wantErrs: []string{"--member-server-allowlist: Invalid value"},
		},
		"TTLs that are negative are refused": {
			args: []string{"--agentrun-ttl-after-finished=-1s", "--agentrun-failed-ttl=-1ns"},
			wantErrs: []string{
				`--agentrun-ttl-after-finished: Invalid value: "-1s": must not be negative; 0 keeps finished runs`,
				`--agentrun-failed-ttl: Invalid value: "-1ns": must not be negative; 0 keeps failed runs`,
			},
		},
		"a leader that would never try again to renew is refused": {
			args:     []string{"--leader-elect-retry-period=0s"},
			wantErrs: []string{`--leader-elect-retry-period: Invalid value: "0s": must be greater than 0`},
		},
		"a renew deadline within which nothing is tried again is refused": {
			args:     []string{"--leader-elect-renew-deadline=12s", "--leader-elect-retry-period=10s"},
			wantErrs: []string{`--leader-elect-renew-deadline: Invalid value: "12s": must be greater than 1.2 times --leader-elect-retry-period, 10s`},
		},
		"a lease that may be taken before its leader has given up is refused": {
			args:     []string{"--leader-elect-lease-duration=160s"},
			wantErrs: []string{`--leader-elect-lease-duration: Invalid value: "2m40s": must be, in whole seconds, greater than`},
		},
		"a lease's part of a second does not count": {
			args:     []string{"--leader-elect-lease-duration=5900ms", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"},
			wantErrs: []string{"--leader-elect-lease-duration"},
		},
		"a Lease's namespace that cannot exist is refused": {
			args:     []string{"--leader-elect-resource-namespace=Not_A_Namespace"},
			wantErrs: []string{`--leader-elect-resource-namespace: Invalid value: "Not_A_Namespace"`},
		},
		"what leader election is told does not matter without it": {
			args: []string{"--leader-elect=false", "--leader-elect-lease-duration=1s"},
			wantPolicy: startup.Policy{Fatal: map[string]time.Duration{
				"ImagePullBackOff": 0, "InvalidImageName": 0, "CreateContainerConfigError": 0, "CrashLoopBackOff": 0,
			}},
		},
		"a namespace that cannot exist is refused": {
			args:     []string{"--kubeconfig-secret-namespaces=clusters,Not_A_Namespace"},
			wantErrs: []string{"--kubeconfig-secret-namespaces: Invalid value: \"Not_A_Namespace\""},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...)
			errs := o.Validate()
			if len(errs) != len(tc.wantErrs) {
				t.Fatalf("Validate() = %v, want %d errors", errs, len(tc.wantErrs))
			}
			for i, want := range tc.wantErrs {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("error %d = %q, want it to contain %q", i, errs[i], want)
				}
			}
			if len(errs) > 0 {
				return
			}
			if diff := cmp.Diff(tc.wantPolicy, o.policy()); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o := newOptions()
	fs := pflag.NewFlagSet("fleet-manager", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("Parse(%q): %v", args, err)
	}
	return o
}

func TestTTLPolicy(t *testing.T) {
	cases := map[string]struct {
		args []string
		want ttl.Policy
	}{
		"without flags every run is kept": {},
		"one TTL is for all finished runs": {
			args: []string{"--agentrun-ttl-after-finished=1h"},
			want: ttl.Policy{Succeeded: time.Hour, Failed: time.Hour},
		},
		"failed runs may be kept for longer": {
			args: []string{"--agentrun-ttl-after-finished=1h", "--agentrun-failed-ttl=24h"},
			want: ttl.Policy{Succeeded: time.Hour, Failed: 24 * time.Hour},
		},
		"failed runs may be kept for ever": {
			args: []string{"--agentrun-failed-ttl=0", "--agentrun-ttl-after-finished=1h"},
			want: ttl.Policy{Succeeded: time.Hour},
		},
		"failed runs may be all that goes": {
			args: []string{"--agentrun-failed-ttl=1h"},
			want: ttl.Policy{Failed: time.Hour},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...)
			if errs := o.Validate(); len(errs) > 0 {
				t.Fatalf("Validate() = %v", errs)
			}
			if diff := cmp.Diff(tc.want, o.ttlPolicy()); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMemberPolicy(t *testing.T) {
	cases := map[string]struct {
		args          []string
		proxy, unsafe bool
		refused       string // a kubeconfig's server
		accepted      string
	}{
		"by default members may be anywhere but on the hub's link": {
			refused: "https://169.254.169.254", accepted: "https://192.0.2.1:6443",
		},
		"a list names where they may be": {
			args:    []string{"--member-server-allowlist=169.254.0.0/16,.example.com"},
			refused: "https://192.0.2.1:6443", accepted: "https://c1.example.com",
		},
		"proxies and unverified servers are accepted when asked for": {
			args:  []string{"--allow-member-proxy", "--allow-insecure-members"},
			proxy: true, unsafe: true,
			refused: "https://[fe80::1]:6443", accepted: "https://192.0.2.1:6443",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...)
			policy := o.memberPolicy()
			if policy.AllowProxy != tc.proxy || policy.AllowInsecure != tc.unsafe {
				t.Errorf("policy %+v", policy)
			}
			if _, err := kubeconfigsecret.ParseKubeconfig(kubeconfigTo(tc.refused), policy); err == nil {
				t.Errorf("server %s is accepted", tc.refused)
			}
			if _, err := kubeconfigsecret.ParseKubeconfig(kubeconfigTo(tc.accepted), policy); err != nil {
				t.Errorf("server %s is refused: %v", tc.accepted, err)
			}
		})
	}
}

func kubeconfigTo(server string) []byte {
	return []byte(`{"clusters":[{"name":"a","cluster":{"server":"` + server + `"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"a","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`)
}

func TestEveryFlagHasUsage(t *testing.T) {
	fs := pflag.NewFlagSet("fleet-manager", pflag.ContinueOnError)
	newOptions().AddFlags(fs)
	for _, name := range []string{
		"agentrun-startup-deadline", "fatal-waiting-reasons", "kubeconfig", "kubeconfig-secret-namespaces", "metrics-bind-address",
		"health-probe-bind-address", "member-qps", "member-burst", "member-cache-limit", "max-concurrent-reconciles",
		"allow-member-proxy", "allow-insecure-members", "member-server-allowlist", "agentrun-ttl-after-finished", "agentrun-failed-ttl",
		"leader-elect", "leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period",
		"leader-elect-resource-namespace", "zap-log-level", "zap-encoder",
	} {
		if f := fs.Lookup(name); f == nil || f.Usage == "" {
			t.Errorf("flag --%s: missing, or without usage", name)
		}
	}
}
