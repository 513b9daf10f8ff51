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

// Package tally counts runs: those of one member that exist (Of) and those of its
// failures that are on record (Observe), and those of many members (Summary). It is
// pure: what was observed goes in, what a status shall say comes out; it knows no
// client, logger or clock.
//
// # What callers may rely on
//
//   - Equal input gives equal output in whatever order it comes, so that a status
//     can be compared with the one that is stored, and a restart changes nothing.
//   - What is put in stays as it is: it may be of a shared cache.
//   - Sums are exact. What a bounded list has no room for is counted under
//     fleetv1alpha1.ReasonOther, or in a number of omitted entries; never dropped.
//   - Whatever a member holds, the result fits the hub's CRDs: texts are cut and
//     cleaned, reasons that are no CamelCase word are counted as ReasonOther.
//   - Runs of a member that is not observed are neither zero nor in their last
//     phase: Unobserved moves what was pending or running to unknown.
//
// # The ledger
//
// A failed run is counted into the totals once in its life, in one write of the
// member's object on the hub, which also puts its UID in flight. Then the run is
// marked, and with a later write the UID leaves. So a run is in the totals when it has
// its mark, or is in flight, or is gone after it was counted; a write whose outcome is
// not known is repeated only where it did not happen.
//
// A cache may show a run without the mark that it has. So a failure without one is
// counted only with a Proof: a live list of the member's runs, made after the ledger
// was read and good while nobody else writes it. Book holds the proof and the failures
// whose runs have gone meanwhile. A failure of which there is no telling yet waits; one
// of which there never will be is missed. Either is said, in totalExact.
//
// # Windows
//
// lastHour, lastDay and history follow from buckets by the time of the failure, by the
// hub's clock. They change with time alone, at the edges that NextBucket tells; the
// stored buckets move only when a number does.
package tally
