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

// outcomeScenarios end as their pod ends: rule 2.
var outcomeScenarios = map[string]scenario{
	"s11-cmd-notfound-never": {
		story: "the command does not exist; kubelet says that the container began in 1970",
		want:  "0-4 Pending, 5 Failed StartError",
		says:  []string{`container "main"`, `exec: "/no/such": stat /no/such: no such file or directory`},
		times: "- 02:44:59 1s",
	},
	"s14-exit3-never": {
		story: "the agent exits with 3",
		want:  "0-3 Pending, 4-5 Running, 6 Failed Error",
		says:  []string{`container "main"`, "exit code 3"},
		times: "02:45:04 02:45:04 0s",
	},
	"s17-init-exit1-never": {
		story: "the init container exits with 1, while the agent's says PodInitializing",
		want:  "0-5 Pending, 6 Failed Error",
		says:  []string{`init container "init"`, "exit code 1"},
		never: []string{`container "main"`},
		times: "- 02:45:17 1s",
	},
	"s22b-nodename-huge-cpu": {
		story: "put on a node by name, that node has no room",
		want:  "0 Pending, 1 Failed OutOfcpu",
		says:  []string{"Node didn't have enough resource: cpu, requested: 1000000"},
		times: "- 02:45:29 0s",
	},
	"s25d-mount-on-proc": {
		story: "a mount that the runtime refuses",
		want:  "0-4 Pending, 5 Failed StartError",
		says:  []string{`container "main"`, "cannot be mounted because it is inside /proc"},
		times: "- 02:45:38 0s",
	},
	"s31-oom-never": {
		story: "the agent is killed for its memory",
		want:  "0-3 Pending, 4-5 Running, 6 Failed OOMKilled",
		says:  []string{`container "main"`, "exit code 137"},
		times: "02:45:51 02:45:51 0s",
	},
	"s32b-deadline-running": {
		story: "activeDeadlineSeconds ends an agent that exits 0 on SIGTERM: the pod's own reason, not Completed",
		want:  "0-3 Pending, 4-5 Running, 6-7 Failed DeadlineExceeded",
		says:  []string{"Pod was active on the node longer than the specified deadline"},
		times: "02:45:55 02:46:25 30s",
	},
	"s33-running": {
		story: "the node is lost; the pod GC fails the pod, whose container says running to the end",
		want:  "0-3 Pending, 4-5 Running, 6-8 Failed DeletionByPodGC",
		says:  []string{"PodGC: node no longer exists"},
		times: "03:02:58 03:11:15 8m17s",
	},
	"s33-running-twonodes": {
		story: "the node is lost; the taint manager deletes the pod, which is Failed only when the pod GC takes it",
		want:  "0-3 Pending, 4-7 Running, 8-10 Failed DeletionByPodGC",
		says:  []string{"PodGC: node no longer exists"},
		times: "03:18:20 03:26:33 8m13s",
	},
	"s33c-running-tol30": {
		story: "as s33-running, tolerating the lost node for 30 s",
		want:  "0-3 Pending, 4-5 Running, 6-8 Failed DeletionByPodGC",
		says:  []string{"PodGC: node no longer exists"},
	},
	"s33c-running-tol30-twonodes": {
		story: "as s33-running-twonodes, tolerating the lost node for 30 s",
		want:  "0-3 Pending, 4-7 Running, 8-10 Failed DeletionByPodGC",
		says:  []string{"PodGC: node no longer exists"},
	},
	"s33d-created-after-stop": {
		story: "bound to a node that is gone already",
		want:  "0-1 Pending, 2-4 Failed DeletionByPodGC",
		says:  []string{"PodGC: node no longer exists"},
		times: "- 03:11:15 7m29s",
	},
	"s33d-created-after-stop-twonodes": {
		story: "bound to a node that is gone already; the taint manager comes first",
		want:  "0-3 Pending, 4-6 Failed DeletionByPodGC",
		says:  []string{"PodGC: node no longer exists"},
		times: "- 03:26:34 7m26s",
	},
	"s34c-unsafe-sysctl": {
		story: "kubelet does not allow the sysctl",
		want:  "0-1 Pending, 2 Failed SysctlForbidden",
		says:  []string{`forbidden sysctl: "kernel.msgmax" not allowlisted`},
	},
	"s37-arch-labelled": {
		story: "an image for another architecture is pulled and run: exec format error",
		want:  "0-3 Pending, 4-5 Running, 6-7 Failed Error",
		says:  []string{`container "main"`, "exit code 1"},
	},
	"s37b-arch-lie": {
		story: "an image that lies about its architecture",
		want:  "0-3 Pending, 4-5 Running, 6-7 Failed Error",
		says:  []string{`container "main"`, "exit code 1"},
	},
	"s38-poststart-never": {
		story: "postStart fails, the agent exits 0 on SIGTERM: nothing on the pod says otherwise",
		want:  "0-4 Pending, 5 Succeeded Completed",
		times: "02:46:14 02:46:14 0s",
	},
	"s40-liveness-kill-never": {
		story: "killed by the liveness probe, the agent exits 0: nothing on the pod says otherwise",
		want:  "0-3 Pending, 4-6 Running, 7 Succeeded Completed",
		times: "02:46:17 02:46:23 6s",
	},
	"s40b-startup-kill-never": {
		story: "killed by the startup probe, the agent exits 0: nothing on the pod says otherwise",
		want:  "0-3 Pending, 4-6 Running, 7 Succeeded Completed",
		times: "02:46:18 02:46:24 6s",
	},
	"s41b-good-ends": {
		story: "the agent does its work and exits 0",
		want:  "0-3 Pending, 4-6 Running, 7-8 Succeeded Completed",
		times: "02:46:21 02:46:21 0s",
	},
	"s42-pullsecret-missing": {
		story: "a pull secret that does not exist, for a public image: works",
		want:  "0-3 Pending, 4-5 Running, 6-7 Succeeded Completed",
		times: "02:46:24 02:46:24 0s",
	},
	"s43-ghost-node": {
		story: "put by name on a node that never existed",
		want:  "0 Pending, 1-3 Failed DeletionByPodGC",
		says:  []string{"PodGC: node no longer exists"},
		times: "- 02:47:15 51s",
	},
	"s48-cmd-not-executable": {
		story: "the command is not executable",
		want:  "0-4 Pending, 5 Failed StartError",
		says:  []string{`container "main"`, `exec: "/etc/passwd": permission denied`},
		times: "- 02:53:43 0s",
	},
	"s51-evicted-emptydir": {
		story: "evicted for its emptyDir, the agent exits 0 on SIGTERM: only an Event tells, nothing on the pod does",
		want:  "0-3 Pending, 4-5 Running, 6 Succeeded Completed",
		times: "02:53:48 02:54:20 32s",
	},
	"s53b-hostport-conflict": {
		story: "unschedulable for its host port, then bound all the same: kubelet refuses it",
		want:  "0-2 Pending, 3 Failed NodePorts",
		says:  []string{"Predicate NodePorts failed"},
	},
	"s54-liveness-kill-never-exit1": {
		story: "killed by the liveness probe, the agent exits 1",
		want:  "0-3 Pending, 4-6 Running, 7 Failed Error",
		says:  []string{`container "main"`, "exit code 1"},
		times: "02:53:55 02:54:01 6s",
	},
	"s54c-deadline-running-exit1": {
		story: "activeDeadlineSeconds ends an agent that exits 1 on SIGTERM: the same cause as s32b, so the same reason",
		want:  "0-3 Pending, 4-5 Running, 6-7 Failed DeadlineExceeded",
		says:  []string{"Pod was active on the node longer than the specified deadline"},
		times: "02:53:57 02:54:17 20s",
	},
	"s55-deleted-while-running": {
		story: "deleted while running; the pod says Succeeded, which is not the agent's own success",
		want:  "0-3 Pending, 4-6 Running, 7-9 Failed Deleted",
		says:  []string{"deleted"},
		times: "02:53:58 02:54:08 10s",
	},
	"s56-init-oom": {
		story: "the init container is killed for its memory",
		want:  "0-5 Pending, 6 Failed OOMKilled",
		says:  []string{`init container "init"`, "exit code 137"},
		times: "- 02:54:00 1s",
	},
	"s57-init-cmd-notfound-never": {
		story: "the init container's command does not exist",
		want:  "0-4 Pending, 5 Failed StartError",
		says:  []string{`init container "init"`, `exec: "/no/such": stat /no/such: no such file or directory`},
		times: "- 02:54:01 1s",
	},
	"sq01-serial-hang": {
		story: "a pull that hangs; deleted, the pod is Failed only when the pull has ended",
		want:  "0-6 Pending, 7-9 Failed Deleted",
		says:  []string{"deleted"},
		times: "- 02:59:26 2m17s",
	},
}
