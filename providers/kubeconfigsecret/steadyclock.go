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

package kubeconfigsecret

import (
	"time"

	"k8s.io/utils/clock"
)

// steadyClock begins as the hub's clock does and is never set: it goes by the time that passes.
// Members' clocks are compared with it, since the hub's may be set between two answers of a member.
type steadyClock struct {
	hub   clock.PassiveClock
	began time.Time
}

func newSteadyClock(hub clock.PassiveClock) steadyClock {
	return steadyClock{hub: hub, began: hub.Now()}
}

// Now carries no monotonic reading: of two times that do, Sub would not tell how the hub's clock was set.
func (c steadyClock) Now() time.Time {
	return c.began.Round(0).Add(c.hub.Since(c.began))
}

// ahead is how far it is ahead of the hub's clock, to the millisecond: what is less is the time between the
// two readings.
func (c steadyClock) ahead() time.Duration {
	return c.Now().Sub(c.hub.Now()).Round(time.Millisecond)
}
