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

// Package rollup keeps the hub's view of the fleet: an AgentRunClusterStatus for
// each member, and every AgentRunFleetStatus over the members that it selects.
//
// # What it owns
//
// The AgentRunClusterStatus objects with the managed-by label: it makes one beside
// each member's Secret and deletes it when the member goes, also when that happened
// while no manager ran. It owns the status of every AgentRunFleetStatus, and makes
// the one named "fleet" when there is none at all.
//
// # Where numbers come from
//
// The numbers of runs that exist are recounted from the member's cache after every
// change that matters. The totals are different: they are stored in the member's
// AgentRunClusterStatus together with its ledger, and only grow; they cannot be rebuilt
// from the member. See fleet/tally and docs/adr/0008. Sums are made from those counts,
// and from the stored AgentRunClusterStatus of members that have not synced since the
// manager started. So after a restart the same objects give the same numbers, which
// meanwhile stand as they were.
//
// A member that is not connected keeps what was last reported; its active runs are
// counted as unknown.
//
// # How it writes
//
// A run's change marks its member and every summary. A marked object is written at
// once, but at most once a second, and not when it would not change; the time of the
// last contact alone is written at most twice a minute. Every write carries the
// resourceVersion that it was computed from; after a conflict all is read and
// computed again. A failed write is repeated with exponential back-off.
//
// # Locks
//
// Rollup.mu guards the maps and is held for no call out but to the work queue. A
// member's own lock is held while its cache is listed, which asks no server. Rollup.mu
// is taken before a member's lock, never after it. Functions given to OnWantsMark are
// called with a member's lock held: they must not call back. No lock is held during a
// write.
package rollup
