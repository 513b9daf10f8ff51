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

// Package bench measures the budgets of the design. Each benchmark prints what it
// measured beside a floor, or beside the plain multicluster-runtime set-up, measured in the same
// run on the same servers; the ratio is what counts, since machines differ. Run it with
// `make bench`. Memory is no matter of the machine: what takes more than its budget fails, in
// the test of an empty member, too, which takes seconds. So does a busy member that costs
// another more than its share, of which samples beside it and in quiet are taken in turn.
package bench
