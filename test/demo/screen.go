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
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

// screen is what the viewer sees.
type screen struct {
	started    time.Time
	kubeconfig string
	// fail is told when nothing can be written any more: the viewer has gone.
	fail context.CancelCauseFunc

	mu  sync.Mutex
	out io.Writer
}

func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintf(s.out, format, args...); err != nil {
		s.fail(fmt.Errorf("writing the output: %w", err))
	}
}

// say tells in a line what happens, and when.
func (s *screen) say(format string, args ...any) {
	s.printf("\n[%s] %s\n", s.elapsed(), fmt.Sprintf(format, args...))
}

func (s *screen) elapsed() string {
	return fmt.Sprintf("%5.1fs", time.Since(s.started).Seconds())
}

// kubectl runs kubectl as a user would, and shows the command and what it prints.
func (s *screen) kubectl(ctx context.Context, args ...string) error {
	out, err := harness.Kubectl(ctx, s.kubeconfig, args...)
	if err != nil {
		return err
	}
	s.printf("$ kubectl %s\n%s", strings.Join(args, " "), out)
	return nil
}

// watch shows a table of kubectl as it changes, with the time before each row, until
// the returned function is called. Rows that differ in ages alone are left out.
func (s *screen) watch(ctx context.Context, args ...string) (stop func(), err error) {
	binary, err := harness.BinaryPath("kubectl")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	args = append(args, "--watch")
	cmd := exec.CommandContext(ctx, binary, append([]string{
		"--kubeconfig=" + s.kubeconfig, "--cache-dir=" + filepath.Join(filepath.Dir(s.kubeconfig), "kubectl-cache"),
	}, args...)...)
	rows, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	s.printf("$ kubectl %s\n", strings.Join(args, " "))
	var reading sync.WaitGroup
	reading.Go(func() { s.show(rows) })
	return func() {
		cancel()
		reading.Wait()
		_ = cmd.Wait() // it was killed
	}, nil
}

func (s *screen) show(rows io.Reader) {
	var titles []string
	var last string
	for lines := bufio.NewScanner(rows); lines.Scan(); {
		cells := gaps.Split(lines.Text(), -1)
		if titles == nil {
			titles = cells
			s.printf("%8s %s\n", "", align(titles, titles))
			continue
		}
		row := align(titles, cells)
		if seen := withoutAges(row); seen != last {
			last = seen
			s.printf("[%s] %s\n", s.elapsed(), row)
		}
	}
}

// gaps are between the columns of kubectl's tables.
var gaps = regexp.MustCompile(`\s{2,}`)

// widths are of columns that grow: kubectl aligns a watched table by its first row,
// when there is no reason yet.
var widths = map[string]int{"NAME": len("fleet"), "TOP REASON": len("CreateContainerConfigError")}

func align(titles, cells []string) string {
	var row strings.Builder
	for i, cell := range cells[:min(len(cells), len(titles))] {
		fmt.Fprintf(&row, "%-*s   ", max(len(titles[i]), widths[titles[i]]), cell)
	}
	return strings.TrimRight(row.String(), " ")
}

var age = regexp.MustCompile(`\b(\d+[smhd])+\b`)

func withoutAges(row string) string {
	return strings.Join(strings.Fields(age.ReplaceAllString(row, "")), " ")
}
