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
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// startTimeout bounds the start of one program on a busy machine.
	startTimeout = 60 * time.Second
	pollInterval = 50 * time.Millisecond
)

// program says how to run a program beside a control plane.
type program struct {
	name   string
	path   string
	args   []string
	env    []string
	health string // URL that answers 200 once the program is ready
}

// process is a running program.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed after err is set
	err    error
}

// startProcess runs a program with its output in logFile and returns once it is
// healthy.
func startProcess(ctx context.Context, p program, logFile string) (*process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C in a terminal is for the parent, which then stops all in order; and
	// the guard kills by group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	proc := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		proc.err = cmd.Wait()
		close(proc.exited)
	}()
	if err := proc.awaitHealthy(ctx, p.health); err != nil {
		proc.kill()
		return nil, fmt.Errorf("starting %s: %w\n%s", p.name, err, tail(logFile))
	}
	return proc, nil
}

func (p *process) awaitHealthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// The programs serve a certificate that they made up themselves.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	httpClient := &http.Client{Transport: transport}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.exited:
			return fmt.Errorf("exited before it was healthy: %w", errors.Join(p.err, ctx.Err()))
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer 200: %w", url, ctx.Err())
		case <-tick.C:
			if healthy(ctx, httpClient, url) {
				return nil
			}
		}
	}
}

func healthy(ctx context.Context, c *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := c.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// kill ends the process and its guard, and returns once it is gone.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails only when it has ended already
	<-p.exited
}

// freePort finds a port of 127.0.0.1 that nothing listens on now.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

// awaitClosed returns once nothing listens on the address any more.
func awaitClosed(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err == nil {
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s still accepts connections: %w", addr, ctx.Err())
		case <-tick.C:
		}
	}
}

// tail is the end of a log, for error messages.
func tail(logFile string) string {
	const limit = 2000
	content, err := os.ReadFile(logFile)
	if err != nil {
		return err.Error()
	}
	if len(content) > limit {
		content = content[len(content)-limit:]
	}
	return fmt.Sprintf("end of %s:\n%s", filepath.Base(logFile), content)
}
