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
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// The flood: how much each hostile member delivers, in bytes, and what the manager may
// take meanwhile, as config/manager limits it.
const (
	floodEach   = 192 << 20
	memoryLimit = 512 << 20
)

// TestMembersThatFloodTheHub: three members are engaged, and then their watches deliver one
// large run after another for as long as somebody reads. What the manager takes stays
// within its container's limit, and an honest member is served as before.
func TestMembersThatFloodTheHub(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "460MiB")
	f := newFleet(t, "alpha")
	f.join("alpha")
	floods := map[string]*flood{}
	for _, name := range []string{"flood-1", "flood-2", "flood-3"} {
		front := harness.NewFront(t, f.members["alpha"].Config)
		f.put(name, front.Kubeconfig(""))
		floods[name] = &flood{front: front, run: largeRun(t)}
	}
	f.start()
	for _, name := range []string{"alpha", "flood-1", "flood-2", "flood-3"} {
		f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	}
	for _, flood := range floods {
		flood.front.Answer(flood.answer)
		flood.front.CloseConnections()
	}
	most := 0.0
	f.WithT.Eventually(func() bool {
		most = max(most, f.metric("process_resident_memory_bytes"))
		done := true
		for _, flood := range floods {
			done = done && flood.delivered.Load() >= floodEach
		}
		return done
	}).WithTimeout(5 * harness.EventuallyTimeout).Should(BeTrue())
	t.Logf("%d members have delivered %d MiB each; the manager took %.0f MiB at most", len(floods), floodEach>>20, most/(1<<20))
	f.WithT.Expect(most).To(BeNumerically("<", memoryLimit))
	run := build.MakeAgentRun("honest").Obj()
	f.WithT.Expect(f.members["alpha"].create(f.Context(), run, labelled(run).Waiting("main", "ImagePullBackOff", "no").Obj())).To(Succeed())
	f.WithT.Eventually(f.members["alpha"].run(f.Context(), run.Namespace, run.Name)).Should(harness.HavePhase("Failed"))
}

// flood has one member's watches of AgentRuns deliver runs without end.
type flood struct {
	front     *harness.Front
	run       string
	version   atomic.Int64
	delivered atomic.Int64
}

func (l *flood) answer(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/agentruns") || r.URL.Query().Get("watch") != "true" {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	for r.Context().Err() == nil {
		// Versions as they come after those of the list that a watch goes on from.
		n, err := fmt.Fprintf(w, l.run, l.version.Add(1), 1_000_000+l.version.Load())
		l.delivered.Add(int64(n))
		if err != nil {
			break
		}
	}
	return true
}

// largeRun is an event in JSON, with verbs for a name and a version.
func largeRun(t *testing.T) string {
	t.Helper()
	run := build.MakeAgentRun("NAME").Condition(metav1.Condition{Type: "Odd", Message: strings.Repeat("x", 30_000)}).Obj()
	run.TypeMeta = metav1.TypeMeta{APIVersion: agentv1alpha1.GroupVersion.String(), Kind: "AgentRun"}
	run.ResourceVersion = "VERSION"
	out, err := json.Marshal(event("ADDED", run))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`"NAME"`, `"run-%d"`, `"VERSION"`, `"%d"`).Replace(string(out)) + "\n"
}

// metric is one of the manager's that has no labels; zero when it is not there.
func (f *fleet) metric(name string) float64 {
	metrics, err := f.manager.Metrics(f.Context())
	if err != nil {
		return 0
	}
	for line := range strings.Lines(metrics) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return n
		}
	}
	return 0
}
