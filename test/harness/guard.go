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
	"fmt"
	"os"
)

// guardScript runs a program that does not outlive this process, even when that
// is killed, as `go test` is at its timeout. The program takes the shell's place;
// what watches over it ends with either. It kills the group that the program
// leads, and nothing when it leads none: envtest also runs programs, to read
// their --help, in the group of the test itself.
const guardScript = `#!/bin/sh
parent=$PPID
(
  while kill -0 "$parent" && kill -0 $$; do sleep 1; done
  kill -s KILL -- -$$
) >/dev/null 2>&1 &
exec '%s' "$@"
`

// guarded is the path of a script that runs the program under guard.
func (cp *ControlPlane) guarded(name, binary string) (string, error) {
	script := cp.path("run-" + name)
	return script, writeGuard(script, binary)
}

func writeGuard(script, binary string) error {
	return os.WriteFile(script, fmt.Appendf(nil, guardScript, binary), 0o700)
}

func (cp *ControlPlane) guardedBinary(name string) (string, error) {
	binary, err := BinaryPath(name)
	if err != nil {
		return "", err
	}
	return cp.guarded(name, binary)
}
