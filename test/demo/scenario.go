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

package main

import (
	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// The members, by the names of their clusters.
const (
	east = "east"
	west = "west"
	edge = "edge" // the one that is cut off
)

// Namespaces: of the kubeconfig Secrets on the hub, and of the runs in the members.
const (
	clustersNamespace = "clusters"
	runsNamespace     = "agents"
)

// Agents of the runs. Pods of the reviewer carry the run's label; those of the migrator
// do not, and are found through their Sandbox.
const (
	reviewer = "reviewer"
	migrator = "migrator"
)

// outcome is how a run's pod is made to end: a word of stages.yaml.
type outcome string

const (
	runs             outcome = "Runs"
	completes        outcome = "Completed"
	exits3           outcome = "Error"
	outOfMemory      outcome = "OOMKilled"
	imageMissing     outcome = "ImagePullBackOff"
	badImageName     outcome = "InvalidImageName"
	configMissing    outcome = "CreateContainerConfigError"
	crashLoops       outcome = "CrashLoopBackOff"
	initImageMissing outcome = "InitImagePullBackOff" // for a pod with an init container
	slow             outcome = "Slow"                 // pending for some seconds, then it runs
	noGPU            outcome = "NoGPU"                // asks for a node that no member has
)

const (
	gpuDeadline  = 8  // seconds that noGPU may take to start
	slowDeadline = 60 // seconds that slow may take; it needs six
)

// demoRun is one AgentRun and what is to become of it.
type demoRun struct {
	name     string
	agent    string
	outcome  outcome
	deadline int32 // spec.startupDeadlineSeconds; 0 leaves it out
	atOnce   bool  // spec.ttlSecondsAfterFinished is 0

	phase  agentv1alpha1.AgentRunPhase
	reason string // of the Succeeded condition; not looked at while in progress
}

// initialRuns are the runs of each member at the beginning.
var initialRuns = map[string][]demoRun{
	east: {
		{"review-1", reviewer, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"review-2", reviewer, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"migrate-1", migrator, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"migrate-2", migrator, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"slow-start", reviewer, slow, slowDeadline, false, agentv1alpha1.AgentRunRunning, ""},
		{"nightly-1", reviewer, completes, 0, false, agentv1alpha1.AgentRunSucceeded, "Completed"},
		{"nightly-2", reviewer, completes, 0, false, agentv1alpha1.AgentRunSucceeded, "Completed"},
		{"nightly-3", migrator, completes, 0, false, agentv1alpha1.AgentRunSucceeded, "Completed"},
		{"missing-image-1", reviewer, imageMissing, 0, false, agentv1alpha1.AgentRunFailed, "ImagePullBackOff"},
		{"missing-image-2", reviewer, imageMissing, 0, false, agentv1alpha1.AgentRunFailed, "ImagePullBackOff"},
		{"missing-image-3", migrator, imageMissing, 0, false, agentv1alpha1.AgentRunFailed, "ImagePullBackOff"},
		{"missing-init-image", reviewer, initImageMissing, 0, false, agentv1alpha1.AgentRunFailed, "ImagePullBackOff"},
		{"crash-loop", reviewer, crashLoops, 0, false, agentv1alpha1.AgentRunFailed, "CrashLoopBackOff"},
		{"exits-with-3", reviewer, exits3, 0, false, agentv1alpha1.AgentRunFailed, "Error"},
	},
	west: {
		{"review-1", reviewer, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"review-2", reviewer, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"migrate-1", migrator, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"nightly-1", reviewer, completes, 0, false, agentv1alpha1.AgentRunSucceeded, "Completed"},
		{"nightly-2", migrator, completes, 0, false, agentv1alpha1.AgentRunSucceeded, "Completed"},
		{"missing-image-1", migrator, imageMissing, 0, false, agentv1alpha1.AgentRunFailed, "ImagePullBackOff"},
		{"bad-image-name", reviewer, badImageName, 0, false, agentv1alpha1.AgentRunFailed, "InvalidImageName"},
		{"missing-config-1", reviewer, configMissing, 0, false, agentv1alpha1.AgentRunFailed, "CreateContainerConfigError"},
		{"missing-config-2", migrator, configMissing, 0, false, agentv1alpha1.AgentRunFailed, "CreateContainerConfigError"},
		{"missing-config-3", migrator, configMissing, 0, false, agentv1alpha1.AgentRunFailed, "CreateContainerConfigError"},
		{"out-of-memory", reviewer, outOfMemory, 0, false, agentv1alpha1.AgentRunFailed, "OOMKilled"},
		{"no-gpu-1", reviewer, noGPU, gpuDeadline, false, agentv1alpha1.AgentRunFailed, "StartupDeadlineExceeded"},
	},
	edge: {
		{"review-1", reviewer, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"review-2", migrator, runs, 0, false, agentv1alpha1.AgentRunRunning, ""},
		{"slow-start", migrator, slow, slowDeadline, false, agentv1alpha1.AgentRunRunning, ""},
		{"nightly-1", reviewer, completes, 0, false, agentv1alpha1.AgentRunSucceeded, "Completed"},
		{"missing-image-1", reviewer, imageMissing, 0, false, agentv1alpha1.AgentRunFailed, "ImagePullBackOff"},
		{"missing-image-2", migrator, imageMissing, 0, false, agentv1alpha1.AgentRunFailed, "ImagePullBackOff"},
		{"no-gpu-1", reviewer, noGPU, gpuDeadline, false, agentv1alpha1.AgentRunFailed, "StartupDeadlineExceeded"},
		{"no-gpu-2", migrator, noGPU, gpuDeadline, false, agentv1alpha1.AgentRunFailed, "StartupDeadlineExceeded"},
		{"waits-for-gpu", reviewer, noGPU, 0, false, agentv1alpha1.AgentRunPending, ""},
		{"exits-with-3", migrator, exits3, 0, false, agentv1alpha1.AgentRunFailed, "Error"},
	},
}

// edgeLateRun fails while its member is cut off, westLateRun later; goneRun is deleted
// when it has failed and is on record.
var (
	edgeLateRun = demoRun{"missing-image-3", reviewer, imageMissing, 0, false, agentv1alpha1.AgentRunFailed, "ImagePullBackOff"}
	goneRun     = demoRun{"bad-image-name-3", migrator, badImageName, 0, true, agentv1alpha1.AgentRunFailed, "InvalidImageName"}
	westLateRun = demoRun{"bad-image-name-2", migrator, badImageName, 0, false, agentv1alpha1.AgentRunFailed, "InvalidImageName"}
)

// expectation is what the hub has to say at one moment. It is stated here, and not
// computed from the runs above, so that no counting is checked against itself.
type expectation struct {
	ratio    string
	ready    string
	runs     fleetv1alpha1.RunCounts
	failures map[string]fleetFailures
	members  map[string]memberExpectation
}

// fleetFailures are the failures of one reason: those of runs that exist, in how many
// members they are, and those on record.
type fleetFailures struct {
	Current, Clusters int32
	Total             int64
}

type memberExpectation struct {
	connected string
	runs      fleetv1alpha1.RunCounts
	failures  map[string]int32
}

var eastExpected = memberExpectation{
	connected: "True",
	runs:      fleetv1alpha1.RunCounts{Running: 5, Active: 5, Succeeded: 3, Failed: 6},
	failures:  map[string]int32{"ImagePullBackOff": 4, "CrashLoopBackOff": 1, "Error": 1},
}

var westExpected = memberExpectation{
	connected: "True",
	runs:      fleetv1alpha1.RunCounts{Running: 3, Active: 3, Succeeded: 2, Failed: 7},
	failures: map[string]int32{
		"CreateContainerConfigError": 3, "ImagePullBackOff": 1, "InvalidImageName": 1,
		"OOMKilled": 1, "StartupDeadlineExceeded": 1,
	},
}

// settled is when every run of initialRuns has become what it is to become.
var settled = expectation{
	ratio: "3/3",
	ready: "True",
	runs:  fleetv1alpha1.RunCounts{Pending: 1, Running: 11, Active: 12, Succeeded: 6, Failed: 18},
	failures: map[string]fleetFailures{
		"ImagePullBackOff":           {7, 3, 7},
		"CreateContainerConfigError": {3, 1, 3},
		"StartupDeadlineExceeded":    {3, 2, 3},
		"Error":                      {2, 2, 2},
		"CrashLoopBackOff":           {1, 1, 1},
		"InvalidImageName":           {1, 1, 1},
		"OOMKilled":                  {1, 1, 1},
	},
	members: map[string]memberExpectation{
		east: eastExpected,
		west: westExpected,
		edge: {
			connected: "True",
			runs:      fleetv1alpha1.RunCounts{Pending: 1, Running: 3, Active: 4, Succeeded: 1, Failed: 5},
			failures:  map[string]int32{"ImagePullBackOff": 2, "StartupDeadlineExceeded": 2, "Error": 1},
		},
	},
}

// cutOff is when edge cannot be reached: what was active there is unknown, what had
// ended still counts, and edgeLateRun is not known yet.
var cutOff = expectation{
	ratio:    "2/3",
	ready:    "False",
	runs:     fleetv1alpha1.RunCounts{Running: 8, Active: 8, Succeeded: 6, Failed: 18, Unknown: 4},
	failures: settled.failures,
	members: map[string]memberExpectation{
		east: eastExpected,
		west: westExpected,
		edge: {
			connected: "Unknown",
			runs:      fleetv1alpha1.RunCounts{Succeeded: 1, Failed: 5, Unknown: 4},
			failures:  map[string]int32{"ImagePullBackOff": 2, "StartupDeadlineExceeded": 2, "Error": 1},
		},
	},
}

// backAgain is when edge is back and edgeLateRun has failed.
var backAgain = expectation{
	ratio: "3/3",
	ready: "True",
	runs:  fleetv1alpha1.RunCounts{Pending: 1, Running: 11, Active: 12, Succeeded: 6, Failed: 19},
	failures: map[string]fleetFailures{
		"ImagePullBackOff":           {8, 3, 8},
		"CreateContainerConfigError": {3, 1, 3},
		"StartupDeadlineExceeded":    {3, 2, 3},
		"Error":                      {2, 2, 2},
		"CrashLoopBackOff":           {1, 1, 1},
		"InvalidImageName":           {1, 1, 1},
		"OOMKilled":                  {1, 1, 1},
	},
	members: map[string]memberExpectation{east: eastExpected, west: westExpected, edge: edgeBackExpected},
}

// edgeBackExpected has edgeLateRun in it.
var edgeBackExpected = memberExpectation{
	connected: "True",
	runs:      fleetv1alpha1.RunCounts{Pending: 1, Running: 3, Active: 4, Succeeded: 1, Failed: 6},
	failures:  map[string]int32{"ImagePullBackOff": 3, "StartupDeadlineExceeded": 2, "Error": 1},
}

// oneMore is when westLateRun has failed too.
var oneMore = expectation{
	ratio: "3/3",
	ready: "True",
	runs:  fleetv1alpha1.RunCounts{Pending: 1, Running: 11, Active: 12, Succeeded: 6, Failed: 20},
	failures: map[string]fleetFailures{
		"ImagePullBackOff":           {8, 3, 8},
		"CreateContainerConfigError": {3, 1, 3},
		"StartupDeadlineExceeded":    {3, 2, 3},
		"Error":                      {2, 2, 2},
		"InvalidImageName":           {2, 1, 2},
		"CrashLoopBackOff":           {1, 1, 1},
		"OOMKilled":                  {1, 1, 1},
	},
	members: map[string]memberExpectation{
		east: eastExpected,
		west: {
			connected: "True",
			runs:      fleetv1alpha1.RunCounts{Running: 3, Active: 3, Succeeded: 2, Failed: 8},
			failures: map[string]int32{
				"CreateContainerConfigError": 3, "InvalidImageName": 2, "ImagePullBackOff": 1,
				"OOMKilled": 1, "StartupDeadlineExceeded": 1,
			},
		},
		edge: edgeBackExpected,
	},
}

// final is when goneRun has failed and is gone: only the totals know of it.
var final = expectation{
	ratio: oneMore.ratio,
	ready: oneMore.ready,
	runs:  oneMore.runs,
	failures: map[string]fleetFailures{
		"ImagePullBackOff":           {8, 3, 8},
		"CreateContainerConfigError": {3, 1, 3},
		"StartupDeadlineExceeded":    {3, 2, 3},
		"Error":                      {2, 2, 2},
		"InvalidImageName":           {2, 1, 3},
		"CrashLoopBackOff":           {1, 1, 1},
		"OOMKilled":                  {1, 1, 1},
	},
	members: oneMore.members,
}
