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
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// Labels of the demo. The first is on runs, and on their pods for stages.yaml.
const (
	outcomeLabel     = "demo.agentrun-fleet/outcome"
	startsAfterLabel = "demo.agentrun-fleet/starts-after"
)

const registry = "registry.example.com/agents/"

// playKonveyor makes a Sandbox for every run of a member and writes its name into the
// run's status, as konveyor's own controller does. It returns when ctx is done.
func playKonveyor(ctx context.Context, cp *harness.ControlPlane) error {
	for ctx.Err() == nil {
		// A watch without resource version begins with all runs that exist. It ends
		// after some time, and then the next one begins.
		events, err := cp.Client.Watch(ctx, &agentv1alpha1.AgentRunList{})
		if err != nil {
			return unlessDone(ctx, fmt.Errorf("watching the AgentRuns of %s: %w", cp.Name, err))
		}
		err = serveRuns(ctx, cp, events.ResultChan())
		events.Stop()
		if err != nil {
			return unlessDone(ctx, err)
		}
	}
	return nil
}

func serveRuns(ctx context.Context, cp *harness.ControlPlane, events <-chan watch.Event) error {
	for event := range events {
		run, ok := event.Object.(*agentv1alpha1.AgentRun)
		if !ok || event.Type == watch.Deleted || run.Status.SandboxName != "" {
			continue
		}
		if err := makeSandbox(ctx, cp, run); err != nil {
			return err
		}
	}
	return nil
}

// unlessDone drops what failed because ctx is done.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func makeSandbox(ctx context.Context, cp *harness.ControlPlane, run *agentv1alpha1.AgentRun) error {
	sandbox := build.MakeSandbox(run.Name).ForRun(run).PodTemplate(podOf(run)).Obj()
	if err := client.IgnoreAlreadyExists(cp.Client.Create(ctx, sandbox)); err != nil {
		return fmt.Errorf("creating Sandbox %s in %s: %w", run.Name, cp.Name, err)
	}
	named := run.DeepCopy()
	named.Status.SandboxName = sandbox.GetName()
	err := cp.Client.Status().Patch(ctx, named, client.MergeFrom(run))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing status.sandboxName of AgentRun %s in %s: %w", run.Name, cp.Name, err)
	}
	return nil
}

// podOf is the pod that the run's outcome asks for.
func podOf(run *agentv1alpha1.AgentRun) *corev1.Pod {
	wanted := outcome(run.Labels[outcomeLabel])
	image := registry + run.Spec.AgentRef
	pod := build.MakePod(run.Name)
	if run.Spec.AgentRef == reviewer {
		pod.ForRun(run)
	}
	switch wanted {
	case initImageMissing:
		pod.InitContainer("checkout", registry+"git-clone:2.50").Container("agent", image+":1.4")
		pod.Label(outcomeLabel, string(imageMissing))
	case imageMissing:
		pod.Container("agent", image+":1.5-rc1").Label(outcomeLabel, string(wanted))
	case badImageName:
		pod.Container("agent", "Registry.Example.Com/Agents/"+run.Spec.AgentRef).Label(outcomeLabel, string(wanted))
	case crashLoops:
		pod.Container("agent", image+":1.4").Container("mcp-server", registry+"mcp-server:0.9").Label(outcomeLabel, string(wanted))
	case slow:
		pod.Container("agent", image+":1.4").Label(outcomeLabel, string(runs)).Label(startsAfterLabel, "6s")
	case "": // a run that a user of the demo made
		pod.Container("agent", image+":1.4").Label(outcomeLabel, string(runs))
	default:
		pod.Container("agent", image+":1.4").Label(outcomeLabel, string(wanted))
	}
	return withSpec(pod.Obj(), wanted)
}

// withSpec sets what the builder has no word for.
func withSpec(pod *corev1.Pod, wanted outcome) *corev1.Pod {
	switch wanted {
	case configMissing:
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "model-settings"}},
		}}
	case crashLoops:
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.Containers[1].RestartPolicy = &always
	case noGPU:
		pod.Spec.NodeSelector = map[string]string{"accelerator": "gpu"}
	}
	return pod
}

// create creates one of the demo's runs in a member.
func (r demoRun) create(ctx context.Context, cp *harness.ControlPlane) error {
	run := build.MakeAgentRun(r.name).Namespace(runsNamespace).Agent(r.agent).Label(outcomeLabel, string(r.outcome))
	if r.deadline > 0 {
		run.StartupDeadline(r.deadline)
	}
	if r.atOnce {
		run.TTLAfterFinished(0)
	}
	if err := cp.Client.Create(ctx, run.Obj()); err != nil {
		return fmt.Errorf("creating AgentRun %s in %s: %w", r.name, cp.Name, err)
	}
	return nil
}
