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
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
)

// Kubectl runs kubectl with a kubeconfig file and returns what it printed. The
// error carries what it complained of.
func Kubectl(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	binary, err := BinaryPath("kubectl")
	if err != nil {
		return "", err
	}
	// kubectl would keep its discovery cache in the home folder.
	cache := filepath.Join(filepath.Dir(kubeconfig), "kubectl-cache")
	cmd := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + cache}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Kubectl runs kubectl as the administrator.
func (cp *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	return Kubectl(ctx, cp.KubeconfigPath(), args...)
}

var (
	columnStart = regexp.MustCompile(`(^|\s{2,})\S`)
	age         = regexp.MustCompile(`^(\d+[smhdy])+$`)
)

// NormalizeAges replaces each cell of a printed table that is an age, such as 12s
// or 3d4h, by <age>, and aligns the columns again, so that tables compare as text.
// Trailing blanks are cut.
func NormalizeAges(table string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	var starts []int
	for line := range strings.Lines(table) {
		line = strings.TrimRight(line, " \n")
		if starts == nil || line == "" {
			starts = columns(line)
		}
		cells := cut(line, starts)
		for i := range cells {
			cells[i] = age.ReplaceAllString(cells[i], "<age>")
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) // a strings.Builder cannot fail
	}
	_ = w.Flush()
	return trimLines(out.String())
}

// columns finds where the columns of a table start in its header. It is nil for
// an empty line, after which another table may follow.
func columns(header string) []int {
	matches := columnStart.FindAllStringIndex(header, -1)
	if matches == nil {
		return nil
	}
	starts := make([]int, len(matches))
	for i, match := range matches {
		starts[i] = match[1] - 1
	}
	return starts
}

func cut(line string, starts []int) []string {
	cells := make([]string, 0, len(starts))
	for i, start := range starts {
		end := len(line)
		if i+1 < len(starts) {
			end = min(end, starts[i+1])
		}
		cells = append(cells, strings.TrimSpace(line[min(start, end):end]))
	}
	return cells
}

func trimLines(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}
