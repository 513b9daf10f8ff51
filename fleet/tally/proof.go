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
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Proof is what one live list of a member's runs proves about failures without a mark,
// which a cache may show for longer than they are without: it lags. It is of use
// together with a state of the ledger that was read before the list and that nobody
// else has changed since.
type Proof struct {
	// Since is the resourceVersion of the list, by namespace where it was made of some
	// namespaces; else that of the whole list is under "".
	Since map[string]string
	// Open are the runs that were without a mark then, whatever their phase: one that has
	// been counted may have been moved to another since.
	Open sets.Set[types.UID]
}

// Namespaces are those that the list was made of, in order; nil stands for all.
func (p Proof) Namespaces() []string {
	if _, all := p.Since[""]; all {
		return nil
	}
	return slices.Sorted(maps.Keys(p.Since))
}

// Covers says whether the list was made of all of these namespaces; nil stands for all.
func (p Proof) Covers(namespaces []string) bool {
	if _, all := p.Since[""]; all {
		return true
	}
	return len(namespaces) > 0 && !slices.ContainsFunc(namespaces, func(namespace string) bool {
		_, listed := p.Since[namespace]
		return !listed
	})
}

// MayCount says whether a failure without a mark that is not in flight is certain not
// to be on record: the list saw it without a mark, or it is younger than the list.
func (p Proof) MayCount(run Run) bool {
	return p.Open.Has(run.UID) || p.isYounger(run)
}

func (p Proof) isYounger(run Run) bool {
	since, all := p.Since[""]
	if !all {
		since = p.Since[run.Namespace]
	}
	// Versions that cannot be compared prove nothing.
	order, err := resourceversion.CompareResourceVersion(run.Version, since)
	return err == nil && order > 0
}

// Departed says whether a run in flight that a cache does not show is certain to be
// gone, or to have its mark, if the list covers its namespace. One that the list showed
// may not have reached the cache.
func (p Proof) Departed(uid types.UID) bool {
	return !p.Open.Has(uid)
}
