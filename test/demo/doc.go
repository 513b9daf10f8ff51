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

// Command demo shows agentrun-fleet at work on one machine, with nothing faked on the
// way: a hub and three members with API servers, schedulers and agent-sandbox
// controllers of their own, and the manager between them. Two parts are played: KWOK
// plays kubelet by the Stages in stages.yaml, and konveyor.go the controller that makes
// a Sandbox for each AgentRun.
//
// It prints the tables that a user would look at, with the command in front, while runs
// start or fail, a member is cut off and returns, and another run fails. Then it leaves
// everything running until Ctrl-C.
//
// With --oneshot it ends instead, with code 1 when a number was not the one that
// scenario.go states. Whatever way it ends, it leaves no process and no file behind.
package main
