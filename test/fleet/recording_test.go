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

package fleet

import (
	"context"
	"sync"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// recording is every version of an object of the hub, in order.
type recording[T client.Object] struct {
	mu       sync.Mutex
	versions []T
}

// all are the versions so far.
func (r *recording[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), r.versions...)
}

// record watches until the test ends. A watch that breaks off fails the test, since it may
// have missed a version.
func record[T client.Object](f *fleet, list client.ObjectList, name string) *recording[T] {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	w, err := f.hub.Client.Watch(ctx, list, client.MatchingFields{"metadata.name": name})
	f.WithT.Expect(err).NotTo(HaveOccurred())
	r := &recording[T]{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			version, ok := event.Object.(T)
			if ctx.Err() != nil {
				return // the event may be how the watch was ended
			}
			if !ok || event.Type == watch.Deleted {
				f.Errorf("watching %s: %s %v", name, event.Type, event.Object)
				return
			}
			r.mu.Lock()
			r.versions = append(r.versions, version)
			r.mu.Unlock()
		}
		if ctx.Err() == nil {
			f.Errorf("the watch of %s broke off", name)
		}
	}()
	f.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

func recordCluster(f *fleet, name string) *recording[*fleetv1alpha1.AgentRunClusterStatus] {
	f.Helper()
	return record[*fleetv1alpha1.AgentRunClusterStatus](f, &fleetv1alpha1.AgentRunClusterStatusList{}, name)
}

func recordFleet(f *fleet) *recording[*fleetv1alpha1.AgentRunFleetStatus] {
	f.Helper()
	return record[*fleetv1alpha1.AgentRunFleetStatus](f, &fleetv1alpha1.AgentRunFleetStatusList{}, fleetv1alpha1.DefaultFleetStatusName)
}
