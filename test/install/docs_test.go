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
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

var (
	codePattern          = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	kustomizationPattern = regexp.MustCompile(`-k[ =](\S+)`)
	configPattern        = regexp.MustCompile(`\bconfig/[\w./-]*\w`)
	makePattern          = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	targetPattern        = regexp.MustCompile(`(?m)^([a-z-]+(?: [a-z-]+)*):`)
	linkPattern          = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// What readers are told to type must be there: directories, files and make targets.
func TestDocsNameWhatExists(t *testing.T) {
	targets := makeTargets(t)
	named := 0
	for path, text := range docs(t) {
		code := strings.Join(codePattern.FindAllString(text, -1), "\n")
		for _, dir := range matches(kustomizationPattern, code) {
			expectExists(t, path, filepath.Join(dir, "kustomization.yaml"))
			named++
		}
		for _, file := range matches(configPattern, code) {
			expectExists(t, path, file)
			named++
		}
		for _, target := range matches(makePattern, code) {
			if !targets[target] {
				t.Errorf("%s: make has no target %s", path, target)
			}
			named++
		}
		for _, link := range matches(linkPattern, text) {
			expectExists(t, path, filepath.Join(filepath.Dir(path), link))
		}
	}
	if named < 20 {
		t.Errorf("%d directories, files and targets found, want all that the docs name", named)
	}
}

// A table in the docs has a line for each of what the code defines.
func TestDocsAreComplete(t *testing.T) {
	cases := map[string]struct {
		sources string
		defines *regexp.Regexp
		doc     string
		least   int
	}{
		"every flag of the manager is explained": {
			sources: "cmd/fleet-manager/options.go",
			defines: regexp.MustCompile(`fs\.\w*Var\(.*?"([a-z-]+)"`),
			doc:     "docs/running.md", least: 15,
		},
		"every metric is explained": {
			sources: "fleet/*/metrics.go",
			defines: regexp.MustCompile(`"(agentrunfleet_[a-z_]+)"`),
			doc:     "docs/metrics.md", least: 7,
		},
		"every reason of Connected has a remedy": {
			sources: "providers/kubeconfigsecret/failure.go",
			defines: regexp.MustCompile(`\bReason\w+ = "(\w+)"`),
			doc:     "docs/troubleshooting.md", least: 11,
		},
		"every reason of Ready has a remedy": {
			sources: "api/fleet/v1alpha1/fleetstatus_types.go",
			defines: regexp.MustCompile(`\bReason\w+ = "(\w+)"`),
			doc:     "docs/troubleshooting.md", least: 4,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			files, err := filepath.Glob(inRepo(t, tc.sources))
			if err != nil {
				t.Fatal(err)
			}
			defined := []string{}
			for _, file := range files {
				defined = append(defined, matches(tc.defines, read(t, file))...)
			}
			if len(defined) < tc.least {
				t.Fatalf("%s: found %q, want at least %d", tc.sources, defined, tc.least)
			}
			text := read(t, inRepo(t, tc.doc))
			for _, word := range defined {
				if !strings.Contains(text, "`"+word+"`") && !strings.Contains(text, "`--"+word+"`") {
					t.Errorf("%s does not explain %s", tc.doc, word)
				}
			}
		})
	}
}

// docs returns the text of each page by its path in the repository.
func docs(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, glob := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		files, err := filepath.Glob(inRepo(t, glob))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no pages: %v", glob, err)
		}
		for _, file := range files {
			path := filepath.Join(filepath.Dir(glob), filepath.Base(file))
			pages[path] = read(t, file)
		}
	}
	return pages
}

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	targets := map[string]bool{}
	for _, line := range matches(targetPattern, read(t, inRepo(t, "Makefile"))) {
		for target := range strings.FieldsSeq(line) {
			targets[target] = true
		}
	}
	return targets
}

// matches returns what the first group matches, or all where there is none, each once.
func matches(pattern *regexp.Regexp, text string) []string {
	found := map[string]bool{}
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found[match[len(match)-1]] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func expectExists(t *testing.T, page, path string) {
	t.Helper()
	if _, err := os.Stat(inRepo(t, path)); err != nil {
		t.Errorf("%s names %s: %v", page, path, err)
	}
}

func inRepo(t *testing.T, path string) string {
	t.Helper()
	root, err := harness.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, path)
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
