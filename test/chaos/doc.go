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

// Package chaos runs the real manager over four members that are disturbed at random
// while runs come and go, and checks in the end that nothing was lost, mixed up or
// written twice.
//
// Every choice comes from one seed, which is printed with the plan:
//
//	CHAOS_SEED=7 CHAOS_DURATION=10m go test -v -timeout 20m ./test/chaos
//
// CHAOS_DURATION is how long faults are injected, 40 s by default; start and final
// checks come on top. The same seed and duration give the same plan. What the
// machine makes of it differs: a fault whose time comes late is injected late, and
// left out when the time for faults is over.
package chaos
