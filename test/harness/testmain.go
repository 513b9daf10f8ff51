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
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// RunWithManager builds fleet-manager, whose path it sets, runs the package's tests, and
// returns what the process is to end with. It is for TestMain.
func RunWithManager(m *testing.M, binary *string) int {
	log.SetLogger(logr.Discard()) // envtest's
	code, err := buildAndRun(m, binary)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func buildAndRun(m *testing.M, binary *string) (code int, err error) {
	dir, err := os.MkdirTemp("", "fleet-manager-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if *binary, err = BuildManager(context.Background(), dir); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
