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

package agentrun

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// The transforms below strip what enters a member's cache to what is read. A run's
// spec and metadata are as large as whoever made it wants, and a pod is mostly spec; little
// of either is needed. Status patches are computed from two copies of the stripped object
// and so never touch what was dropped. What is stripped stays as it is when it is stripped again.

// strip is for each kind.
func strip(o any) (any, error) {
	switch o.(type) {
	case *agentv1alpha1.AgentRun:
		return stripRun(o)
	case *corev1.Pod:
		return stripPod(o)
	}
	return stripSandbox(o)
}

// stripRun keeps the status as a whole: the conditions are one list in a merge patch, so
// that what is missing from the copy would be taken from the run.
func stripRun(o any) (any, error) {
	run, ok := o.(*agentv1alpha1.AgentRun)
	if !ok {
		return o, nil
	}
	return &agentv1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{
			Name:              run.Name,
			Namespace:         run.Namespace,
			UID:               run.UID,
			ResourceVersion:   run.ResourceVersion,
			Generation:        run.Generation,
			CreationTimestamp: run.CreationTimestamp,
			DeletionTimestamp: run.DeletionTimestamp,
			Annotations:       recordedOnly(run),
		},
		Spec: agentv1alpha1.AgentRunSpec{
			StartupDeadlineSeconds:  run.Spec.StartupDeadlineSeconds,
			TTLSecondsAfterFinished: run.Spec.TTLSecondsAfterFinished,
		},
		Status: run.Status,
	}, nil
}

// recordedOnly is nil but for a run that is marked as recorded: an empty map costs memory,
// and a mark copied from another run says nothing.
func recordedOnly(run *agentv1alpha1.AgentRun) map[string]string {
	if mark := run.Mark(); mark != "" {
		return map[string]string{agentv1alpha1.RecordedAnnotation: mark}
	}
	return nil
}

func stripPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	meta := metav1.ObjectMeta{
		Name:                       pod.Name,
		Namespace:                  pod.Namespace,
		UID:                        pod.UID,
		ResourceVersion:            pod.ResourceVersion,
		CreationTimestamp:          pod.CreationTimestamp,
		DeletionTimestamp:          pod.DeletionTimestamp,
		DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		OwnerReferences:            controllerOnly(pod),
	}
	if run, ok := pod.Labels[agentv1alpha1.AgentRunLabel]; ok {
		meta.Labels = map[string]string{agentv1alpha1.AgentRunLabel: run}
	}
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			NodeName:       pod.Spec.NodeName,
			RestartPolicy:  pod.Spec.RestartPolicy,
			InitContainers: stripContainers(pod.Spec.InitContainers),
			Containers:     stripContainers(pod.Spec.Containers),
			Volumes:        imageVolumes(pod.Spec.Volumes),
		},
		Status: corev1.PodStatus{
			Phase:                 pod.Status.Phase,
			Reason:                cut(pod.Status.Reason),
			Message:               cut(pod.Status.Message),
			Conditions:            stripConditions(pod.Status.Conditions),
			InitContainerStatuses: stripStatuses(pod.Spec.InitContainers, pod.Status.InitContainerStatuses),
			ContainerStatuses:     stripStatuses(pod.Spec.Containers, pod.Status.ContainerStatuses),
		},
	}, nil
}

func stripContainers(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		out[i] = corev1.Container{Name: c.Name, Image: cut(c.Image), RestartPolicy: c.RestartPolicy}
		for _, m := range c.VolumeMounts {
			out[i].VolumeMounts = append(out[i].VolumeMounts, corev1.VolumeMount{Name: m.Name})
		}
	}
	return out
}

func imageVolumes(volumes []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for i := range volumes {
		if volumes[i].Image != nil {
			image := &corev1.ImageVolumeSource{Reference: cut(volumes[i].Image.Reference)}
			out = append(out, corev1.Volume{Name: volumes[i].Name, VolumeSource: corev1.VolumeSource{Image: image}})
		}
	}
	return out
}

// stripConditions keeps the conditions that fleet/startup reads.
func stripConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range conditions {
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.DisruptionTarget:
			out = append(out, corev1.PodCondition{
				Type: c.Type, Status: c.Status, Reason: cut(c.Reason), Message: cut(c.Message), LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	return out
}

// stripStatuses keeps the statuses of the containers that there are.
func stripStatuses(containers []corev1.Container, statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		if slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name }) {
			out = append(out, corev1.ContainerStatus{
				Name: s.Name, Started: s.Started, State: stripState(s.State), LastTerminationState: stripState(s.LastTerminationState),
			})
		}
	}
	return out
}

func stripState(state corev1.ContainerState) corev1.ContainerState {
	out := corev1.ContainerState{Running: state.Running}
	if w := state.Waiting; w != nil {
		out.Waiting = &corev1.ContainerStateWaiting{Reason: cut(w.Reason), Message: cut(w.Message)}
	}
	if t := state.Terminated; t != nil {
		out.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: t.ExitCode, Signal: t.Signal, Reason: cut(t.Reason), Message: cut(t.Message), StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
		}
	}
	return out
}

// controllerOnly keeps of the owners the one that is read.
func controllerOnly(o metav1.Object) []metav1.OwnerReference {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

// cut bounds foreign text as fleet/startup does that reads it, which finds the same in it then.
func cut(s string) string {
	if len(s) <= startup.MaxText {
		return s
	}
	return text.Shorten(s, startup.MaxText)
}

func stripSandbox(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	out := newSandbox(u.GroupVersionKind())
	out.SetName(u.GetName())
	out.SetNamespace(u.GetNamespace())
	out.SetUID(u.GetUID())
	out.SetResourceVersion(u.GetResourceVersion())
	out.SetCreationTimestamp(u.GetCreationTimestamp())
	out.SetDeletionTimestamp(u.GetDeletionTimestamp())
	if owner := controllerOnly(u); owner != nil {
		out.SetOwnerReferences(owner)
	}
	if t, found, _ := unstructured.NestedString(u.Object, "spec", "shutdownTime"); found {
		_ = unstructured.SetNestedField(out.Object, cut(t), "spec", "shutdownTime")
	}
	if conditions, found, _ := unstructured.NestedSlice(u.Object, "status", "conditions"); found {
		_ = unstructured.SetNestedSlice(out.Object, stripSandboxConditions(conditions), "status", "conditions")
	}
	return out, nil
}

// stripSandboxConditions keeps what is text in them.
func stripSandboxConditions(conditions []any) []any {
	out := make([]any, 0, len(conditions))
	for _, c := range conditions {
		from, _ := c.(map[string]any)
		condition := map[string]any{}
		for _, field := range []string{"type", "status", "reason", "message", "lastTransitionTime"} {
			if value, ok := from[field].(string); ok {
				condition[field] = cut(value)
			}
		}
		out = append(out, condition)
	}
	return out
}
