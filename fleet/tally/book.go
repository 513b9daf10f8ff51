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
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// maxGone bounds the failures of deleted runs that a Book holds until the hub has
// taken them, and the UIDs of those that it has.
const maxGone = 10_000

// Book is what a manager holds in memory of a member to keep its ledger, beside what
// the hub stores. It is not safe for concurrent use.
type Book struct {
	// Writer tells this manager's writes of the ledger from those of any other process.
	// It must not be empty.
	Writer types.UID

	// gone are failed runs that were deleted and may have to be counted still, or to
	// leave the ones in flight.
	gone map[types.UID]*goneRun
	// done are those of which nothing is left to do. Whoever tells of one again, from a
	// cache that is behind, is not listened to.
	done sets.Set[types.UID]
	// missed are failures that there was no room for in gone, or of which it cannot be
	// told any more whether they are on record. The hub had onHub of them when last read.
	missed, onHub int64
	// inherited are those of missed that the manager before held in memory, as the hub says.
	// It may say otherwise still until this manager took over, by its first write.
	inherited int64
	took      bool
	// inFlight are those of the hub's object as last read, told those of them that
	// ToMark has returned.
	inFlight, told sets.Set[types.UID]
	// scope is what inFlight may be of: the ledger's namespaces. ledger is its ID.
	scope  []string
	ledger types.UID
	// version is that of the hub's object as last read. What has been proved holds until
	// one is read that another writer left: this manager writes only upon what it read.
	version string
	// read says that the hub has been read, though there may have been no object.
	read bool
	// proof is of the connection's cache. Nil when there is none.
	proof *Proof
	// proving says that a proof is being made, void that it will be of no use.
	proving, void bool
}

// goneRun is a failed run that was deleted.
type goneRun struct {
	Run
	// counted says that it was seen in flight.
	counted bool
	// open says that it is proved not to be on record unless it is in flight.
	open bool
	// vanished says that its deletion was not seen: another connection does not show it.
	// unwatched says that none will: its namespace is not watched any more, or not now.
	vanished, unwatched bool
}

// InFlight says whether the run with that UID is in flight: in the totals, and without
// its mark as far as is known.
func (b *Book) InFlight(uid types.UID) bool { return b.inFlight.Has(uid) }

// Ledger is the ID of the ledger as last read, which those in flight are of.
func (b *Book) Ledger() types.UID { return b.ledger }

// Read takes note of what the hub stores of the ledger, in which version of its object.
// So it learns of this manager's own writes too, also when the answer was lost.
func (b *Book) Read(ledger fleetv1alpha1.FailureLedger, version string) {
	b.inFlight, b.scope = sets.New(ledger.InFlight...), ledger.Namespaces
	b.told = b.told.Intersection(b.inFlight)
	if b.done == nil {
		b.done = sets.New[types.UID]()
	}
	switch {
	case version == b.version:
	case b.read && ledger.Writer == b.Writer && (ledger.ID == b.ledger || b.ledger == ""): // begun by this manager
		b.Wrote(ledger)
	default:
		b.Doubt()
		for _, run := range b.gone {
			run.open = false
		}
		b.inherit(ledger)
	}
	b.version, b.ledger, b.read = version, ledger.ID, true
	for uid, run := range b.gone {
		if !b.settled(run) {
			continue
		}
		delete(b.gone, uid)
		if !run.unwatched { // or else it may come back
			b.done.Insert(uid)
		}
	}
	if b.done.Len() > maxGone {
		b.done = nil
		b.Doubt() // a later list does not take them for open
	}
}

// inherit takes note of a ledger that another manager wrote, or this one before it forgot.
func (b *Book) inherit(ledger fleetv1alpha1.FailureLedger) {
	b.onHub = ledger.Missed
	if !b.took {
		b.missed += int64(ledger.Held) - b.inherited
		b.inherited = int64(ledger.Held)
	}
}

// Wrote takes note that this manager wrote the ledger. What it missed is said then, and
// must not be said again though others write too.
func (b *Book) Wrote(ledger fleetv1alpha1.FailureLedger) {
	b.missed = max(0, b.missed-max(0, ledger.Missed-b.onHub))
	b.onHub, b.took = ledger.Missed, true
}

// settled says whether nothing is left to do about a run that is gone.
func (b *Book) settled(run *goneRun) bool {
	switch {
	case b.inFlight.Has(run.UID):
		run.counted = true
		return false
	case run.counted, run.Marked:
		return true
	case b.proof == nil:
		return false
	case run.vanished && !b.proof.Covers([]string{run.Namespace}):
		run.unwatched = true
		return true
	}
	run.open = run.open || b.proof.MayCount(run.Run)
	if !run.open { // and never will be: the run does not exist any more
		b.missed++
	}
	return !run.open
}

// Lose takes note of a failed run that is no more, with its Version.
func (b *Book) Lose(run Run) {
	switch {
	case b.gone[run.UID] != nil:
		b.gone[run.UID].vanished = false
	case !run.failed(), b.done.Has(run.UID):
	case len(b.gone) < maxGone:
		if b.gone == nil {
			b.gone = map[types.UID]*goneRun{}
		}
		run.Message = text.Shorten(run.Message, maxMessage) // it may be held for long
		b.gone[run.UID] = &goneRun{Run: run, open: b.proof != nil && b.proof.MayCount(run)}
	case !run.Marked && !b.inFlight.Has(run.UID):
		b.missed++
	}
}

// Vanish takes note of a failed run that another connection does not show.
func (b *Book) Vanish(run Run) {
	if b.gone[run.UID] != nil {
		return
	}
	b.Lose(run)
	if gone := b.gone[run.UID]; gone != nil {
		gone.vanished = true
	}
}

// Complete fills into an observation what the book knows of what may be put on record.
func (b *Book) Complete(o *Observation) {
	o.Record, o.Writer, o.Missed = true, b.Writer, b.missed
	for _, run := range b.gone {
		switch {
		case run.counted, run.Marked, b.inFlight.Has(run.UID):
		case run.open:
			o.Gone = append(o.Gone, run.Run)
		default:
			o.Pending++
		}
	}
	o.Departed = func(uid types.UID) bool {
		return b.gone[uid] != nil && !b.gone[uid].vanished || (b.proof != nil && b.proof.Covers(b.scope) && b.proof.Departed(uid))
	}
	if b.proof != nil {
		o.MayCount, o.Scope = b.proof.MayCount, b.proof.Namespaces()
	}
}

// Unsettled says whether there is a failure that the proof says nothing of: one in a
// cache that is behind, or in a member whose resourceVersions have gone back.
func (b *Book) Unsettled(t Tally) bool {
	return b.proof != nil && slices.ContainsFunc(t.Unmarked, func(run Run) bool {
		return run.failed() && !b.inFlight.Has(run.UID) && !b.proof.MayCount(run)
	})
}

// ToMark returns the runs in flight that want their mark, each once.
func (b *Book) ToMark(t Tally) []Run {
	var out []Run
	for _, run := range t.Unmarked {
		if b.inFlight.Has(run.UID) && !b.told.Has(run.UID) {
			b.told.Insert(run.UID)
			out = append(out, run)
		}
	}
	return out
}

// NeedsProof says whether there is something that only a Proof can settle, and none is
// there or being made.
func (b *Book) NeedsProof(t Tally) bool {
	if b.proof != nil || b.proving {
		return false
	}
	unseen := b.inFlight.Difference(t.Marked)
	for _, run := range t.Unmarked {
		if !b.inFlight.Has(run.UID) {
			return true
		}
		unseen.Delete(run.UID)
	}
	for uid, run := range b.gone {
		if !run.open && !b.inFlight.Has(uid) {
			return true
		}
		if !run.vanished {
			unseen.Delete(uid)
		}
	}
	// What is in flight, and neither without its mark nor with it, seems to be gone.
	return unseen.Len() > 0
}

// ProofStarted takes note that a proof is being made for the hub's object as last read.
func (b *Book) ProofStarted() { b.proving, b.void = true, false }

// Proving says whether a proof is being made.
func (b *Book) Proving() bool { return b.proving }

// ProofEnded takes note of the proof that was being made, nil when it failed. It is of no
// use when there has been reason for doubt meanwhile.
func (b *Book) ProofEnded(proof *Proof) {
	b.proving = false
	if !b.void {
		b.proof = proof
	}
}

// Doubt gives up the proof: somebody else wrote the hub's object, or the runs are read
// from another cache, which may be behind the one before.
func (b *Book) Doubt() { b.proof, b.void = nil, true }

// Forget drops all but that a proof is being made, which is then of no use.
func (b *Book) Forget() { *b = Book{Writer: b.Writer, proving: b.proving, void: true} }
