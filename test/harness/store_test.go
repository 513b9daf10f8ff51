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

package harness

import (
	"fmt"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
)

// TestStore: what is stored past the API server is served by it, watched and written as
// what it has stored itself.
func TestStore(t *testing.T) {
	g := NewGomega(t)
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const pods = 50
	watch, err := member.Client.Watch(t.Context(), &agentv1alpha1.AgentRunList{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer watch.Stop()

	run := build.MakeAgentRun("stored").Created(created).Obj()
	objects := []client.Object{run}
	for i := range pods {
		objects = append(objects, build.MakePod(fmt.Sprintf("stored-%d", i)).Label("stored", "yes").Container("main", "registry.example/agent:1").Created(created).Obj())
	}
	g.Expect(member.Store(t.Context(), objects...)).To(gomega.Succeed())

	g.Eventually(watch.ResultChan()).Should(gomega.Receive(gomega.HaveField("Object.ObjectMeta.Name", "stored")))
	stored := &agentv1alpha1.AgentRun{}
	g.Expect(member.Client.Get(t.Context(), client.ObjectKeyFromObject(run), stored)).To(gomega.Succeed())
	g.Expect(stored.CreationTimestamp.Time).To(gomega.BeTemporally("==", created))
	g.Expect(stored.UID).To(gomega.Equal(run.UID))
	list := &corev1.PodList{}
	g.Eventually(func() ([]corev1.Pod, error) {
		return list.Items, member.Client.List(t.Context(), list, client.MatchingLabels{"stored": "yes"})
	}).Should(gomega.HaveLen(pods))

	pod := build.MakePod("stored-0").Container("main", "registry.example/agent:1").Scheduled().Waiting("main", "ContainerCreating", "").Obj()
	g.Expect(member.SetPodStatus(t.Context(), pod)).To(gomega.Succeed())
	g.Expect(pod.CreationTimestamp.Time).To(gomega.BeTemporally("==", created))
	stored.Status.Phase = agentv1alpha1.AgentRunPending
	g.Expect(member.Client.Status().Update(t.Context(), stored)).To(gomega.Succeed())
}
