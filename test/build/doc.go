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

// Package build makes the objects of tests. Each Make function returns a wrapper
// whose methods change the object and return the wrapper; Obj returns a copy, so
// that one wrapper can serve for several objects.
//
// It depends on API types only, so that tests without I/O can use it.
package build
