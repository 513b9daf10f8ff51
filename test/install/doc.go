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

// Package install tests the manifests in config as a user would apply them: with
// kubectl on real API servers, and with the manager under exactly the rights that
// they grant.
//
// The commands are those of README.md and docs/install-by-hand.md, and what these name
// must exist. Nothing runs the Deployment, since there is
// no node; the test runs the manager with the Deployment's arguments as its
// ServiceAccount, and has the API server admit a pod of its template.
package install
