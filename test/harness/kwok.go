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

import "context"

// StartKWOK runs KWOK against a control plane: it plays kubelet on all of its nodes,
// by the Stages in the config files. It ends with the control plane.
func StartKWOK(ctx context.Context, cp *ControlPlane, configs ...string) error {
	binary, err := ToolPath("kwok", "kwok")
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + cp.KubeconfigPath(),
		"--manage-all-nodes",
		"--server-address=127.0.0.1:" + port,
	}
	for _, config := range configs {
		args = append(args, "--config="+config)
	}
	return cp.run(ctx, program{
		name:   "kwok",
		path:   binary,
		args:   args,
		health: localURL("http", port, "/healthz"),
	})
}
