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

package tally

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// history is a kind of random histories.
type history struct {
	// hubs count the member's failures, one when 0, and each has so many managers at a
	// time; a second one is there by mistake.
	hubs, managers int
	// onlyMarked says that no run is deleted before it has a mark, as the TTL does it.
	onlyMarked bool
	// calm says that managers and connections live for ever.
	calm bool
	// crowd is the number of runs that fail before their marks are granted.
	crowd int
	// revived says that somebody moves failed runs to another phase.
	revived bool
	// limited says that hubs limit the member to namespaces, to others, and not at all.
	limited bool
	// begunAgain says that the hubs' objects are deleted, and so their ledgers.
	begunAgain bool
	// restored says that ledgers that were deleted are restored.
	restored bool
	// crowdedMarks says that other ledgers name themselves on the runs.
	crowdedMarks bool
	// clockBack says that the hubs' clock goes back.
	clockBack bool
	count     int
}

// TestHistories plays random histories, HISTORIES times as many when that is set, with the
// numbers held to the truth after each write, and at the end.
func TestHistories(t *testing.T) {
	cases := map[string]history{
		"runs go once they are marked, managers come and go":                 {managers: 1, onlyMarked: true, count: 400},
		"runs go once they are marked, two managers by mistake":              {managers: 2, onlyMarked: true, count: 200},
		"runs go at any time, one manager stays":                             {managers: 1, calm: true, count: 400},
		"runs go at any time, managers come and go":                          {managers: 1, count: 400},
		"runs go at any time, two managers by mistake":                       {managers: 2, count: 400},
		"more fail than there is room in flight, and managers come and go":   {managers: 2, onlyMarked: true, crowd: 1100, count: 3},
		"more fail than there is room in flight, and runs go at any time":    {managers: 1, calm: true, crowd: 1100, count: 3},
		"runs go once they are marked, and nothing else is out of the order": {managers: 1, onlyMarked: true, calm: true, count: 400},
		"two hubs, one manager of each stays":                                {hubs: 2, managers: 1, calm: true, count: 200},
		"two hubs, runs go once one of them has marked them":                 {hubs: 2, managers: 1, onlyMarked: true, count: 200},
		"two hubs, two managers of each by mistake":                          {hubs: 2, managers: 2, count: 200},
		"nine hubs":                                            {hubs: 9, managers: 1, calm: true, count: 20},
		"runs have no room for all marks":                      {hubs: 2, managers: 1, crowdedMarks: true, count: 200},
		"failed runs are moved to another phase":               {managers: 1, revived: true, count: 1000},
		"failed runs are moved, two managers by mistake":       {managers: 2, revived: true, count: 400},
		"namespaces come and go, one manager stays":            {managers: 1, calm: true, limited: true, count: 400},
		"namespaces come and go, two managers by mistake":      {managers: 2, limited: true, count: 400},
		"ledgers are begun again, one manager stays":           {managers: 1, calm: true, begunAgain: true, count: 400},
		"ledgers are begun again, two hubs, two managers each": {hubs: 2, managers: 2, begunAgain: true, count: 200},
		"ledgers are restored, one manager stays":              {managers: 1, calm: true, begunAgain: true, restored: true, count: 400},
		"the clock goes back":                                  {managers: 2, clockBack: true, count: 400},
		"all of it": {
			hubs: 2, managers: 2, revived: true, limited: true, begunAgain: true, restored: true, crowdedMarks: true, clockBack: true, count: 300,
		},
	}
	times := 1
	if s := os.Getenv("HISTORIES"); s != "" {
		var err error
		if times, err = strconv.Atoi(s); err != nil {
			t.Fatalf("HISTORIES: %v", err)
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(tc.count * times) {
				w := newWorld(t, tc, seed)
				w.play()
				w.settle()
				w.judge()
				if t.Failed() {
					t.Fatalf("seed %d of this kind of history", seed)
				}
			}
		})
	}
}

// play is a history of up to 400 steps.
func (w *world) play() {
	for i := range w.crowd {
		name := fmt.Sprint("crowd", i)
		w.create(name)
		w.fail(name)
	}
	w.marksRefused = w.crowd > 0 || w.rng.IntN(4) == 0
	for _, hub := range w.hubs {
		for range w.history.managers {
			w.managers = append(w.managers, w.start(hub))
		}
	}
	for range w.rng.IntN(400) * len(w.hubs) {
		m := w.managers[w.rng.IntN(len(w.managers))]
		switch w.rng.IntN(8) {
		case 0, 1:
			w.live(m.hub)
		case 2, 3, 4:
			w.see(m)
		case 5, 6:
			w.work(m)
		default:
			w.operate(m)
			if !w.calm {
				w.trouble(m)
			}
		}
	}
}

// live is something that happens in the member, or to the clock.
func (w *world) live(hub *modelHub) {
	name := fmt.Sprint("r", w.rng.IntN(8))
	run := w.member.runs[name]
	switch w.rng.IntN(5) {
	case 0:
		w.create(name)
	case 1:
		w.fail(name)
	case 2:
		if run != nil && (run.Recorded() || !hasFailed(run) || !w.onlyMarked) {
			w.member.remove(run)
		}
	case 3:
		switch {
		case run == nil:
		case w.revived && hasFailed(run):
			w.revive(run)
		case w.crowdedMarks:
			w.markByStrangers(run)
		}
	default:
		w.pass(hub)
	}
}

// pass lets time pass, and more than that at times.
func (w *world) pass(hub *modelHub) {
	w.now = w.now.Add(time.Duration(w.rng.IntN(1000)) * time.Second)
	switch w.rng.IntN(10) {
	case 0:
		w.now = w.now.Add(time.Duration(w.rng.IntN(40)) * time.Hour)
	case 1:
		hub.touch()
	case 2, 3, 4:
		if w.clockBack {
			w.now = w.now.Add(-time.Duration(w.rng.IntN(7200)) * time.Second)
		}
	}
}

// see is a manager that comes to see what happened.
func (w *world) see(m *modelManager) {
	switch w.rng.IntN(8) {
	case 0:
		m.relist()
	case 1, 2, 3:
		m.hubSeen = min(m.hubSeen+1+w.rng.IntN(3), m.hub.last())
	default:
		if w.rng.IntN(m.pace) == 0 {
			m.deliver(1 + w.rng.IntN(6))
		}
	}
}

// work is something that a manager does.
func (w *world) work(m *modelManager) {
	switch w.rng.IntN(7) {
	case 0:
		m.list()
		if w.rng.IntN(2) == 0 {
			m.proved()
		}
	case 1:
		m.proved()
	case 2, 3:
		if w.rng.IntN(2) == 0 {
			m.summarize()
		}
		m.mark(w.rng.IntN(4))
	default:
		becomes := []outcome{written, written, written, unknown, refused, half, killed}[w.rng.IntN(7)]
		if w.calm && becomes == killed {
			becomes = written
		}
		m.sync(becomes)
	}
}

// operate is what people do on a hub.
func (w *world) operate(m *modelManager) {
	switch w.rng.IntN(6) {
	case 0, 1:
		if w.limited {
			m.hub.namespaces = [][]string{nil, {"a"}, {"b"}, {"a", "b"}}[w.rng.IntN(4)]
			m.connect()
		}
	case 2:
		if w.begunAgain {
			m.hub.remove()
			w.remake(m.hub)
		}
	case 3:
		w.remake(m.hub)
	case 4, 5:
		if w.revived {
			w.reviveCounted(m)
		}
	}
}

// reviveCounted moves a run that is in flight to another phase, just before there is a new
// connection, which may not show it yet.
func (w *world) reviveCounted(m *modelManager) {
	status, _ := m.hub.read(m.hub.last())
	inFlight := sets.New(status.Ledger.InFlight...)
	for _, name := range slices.Sorted(maps.Keys(w.member.runs)) {
		if run := w.member.runs[name]; hasFailed(run) && inFlight.Has(run.UID) && !run.Recorded() {
			w.revive(run)
			m.connect()
			return
		}
	}
}

// remake is somebody who makes a hub's object, where there is none.
func (w *world) remake(hub *modelHub) {
	switch w.rng.IntN(4) {
	case 0:
		if w.restored && !hub.exists() {
			hub.restore(w.rng.IntN(100))
		}
	case 1:
		if w.begunAgain && !hub.exists() {
			hub.create()
		}
	}
}

// trouble is what need not happen.
func (w *world) trouble(m *modelManager) {
	switch w.rng.IntN(9) {
	case 0:
		*m = *w.start(m.hub)
	case 1:
		m.disconnect()
	case 2:
		m.connect()
	case 3, 5, 6:
		m.deliverLate(1 + w.rng.IntN(8))
	case 4:
		w.marksRefused = !w.marksRefused
	}
}

// settle lets everything that can be done be done.
func (w *world) settle() {
	w.marksRefused = false
	for _, m := range w.managers {
		m.hub.namespaces = nil
		if m.connection == nil || m.connection.namespaces != nil {
			m.connect()
		}
	}
	for range 40 {
		for _, m := range w.managers {
			m.deliver(len(w.member.changes))
			m.hubSeen = m.hub.last()
			m.sync(written)
			m.list()
			m.proved()
			m.mark(len(m.connection.cache))
		}
	}
}
