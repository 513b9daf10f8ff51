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

// Package startup decides what an AgentRun's status should say, given what a
// kubelet reports of its pod. It is pure: values and the time go in, a Decision
// comes out; it knows no client, logger or clock.
//
// # Where the facts come from
//
// The rules rest on recordings of a real kubelet (v1.36.3 with containerd 2.2.9
// and 1.6.20), which stand in testdata/recordings and are replayed event by event
// in the tests. Reasons are kubelet's own words and are surfaced verbatim. Texts
// differ between kubelet versions and container runtimes, so no rule reads a
// message, with one exception: kubelet's own "pull QPS exceeded".
//
// # Where CrashLoopBackOff can occur
//
// A sandbox's pod has restartPolicy Never, so kubelet does not restart its
// containers and CrashLoopBackOff cannot be seen on a plain one: the pod Fails with
// the container's terminated reason instead. It can be seen on a native sidecar (an
// init container with restartPolicy Always), on a container with a restartPolicy or
// restart rules of its own (on by default since Kubernetes 1.36), and on every
// container when a template overrides the pod's restartPolicy. Of a container that
// starts and ends it is shown between two attempts only, 21 to 30% of the time in
// the recordings, while the pod's phase is Running: a watch sees each state, a poll
// would not. Of a sidecar that ends before it counts as started it is shown nearly
// all the time (s21f), while the phase is Pending.
//
// # What the pod does not tell
//
// A pod whose agent exits 0 when kubelet stops it for a failed liveness or startup
// probe, a failed postStart hook or an emptyDir over its limit says Succeeded and
// nothing else; only Events tell (s38, s40, s40b, s51). Such a run is Succeeded.
package startup
