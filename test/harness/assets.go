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
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	modulePath    = "github.com/konveyor/agentrun-fleet"
	assetsEnv     = "KUBEBUILDER_ASSETS"
	sandboxModule = "sigs.k8s.io/agent-sandbox"
)

// RepoRoot is the folder of this repository's go.mod, found by walking up from
// the working directory.
func RepoRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module "+modulePath+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of module %s in %s or above: run from inside the repository", modulePath, wd)
		}
	}
}

// inRepo joins a path to the repository's root.
func inRepo(elements ...string) (string, error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{root}, elements...)...), nil
}

// AssetsDir is the folder of the Kubernetes programs.
func AssetsDir() (string, error) {
	if dir := os.Getenv(assetsEnv); dir != "" {
		return dir, nil
	}
	return inRepo("bin", "k8s")
}

// BinaryPath is the path of a Kubernetes program, such as "kubectl".
func BinaryPath(program string) (string, error) {
	dir, err := AssetsDir()
	if err != nil {
		return "", err
	}
	return requireFile(filepath.Join(dir, program), "make kube-binaries")
}

// ToolPath is the path of a program in bin/ that `make <target>` builds.
func ToolPath(program, target string) (string, error) {
	path, err := inRepo("bin", program)
	if err != nil {
		return "", err
	}
	return requireFile(path, "make "+target)
}

func requireFile(path, remedy string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing: run `%s` first: %w", path, remedy, err)
	}
	return path, nil
}

// HubCRDPath is the folder of the CRDs that a hub needs.
func HubCRDPath() (string, error) { return inRepo("config", "crd", "hub") }

// MemberCRDPath is the folder of the CRDs that a member needs.
func MemberCRDPath() (string, error) { return inRepo("config", "crd", "member") }

// SandboxCRDPath is the Sandbox CRD of the pinned agent-sandbox module, which
// serves agents.x-k8s.io/v1alpha1 only.
func SandboxCRDPath(ctx context.Context) (string, error) {
	tool, err := inRepo("test", "tools", "agent-sandbox")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", sandboxModule)
	cmd.Dir = tool
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("finding module %s from %s: %w", sandboxModule, tool, err)
	}
	return requireFile(filepath.Join(strings.TrimSpace(string(out)), "k8s", "crds", "agents.x-k8s.io_sandboxes.yaml"), "make agent-sandbox")
}
