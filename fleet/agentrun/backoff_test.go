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

package agentrun

import (
	"fmt"
	"testing"
	"time"
)

// TestBackoff: a run is tried again soon after its member has returned, however long that
// was away, and a member whose runs all fail holds up no other member's.
func TestBackoff(t *testing.T) {
	limiter := newLimiter()
	var wait time.Duration
	for range 1000 {
		wait = limiter.When(of("away", "run"))
	}
	if wait > maxBackoff {
		t.Errorf("after 1,000 failed tries a run waits %s, want at most %s", wait, maxBackoff)
	}
	for i := range 1000 {
		limiter.When(of("away", fmt.Sprint(i)))
	}
	if wait := limiter.When(of("well", "run")); wait > 100*time.Millisecond {
		t.Errorf("the first try again of another member's run waits %s while 1,000 runs of a member fail", wait)
	}
}
