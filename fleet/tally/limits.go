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

package tally

import (
	"regexp"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// Limits of texts, in characters, as the markers in api/fleet/v1alpha1 state them.
const (
	maxNamespace = 63
	maxName      = 253
	maxReason    = 253
	maxMessage   = 256
	maxContainer = 63
	maxImage     = 256
	maxNode      = 253
)

var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

// Bounded returns the reason when it is a CamelCase word of at most 63 characters,
// and ReasonOther when it is not. It keeps foreign text out of keys and metrics.
func Bounded(reason string) string {
	if camelCase.MatchString(reason) {
		return reason
	}
	return fleetv1alpha1.ReasonOther
}
