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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

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
	begun := func(writer, id types.UID, held int32) fleetv1alpha1.FailureLedger {
		return fleetv1alpha1.FailureLedger{Writer: writer, ID: id, Held: held}
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
		"nor this manager's own, which it held when it began the ledger, though the answer was lost": {
			func(b *Book) { b.Read(fleetv1alpha1.FailureLedger{}, ""); b.Read(begun("me", "its", 2), "11") }, 0,
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
		"one of a namespace that was not watched for a while, and goes when it is again, is": {
			func(b *Book) {
				b.Read(inFlight(), "10")
				b.Vanish(e)
				prove(b, listOf("other"))
				b.Read(inFlight(), "10")
				b.Doubt()
				b.Lose(e)
				prove(b, openAt("60"))
				b.Read(inFlight(), "10")
			}, says{Missed: 1, Departed: true},
		},
		"and it waits as long as there is no proof": {
			func(b *Book) {
				b.Read(inFlight(), "10")
				b.Vanish(e)
				prove(b, listOf("other"))
				b.Read(inFlight(), "10")
				b.Doubt()
				b.Lose(e)
				b.Read(inFlight(), "10")
			}, says{Pending: 1, NeedsProof: true, Departed: true},
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

// A ledger that is begun again, or one in whose place another is restored, may be of the
// same writer.
func TestBookOfAnotherLedger(t *testing.T) {
	e := version(failed("e", "E", 1), "50")
	of := func(id types.UID) fleetv1alpha1.FailureLedger {
		return fleetv1alpha1.FailureLedger{Writer: "me", ID: id}
	}
	begun := func(b *Book) { b.Read(of("one"), "10"); prove(b, openAt("40", "e")) }
	cases := map[string]struct {
		steps      func(b *Book)
		wantLedger types.UID
		want       says
	}{
		"what was proved holds for the ledger": {
			func(b *Book) { begun(b); b.Read(of("one"), "12") }, "one", says{MayCount: true},
		},
		"not for another, whose marks are others": {
			func(b *Book) { begun(b); b.Read(of("another"), "12") }, "another", says{NeedsProof: true},
		},
		"nor for none": {
			func(b *Book) { begun(b); b.Read(fleetv1alpha1.FailureLedger{}, "") }, "", says{NeedsProof: true},
		},
		"a proof that was being made then is of no use": {
			func(b *Book) {
				b.Read(of("one"), "10")
				b.ProofStarted()
				b.Read(of("another"), "12")
				b.ProofEnded(openAt("40", "e"))
			}, "another", says{NeedsProof: true},
		},
		"a run that went when it was proved for one waits in another": {
			func(b *Book) { begun(b); b.Lose(e); b.Read(of("another"), "12") }, "another",
			says{NeedsProof: true, Departed: true, Pending: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := &Book{Writer: "me"}
			tc.steps(b)
			if b.Ledger() != tc.wantLedger {
				t.Errorf("ledger %q, want %q", b.Ledger(), tc.wantLedger)
			}
			if diff := cmp.Diff(tc.want, said(b, []Run{e}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the book (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRevived: a run that was counted is moved to another phase, and fails again, before a
// cache shows it.
func TestRevived(t *testing.T) {
	stored := recordedOf(failed("e", "E", 1))
	b := &Book{Writer: "me"}
	look := func(runs ...Run) {
		counted := Of(runs, sets.New(stored.Ledger.InFlight...))
		o := Observation{Tally: &counted, Now: at(600)}
		b.Read(stored.Ledger, "10")
		b.Complete(&o)
		stored = Observe(stored, o)
	}
	look()
	prove(b, openAt("60", "e")) // as Running
	look()
	if diff := cmp.Diff([]types.UID{"e"}, stored.Ledger.InFlight); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
	look(version(failed("e", "E", 2), "61"))
	if stored.TotalFailures != 1 || !stored.TotalExact {
		t.Errorf("total %d, exact %v; want 1, true", stored.TotalFailures, stored.TotalExact)
	}
}
