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

package ledger

import (
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

// stormy is how many lines of errors two managers may write at most. Each is the other's
// conflict, so that there need not be any.
const stormy = 10

// TestTwoManagersByMistake: without leader election, two processes serve the same members
// with the rights of one, and delete runs as soon as they are recorded. Each failure is
// counted once.
func TestTwoManagersByMistake(t *testing.T) {
	t.Parallel()
	f := newFleet(t, []harness.Option{harness.WithAudit}, "alpha", "beta")
	f.join(f.names...)
	w := f.workload(new(int32(0)), endings...)
	one, other := f.newPod("one"), f.newPod("other")
	begun := time.Now()
	for _, p := range []*pod{one, other} {
		p.start("--leader-elect=false")
	}
	f.connected(f.names...)
	for range 6 {
		f.Expect(<-f.begin(w.draw(50))).To(Succeed())
	}
	f.comesTo(w.truth)
	f.empty()
	t.Logf("%d failures recorded by two managers in %s", w.failures(), time.Since(begun).Round(time.Second))

	for _, p := range []*pod{one, other} {
		f.Expect(f.answered(f.hub, p.name, http.StatusForbidden)).To(BeEmpty())
	}
	for _, name := range f.names {
		f.Expect(f.answered(f.members[name].ControlPlane, fleetUser, http.StatusForbidden)).To(BeEmpty(), name)
	}
	for _, p := range []*pod{one, other} {
		writes, err := f.hub.Requests(harness.ByUser(p.name), harness.WithVerb("update"), harness.OnResource("agentrunclusterstatuses/status"))
		f.Expect(err).NotTo(HaveOccurred())
		t.Logf("%s wrote members' objects %d times, and met %d conflicts on the hub", p.name, len(writes), len(f.answered(f.hub, p.name, http.StatusConflict)))
		f.Expect(writes).NotTo(BeEmpty(), "%s has not taken part", p.name)
		f.Expect(len(p.errorLines())).To(BeNumerically("<=", stormy), "%q", p.errorLines())
		f.Expect(p.Exited()).NotTo(BeClosed())
	}
}

// answered are the requests of a user that were answered with a status.
func (f *fleet) answered(cp *harness.ControlPlane, user string, code int32) []harness.Request {
	f.Helper()
	requests, err := cp.Requests(harness.ByUser(user))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(requests).NotTo(BeEmpty(), "%s has asked for nothing", user)
	return slices.DeleteFunc(requests, func(r harness.Request) bool { return r.Code != code })
}
