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
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// version is a run at a resourceVersion.
func version(run Run, v string) Run {
	run.Version = v
	return run
}

// mine is a ledger that the test's Book wrote.
func mine(uids ...types.UID) fleetv1alpha1.FailureLedger {
	return fleetv1alpha1.FailureLedger{Writer: "me", InFlight: uids}
}

func inFlight(uids ...types.UID) fleetv1alpha1.FailureLedger {
	return fleetv1alpha1.FailureLedger{InFlight: uids}
}

func openAt(since string, open ...types.UID) *Proof {
	return &Proof{Since: map[string]string{"": since}, Open: sets.New(open...)}
}

func TestProofMayCount(t *testing.T) {
	whole := openAt("100", "open")
	some := &Proof{Since: map[string]string{"ns": "100", "other": "300"}, Open: sets.New[types.UID]("open")}
	cases := map[string]struct {
		proof *Proof
		run   Run
		want  bool
	}{
		"a run that the list showed without a mark, as it was then":         {whole, version(failed("open", "E", 1), "7"), true},
		"a run that the list did not show without a mark, as it was before": {whole, version(failed("e", "E", 1), "99"), false},
		"as it was at the time of the list":                                 {whole, version(failed("e", "E", 1), "100"), false},
		"a run as it was after the list":                                    {whole, version(failed("e", "E", 1), "101"), true},
		"a longer version is a later one":                                   {whole, version(failed("e", "E", 1), "1000"), true},
		"a run without a version":                                           {whole, failed("e", "E", 1), false},
		"a version that is no number":                                       {whole, version(failed("e", "E", 1), "1a"), false},
		"a list of the run's namespace counts where there are several":      {some, version(failed("e", "E", 1), "101"), true},
		"and is not that of another":                                        {some, version(failed("e", "E", 1), "99"), false},
		"a list of other namespaces proves nothing": {
			&Proof{Since: map[string]string{"other": "1"}}, version(failed("e", "E", 1), "101"), false,
		},
		"a list that is not there proves nothing": {&Proof{}, version(failed("e", "E", 1), "101"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.proof.MayCount(tc.run); got != tc.want {
				t.Errorf("MayCount = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestProofDeparted(t *testing.T) {
	proof := openAt("100", "open")
	if proof.Departed("open") {
		t.Error("a run that the list showed without a mark is said to be gone")
	}
	if !proof.Departed("e") {
		t.Error("a run that the list did not show is not said to be gone")
	}
}

// says is what a Book says of a member whose only run may be e.
type says struct {
	MayCount, Departed, NeedsProof bool
	Gone                           []types.UID
	Missed                         int64
	Pending                        int32
	Unsettled                      bool
}

func TestBook(t *testing.T) {
	e := version(failed("e", "E", 1), "50")
	cases := map[string]struct {
		steps func(b *Book)
		runs  []Run
		want  says
	}{
		"without runs and failures nothing needs a proof": {
			steps: func(b *Book) { b.Read(inFlight(), "10") },
		},
		"a failure that is not in flight needs one": {
			steps: func(b *Book) { b.Read(inFlight(), "10") },
			runs:  []Run{e},
			want:  says{NeedsProof: true},
		},
		"not while one is being made": {
			steps: func(b *Book) { b.Read(inFlight(), "10"); b.ProofStarted() },
			runs:  []Run{e},
		},
		"again when it could not be made": {
			steps: func(b *Book) { b.Read(inFlight(), "10"); b.ProofStarted(); b.ProofEnded(nil) },
			runs:  []Run{e},
			want:  says{NeedsProof: true},
		},
		"a run in flight that wants its mark needs none": {
			steps: func(b *Book) { b.Read(inFlight("e"), "10") },
			runs:  []Run{e},
		},
		"one that has its mark needs none": {
			steps: func(b *Book) { b.Read(inFlight("e"), "10") },
			runs:  []Run{marked(e)},
		},
		"one that is not seen does": {
			steps: func(b *Book) { b.Read(inFlight("e"), "10") },
			want:  says{NeedsProof: true},
		},
		"one that was seen to go does not, since that is certain": {
			steps: func(b *Book) { b.Read(inFlight("e"), "10"); b.Lose(e) },
			want:  says{Departed: true},
		},
		"what was proved holds for the version": {
			steps: func(b *Book) { proved(b, openAt("40", "e")); b.Read(inFlight(), "10") },
			runs:  []Run{e},
			want:  says{MayCount: true},
		},
		"and for those that this manager makes of it": {
			steps: func(b *Book) {
				proved(b, openAt("40", "e"))
				b.Read(mine(), "12")
			},
			runs: []Run{e},
			want: says{MayCount: true},
		},
		"also while it is being made": {
			steps: func(b *Book) {
				b.Read(inFlight(), "10")
				b.ProofStarted()
				b.Read(mine(), "12")
				b.ProofEnded(openAt("40", "e"))
			},
			runs: []Run{e},
			want: says{MayCount: true},
		},
		"not for those that somebody else makes": {
			steps: func(b *Book) { proved(b, openAt("40", "e")); b.Read(inFlight(), "11") },
			runs:  []Run{e},
			want:  says{NeedsProof: true},
		},
		"a proof that was being made then is of no use": {
			steps: func(b *Book) {
				b.Read(inFlight(), "10")
				b.ProofStarted()
				b.Read(inFlight(), "11")
				b.ProofEnded(openAt("40", "e"))
			},
			runs: []Run{e},
			want: says{NeedsProof: true},
		},
		"not for another connection": {
			steps: func(b *Book) { proved(b, openAt("40", "e")); b.Doubt() },
			runs:  []Run{e},
			want:  says{NeedsProof: true},
		},
		"nor one that was being made for a member that is forgotten": {
			steps: func(b *Book) {
				b.Read(inFlight("e"), "10")
				b.ProofStarted()
				b.Forget()
				b.ProofEnded(openAt("40", "e"))
			},
			runs: []Run{e},
			want: says{NeedsProof: true},
		},
		"a run that went when there was no proof needs one": {
			steps: func(b *Book) { b.Read(inFlight(), "10"); b.Lose(e) },
			want:  says{NeedsProof: true, Departed: true, Pending: 1},
		},
		"it may be counted when a list showed it": {
			steps: func(b *Book) {
				b.Read(inFlight(), "10")
				b.ProofStarted()
				b.Lose(e)
				b.ProofEnded(openAt("60", "e"))
				b.Read(inFlight(), "10")
			},
			want: says{MayCount: true, Departed: true, Gone: []types.UID{"e"}},
		},
		"it is missed when that cannot be proved any more": {
			steps: func(b *Book) {
				b.Read(inFlight(), "10")
				b.Lose(e)
				proved(b, openAt("60"))
				b.Read(inFlight(), "10")
			},
			want: says{Missed: 1, Departed: true},
		},
		"what was missed is taken off when the hub has it": {
			steps: func(b *Book) {
				b.Read(inFlight(), "10")
				b.Lose(e)
				proved(b, openAt("60"))
				b.Read(inFlight(), "10")
				b.Read(fleetv1alpha1.FailureLedger{Writer: "me", Missed: 1}, "12")
			},
			want: says{Departed: true},
		},
		"it is taken off once, also when others write before that is read": {
			steps: func(b *Book) {
				b.Read(inFlight(), "10")
				b.Lose(e)
				proved(b, openAt("60"))
				b.Read(inFlight(), "10")
				b.Wrote(fleetv1alpha1.FailureLedger{Writer: "me", Missed: 1})
				b.Read(inFlight(), "10") // the cache is behind
				b.missed++
				b.Read(fleetv1alpha1.FailureLedger{Writer: "me", Missed: 1}, "12")
				b.Read(fleetv1alpha1.FailureLedger{Writer: "other", Missed: 1}, "13")
			},
			want: says{Missed: 1, Departed: false},
		},
		"what the hub had before is no news": {
			steps: func(b *Book) {
				b.Read(fleetv1alpha1.FailureLedger{Missed: 7}, "10")
				b.Lose(e)
				b.ProofStarted()
				b.ProofEnded(openAt("60"))
				b.Read(fleetv1alpha1.FailureLedger{Missed: 7}, "10")
				b.Read(fleetv1alpha1.FailureLedger{Writer: "me", Missed: 7}, "12")
			},
			want: says{Missed: 1, Departed: true},
		},
		"nor is what it had before the member was forgotten": {
			steps: func(b *Book) {
				b.Forget()
				b.Read(fleetv1alpha1.FailureLedger{Writer: "me", Missed: 7}, "12")
			},
		},
		"a run that went when it was proved may be counted, over another connection too": {
			steps: func(b *Book) { proved(b, openAt("40")); b.Lose(e); b.Doubt(); b.Read(inFlight(), "10") },
			want:  says{Gone: []types.UID{"e"}, Departed: true},
		},
		"but not when somebody else wrote": {
			steps: func(b *Book) { proved(b, openAt("40")); b.Lose(e); b.Read(inFlight(), "11") },
			want:  says{NeedsProof: true, Departed: true, Pending: 1},
		},
		"a run that went is done with when it has been in flight": {
			steps: func(b *Book) {
				proved(b, openAt("40", "e"))
				b.Lose(e)
				b.Read(mine("e"), "12")
				b.Read(mine(), "13")
			},
			want: says{MayCount: true},
		},
		"a run that went is told of by two connections": {
			steps: func(b *Book) {
				proved(b, openAt("40", "e"))
				b.Lose(e)
				b.Read(mine("e"), "12")
				b.Lose(e)
				b.Read(mine(), "13")
				b.Lose(e)
			},
			want: says{MayCount: true},
		},
		"a run that went with its mark is on record": {
			steps: func(b *Book) { proved(b, openAt("40", "e")); b.Lose(marked(e)); b.Read(inFlight(), "10") },
			want:  says{MayCount: true},
		},
		"and is not listened to when a cache that is behind tells of it as it was": {
			steps: func(b *Book) {
				proved(b, openAt("40", "e"))
				b.Lose(marked(e))
				b.Read(inFlight(), "10")
				b.Lose(e)
			},
			want: says{MayCount: true},
		},
		"a failure that the proof says nothing of is not settled": {
			steps: func(b *Book) { proved(b, openAt("60")) },
			runs:  []Run{e},
			want:  says{Departed: true, Unsettled: true},
		},
		"a run in flight of a namespace that was not listed may still be there": {
			steps: func(b *Book) { b.Read(limited(nil, "e"), "10"); prove(b, listOf("a")) },
		},
		"nor is it gone when some that it may be of were not": {
			steps: func(b *Book) { b.Read(limited([]string{"a", "b"}, "e"), "10"); prove(b, listOf("a")) },
		},
		"it is when all were": {
			steps: func(b *Book) { b.Read(limited([]string{"a"}, "e"), "10"); prove(b, listOf("a", "b")) },
			want:  says{Departed: true},
		},
		"and when the whole member was": {
			steps: func(b *Book) { b.Read(limited([]string{"a"}, "e"), "10"); prove(b, openAt("60")) },
			want:  says{Departed: true},
		},
		"a run that went and had not failed is of no interest": {
			steps: func(b *Book) { b.Read(inFlight(), "10"); b.Lose(Run{UID: "e", Phase: "Running"}) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := &Book{Writer: "me"}
			tc.steps(b)
			if diff := cmp.Diff(tc.want, said(b, tc.runs), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the book (-want +got):\n%s", diff)
			}
		})
	}
}

// proved gives a book a proof for version 10.
func proved(b *Book, proof *Proof) {
	b.Read(inFlight(), "10")
	prove(b, proof)
}

func prove(b *Book, proof *Proof) {
	b.ProofStarted()
	b.ProofEnded(proof)
}

// limited is a ledger of a member that was limited to namespaces.
func limited(namespaces []string, uids ...types.UID) fleetv1alpha1.FailureLedger {
	return fleetv1alpha1.FailureLedger{InFlight: uids, Namespaces: namespaces}
}

// listOf is a proof of some namespaces that showed nothing.
func listOf(namespaces ...string) *Proof {
	p := &Proof{Since: map[string]string{}}
	for _, namespace := range namespaces {
		p.Since[namespace] = "60"
	}
	return p
}

func said(b *Book, runs []Run) says {
	var o Observation
	b.Complete(&o)
	s := says{Pending: o.Pending, Unsettled: b.Unsettled(Of(runs, b.inFlight)), NeedsProof: b.NeedsProof(Of(runs, b.inFlight)), Departed: o.Departed("e"), Missed: o.Missed}
	s.MayCount = o.MayCount != nil && o.MayCount(version(failed("e", "E", 1), "40"))
	for _, run := range o.Gone {
		s.Gone = append(s.Gone, run.UID)
	}
	return s
}

func TestBookBoundsTheGone(t *testing.T) {
	b := &Book{Writer: "me"}
	b.Read(inFlight("counted"), "10")
	for i := range maxGone {
		b.Lose(failed(fmt.Sprint("u", i), "E", 1))
	}
	b.Lose(failed("counted", "E", 1))
	b.Lose(marked(failed("marked", "E", 1)))
	b.Lose(failed("one", "E", 1))
	var o Observation
	b.Complete(&o)
	if len(b.gone) != maxGone || o.Missed != 1 {
		t.Errorf("%d are held and %d are missed, want %d and 1", len(b.gone), o.Missed, maxGone)
	}
}

func TestBookBoundsTheDone(t *testing.T) {
	b := &Book{Writer: "me"}
	proved(b, openAt("40"))
	for i := range maxGone + 1 {
		b.Lose(version(failed(fmt.Sprint("u", i), "E", 1), "7"))
		b.Read(inFlight(), "10")
	}
	var o Observation
	b.Complete(&o)
	if o.Missed != maxGone+1 || b.done.Len() != 0 || o.MayCount != nil {
		t.Errorf("%d are missed, %d held, proof %v; want all, none, no", o.Missed, b.done.Len(), o.MayCount != nil)
	}
}

func TestBookToMark(t *testing.T) {
	e, f := failed("e", "E", 1), failed("f", "F", 1)
	b := &Book{Writer: "me"}
	if got := b.ToMark(Of([]Run{e}, nil)); got != nil || b.InFlight("e") {
		t.Errorf("before anything was read: %v", got)
	}
	b.Read(inFlight("e", "gone"), "10")
	if diff := cmp.Diff([]Run{e}, b.ToMark(Of([]Run{e, f}, b.inFlight))); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
	if !b.InFlight("e") || b.InFlight("f") {
		t.Errorf("recorded: e %v, f %v; want e alone", b.InFlight("e"), b.InFlight("f"))
	}
	b.Read(inFlight("e", "f"), "11")
	if diff := cmp.Diff([]Run{f}, b.ToMark(Of([]Run{e, f}, b.inFlight))); diff != "" {
		t.Errorf("the second time (-want +got):\n%s", diff)
	}
}
