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

// Package kubeconfigsecret is a multicluster-runtime provider that finds clusters
// by the kubeconfig Secrets that Cluster API keeps for them.
//
// # Members
//
// A member is a Secret of type cluster.x-k8s.io/secret, labelled
// cluster.x-k8s.io/cluster-name: <c>, named <c>-kubeconfig, with the kubeconfig
// under the key "value". Its name is <namespace>/<c>. Type, label and name must
// agree, else the Secret is ignored; a missing key is reported on the member (docs/adr/0011).
// Secrets are read and never written. Two annotations change how a member is treated:
// NamespacesAnnotation limits it to some of its namespaces, PausedAnnotation asks for no writes,
// which is for whoever writes to obey (Provider.Lookup).
//
// # What callers may rely on
//
//   - A member is engaged once its kubeconfig was checked (ParseKubeconfig), it
//     answered, it serves Options.RequiredResources, it grants
//     Options.RequiredAccess and its informers have synced. So Engage never waits,
//     and a dead member delays nobody, neither at the start nor later.
//   - Each member has its own goroutine, time limits and back-off. No lock is held
//     while a member is talked to. A Secret that changes or goes ends what is being
//     done for its former content at once.
//   - What decisions depend on, Member.ClockOffset, Paused and Lost, is known before Engage is called.
//   - A member that is lost stays engaged, so that its cache keeps what was last
//     known; Member.Lost says that it is lost. It recovers by itself.
//   - Another kubeconfig, or another list of namespaces, replaces the connection only after it has proven itself;
//     until then, and if it never does, the former one stays in use. Controllers are then
//     engaged anew, with another cluster.Cluster under the same name, without having been
//     disengaged. If one of them fails to, the former cluster.Cluster is engaged again, with the
//     same context. A Secret whose key is taken away disengages at once. Labels and
//     other annotations reconnect nothing.
//   - A member that no longer accepts the credentials in use has what the Secret says now tried
//     at once. Its condition changes after the same number of failed probes as for other causes.
//   - Options.OptionalResources are asked for again every MendInterval. When others are served
//     than the connection in use knows, another takes its place as in a rotation; if that
//     fails, for a right that is missing say, the former one stays and the condition says why.
//   - Once a member is removed, Get answers multicluster.ErrClusterNotFound and its TCP
//     connections are closed and cannot be made again: nothing reaches it, whatever
//     is still in flight or queued.
//   - The context given to Engage descends from Start's and from nothing else, so
//     that removing one member does not touch another.
//
// # What a hostile member cannot do
//
// A kubeconfig makes the hub neither run, nor read, nor impersonate anything, and reach only what
// Policy allows; the dialer checks each address, whatever a name resolves to, and redirects are
// not followed. Each answer is bounded in size, and in time unless it is a watch's: 4 MiB for a
// check, 8 MiB for a call or a page of a list, 256 MiB for a watch, which is then made again. It is JSON of at
// most 131,072 values, or refused: what is decoded may take far more memory than it has bytes. What the informers of
// a member hold is bounded by Options.CacheLimit; a member that does not fit is disengaged, and
// TooLarge. No answer that repeats a credential is passed on, and what a refusal says is cut to a line. A member
// that asks for patience by Retry-After gets it, up to Options.BackoffMax, and no caller waits
// meanwhile: requests fail with 429 without being sent.
//
// # Clocks
//
// A member's time comes from the Date headers of the answers to checks and probes. Of the latest
// answers the one with the shortest round trip counts; a change of up to a second is no news. Between
// two answers it goes on by the time that passes, so that the hub's clock can be set without moving
// it: Member.ClockOffset is computed when it is asked for. After a hub was suspended a member's time
// is late until its next answer, and never early. Any offset up to 100 years is believed. A member of
// which no answer tells the time is not engaged.
//
// # What callers must do
//
//   - Give HubCacheByObject to the hub's cache, or it holds every Secret of the hub.
//   - Follow the contract of NewClusterFunc: above all, ask for all informers.
//   - Not start controllers long after the provider: multicluster-runtime v0.24.1
//     starts the sources of a member that was engaged before, and ends the manager
//     when that member went away in between.
//
// # Known costs
//
// For each engage the multicluster-runtime controller leaves one goroutine per source that
// ends only with the controller. A provider cannot prevent this; it keeps the
// number down by engaging only what is new. A controller that is engaged through a
// multicluster.Aware of its own, instead of MultiClusterWatch, avoids it.
//
// # Locks
//
// Provider.observing orders the handling of Secrets. Provider.mu guards the set of
// members, member.mu the state of one; the latter is taken inside the former, never the
// other way round, and subscribers are called under neither.
package kubeconfigsecret
