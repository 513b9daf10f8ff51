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

package install

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

func TestInstall(t *testing.T) {
	i := newInstallation(t)

	i.apply(i.hub, "default")
	i.apply(i.older, "member/rbac-only")
	i.upgradeKeepsStoredRuns()
	i.fieldsAreExplained()
	i.samplesAreValid()
	i.managersPodIsAdmitted()
	i.managersPodHasAnIdentity()
	i.viewersMayReadAndNoMore(i.upgraded)

	i.register("upgraded", i.upgraded)
	i.register("older", i.older)
	i.startManager()
	pod := i.failRunWithSandbox(i.upgraded)
	i.failRun(i.older)
	i.hubKnows()
	i.stopSandbox(pod)
	i.expireRun(i.upgraded)
	i.removeMember("older")
	i.stopManager()

	// An Event is patched when it repeats itself, and a run is read from the server after
	// a conflict alone.
	i.expectEveryRuleUsed(i.hub, managerAccount, hubRole, "patch events")
	i.expectEveryRuleUsed(i.upgraded, memberAccount, memberRole, "get agentruns", "patch events")

	i.apply(i.hub, "secret-namespaces")
	i.managerMayReadSecretsOnlyInItsNamespace()
	i.register("older", i.older)
	i.startManager()
	i.Eventually(i.clusterStatus("older")).Should(harness.HaveCondition(fleetv1alpha1.ConditionConnected, metav1.ConditionTrue, ""))
	i.stopManager()

	i.hubCeasesToBeAMember()

	i.expectNothingForbidden(i.hub, managerAccount)
	i.expectNothingForbidden(i.upgraded, memberAccount)
	i.expectNothingForbidden(i.older, memberAccount)
}

// upgradeKeepsStoredRuns puts this project's CRD over the older one.
func (i *installation) upgradeKeepsStoredRuns() {
	i.Helper()
	ended := time.Now().Add(-time.Hour).Truncate(time.Second)
	waiting := build.MakeAgentRun("waiting").Agent("migrator").Obj()
	waiting.Spec.Gateway = "large"
	waiting.Spec.Params = []agentv1alpha1.AgentRunParam{{Name: "repository", Value: "https://git.example.com/a.git"}}
	waiting.Spec.Instructions = "Move to Java 21."
	waiting.Spec.Env = []corev1.EnvVar{{Name: "LEVEL", Value: "debug"}, {Name: "KEY", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "key"},
	}}}
	waiting.Spec.EnvFrom = []corev1.EnvFromSource{{Prefix: "A_", SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "keys"},
	}}}
	failed := build.MakeAgentRun("failed").Started(ended.Add(-time.Minute)).Failed("Evicted", "The node was low on resource: memory.", ended).Obj()
	for _, run := range []*agentv1alpha1.AgentRun{waiting, failed} {
		i.Expect(i.upgraded.CreateRun(i.Context(), run)).To(Succeed())
	}
	before := i.storedRuns()
	i.Expect(before).To(HaveLen(2))

	i.apply(i.upgraded, "member")
	i.Eventually(func() error {
		return i.upgraded.Client.Create(i.Context(), build.MakeAgentRun("new").StartupDeadline(30).Obj(),
			&client.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	}).Should(Succeed(), "the new field is served")
	i.Expect(i.storedRuns()).To(Equal(before))
}

// storedRuns are the runs of the upgraded member as its API server tells them.
func (i *installation) storedRuns() []unstructured.Unstructured {
	i.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(agentv1alpha1.GroupVersion.WithKind("AgentRunList"))
	i.Expect(i.upgraded.Client.List(i.Context(), list)).To(Succeed())
	return list.Items
}

func (i *installation) fieldsAreExplained() {
	i.Helper()
	for field, want := range map[string]string{
		"agentrunfleetstatuses":                          "AgentRunFleetStatus answers what is failing in the fleet",
		"agentrunfleetstatuses.spec.clusterSelector":     "clusterSelector selects members by the labels",
		"agentrunfleetstatuses.status.failures.current":  "current is the number of Failed runs",
		"agentrunfleetstatuses.status.clusters.observed": "observed is the number of selected members",
		"agentrunclusterstatuses.status.runs.unknown":    "unknown is the number of runs",
	} {
		i.Expect(i.kubectl(i.hub, "explain", field)).To(ContainSubstring(want))
	}
	i.Expect(i.kubectl(i.upgraded, "explain", "agentruns.spec.startupDeadlineSeconds")).To(ContainSubstring("from the run's creation"))
}

func (i *installation) samplesAreValid() {
	i.Helper()
	for sample, cp := range map[string]*harness.ControlPlane{
		"agentrun.yaml":            i.upgraded,
		"agentrunfleetstatus.yaml": i.hub,
		"member_secret.yaml":       i.hub,
	} {
		i.kubectl(cp, "create", "--dry-run=server", "--validate=strict", "-f", config(i.T, "samples/"+sample))
	}
}

// managersPodIsAdmitted: a pod of the Deployment may be made in its namespace, where
// the restricted Pod Security Standard is enforced, and the Service finds it.
func (i *installation) managersPodIsAdmitted() {
	i.Helper()
	template := i.deployment().Spec.Template
	i.Expect(template.Spec.Containers[0].Image).To(Equal("ghcr.io/konveyor/agentrun-fleet:v0.1.0"))
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = namespace, "admitted"
	i.Expect(i.hub.Client.Create(i.Context(), pod.DeepCopy(), client.DryRunAll)).To(Succeed())
	pod.Spec.SecurityContext = nil
	i.Expect(i.hub.Client.Create(i.Context(), pod, client.DryRunAll)).To(MatchError(ContainSubstring(`violates PodSecurity "restricted`)))

	service := &corev1.Service{}
	i.Expect(i.hub.Client.Get(i.Context(), client.ObjectKey{Namespace: namespace, Name: "agentrun-fleet-metrics"}, service)).To(Succeed())
	i.Expect(labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template.Labels))).To(BeTrue())
	i.Expect(template.Spec.Containers[0].Ports).To(ContainElement(HaveField("Name", service.Spec.Ports[0].TargetPort.StrVal)))
}

// managersPodHasAnIdentity: leader election tells a restarted container from another pod.
func (i *installation) managersPodHasAnIdentity() {
	i.Helper()
	fields := map[string]string{}
	for _, env := range i.deployment().Spec.Template.Spec.Containers[0].Env {
		if env.ValueFrom != nil {
			fields[env.Name] = env.ValueFrom.FieldRef.FieldPath
		}
	}
	i.Expect(fields).To(Equal(map[string]string{"POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}))
}

// viewersMayReadAndNoMore needs a control plane whose controller manager aggregates roles,
// and none of the kinds.
func (i *installation) viewersMayReadAndNoMore(cp *harness.ControlPlane) {
	i.Helper()
	i.kubectl(cp, "apply", "-f", config(i.T, "rbac/hub/user_roles.yaml"))
	i.kubectl(cp, "create", "clusterrolebinding", "viewers", "--clusterrole=view", "--user=viewer")
	i.kubectl(cp, "create", "clusterrolebinding", "editors", "--clusterrole=agentrun-fleet-editor", "--user=editor")
	may := func(user, verb, resource string) func() (bool, error) {
		return i.mayUse(cp, user, authorizationv1.ResourceAttributes{
			Group: fleetv1alpha1.GroupVersion.Group, Resource: resource, Verb: verb, Namespace: namespace,
		})
	}
	i.Eventually(may("viewer", "list", "agentrunclusterstatuses")).Should(BeTrue())
	i.Eventually(may("viewer", "watch", "agentrunfleetstatuses")).Should(BeTrue())
	i.Eventually(may("editor", "create", "agentrunfleetstatuses")).Should(BeTrue())
	for _, forbidden := range []func() (bool, error){
		may("viewer", "create", "agentrunfleetstatuses"),
		may("viewer", "delete", "agentrunclusterstatuses"),
		may("editor", "delete", "agentrunclusterstatuses"),
	} {
		allowed, err := forbidden()
		i.Expect(err).NotTo(HaveOccurred())
		i.Expect(allowed).To(BeFalse())
	}
}

// mayUse asks a control plane's authorizer.
func (i *installation) mayUse(cp *harness.ControlPlane, user string, what authorizationv1.ResourceAttributes) func() (bool, error) {
	return func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
		err := cp.Client.Create(i.Context(), review)
		return review.Status.Allowed, err
	}
}

// neverStarting is a pod whose image cannot be pulled.
func neverStarting(run *agentv1alpha1.AgentRun) *build.PodWrapper {
	return build.MakePod(run.Name).ForRun(run).Container("agent", "registry.example.com/agent:gone").
		Waiting("agent", startup.ReasonImagePullBackOff, `Back-off pulling image "registry.example.com/agent:gone"`)
}

// failRun makes a run that cannot start, and sees it fail.
func (i *installation) failRun(cp *harness.ControlPlane) {
	i.Helper()
	run := build.MakeAgentRun("never-starts").Obj()
	i.Expect(cp.CreateRun(i.Context(), run)).To(Succeed())
	i.Expect(cp.CreatePod(i.Context(), neverStarting(run).Obj())).To(Succeed())
	i.seeFailed(cp, run)
}

// failRunWithSandbox is failRun for a run whose pod belongs to a Sandbox. It returns
// the pod.
func (i *installation) failRunWithSandbox(cp *harness.ControlPlane) *build.PodWrapper {
	i.Helper()
	run := build.MakeAgentRun("never-starts").Obj()
	i.Expect(cp.CreateRun(i.Context(), run)).To(Succeed())
	pod := neverStarting(run)
	sandbox := build.MakeSandbox("never-starts").ForRun(run).PodTemplate(pod.Obj()).Obj()
	i.Expect(cp.Client.Create(i.Context(), sandbox)).To(Succeed())
	i.Expect(cp.CreatePod(i.Context(), pod.OwnedBy(sandbox).Obj())).To(Succeed())
	i.seeFailed(cp, run)
	return pod
}

// seeFailed waits for the run's end, its mark and its Event.
func (i *installation) seeFailed(cp *harness.ControlPlane, run *agentv1alpha1.AgentRun) {
	i.Helper()
	i.Eventually(komega.New(cp.Client).WithContext(i.Context()).Object(run)).Should(And(
		harness.HavePhase(agentv1alpha1.AgentRunFailed),
		harness.HaveCondition(agentv1alpha1.ConditionSucceeded, metav1.ConditionFalse, startup.ReasonImagePullBackOff),
		HaveField("Recorded()", BeTrue()),
	))
	i.seeEvent(cp, run, startup.ReasonImagePullBackOff)
}

func (i *installation) seeEvent(cp *harness.ControlPlane, run *agentv1alpha1.AgentRun, reason string) {
	i.Helper()
	i.Eventually(func() ([]eventsv1.Event, error) {
		list := &eventsv1.EventList{}
		err := cp.Client.List(i.Context(), list, client.InNamespace(run.Namespace))
		return list.Items, err
	}).Should(ContainElement(And(
		HaveField("Reason", reason),
		HaveField("Regarding.Kind", "AgentRun"),
		HaveField("Regarding.UID", run.UID),
	)))
}

// hubKnows: both members and the fleet say what failed. The run that was stored as
// failed before the installation counts too.
func (i *installation) hubKnows() {
	i.Helper()
	connected := harness.HaveCondition(fleetv1alpha1.ConditionConnected, metav1.ConditionTrue, "")
	i.Eventually(i.clusterStatus("upgraded")).Should(And(connected,
		haveFailures(startup.ReasonImagePullBackOff, 1), haveFailures("Evicted", 1),
		HaveField("Status.Runs", HaveValue(Equal(fleetv1alpha1.RunCounts{Pending: 1, Active: 1, Failed: 2})))))
	i.Eventually(i.clusterStatus("older")).Should(And(connected,
		haveFailures(startup.ReasonImagePullBackOff, 1), HaveField("Status.Runs.Failed", int32(1))))
	i.Eventually(i.fleetStatus).Should(And(
		harness.HaveCondition(fleetv1alpha1.ConditionReady, metav1.ConditionTrue, ""),
		HaveField("Status.Clusters.Ratio", "2/2"),
		HaveField("Status.Failures", HaveExactElements(
			And(HaveField("Reason", startup.ReasonImagePullBackOff), HaveField("Current", int32(2)), HaveField("Clusters", int32(2))),
			And(HaveField("Reason", "Evicted"), HaveField("Current", int32(1)), HaveField("Clusters", int32(1))),
		)),
	))
}

// stopSandbox has the pod of the failed run start after all.
func (i *installation) stopSandbox(pod *build.PodWrapper) {
	i.Helper()
	cp := i.upgraded
	i.Expect(cp.SetPodStatus(i.Context(), pod.Phase(corev1.PodRunning).Running("agent").Obj())).To(Succeed())
	sandbox := build.MakeSandbox("never-starts").Obj()
	i.Eventually(komega.New(cp.Client).WithContext(i.Context()).Object(sandbox)).Should(
		WithTransform(func(o client.Object) (string, error) {
			at, _, err := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", "shutdownTime")
			return at, err
		}, Not(BeEmpty())))
}

// expireRun makes a finished run whose time is over, and sees it go.
func (i *installation) expireRun(cp *harness.ControlPlane) {
	i.Helper()
	run := build.MakeAgentRun("expires").TTLAfterFinished(0).Phase(agentv1alpha1.AgentRunSucceeded).Completed(time.Now()).Obj()
	i.Expect(cp.CreateRun(i.Context(), run)).To(Succeed())
	i.Eventually(func() error {
		return cp.Client.Get(i.Context(), client.ObjectKeyFromObject(run), run)
	}).Should(WithTransform(apierrors.IsNotFound, BeTrue()))
	i.seeEvent(cp, run, "TTLExpired")
}

func (i *installation) removeMember(cluster string) {
	i.Helper()
	i.kubectl(i.hub, "delete", "secret", cluster+"-kubeconfig", "-n", namespace)
	i.Eventually(func() bool {
		_, err := i.clusterStatus(cluster)()
		return apierrors.IsNotFound(err)
	}).Should(BeTrue())
	i.Eventually(i.fleetStatus).Should(HaveField("Status.Clusters.Ratio", "1/1"))
}

// hubCeasesToBeAMember takes a member from its hub, with which it shares the Namespace, and
// leaves the manager there.
func (i *installation) hubCeasesToBeAMember() {
	i.Helper()
	i.apply(i.hub, "member/rbac-only")
	i.kubectl(i.hub, "delete", "-k", config(i.T, "rbac/member"))
	account := &corev1.ServiceAccount{}
	err := i.hub.Client.Get(i.Context(), client.ObjectKey{Namespace: namespace, Name: memberAccount}, account)
	i.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the member's account is there: %v", err)
	i.Expect(i.deployment().DeletionTimestamp).To(BeNil())
	shared := &corev1.Namespace{}
	i.Expect(i.hub.Client.Get(i.Context(), client.ObjectKey{Name: namespace}, shared)).To(Succeed())
	i.Expect(shared.DeletionTimestamp).To(BeNil())
}

func (i *installation) managerMayReadSecretsOnlyInItsNamespace() {
	i.Helper()
	mayListSecrets := func(in string) func() (bool, error) {
		return i.mayUse(i.hub, accountOf(managerAccount), authorizationv1.ResourceAttributes{Namespace: in, Resource: "secrets", Verb: "list"})
	}
	// The authorizer follows a changed role after a moment.
	i.Eventually(mayListSecrets("")).Should(BeFalse())
	i.Eventually(mayListSecrets(namespace)).Should(BeTrue())
}
