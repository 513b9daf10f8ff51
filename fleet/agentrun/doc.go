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

// Package agentrun reconciles AgentRuns in member clusters. One Reconciler serves
// every member: multicluster-runtime engages it for each, and a request names the
// member it is about.
//
// A reconcile gathers the run, its Sandbox and its pod from the member's cache, has
// fleet/startup decide, and writes the status once, with the resourceVersion it was
// decided on. Nothing is read from the member's API server unless that write
// conflicts.
//
// A run that has ended is brought to its end, a step at a time. Once the Ledger has
// recorded a failure, one more patch marks the run with the ledger's ID (RecordedAnnotation);
// this is also done for a run that is on its way out, or that somebody has moved to another
// phase, so that the Ledger can let go of it.
// Once fleet/ttl says that its time is over, by the member's clock, the run is deleted: in
// the foreground when it controls a Sandbox or a pod, so that it stays until they are
// gone. Mark and deletion have the run's UID and resourceVersion for preconditions, and
// are left to the run's next event when these no longer hold. A member that forbids either
// is worked with all the same: that is logged, an Event on a run tells that it is not
// deleted, and the right is tried again within minutes. A paused member gets neither.
//
// Members share the workers in turn. One that hangs, or many that do, leave workers to the
// others (lanes), and what happens now comes before what is merely listed.
//
// NewCluster builds what a member needs: a scheme and a static RESTMapper shared by
// all members, and a cache that holds runs, the pods that carry the run's label, the
// pods that belong to a Sandbox, and Sandboxes, each stripped to what is read here.
// Any other pod never enters it. Its informers call their handlers themselves, in the order of
// events, so that an idle member costs little: a handler returns soon, and is added only once the
// member's informers have synced.
package agentrun
