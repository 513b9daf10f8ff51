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
	"context"
	"fmt"
	"io"
	"os"
)

// startControllerManager runs all default controllers. It makes ServiceAccounts'
// and namespaces' usual company, and collects garbage.
func (cp *ControlPlane) startControllerManager(ctx context.Context) error {
	ca := cp.path("ca.crt")
	if err := os.WriteFile(ca, cp.Config.CAData, 0o600); err != nil {
		return err
	}
	return cp.startKubeProgram(ctx, "kube-controller-manager",
		"--root-ca-file="+ca,
		"--service-account-private-key-file="+cp.path("certs/sa-signer.key"),
	)
}

func (cp *ControlPlane) startScheduler(ctx context.Context) error {
	return cp.startKubeProgram(ctx, "kube-scheduler")
}

func (cp *ControlPlane) startKubeProgram(ctx context.Context, name string, flags ...string) error {
	binary, err := BinaryPath(name)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	return cp.run(ctx, program{
		name: name,
		path: binary,
		args: append(flags,
			"--kubeconfig="+cp.KubeconfigPath(),
			"--bind-address=127.0.0.1",
			"--secure-port="+port,
			"--leader-elect=false",
			"--kube-api-qps=1000",
			"--kube-api-burst=2000",
		),
		health: localURL("https", port, "/healthz"),
	})
}

// StartAgentSandbox runs the real agent-sandbox controller against a control
// plane that has the Sandbox CRD (SandboxCRDPath). It ends with the control plane.
func StartAgentSandbox(ctx context.Context, cp *ControlPlane) error {
	binary, err := ToolPath("agent-sandbox-controller", "agent-sandbox")
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	return cp.run(ctx, program{
		name: "agent-sandbox-controller",
		path: binary,
		args: []string{
			"--leader-elect=false",
			"--metrics-bind-address=0",
			"--health-probe-bind-address=127.0.0.1:" + port,
		},
		env:    []string{"KUBECONFIG=" + cp.KubeconfigPath()},
		health: localURL("http", port, "/readyz"),
	})
}

// run starts a program that ends with the control plane.
func (cp *ControlPlane) run(ctx context.Context, p program) error {
	var err error
	if p.path, err = cp.guarded(p.name, p.path); err != nil {
		return err
	}
	proc, err := startProcess(ctx, p, cp.path(p.name+".log"))
	if err != nil {
		return fmt.Errorf("control plane %q: %w", cp.Name, err)
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.processes = append(cp.processes, proc)
	return nil
}

func closeLog(w io.Writer) {
	if file, ok := w.(*os.File); ok {
		_ = file.Close()
	}
}
