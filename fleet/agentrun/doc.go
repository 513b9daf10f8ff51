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
// NewCluster builds what a member needs: a scheme and a static RESTMapper shared by
// all members, and a cache that holds runs, the pods that carry the run's label, the
// pods that belong to a Sandbox, and Sandboxes, each stripped to what is read here.
// Any other pod never enters it.
package agentrun
