//go:build offsetclock

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
	"os"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// clockFileEnv names a file that says how far the manager's clock is ahead, as a duration.
const clockFileEnv = "FLEET_MANAGER_CLOCK_FILE"

// hubClock is a clock that a test can set while the manager runs.
func hubClock() clock.WithTicker { return offsetClock{file: os.Getenv(clockFileEnv)} }

// offsetClock runs as the real one does, so that timers keep their durations.
type offsetClock struct {
	clock.RealClock
	file string
}

// Now is the real time and the offset that the file holds. A clock that cannot be read would
// make the test say what is not so.
func (c offsetClock) Now() time.Time {
	content, err := os.ReadFile(c.file)
	if err != nil {
		panic(err)
	}
	ahead, err := time.ParseDuration(strings.TrimSpace(string(content)))
	if err != nil {
		panic(err)
	}
	return c.RealClock.Now().Add(ahead)
}

// Since is the time that has passed by this clock.
func (c offsetClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
