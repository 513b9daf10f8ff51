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
	"os"
	"testing"

	"go.uber.org/goleak"
)

// hub and member are shared by the tests: starting one costs seconds.
var hub, member *ControlPlane

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		awaitKill()
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ignored := goleak.IgnoreCurrent()
	planes, err := startShared()
	if err != nil {
		return 1, err
	}
	hub, member = planes[0], planes[1]
	code = m.Run()
	return code, errors.Join(StopAll(planes...), goleak.Find(ignored))
}

func startShared() ([]*ControlPlane, error) {
	ctx := context.Background()
	sandboxes, err := SandboxCRDPath(ctx)
	if err != nil {
		return nil, err
	}
	hubOptions, err := HubOptions()
	if err != nil {
		return nil, err
	}
	memberOptions, err := MemberOptions("member", WithAudit, WithScheduler, WithControllerManager, WithCRDs(sandboxes))
	if err != nil {
		return nil, err
	}
	return StartAll(ctx, hubOptions, memberOptions)
}
