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

package harness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/konveyor/agentrun-fleet/test/build"
)

func TestNormalizeAges(t *testing.T) {
	cases := map[string]struct{ table, want string }{
		"an age in the last column": {
			table: "NAME   AGE\na      12s\nbb     3d4h\n",
			want:  "NAME   AGE\na      <age>\nbb     <age>\n",
		},
		"an age in between, whose width moved the next column": {
			table: "NAME   LAST FAILURE   TOP REASON\na      2m3s           ErrImagePull\n",
			want:  "NAME   LAST FAILURE   TOP REASON\na      <age>          ErrImagePull\n",
		},
		"empty cells and words with blanks stay where they are": {
			table: "NAME   REASON   AGE   MESSAGE\na               5s    no such image 5s ago\n",
			want:  "NAME   REASON   AGE     MESSAGE\na               <age>   no such image 5s ago\n",
		},
		"two tables": {
			table: "NAME   AGE\na      1h\n\nNAME       READY\nlongname   4/5\n",
			want:  "NAME   AGE\na      <age>\n\nNAME       READY\nlongname   4/5\n",
		},
		"what is no age": {
			table: "NAME   AGE\n10     <unknown>\nc5s    <none>\n",
			want:  "NAME   AGE\n10     <unknown>\nc5s    <none>\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, NormalizeAges(tc.table)); diff != "" {
				t.Errorf("Table (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKubectlPrintsATableOfRuns(t *testing.T) {
	g := NewGomega(t)
	g.Expect(member.EnsureNamespace(t.Context(), "tables")).To(gomega.Succeed())
	run := build.MakeAgentRun("a").Namespace("tables").Agent("fixer").Failed("ErrImagePull", "no", time.Now())
	g.Expect(member.CreateRun(t.Context(), run.Obj())).To(gomega.Succeed())
	g.Expect(member.CreateRun(t.Context(), build.MakeAgentRun("b").Namespace("tables").Obj())).To(gomega.Succeed())

	table, err := member.Kubectl(t.Context(), "get", "ar", "-n", "tables")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	want := `NAME   AGENT   PHASE    REASON         AGE
a      fixer   Failed   ErrImagePull   <age>
b      agent                           <age>
`
	if diff := cmp.Diff(want, NormalizeAges(table)); diff != "" {
		t.Errorf("Table (-want +got):\n%s", diff)
	}
}

func TestKubectlTellsWhatItComplainedOf(t *testing.T) {
	_, err := hub.Kubectl(t.Context(), "get", "nonesuch")
	NewGomega(t).Expect(err).To(gomega.MatchError(gomega.ContainSubstring(`resource type "nonesuch"`)))
}
