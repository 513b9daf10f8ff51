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
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ClockFileEnv names the file that says how far the clock of a manager is ahead, as a
// duration, when it was built with OffsetClockTag.
const (
	ClockFileEnv   = "FLEET_MANAGER_CLOCK_FILE"
	OffsetClockTag = "offsetclock"
)

// BuildManager builds fleet-manager into dir, with build tags, and returns its path. It is
// built with the race detector when the caller is.
func BuildManager(ctx context.Context, dir string, tags ...string) (string, error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "fleet-manager")
	args := []string{"build", "-o", binary, "-tags=" + strings.Join(tags, ",")}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/fleet-manager")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building fleet-manager: %w\n%s", err, out)
	}
	return binary, nil
}

// Manager is a running fleet-manager, a process of its own.
type Manager struct {
	// LogFile holds what it has written.
	LogFile string

	proc       *process
	metricsURL string
}

// StartManager starts fleet-manager against the hub that kubeconfig names, and
// returns once it is ready. The caller must Stop it, before the hub and the members.
//
// It takes part in leader election, with a Lease in the namespace default unless a flag
// says otherwise, as a container of always the same pod: a manager that is started after
// another was killed takes over at once.
func StartManager(ctx context.Context, binary, kubeconfig, logFile string, flags ...string) (*Manager, error) {
	return StartManagerInPod(ctx, "fleet-manager", binary, kubeconfig, logFile, flags...)
}

// StartManagerInPod is StartManager as a container of a pod of another name, so that
// several stand for election. A standby is ready too.
func StartManagerInPod(ctx context.Context, pod, binary, kubeconfig, logFile string, flags ...string) (*Manager, error) {
	probe, err := freePort()
	if err != nil {
		return nil, err
	}
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	script := logFile + ".sh"
	if err := writeGuard(script, binary); err != nil {
		return nil, err
	}
	m := &Manager{LogFile: logFile, metricsURL: localURL("http", metrics, "/metrics")}
	m.proc, err = startProcess(ctx, program{
		name: "fleet-manager",
		path: script,
		env:  []string{"POD_NAME=" + pod, "POD_UID=of-" + pod},
		args: append([]string{
			"--kubeconfig=" + kubeconfig,
			"--leader-elect-resource-namespace=default",
			"--health-probe-bind-address=127.0.0.1:" + probe,
			"--metrics-bind-address=127.0.0.1:" + metrics,
		}, flags...),
		health: localURL("http", probe, "/readyz"),
	}, logFile)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Stop asks the manager to end and returns how long that took; it is an error when it
// takes longer than limit, and then it is killed, or when it ends with another code
// than 0. Stopping it twice is fine.
func (m *Manager) Stop(limit time.Duration) (time.Duration, error) {
	start := time.Now()
	if err := m.proc.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-m.proc.exited:
		if m.proc.err != nil {
			return time.Since(start), fmt.Errorf("fleet-manager: %w\n%s", m.proc.err, tail(m.LogFile))
		}
		return time.Since(start), nil
	case <-timer.C:
		m.proc.kill()
		return limit, fmt.Errorf("fleet-manager did not end within %s of SIGTERM\n%s", limit, tail(m.LogFile))
	}
}

// Kill ends the manager as a crash would.
func (m *Manager) Kill() { m.proc.kill() }

// Exited is closed when the manager has ended by itself or otherwise.
func (m *Manager) Exited() <-chan struct{} { return m.proc.exited }

// Metrics returns what it serves at /metrics.
func (m *Manager) Metrics(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.metricsURL, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
