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

// Package tally counts runs: those of one member (Of), and those of many members
// (Summary). It is pure: what was observed goes in, what a status shall say comes
// out; it knows no client, logger or clock.
//
// # What callers may rely on
//
//   - Equal input gives equal output in whatever order it comes, so that a status
//     can be compared with the one that is stored, and a restart changes nothing.
//   - Sums are exact. What a bounded list has no room for is counted under
//     fleetv1alpha1.ReasonOther, or in a number of omitted entries; never dropped.
//   - Whatever a member holds, the result fits the hub's CRDs: texts are cut and
//     cleaned, reasons that are no CamelCase word are counted as ReasonOther.
//   - Runs of a member that is not observed are neither zero nor in their last
//     phase: Unobserved moves what was pending or running to unknown.
//
// # Recorded numbers
//
// FailureCount has optional numbers (total, lastHour, lastDay) that stand for
// failures on record rather than for runs that exist. Of leaves them nil; Summary
// adds up those that are there, in any order.
package tally
