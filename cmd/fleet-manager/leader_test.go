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
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestLeaseNamespace(t *testing.T) {
	cases := map[string]struct {
		flag    string
		podFile string // content; empty for none
		want    string
		wantErr string
	}{
		"the flag names it": {flag: "fleet", podFile: "pods", want: "fleet"},
		"it is the pod's":   {podFile: "pods\n", want: "pods"},
		"outside of a pod the flag is required": {
			wantErr: "--leader-elect-resource-namespace: Required value: outside of a pod, name",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "namespace")
			if tc.podFile != "" {
				if err := os.WriteFile(file, []byte(tc.podFile), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := (&options{leaderElectNamespace: tc.flag}).leaseNamespace(file)
			if got != tc.want {
				t.Errorf("leaseNamespace() = %q, want %q", got, tc.want)
			}
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("leaseNamespace(): error %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	cases := map[string]struct {
		name, uid string
		wantPod   string
	}{
		"a pod with name and UID is told from all others": {name: "manager-0", uid: "3ac1", wantPod: "manager-0_3ac1_"},
		"a name alone may come again":                     {name: "manager-0"},
		"outside of a pod there is the host's name":       {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAME", tc.name)
			t.Setenv("POD_UID", tc.uid)
			first, pod, err := newIdentity()
			if err != nil {
				t.Fatal(err)
			}
			second, _, err := newIdentity()
			if err != nil {
				t.Fatal(err)
			}
			if first == second {
				t.Errorf("two processes have the identity %q", first)
			}
			if pod != tc.wantPod || !strings.HasPrefix(first, pod) {
				t.Errorf("newIdentity() = %q of the pod %q, want one of %q", first, pod, tc.wantPod)
			}
		})
	}
}

// What a leader leaves behind tells the others whether its work has ended.
func TestReleaseAfterTheEnd(t *testing.T) {
	cases := map[string]struct {
		ended       error
		wantRelease bool
	}{
		"all work has ended":       {wantRelease: true},
		"work may still go on":     {ended: errors.New("failed waiting for all runnables to end within grace period of 8s")},
		"the Lease could be taken": {ended: errors.New(errLeaderElectionLost)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &lock{lost: make(chan error, 1)}
			l.LeaseMeta.Namespace, l.LeaseMeta.Name = "default", leaseName
			l.LockConfig.Identity = "leader"
			l.Client = fake.NewClientset().CoordinationV1()
			if err := l.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "leader"}); err != nil {
				t.Fatal(err)
			}
			if err := l.after(tc.ended); !errors.Is(err, tc.ended) {
				t.Errorf("after() = %v, want %v", err, tc.ended)
			}
			record, _, err := l.LeaseLock.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if released := record.HolderIdentity == ""; released != tc.wantRelease {
				t.Errorf("the Lease is held by %q, want it released: %t", record.HolderIdentity, tc.wantRelease)
			}
		})
	}
}
