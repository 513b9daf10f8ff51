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

// Package ledger runs the real manager over real members, and holds what the hub says of
// their failures against what was made to fail: through kills at random moments, an
// outage of the hub, a hand-over, a second manager, and members in which nothing may be
// marked. It also counts what the numbers cost the hub, in writes and in bytes.
//
// What is drawn at random comes from one seed, which is printed:
//
//	FLEET_LEDGER_SEED=7 go test -v -run Killed ./test/ledger
//
// With -short fewer runs fail, the manager is killed less often, and what takes minutes of
// waiting, or measures sizes, is left out.
//
// One limit is kept to: a failed run that somebody else deletes while no manager lives to
// see it cannot be counted. Where managers are killed, only their TTL deletes.
package ledger
