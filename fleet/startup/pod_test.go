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
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
)

func TestPodOf(t *testing.T) {
	labelled := func(name string, created int, edits ...func(*corev1.Pod)) *corev1.Pod {
		return newPod(append([]func(*corev1.Pod){func(pod *corev1.Pod) {
			pod.Name, pod.CreationTimestamp = name, at(created)
			pod.Labels = map[string]string{agentv1alpha1.AgentRunLabel: "r"}
		}}, edits...)...)
	}
	ownedBy := func(kind string, uid types.UID) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", UID: uid, Controller: new(true)}}
		}
	}
	unlabelled := func(pod *corev1.Pod) { pod.Labels = nil }
	cases := map[string]struct {
		sandboxUID types.UID
		pods       []*corev1.Pod
		want       string
	}{
		"none":           {},
		"a labelled pod": {pods: []*corev1.Pod{labelled("a", 1)}, want: "a"},
		"a labelled pod that is older than the run belongs to an earlier run of the name": {pods: []*corev1.Pod{labelled("old", -5)}},
		"a pod of the run's Sandbox, without a label":                                     {sandboxUID: "sb", pods: []*corev1.Pod{labelled("a", 1, unlabelled, ownedBy("Sandbox", "sb"))}, want: "a"},
		"a pod adopted from a warm pool may be older than the run":                        {sandboxUID: "sb", pods: []*corev1.Pod{labelled("warm", -500, ownedBy("Sandbox", "sb"))}, want: "warm"},
		"a labelled pod of another Sandbox is not the run's":                              {sandboxUID: "sb", pods: []*corev1.Pod{labelled("a", 1, ownedBy("Sandbox", "other"))}},
		"a labelled pod of a Sandbox that is not known is not the run's":                  {pods: []*corev1.Pod{labelled("a", 1, ownedBy("Sandbox", "other"))}},
		"a pod that the run itself controls":                                              {pods: []*corev1.Pod{labelled("a", 1, unlabelled, ownedBy("AgentRun", "run-uid"))}, want: "a"},
		"a pod that an earlier run of the name controls":                                  {pods: []*corev1.Pod{labelled("a", 1, ownedBy("AgentRun", "earlier"))}},
		"a labelled pod that something else controls":                                     {pods: []*corev1.Pod{labelled("a", 1, ownedBy("Job", "j"))}, want: "a"},
		"an unlabelled pod that something else controls":                                  {pods: []*corev1.Pod{labelled("a", 1, unlabelled, ownedBy("Job", "j"))}},
		"a pod with the label alone does not take the place of the Sandbox's":             {sandboxUID: "sb", pods: []*corev1.Pod{labelled("a", 1, ownedBy("Sandbox", "sb")), labelled("copy", 9)}, want: "a"},
		"nor stands in for it while there is none":                                        {sandboxUID: "sb", pods: []*corev1.Pod{labelled("copy", 9)}},
		"nor that of a pod the run controls":                                              {pods: []*corev1.Pod{labelled("a", 1, ownedBy("AgentRun", "run-uid")), labelled("copy", 9)}, want: "a"},
		"the youngest of two":                                                             {pods: []*corev1.Pod{labelled("a", 1), labelled("b", 9), labelled("c", 5)}, want: "b"},
		"of the same second, the one that stays":                                          {pods: []*corev1.Pod{labelled("a", 1, deleted(2)), labelled("b", 1)}, want: "b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if pod := PodOf(newRun(), tc.sandboxUID, tc.pods); pod != nil {
				got = pod.Name
			}
			if got != tc.want {
				t.Errorf("PodOf = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCulprit(t *testing.T) {
	withImageVolume := func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "skill", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "registry.example/skill:1"}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "other"}, {Name: "skill"}}
	}
	type culprit struct{ name, image, node string }
	cases := map[string]struct {
		pod    *corev1.Pod
		reason string
		want   culprit
	}{
		"no pod": {reason: "ImagePullBackOff"},
		"the container that waits on the reason": {
			pod: newPod(extraContainer("bad"), runs("main", 1), waits("bad", "ImagePullBackOff", "")), reason: "ImagePullBackOff",
			want: culprit{"bad", "registry.example/bad:1", "node-a"},
		},
		"also when the pull is being tried again": {
			pod: newPod(waits("main", "ErrImagePull", "")), reason: "ImagePullBackOff", want: culprit{"main", "registry.example/agent:1", "node-a"},
		},
		"the container that ended with it": {
			pod: newPod(ended("main", "OOMKilled", 137, 1, 2)), reason: "OOMKilled", want: culprit{"main", "registry.example/agent:1", "node-a"},
		},
		"a reason of the pod as a whole has no container": {
			pod: newPod(podReason("Evicted", "")), reason: "Evicted", want: culprit{node: "node-a"},
		},
		"the image volume that kubelet's message names": {
			pod:    newPod(withImageVolume, waits("main", "ImagePullBackOff", `Back-off pulling image "registry.example/skill:1"`)),
			reason: "ImagePullBackOff", want: culprit{"main", "registry.example/skill:1", "node-a"},
		},
		"the container's image where the message names both": {
			pod:    newPod(withImageVolume, waits("main", "ImagePullBackOff", `registry.example/agent:1 and registry.example/skill:1`)),
			reason: "ImagePullBackOff", want: culprit{"main", "registry.example/agent:1", "node-a"},
		},
		"the container's image where the message names neither": {
			pod:    newPod(withImageVolume, waits("main", "ImagePullBackOff", "back-off")),
			reason: "ImagePullBackOff", want: culprit{"main", "registry.example/agent:1", "node-a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got culprit
			got.name, got.image, got.node = Culprit(tc.pod, tc.reason)
			if got != tc.want {
				t.Errorf("Culprit = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestMentions(t *testing.T) {
	cases := map[string]struct {
		text, ref string
		want      bool
	}{
		"alone":                       {"app:1", "app:1", true},
		"quoted":                      {`image "app:1": not found`, "app:1", true},
		"behind a registry":           {"docker.io/library/app:1", "app:1", true},
		"ends a clause":               {"pull app:1: not found", "app:1", true},
		"a longer tag":                {"app:10", "app:1", false},
		"a tag with a suffix":         {"app:1-rc", "app:1", false},
		"a longer name":               {"myapp:1", "app:1", false},
		"found behind a longer one":   {"app:10 and app:1", "app:1", true},
		"not there":                   {"nothing", "app:1", false},
		"nothing is found in nothing": {"", "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := mentions(tc.text, tc.ref); got != tc.want {
				t.Errorf("mentions(%q, %q) = %v, want %v", tc.text, tc.ref, got, tc.want)
			}
		})
	}
}
