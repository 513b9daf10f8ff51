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

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

const (
	// clusters is the hub's namespace that holds the members' Secrets.
	clusters = "clusters"
	// stopLimit is how long the manager may take to end.
	stopLimit = 10 * time.Second
	// defaultDuration is how long faults are injected where CHAOS_DURATION does not say.
	defaultDuration = 40 * time.Second
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // envtest's
	os.Exit(m.Run())
}

// fleet is a hub with its manager, and the members.
type fleet struct {
	plan     plan
	clock    clock
	hub      *harness.ControlPlane
	members  []*member
	injected tallyOf

	binary  string
	dir     string // of the logs
	manager *harness.Manager
	logs    []string
}

// member is a member cluster, its runs and the hub's way to it.
type member struct {
	*harness.ControlPlane
	hub        *harness.ControlPlane
	proxy      *harness.Proxy
	recorder   *recorder
	kubeconfig []byte // the good one
	users      int

	// serving is held while the API server is away, and by whoever needs it.
	serving sync.Mutex
	lives   map[types.UID]*life
}

// clock tells the time since the plan began.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

// until waits for a time of the plan; one that has passed is now.
func (c clock) until(ctx context.Context, at time.Duration) error {
	timer := time.NewTimer(at - c.now())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// seedAndDuration are the environment's; the seed is random where it is not set.
func seedAndDuration(t *testing.T) (uint64, time.Duration) {
	t.Helper()
	seed, duration := uint64(time.Now().UnixNano()), defaultDuration
	var err error
	if s := os.Getenv("CHAOS_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("CHAOS_SEED is no unsigned number: %v", err)
		}
	}
	if s := os.Getenv("CHAOS_DURATION"); s != "" {
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatalf("CHAOS_DURATION is no duration such as 10m: %v", err)
		}
	}
	return seed, duration
}

// newFleet starts a hub, members and the manager, and waits for nothing more.
func newFleet(t *testing.T, p plan) *fleet {
	t.Helper()
	g := harness.NewGomega(t)
	f := &fleet{plan: p, dir: t.TempDir(), injected: tallyOf{counts: map[kind]int{}}}
	hubOptions, err := harness.HubOptions()
	g.Expect(err).NotTo(HaveOccurred())
	options := []harness.Options{hubOptions}
	for _, name := range p.members {
		o, err := harness.MemberOptions(name)
		g.Expect(err).NotTo(HaveOccurred())
		options = append(options, o)
	}
	planes := harness.NewControlPlanes(t, options...)
	f.hub = planes[0]
	g.Expect(f.hub.EnsureNamespace(t.Context(), clusters)).To(Succeed())
	for _, plane := range planes[1:] {
		m := &member{
			ControlPlane: plane, hub: f.hub, proxy: harness.NewProxy(t, plane),
			recorder: &recorder{runs: map[types.UID]*record{}}, lives: map[types.UID]*life{},
		}
		f.members = append(f.members, m)
		g.Expect(m.rotate(t.Context())).To(Succeed())
	}
	f.binary, err = harness.BuildManager(t.Context(), f.dir)
	g.Expect(err).NotTo(HaveOccurred())
	f.superviseManager(t)
	return f
}

// superviseManager starts the manager, and sees in the end that it stops in time and
// what its logs hold.
func (f *fleet) superviseManager(t *testing.T) {
	t.Helper()
	if err := f.startManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.managerLives(); err != nil {
			t.Error(err)
		}
		if _, err := f.manager.Stop(stopLimit); err != nil {
			t.Errorf("Stopping the manager: %v", err)
		}
		if err := checkLogs(f.logs); err != nil {
			t.Error(err)
		}
	})
}

func (f *fleet) startManager(ctx context.Context) error {
	logFile := filepath.Join(f.dir, fmt.Sprintf("manager-%d.log", len(f.logs)+1))
	manager, err := harness.StartManager(ctx, f.binary, f.hub.KubeconfigPath(), logFile)
	if err != nil {
		return err
	}
	f.manager, f.logs = manager, append(f.logs, logFile)
	return nil
}

// managerLives is an error when the manager has ended by itself.
func (f *fleet) managerLives() error {
	select {
	case <-f.manager.Exited():
		return errors.New("the manager has ended by itself")
	default:
		return nil
	}
}
