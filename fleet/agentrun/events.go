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
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/fleet/ttl"
)

// mergePatch is the patch type of every write in a member.
const mergePatch = types.MergePatchType

// controllerName is the reporting controller of Events and the controller's name in
// logs and metrics.
const controllerName = "agentrun-fleet"

// maxNote is how long the API server lets an Event's note be, in bytes.
const maxNote = 1024

// Actions of Events, as events.k8s.io has them: what the controller did.
const (
	actionFail   = "Fail"
	actionStop   = "StopSandbox"
	actionDelete = "Delete"
	actionMark   = "Mark"
)

// announce emits the Event of a run that failed. It comes after the write, so that an
// Event never tells what did not happen.
func announce(cl cluster.Cluster, run *agentv1alpha1.AgentRun, d startup.Decision) {
	if d.Failure == nil {
		return
	}
	recorder(cl).Eventf(run, nil, corev1.EventTypeWarning, d.Failure.Reason, actionFail, "%s", bounded("AgentRun failed: "+d.Failure.Message))
}

func announceStopped(cl cluster.Cluster, run *agentv1alpha1.AgentRun, sandbox string) {
	recorder(cl).Eventf(run, nil, corev1.EventTypeNormal, "SandboxStopped", actionStop,
		"Sandbox %s was told to shut down: its pod runs though the AgentRun has failed", sandbox)
}

func announceNotStopped(cl cluster.Cluster, run *agentv1alpha1.AgentRun, sandbox string) {
	recorder(cl).Eventf(run, nil, corev1.EventTypeWarning, "SandboxNotStopped", actionStop,
		"Sandbox %s runs though the AgentRun has failed, and the fleet manager is not allowed to patch it; delete it, or grant patch on sandboxes.agents.x-k8s.io", sandbox)
}

func announceNotMarked(cl cluster.Cluster, run *agentv1alpha1.AgentRun) {
	recorder(cl).Eventf(run, nil, corev1.EventTypeWarning, "NotMarked", actionMark,
		"the failure is counted, but the fleet manager is not allowed to mark the AgentRun, which is not deleted for its TTL until then; grant patch on agentruns.konveyor.io")
}

func announceDeleted(cl cluster.Cluster, run *agentv1alpha1.AgentRun, d ttl.Decision) {
	recorder(cl).Eventf(run, nil, corev1.EventTypeNormal, "TTLExpired", actionDelete, "Deleted: %s", timeOver(run, d))
}

func announceNotDeleted(cl cluster.Cluster, run *agentv1alpha1.AgentRun, d ttl.Decision) {
	recorder(cl).Eventf(run, nil, corev1.EventTypeWarning, "NotDeleted", actionDelete,
		"%s, but the fleet manager is not allowed to delete it; delete it, or grant delete on agentruns.konveyor.io", timeOver(run, d))
}

// timeOver says why a run is to go, and where the time of its end is from.
func timeOver(run *agentv1alpha1.AgentRun, d ttl.Decision) string {
	return fmt.Sprintf("the AgentRun %s at %s (by its %s), and its TTL of %s is over",
		run.Status.Phase, d.Finished.UTC().Format(time.RFC3339), finishedBy(d), d.TTL)
}

func finishedBy(d ttl.Decision) string {
	if d.FinishedBy == "" {
		return "completionTime"
	}
	return "condition " + d.FinishedBy + ", for want of a completionTime"
}

func recorder(cl cluster.Cluster) events.EventRecorder {
	return cl.GetEventRecorder(controllerName)
}

func bounded(s string) string {
	if len(s) <= maxNote {
		return s
	}
	cut := maxNote - len("…")
	for cut > 0 && s[cut]&0xC0 == 0x80 { // not within a rune
		cut--
	}
	return s[:cut] + "…"
}

func logChange(l logr.Logger, run *agentv1alpha1.AgentRun, d startup.Decision) {
	switch {
	case d.Failure != nil:
		l.Info("AgentRun failed", "reason", d.Failure.Reason, "message", d.Failure.Message)
	case run.Status.Phase != d.Status.Phase:
		l.V(1).Info("AgentRun changed phase", "from", run.Status.Phase, "to", d.Status.Phase)
	}
}
