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
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// stopSandbox tells the Sandbox of a failed run to shut down: its pod started after
// the run was given up, and would be an agent at work that nobody looks after. The
// Sandbox itself stays; both versions of its API know spec.shutdownTime.
func stopSandbox(ctx context.Context, cl cluster.Cluster, o observed, now time.Time) error {
	patch, err := json.Marshal(map[string]any{
		// The UID keeps the patch from a Sandbox made anew under the same name.
		"metadata": map[string]any{"uid": o.sandbox.GetUID(), "resourceVersion": o.sandbox.GetResourceVersion()},
		"spec":     map[string]any{"shutdownTime": now.UTC().Format(time.RFC3339)},
	})
	if err != nil {
		return err
	}
	err = cl.GetClient().Patch(ctx, o.sandbox.DeepCopy(), client.RawPatch(mergePatch, patch))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// Its next event brings the run back here.
		return nil
	case apierrors.IsForbidden(err):
		log.FromContext(ctx).Info("Not allowed to stop the Sandbox of a failed run", "sandbox", o.sandbox.GetName(), "missing", "patch sandboxes.agents.x-k8s.io")
		announceNotStopped(cl, o.run, o.sandbox.GetName())
		return nil
	case err != nil:
		return fmt.Errorf("shutting down Sandbox %s/%s: %w", o.sandbox.GetNamespace(), o.sandbox.GetName(), err)
	}
	announceStopped(cl, o.run, o.sandbox.GetName())
	return nil
}
