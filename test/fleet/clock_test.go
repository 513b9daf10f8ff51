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
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/gomega"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

// setsClock gives the fleet a manager whose clock the test sets, and each member a front by
// which its clock can be set, too. Members join after it.
func (f *fleet) setsClock() {
	f.Helper()
	var err error
	dir := f.TempDir()
	f.binary, err = harness.BuildManager(f.Context(), dir, harness.OffsetClockTag)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.clockFile = filepath.Join(dir, "ahead")
	f.Setenv(harness.ClockFileEnv, f.clockFile)
	for _, m := range f.members {
		f.putFront(m)
	}
	f.setClock(0)
}

// putFront has the manager reach a member through a front.
func (f *fleet) putFront(m *member) *harness.Front {
	f.Helper()
	user, err := m.AddUser(m.user, "system:masters")
	f.WithT.Expect(err).NotTo(HaveOccurred())
	m.front = harness.NewFront(f.T, user)
	m.proxy.SetTarget(m.front.Addr())
	return m.front
}

// setClock has the whole fleet's clocks ahead of the test's.
func (f *fleet) setClock(ahead time.Duration) {
	f.Helper()
	f.ahead = ahead
	for _, m := range f.members {
		m.front.ShiftDate(ahead)
	}
	next := f.clockFile + ".next"
	f.WithT.Expect(os.WriteFile(next, []byte(ahead.String()), 0o600)).To(Succeed())
	f.WithT.Expect(os.Rename(next, f.clockFile)).To(Succeed())
}

// now is the time by the fleet's clocks.
func (f *fleet) now() time.Time { return time.Now().Add(f.ahead) }
