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
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// printsMembers compares the tables as text. Beside c1 there are a member whose Secret is
// bad, as something else has made it, one where no manager looks, and a Secret with a CA.
func (s *suite) printsMembers() {
	s.Helper()
	ca := harness.MemberSecret(clusters, "bad", []byte("key"))
	ca.Name = "bad-ca"
	bad, unseen := harness.MemberSecret(clusters, "bad", []byte("kind: Config")), harness.MemberSecret(elsewhere, "unseen", nil)
	for _, secret := range []client.Object{ca, bad, unseen} {
		s.Expect(hubPlane.Client.Create(s.Context(), secret)).To(Succeed())
	}
	s.table([]string{"members"}, `
NAMESPACE   NAME     CONNECTED   REASON              AGE     LAST CONTACT   TOKEN EXPIRES
clusters    bad      False       InvalidKubeconfig   <age>   <none>         <unknown>
clusters    c1       True        Connected           <age>   <age>          <age>
elsewhere   unseen   Unknown     <none>              <age>   <none>         <unknown>
`)
	s.table([]string{"members", "-n", clusters, "-o", "wide"}, `
NAMESPACE   NAME   CONNECTED   REASON              AGE     LAST CONTACT   TOKEN EXPIRES   SINCE   ENDPOINT   MESSAGE
clusters    bad    False       InvalidKubeconfig   <age>   <none>         <unknown>       <age>   <none>     Secret clusters/bad-kubeconfig, key "value": field current-context: not set, with 0 contexts to choose from: set it
clusters    c1     True        Connected           <age>   <age>          <age>           <age>   <url>      The member is watched
`)
	// Whoever may not see Secrets sees what the manager tells.
	s.table([]string{"members", "--context=" + viewer}, `
NAMESPACE   NAME   CONNECTED   REASON              AGE     LAST CONTACT   TOKEN EXPIRES
clusters    bad    False       InvalidKubeconfig   <age>   <none>         <unknown>
clusters    c1     True        Connected           <age>   <age>          <unknown>
`)
	for _, secret := range []client.Object{ca, bad, unseen} {
		s.Expect(hubPlane.Client.Delete(s.Context(), secret)).To(Succeed())
	}
	s.Eventually(func() (string, error) { return s.try("members", "-n", clusters) }).ShouldNot(ContainSubstring("bad"))
	s.table([]string{"members", "-n", "default"}, "No members found")
}

func (s *suite) table(args []string, want string) {
	s.Helper()
	url := c1Plane.URL()
	placeholder := "<url>" + strings.Repeat(" ", len(url)-len("<url>"))
	s.Eventually(func() (string, error) {
		out, err := s.try(args...)
		return strings.TrimSpace(harness.NormalizeAges(strings.ReplaceAll(out, url, placeholder))), err
	}).Should(Equal(strings.TrimSpace(want)))
}

func TestPrintMembers(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	secret := func(expires string) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(48 * time.Hour)}}
		annotate(o, expiryAnnotation, expires)
		return o
	}
	lost := &fleetv1alpha1.AgentRunClusterStatus{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(24 * time.Hour)}}
	contact := ago(90 * time.Minute)
	lost.Status.LastContactTime = &contact
	lost.Status.Conditions = []metav1.Condition{{
		Type: fleetv1alpha1.ConditionConnected, Status: metav1.ConditionUnknown, Reason: "Unreachable", LastTransitionTime: contact,
	}}
	cases := map[string]struct {
		member member
		want   string
	}{
		"a token that will expire": {
			member: member{secret: secret("2026-05-30T12:00:00Z"), status: lost},
			want:   "hub m Unknown Unreachable 2d 90m 90d",
		},
		"a token that has expired": {
			member: member{secret: secret("2026-03-01T12:00:00Z"), status: lost},
			want:   "hub m Unknown Unreachable 2d 90m expired",
		},
		"a Secret that something else wrote": {
			member: member{secret: secret(""), status: lost},
			want:   "hub m Unknown Unreachable 2d 90m <unknown>",
		},
		"an annotation that is no time": {
			member: member{secret: secret("soon"), status: lost},
			want:   "hub m Unknown Unreachable 2d 90m <unknown>",
		},
		"Secrets that may not be listed": {
			member: member{status: lost},
			want:   "hub m Unknown Unreachable 24h 90m <unknown>",
		},
		"a member that no manager has seen": {
			member: member{secret: secret("")},
			want:   "hub m Unknown <none> 2d <none> <unknown>",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.member.ObjectKey = client.ObjectKey{Namespace: "hub", Name: "m"}
			var out strings.Builder
			if err := printMembers(&out, []*member{&tc.member}, false, now); err != nil {
				t.Fatal(err)
			}
			row := strings.Join(strings.Fields(strings.Split(out.String(), "\n")[1]), " ")
			if diff := cmp.Diff(tc.want, row); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
