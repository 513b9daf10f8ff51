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

// waitingScenarios fail on a reason that a container waits on: rule 3.
var waitingScenarios = map[string]scenario{
	"s01b-missing-tag": {
		story: "the tag does not exist; kubelet alternates between ErrImagePull and ImagePullBackOff for ever",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/ok:nope"`, `Back-off pulling image "127.0.0.1:5000/ok:nope": ErrImagePull: rpc error: code = NotFound`},
		never: []string{"init container"},
		times: "- 02:44:47 12s",
	},
	"s02b-hub-denied": {
		story: "the registry denies the pull",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5006/private/app:1"`, "pull access denied"},
	},
	"s03-refused": {
		story: "nothing listens where the registry should be",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5004/x:1"`, "connect: connection refused"},
	},
	"s03b-dns": {
		story: "the registry's name does not resolve",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "nosuch.invalid/x:1"`, "no such host"},
	},
	"s04-http500": {
		story: "the registry answers 500",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5002/x:1"`, "500 Internal Server Error"},
	},
	"s06-invalid-name": {
		story: "the image's name is no image name",
		want:  "0-3 Pending, 4 Failed InvalidImageName",
		says:  []string{`container "main"`, `image "INVALID//Image:::"`, "invalid reference format"},
		times: "- 02:44:48 0s",
	},
	"s06b-bad-digest": {
		story: "no image has the digest",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`container "main"`, "ok@sha256:0000000000000000000000000000000000000000000000000000000000000000", "not found"},
	},
	"s08-env-missing-cm": {
		story: "an environment variable comes from a ConfigMap that does not exist",
		want:  "0-3 Pending, 4 Failed CreateContainerConfigError",
		says:  []string{`container "main"`, `configmap "nope-cm" not found`},
		times: "- 02:44:52 1s",
	},
	"s08b-envfrom-missing-cm": {
		story: "envFrom names a ConfigMap that does not exist",
		want:  "0-3 Pending, 4 Failed CreateContainerConfigError",
		says:  []string{`container "main"`, `configmap "nope-cm" not found`},
	},
	"s09-env-missing-secret-key": {
		story: "an environment variable comes from a key that its Secret lacks",
		want:  "0-3 Pending, 4 Failed CreateContainerConfigError",
		says:  []string{`container "main"`, "couldn't find key absent in Secret rec/s09"},
	},
	"s10-runasnonroot-root": {
		story: "runAsNonRoot with an image that runs as root",
		want:  "0-3 Pending, 4 Failed CreateContainerConfigError",
		says:  []string{`container "main"`, "container has runAsNonRoot and image will run as root"},
	},
	"s12-cmd-notfound-always": {
		story: "restartPolicy Always and a command that does not exist: the pod says Running, the container never ran",
		want:  "0-3 Pending, 4-5 Running, 6-16 Failed CrashLoopBackOff",
		says:  []string{`container "main"`, "back-off 10s restarting failed container=main"},
		times: "02:44:59 02:45:14 15s",
	},
	"s13-exit3-always": {
		story: "restartPolicy Always and exit code 3: in CrashLoopBackOff in a pod that is Running",
		want:  "0-3 Pending, 4-7 Running, 8-23 Failed CrashLoopBackOff",
		says:  []string{`container "main"`, "back-off 10s restarting failed container=main"},
		times: "02:45:01 02:45:13 12s",
	},
	"s13c-exit3-onfailure": {
		story: "restartPolicy OnFailure and exit code 3",
		want:  "0-3 Pending, 4-6 Running, 7-22 Failed CrashLoopBackOff",
		says:  []string{`container "main"`, "back-off 10s restarting failed container=main"},
	},
	"s16-init-image-missing": {
		story: "the init container's image does not exist",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`init container "init"`, `image "127.0.0.1:5000/nope:1"`, "not found"},
		never: []string{`container "main"`, "pause:1"},
	},
	"s16b-init-ok-then-image-missing": {
		story: "the first init container ends well, the second one's image does not exist",
		want:  "0-6 Pending, 7-15 Failed ImagePullBackOff",
		says:  []string{`init container "init2"`, `image "127.0.0.1:5000/nope:1"`},
		never: []string{"init1", "main"},
		times: "- 02:45:52 39s",
	},
	"s16d-init-ok-main-missing": {
		story: "the init container ends well, the agent's image does not exist",
		want:  "0-6 Pending, 7-15 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/nope2:1"`},
		never: []string{"init container"},
	},
	"s18-init-missing-cm": {
		story: "the init container wants a ConfigMap that does not exist",
		want:  "0-3 Pending, 4 Failed CreateContainerConfigError",
		says:  []string{`init container "init"`, `configmap "nope-cm" not found`},
	},
	"s20-sidecar-image-missing": {
		story: "a native sidecar's image does not exist, so the agent is never begun",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`init container "side"`, `image "127.0.0.1:5000/nope:1"`},
	},
	"s21b-container-restart-always": {
		story: "under Never, a container with restartPolicy Always of its own loops beside one that runs",
		want:  "0-3 Pending, 4-6 Running, 7-22 Failed CrashLoopBackOff",
		says:  []string{`container "main"`, "back-off 10s restarting failed container=main"},
		never: []string{"other"},
	},
	"s21f-sidecar-crash-before-started": {
		story: "a native sidecar loops before its startup probe passes, so the agent is never begun",
		want:  "0-7 Pending, 8-20 Failed CrashLoopBackOff",
		says:  []string{`init container "side"`, "back-off 10s restarting failed container=side"},
		times: "- 02:53:41 3s",
	},
	"s25b-subpathexpr-bad": {
		story: "subPathExpr names a variable that is not set",
		want:  "0-3 Pending, 4 Failed CreateContainerConfigError",
		says:  []string{`container "main"`, "missing value for NOPE"},
	},
	"s26-one-runs-one-missing": {
		story: "one container runs and is ready, the other one's image does not exist",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`container "bad"`, `image "127.0.0.1:5000/nope:1"`},
		never: []string{`container "main"`},
	},
	"s26d-one-runs-one-missing-cm": {
		story: "one container runs and is ready, the other wants a ConfigMap that does not exist",
		want:  "0-3 Pending, 4 Failed CreateContainerConfigError",
		says:  []string{`container "bad"`, `configmap "nope-cm" not found`},
		never: []string{`container "main"`},
	},
	"s27-late-tag-40s": {
		story: "the tag is pushed after 40 s: with no grace the run fails at kubelet's first back-off, whatever the pod does later",
		want:  "0-4 Pending, 5-11 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/late:1"`},
	},
	"s28-late-cm-40s": {
		story: "the ConfigMap is made after 40 s: with no grace the run has failed by then",
		want:  "0-3 Pending, 4-6 Failed CreateContainerConfigError",
		says:  []string{`container "main"`, `configmap "late-cm" not found`},
	},
	"s30-imagevolume-missing": {
		story: "an image volume's image does not exist; kubelet reports it as the container's own reason",
		want:  "0-4 Pending, 5-15 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `volume "v"`, `image "127.0.0.1:5000/nope:1"`, `Back-off pulling image "127.0.0.1:5000/nope:1"`},
		never: []string{"pause:1"},
	},
	"s32-deadline-while-backoff": {
		story: "the pod's activeDeadlineSeconds ends at 30 s; the back-off was seen long before",
		want:  "0-4 Pending, 5-9 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/nope:1"`},
		times: "- 02:46:04 11s",
	},
	"s33b-backoff-twonodes": {
		story: "in back-off when its node is lost",
		want:  "0-4 Pending, 5-12 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/nope:1"`},
	},
	"s36b-deleted-in-backoff": {
		story: "deleted in back-off: passes through ContainerCreating and Failed before it is gone",
		want:  "0-4 Pending, 5-11 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/nope:1"`},
		times: "- 02:46:21 13s",
	},
	"s37c-arch-lie-always": {
		story: "an image for another architecture under restartPolicy Always: a crash loop in a pod that is Running",
		want:  "0-3 Pending, 4-7 Running, 8-22 Failed CrashLoopBackOff",
		says:  []string{`container "main"`, "back-off 10s restarting failed container=main"},
	},
	"s59-hostnet-image-missing": {
		story: "a host network pod whose image does not exist",
		want:  "0-4 Pending, 5-11 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/nope:1"`},
	},
	"sq03-serial-missing-behind-hang": {
		story: "the pull waits behind another pod's pull that hangs; only then kubelet learns that the image does not exist",
		want:  "0-5 Pending, 6-14 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/nope:1"`},
		times: "- 03:00:06 2m54s",
	},
	"sq20-restart-backoff": {
		story: "kubelet is restarted during back-off and says ContainerCreating again",
		want:  "0-4 Pending, 5-12 Failed ImagePullBackOff",
		says:  []string{`container "main"`, `image "127.0.0.1:5000/nope:1"`},
	},
	"sq22-restart-config": {
		story: "kubelet is restarted while a ConfigMap is missing",
		want:  "0-3 Pending, 4-6 Failed CreateContainerConfigError",
		says:  []string{`container "main"`, `configmap "nope" not found`},
	},
}
