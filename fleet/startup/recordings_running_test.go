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

package startup_test

// pendingScenarios never come to run and never fail by themselves: rule 5.
var pendingScenarios = map[string]scenario{
	"s05-hang-header": {
		story: "the registry takes the connection and never answers",
		want:  "0-3 Pending",
		says:  []string{"image pulling", `container "main"`, `image "127.0.0.1:5005/x:1"`},
	},
	"s05b-hang-blob": {
		story: "the registry stops in the middle of a layer",
		want:  "0-3 Pending",
		says:  []string{"image pulling", `container "main"`, `image "127.0.0.1:5007/q1:1"`},
	},
	"s07-never-absent": {
		story: "pull policy Never and no such image on the node: ErrImageNeverPull is fatal only where asked for",
		want:  "0-4 Pending",
		says:  []string{`container "main"`, "ErrImageNeverPull", `Container image "127.0.0.1:5000/absent:1" is not present with pull policy of Never`},
		never: []string{"image pulling"},
	},
	"s15-vol-missing-cm": {
		story: "a volume of a ConfigMap that does not exist; the words are only in Events",
		want:  "0-2 Pending",
		says:  []string{"volumes not mounted"},
		never: []string{"image pulling"},
	},
	"s15b-vol-missing-secret": {
		story: "a volume of a Secret that does not exist",
		want:  "0-2 Pending",
		says:  []string{"volumes not mounted"},
	},
	"s15c-pvc-missing": {
		story: "a claim that does not exist",
		want:  "0-1 Pending",
		says:  []string{`unschedulable: 0/1 nodes are available: persistentvolumeclaim "nope-pvc" not found`},
	},
	"s15e-pvc-unbound": {
		story: "a claim that no volume fits",
		want:  "0-1 Pending",
		says:  []string{"unschedulable: 0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims"},
	},
	"s21c-sidecar-startupprobe-never": {
		story: "a native sidecar runs, but its startup probe never passes: the agent waits for it, and for no image",
		want:  "0-4 Pending",
		says:  []string{`init container "side"`},
		never: []string{"image pulling", "volumes not mounted"},
	},
	"s22-huge-cpu": {
		story: "a request that no node can meet",
		want:  "0-1 Pending",
		says:  []string{"unschedulable: 0/1 nodes are available: 1 Insufficient cpu"},
	},
	"s23-nodeselector": {
		story: "a node selector that no node has",
		want:  "0-1 Pending",
		says:  []string{"unschedulable: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector"},
	},
	"s24-gates": {
		story: "held by scheduling gates",
		want:  "0 Pending",
		says:  []string{"scheduling gated"},
		never: []string{"unschedulable"},
	},
	"s25-hostpath-file-missing": {
		story: "a hostPath of type File that is not there",
		want:  "0-2 Pending",
		says:  []string{"volumes not mounted"},
	},
	"s32c-deadline-unschedulable": {
		story: "activeDeadlineSeconds is kubelet's: it does not end a pod that has no node",
		want:  "0-1 Pending",
		says:  []string{"unschedulable: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector"},
	},
	"s33e-created-when-unreachable-twonodes": {
		story: "created when one node is unreachable and the other cordoned",
		want:  "0-1 Pending",
		says:  []string{"unschedulable: 0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable"},
	},
	"s34b-bad-seccomp": {
		story: "a seccomp profile that is not on the node: CreateContainerError is fatal only where asked for",
		want:  "0-4 Pending",
		says:  []string{`container "main"`, "CreateContainerError", "cannot load seccomp profile"},
	},
	"s34d-memory-too-small": {
		story: "a memory limit in which no sandbox starts; the words are only in Events",
		want:  "0-2 Pending",
		says:  []string{"network not ready"},
		never: []string{"image pulling"},
	},
	"s34f-bad-seccomp-always": {
		story: "the same seccomp profile under restartPolicy Always: no crash loop",
		want:  "0-4 Pending",
		says:  []string{`container "main"`, "CreateContainerError", "cannot load seccomp profile"},
	},
	"s35b-runtimeclass-no-handler": {
		story: "a runtime class whose handler the node lacks; the words are only in Events",
		want:  "0-2 Pending",
		says:  []string{"network not ready"},
		never: []string{"image pulling"},
	},
	"s36-deleted-while-pulling": {
		story: "deleted while a pull hangs: kubelet does not let go of it",
		want:  "0-4 Pending",
		says:  []string{"being deleted"},
	},
	"s47-no-entrypoint": {
		story: "no command in image or pod; kubelet's message has another container ID at every attempt",
		want:  "0-17 Pending",
		says:  []string{`container "main"`, "CreateContainerError", "no command specified"},
	},
	"s49-vol-missing-and-image-missing": {
		story: "neither volume nor image exists: the volume's error hides the image's",
		want:  "0-2 Pending",
		says:  []string{"volumes not mounted"},
		never: []string{"image pulling"},
	},
	"s61-resourceclaim-missing": {
		story: "a resource claim that does not exist: no condition, no event",
		want:  "0 Pending",
		says:  []string{"waiting for the scheduler"},
	},
}

// runningScenarios come to run and still run at the end: rule 4.
var runningScenarios = map[string]scenario{
	"s05c-slow-40s": {
		story: "a registry that takes 40 s",
		want:  "0-3 Pending, 4-5 Running",
		times: "02:45:25 - -",
	},
	"s19-init-long": {
		story: "an init container that works for 100 s",
		want:  "0-5 Pending, 6-7 Running",
		times: "02:47:01 - -",
	},
	"s21-sidecar-crashloop": {
		story: "a native sidecar loops beside an agent that runs: detail, no failure",
		want:  "0-4 Pending, 5-23 Running",
		says:  []string{`init container "side"`, "CrashLoopBackOff"},
		times: "02:45:23 - -",
	},
	"s28b-late-vol-cm-40s": {
		story: "the volume's ConfigMap is made after 40 s: nothing fatal is ever reported",
		want:  "0-3 Pending, 4-5 Running",
		times: "02:46:50 - -",
	},
	"s29-ephemeral-missing": {
		story: "a debug container whose image does not exist is nobody's failure",
		want:  "0-3 Pending, 4-16 Running",
		never: []string{"dbg", "ImagePullBackOff"},
		times: "02:45:47 - -",
	},
	"s30b-imagevolume-good": {story: "an image volume that works", want: "0-3 Pending, 4-5 Running", times: "02:45:50 - -"},
	"s34-bad-capability":    {story: "a capability that does not exist is ignored", want: "0-3 Pending, 4-5 Running"},
	"s39-readiness-never":   {story: "never ready: runs all the same", want: "0-3 Pending, 4-5 Running"},
	"s41-good":              {story: "a healthy pod", want: "0-3 Pending, 4-5 Running", times: "02:46:20 - -"},
	"s41c-good-hostnet":     {story: "a healthy pod on the host's network", want: "0-3 Pending, 4-5 Running"},
	"s46-optional-cm":       {story: "an optional ConfigMap that does not exist", want: "0-3 Pending, 4-5 Running"},
	"s53-hostport-a":        {story: "takes a host port", want: "0-3 Pending, 4-5 Running"},
	"sq10-qps-00":           {story: "first of a burst: pulled at once", want: "0-3 Pending, 4-5 Running", times: "02:59:46 - -"},
	"sq10-qps-22":           {story: "kubelet's own throttle puts it into ImagePullBackOff, then it runs", want: "0-5 Pending, 6-7 Running", times: "03:00:04 - -"},
	"sq10-qps-26":           {story: "the same, two seconds earlier", want: "0-5 Pending, 6-7 Running", times: "02:59:59 - -"},
	"sq10-qps-29":           {story: "the same, last of the burst", want: "0-5 Pending, 6-7 Running", times: "03:00:03 - -"},
	"sq23-restart-running":  {story: "kubelet is restarted under a running pod", want: "0-3 Pending, 4-5 Running"},
}
