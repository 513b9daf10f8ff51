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

// Package harness starts real control planes for tests and for the demo: hubs
// and members, each an etcd and a kube-apiserver of its own on 127.0.0.1, with
// kube-scheduler and kube-controller-manager where asked for.
//
// # Contract
//
// A ControlPlane is throw-away. All it writes (etcd's data, certificates, logs,
// the audit log, kubeconfigs) lies in ControlPlane.Dir, which Stop removes
// together with every process it started. Stop kills rather than asks: a server
// with open watches takes 20 s to end gracefully. It may be called twice.
//
// Start, StartAll and the methods of ControlPlane need no testing.TB, so that
// TestMain and programs can use them; NewHub, NewMember, NewControlPlanes and
// NewProxy are the same for a test, and clean up after it.
//
// Nothing here runs a kubelet. Tests play it with ControlPlane.SetPodStatus and
// the builders of package build.
//
// An API server holds the first create of a custom resource back for 2 s when
// its CRD is younger than that. Measurements must not start with such a create.
//
// Waiting is left to gomega: NewGomega returns one with limits that a busy
// machine can keep, and komega.New(cp.Client) fetches objects for it.
//
// The programs come from KUBEBUILDER_ASSETS, or else from bin/k8s of this
// repository, where `make kube-binaries` puts them.
package harness
