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
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// What the manager before held in memory alone is missed when another takes over.
func TestBookTakesOver(t *testing.T) {
	holding := func(held int32) fleetv1alpha1.FailureLedger {
		return fleetv1alpha1.FailureLedger{Writer: "other", Held: held}
	}
	own := func(held int32, missed int64) fleetv1alpha1.FailureLedger {
		return fleetv1alpha1.FailureLedger{Writer: "me", Held: held, Missed: missed}
	}
	cases := map[string]struct {
		steps func(b *Book)
		want  int64
	}{
		"what another held is missed": {
			func(b *Book) { b.Read(holding(2), "10") }, 2,
		},
		"it is what that one said last": {
			func(b *Book) { b.Read(holding(2), "10"); b.Read(holding(1), "11") }, 1,
		},
		"it is said once": {
			func(b *Book) { b.Read(holding(2), "10"); b.Wrote(own(0, 2)); b.Read(own(0, 2), "11") }, 0,
		},
		"also when the answer to the write was lost": {
			func(b *Book) { b.Read(holding(2), "10"); b.Read(own(0, 2), "11") }, 0,
		},
		"not of one that works beside this manager, and may count it yet": {
			func(b *Book) { b.Read(holding(0), "10"); b.Wrote(own(0, 0)); b.Read(holding(3), "12") }, 0,
		},
		"this manager's own, which it forgot, are missed too": {
			func(b *Book) { b.Read(own(0, 0), "10"); b.Wrote(own(2, 0)); b.Forget(); b.Read(own(2, 0), "12") }, 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := &Book{Writer: "me"}
			tc.steps(b)
			var o Observation
			b.Complete(&o)
			if o.Missed != tc.want {
				t.Errorf("%d are missed, want %d", o.Missed, tc.want)
			}
		})
	}
}

// TestHeld: what waits for room is held in memory alone when its run is gone.
func TestHeld(t *testing.T) {
	var full []Run
	for i := range fleetv1alpha1.MaxInFlight {
		full = append(full, failed(fmt.Sprint("u", i), "E", i))
	}
	stored := recordedOf(full...)
	more := slices.Concat(full, []Run{failed("exists", "E", 1)})
	got := Observe(stored, seen(Observation{MayCount: always, Gone: []Run{failed("a", "E", 1), failed("b", "E", 1)}, Pending: 3}, stored, more...))
	if got.Ledger.Waiting != 6 || got.Ledger.Held != 5 || got.TotalExact {
		t.Errorf("waiting %d, held %d, exact %v; want 6, 5, false", got.Ledger.Waiting, got.Ledger.Held, got.TotalExact)
	}
	if next := Observe(got, seen(Observation{MayCount: always}, got, more...)); next.Ledger.Held != 0 || next.Ledger.Waiting != 1 {
		t.Errorf("later: waiting %d, held %d; want 1, 0", next.Ledger.Waiting, next.Ledger.Held)
	}
}

// What another connection does not show may be shown by the next one.
func TestBookVanish(t *testing.T) {
	e := version(failed("e", "E", 1), "50")
	cases := map[string]struct {
		steps func(b *Book)
		want  says
	}{
		"a counted run that is not shown any more needs a proof to leave": {
			func(b *Book) { b.Read(inFlight("e"), "10"); b.Vanish(e) }, says{NeedsProof: true},
		},
		"which its namespace must be in": {
			func(b *Book) { b.Read(limited([]string{"ns"}, "e"), "10"); b.Vanish(e); prove(b, listOf("other")) }, says{},
		},
		"and which must not show it": {
			func(b *Book) { b.Read(inFlight("e"), "10"); b.Vanish(e); prove(b, openAt("40", "e")) }, says{MayCount: true},
		},
		"it leaves when its deletion is seen after all": {
			func(b *Book) { b.Read(inFlight("e"), "10"); b.Vanish(e); b.Lose(e) }, says{Departed: true},
		},
		"one whose deletion was seen stays gone": {
			func(b *Book) { b.Read(inFlight("e"), "10"); b.Lose(e); b.Vanish(e) }, says{Departed: true},
		},
		"one that was not counted, of a namespace that is not watched any more, is not missed": {
			func(b *Book) {
				b.Read(inFlight(), "10")
				b.Vanish(e)
				prove(b, listOf("other"))
				b.Read(inFlight(), "10")
			}, says{},
		},
		"one of a namespace that is watched, and which the list does not show, is": {
			func(b *Book) {
				b.Read(inFlight(), "10")
				b.Vanish(e)
				prove(b, listOf(e.Namespace))
				b.Read(inFlight(), "10")
			}, says{Missed: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := &Book{Writer: "me"}
			tc.steps(b)
			if diff := cmp.Diff(tc.want, said(b, nil), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the book (-want +got):\n%s", diff)
			}
		})
	}
}
