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

package fleet

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// TestTables compares what kubectl prints, as text. Ages are replaced.
func TestTables(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "east", "west")
	f.join("east", "west")
	f.start()
	east, west := f.members["east"], f.members["west"]
	add := func(m *member, name string, status func(*build.PodWrapper) *build.PodWrapper) {
		run := build.MakeAgentRun(name).Agent("coder").Obj()
		f.WithT.Expect(m.create(t.Context(), run, status(labelled(run).Scheduled()).Obj())).To(Succeed())
	}
	add(east, "bad-image", func(p *build.PodWrapper) *build.PodWrapper {
		return p.Waiting("main", "ImagePullBackOff", "no such tag")
	})
	add(east, "done", func(p *build.PodWrapper) *build.PodWrapper {
		return p.Phase(corev1.PodSucceeded).Terminated("main", "Completed", 0)
	})
	add(east, "at-work", func(p *build.PodWrapper) *build.PodWrapper { return p.Phase(corev1.PodRunning).Running("main") })
	add(west, "bad-image", func(p *build.PodWrapper) *build.PodWrapper {
		return p.Waiting("main", "ImagePullBackOff", "no such tag")
	})
	add(west, "bad-name", func(p *build.PodWrapper) *build.PodWrapper { return p.Waiting("main", "InvalidImageName", "") })

	f.table(f.hub.KubeconfigPath(), []string{"get", "agentrunfleetstatus"}, `
NAME    CLUSTERS   ACTIVE   FAILED   TOTAL FAILED   TOP REASON         COUNT   LAST FAILURE
fleet   2/2        1        3        3              ImagePullBackOff   2       <age>
`)
	f.table(f.hub.KubeconfigPath(), []string{"get", "arfs", "-o", "wide"}, `
NAME    CLUSTERS   ACTIVE   FAILED   TOTAL FAILED   TOP REASON         COUNT   LAST FAILURE   READY   EXACT   PENDING   RUNNING   SUCCEEDED   UNKNOWN   AGE
fleet   2/2        1        3        3              ImagePullBackOff   2       <age>          True    true    0         1         1           0         <age>
`)
	f.table(f.hub.KubeconfigPath(), []string{"get", "arcs", "-A"}, `
NAMESPACE   NAME   CONNECTED   REASON      ACTIVE   FAILED   UNKNOWN   TOTAL FAILED   TOP REASON         COUNT   LAST FAILURE   LAST CONTACT
clusters    east   True        Connected   1        1        0         1              ImagePullBackOff   1       <age>          <age>
clusters    west   True        Connected   0        2        0         2              ImagePullBackOff   1       <age>          <age>
`)
	f.table(east.KubeconfigPath(), []string{"get", "ar"}, `
NAME        AGENT   PHASE       REASON             AGE
at-work     coder   Running     Running            <age>
bad-image   coder   Failed      ImagePullBackOff   <age>
done        coder   Succeeded   Completed          <age>
`)
	f.table(west.KubeconfigPath(), []string{"get", "ar", "bad-image", "-o", "jsonpath={.status.conditions[0].message}"},
		`container "main", image "registry.example/agent:1": no such tag`)
}

func (f *fleet) table(kubeconfig string, args []string, want string) {
	f.Helper()
	f.WithT.Eventually(func() (string, error) {
		out, err := harness.Kubectl(f.Context(), kubeconfig, args...)
		return strings.TrimSpace(harness.NormalizeAges(out)), err
	}).Should(Equal(strings.TrimSpace(want)), "kubectl "+strings.Join(args, " "))
}
