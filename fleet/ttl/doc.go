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

// Package ttl decides when a finished AgentRun is deleted. It is pure: a run, a policy
// and the time go in, a Decision comes out; it knows no client, logger or clock.
//
// A run is deleted when all of this holds, as for a Job's ttlSecondsAfterFinished:
//
//   - It is terminal, and nobody has asked for its deletion yet.
//   - It has a TTL: spec.ttlSecondsAfterFinished, where 0 means at once; else the
//     policy's for its phase, where 0 means for ever.
//   - It is known when it ended, and the TTL has passed since, by the member's clock.
//     An end that lies in the future is waited for.
//   - If it failed, the hub has recorded its failure (AgentRun.Recorded). Nothing is
//     waited for by time then: the mark comes with an event.
package ttl
