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

package startup

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// container is one container of a pod with its status. Ephemeral containers are
// for debugging and never among them.
type container struct {
	spec    *corev1.Container
	status  *corev1.ContainerStatus
	pod     *corev1.Pod
	init    bool
	sidecar bool
}

// containersOf returns the containers that kubelet reports on: init containers
// first, each group in the order of the pod's spec (kubelet sorts statuses by name).
func containersOf(pod *corev1.Pod) []container {
	if pod == nil {
		return nil
	}
	all := make([]container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	all = appendContainers(all, pod, true, pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	return appendContainers(all, pod, false, pod.Spec.Containers, pod.Status.ContainerStatuses)
}

func appendContainers(all []container, pod *corev1.Pod, isInit bool, specs []corev1.Container, statuses []corev1.ContainerStatus) []container {
	for i := range specs {
		at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == specs[i].Name })
		if at < 0 {
			continue
		}
		policy := specs[i].RestartPolicy
		all = append(all, container{
			spec:    &specs[i],
			status:  &statuses[at],
			pod:     pod,
			init:    isInit,
			sidecar: isInit && policy != nil && *policy == corev1.ContainerRestartPolicyAlways,
		})
	}
	return all
}

// regularStarted says whether a regular container has ever run.
func regularStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containersOf(pod), func(c container) bool {
		s := c.status
		return !c.init && (s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil)
	})
}

// anyRunning says whether a regular container is at work, in a pod that stays.
func anyRunning(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && !podEnded(pod) && slices.ContainsFunc(containersOf(pod), func(c container) bool {
		return !c.init && c.status.State.Running != nil
	})
}

// title names the container for people.
func (c container) title() string {
	switch {
	case c.sidecar:
		return fmt.Sprintf("sidecar init container %q", c.spec.Name)
	case c.init:
		return fmt.Sprintf("init container %q", c.spec.Name)
	default:
		return fmt.Sprintf("container %q", c.spec.Name)
	}
}

// describe names the container and the image that is meant.
func (c container) describe() string {
	image, volume := c.image()
	image = clean(image) // the API server bounds neither its length nor what is in it
	if volume != "" {
		return fmt.Sprintf("%s, volume %q with image %q", c.title(), volume, image)
	}
	return fmt.Sprintf("%s, image %q", c.title(), image)
}

// image returns the image that the container's waiting reason is about, and the
// image volume it belongs to, if it does. A pull that fails for an image volume is
// reported as the container's own reason. Which of the two is meant is not a field
// of the status, so the references of the pod's spec are looked up in kubelet's
// message: values that the user wrote, not kubelet's wording.
func (c container) image() (image, volume string) {
	w := c.status.State.Waiting
	if w == nil || mentions(w.Message, c.spec.Image) {
		return c.spec.Image, ""
	}
	for _, mount := range c.spec.VolumeMounts {
		for i := range c.pod.Spec.Volumes {
			v := &c.pod.Spec.Volumes[i]
			if v.Name == mount.Name && v.Image != nil && mentions(w.Message, v.Image.Reference) {
				return v.Image.Reference, v.Name
			}
		}
	}
	return c.spec.Image, ""
}

// mentions says whether text has ref as a whole word, so that "app:1" is not found
// in "app:10". A registry prefix that the runtime puts before it does not matter.
func mentions(text, ref string) bool {
	if ref == "" {
		return false
	}
	for rest := text; ; {
		at := strings.Index(rest, ref)
		if at < 0 {
			return false
		}
		before, after := rest[:at], rest[at+len(ref):]
		if !endsInWord(before) && !startsWithWord(after) {
			return true
		}
		rest = after
	}
}

func endsInWord(s string) bool {
	return s != "" && isWord(rune(s[len(s)-1]))
}

// startsWithWord treats a separator as part of the reference only when more of it
// follows: "app:1-rc" goes on after "app:1", "app:1:" in a sentence does not.
func startsWithWord(s string) bool {
	if s == "" {
		return false
	}
	if strings.ContainsRune("-_.@:/", rune(s[0])) {
		return len(s) > 1 && isWord(rune(s[1]))
	}
	return isWord(rune(s[0]))
}

func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

// Culprit returns the container that a failure with the given reason is about, the
// image it wanted and the node its pod is on; each is empty where it is not known.
func Culprit(pod *corev1.Pod, reason string) (name, image, node string) {
	if pod == nil {
		return "", "", ""
	}
	for _, c := range containersOf(pod) {
		state := c.status.State
		waits := state.Waiting != nil && classOf(state.Waiting.Reason) == classOf(reason)
		ended := state.Terminated != nil && state.Terminated.ExitCode != 0 && state.Terminated.Reason == reason
		if waits || ended {
			image, _ = c.image()
			return c.spec.Name, image, pod.Spec.NodeName
		}
	}
	return "", "", pod.Spec.NodeName
}
