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
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// told notes what a handler is told of runs, as "event name@version".
type told struct {
	mu     sync.Mutex
	events []string
}

func (o *told) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf(format, args...))
}

func (o *told) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{}, o.events...)
}

func named(o any) string {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return "(missed) " + named(gone.Obj)
	}
	run := o.(*agentv1alpha1.AgentRun)
	return run.Name + "@" + run.ResourceVersion
}

func (o *told) OnAdd(obj any, initial bool) { o.note("add %s initial=%v", named(obj), initial) }
func (o *told) OnUpdate(before, after any)  { o.note("update %s to %s", named(before), named(after)) }
func (o *told) OnDelete(obj any)            { o.note("delete %s", named(obj)) }
func newTold() *told                        { return &told{} }
func at(name, version string) *agentv1alpha1.AgentRun {
	run := build.MakeAgentRun(name).Obj()
	run.ResourceVersion = version
	return run
}

// TestInformerTellsWhatDiffers: whatever the reflector does, handlers are told of each object from
// its first to its last version, and the index holds what they were told.
func TestInformerTellsWhatDiffers(t *testing.T) {
	tests := map[string]struct {
		do   func(s *store) error
		want []string
		held []string
	}{
		"a watch adds, changes and deletes": {
			do: func(s *store) error {
				return firstOf(s.Add(at("c", "5")), s.Update(at("a", "6")), s.Delete(at("b", "7")))
			},
			want: []string{"add c@5 initial=false", "update a@1 to a@6", "delete b@7"},
			held: []string{"a@6", "c@5"},
		},
		"an object is added that is known": {
			do:   func(s *store) error { return s.Add(at("a", "5")) },
			want: []string{"update a@1 to a@5"},
			held: []string{"a@5", "b@2"},
		},
		"a list that is the same": {
			do:   func(s *store) error { return s.Replace([]any{at("a", "1"), at("b", "2")}, "9") },
			held: []string{"a@1", "b@2"},
		},
		"a list after what was missed": {
			do:   func(s *store) error { return s.Replace([]any{at("c", "5"), at("a", "6")}, "9") },
			want: []string{"add c@5 initial=false", "update a@1 to a@6", "delete (missed) b@2"},
			held: []string{"a@6", "c@5"},
		},
		"an empty list": {
			do:   func(s *store) error { return s.Replace(nil, "9") },
			want: []string{"delete (missed) a@1", "delete (missed) b@2"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			i := newInformer(&toolscache.ListWatch{}, runKind, 0, toolscache.Indexers{}).(*informer)
			early := newTold()
			registration, err := i.AddEventHandler(early)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(registration.HasSynced()).To(BeFalse())
			g.Expect((&store{i}).Replace([]any{at("a", "1"), at("b", "2")}, "3")).To(Succeed())
			g.Expect(registration.HasSynced()).To(BeTrue())
			g.Expect(registration.HasSyncedChecker().Done()).To(BeClosed())
			first := []string{"add a@1 initial=true", "add b@2 initial=true"}
			g.Expect(early.all()).To(Equal(first))
			late := newTold()
			_, err = i.AddEventHandler(late)
			g.Expect(err).NotTo(HaveOccurred())

			g.Expect(tc.do(&store{i})).To(Succeed())
			g.Expect(early.all()[len(first):]).To(ConsistOf(tc.want))
			g.Expect(late.all()[len(first):]).To(ConsistOf(tc.want))
			held := []string{}
			for _, o := range i.GetStore().List() {
				held = append(held, named(o))
			}
			g.Expect(held).To(ConsistOf(tc.held))
		})
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestInformerFollowsAMember on a real API server: what happens while the watch is cut is told once it is back, a
// handler that joins late is told of all that there is, and one that left of nothing more.
func TestInformerFollowsAMember(t *testing.T) {
	cp := harness.NewMember(t, "member")
	proxy := harness.NewProxy(t, cp)
	config := rest.CopyConfig(cp.Config)
	config.Host = proxy.URL()
	member := engageAs(t, cp, config)
	g := harness.NewGomega(t)
	got, err := member.GetCache().GetInformer(t.Context(), runKind, cache.BlockUntilSynced(false))
	g.Expect(err).NotTo(HaveOccurred())
	i := got.(*informer)
	early := newTold()
	registration, err := i.AddEventHandler(early)
	g.Expect(err).NotTo(HaveOccurred())
	expect := func(o *told, event string, run client.Object) {
		t.Helper()
		g.Eventually(o.all).Should(ContainElement(HavePrefix(event + " " + run.GetName() + "@")))
	}

	stays, goes := build.MakeAgentRun("stays").Obj(), build.MakeAgentRun("goes").Obj()
	g.Expect(cp.Client.Create(t.Context(), stays)).To(Succeed())
	g.Expect(cp.Client.Create(t.Context(), goes)).To(Succeed())
	expect(early, "add", stays)
	expect(early, "add", goes)

	proxy.Refuse()
	proxy.Reset()
	g.Expect(cp.Client.Delete(t.Context(), goes)).To(Succeed())
	stays.Labels = map[string]string{"changed": "true"}
	g.Expect(cp.Client.Update(t.Context(), stays)).To(Succeed())
	g.Consistently(func() int { return len(early.all()) }).Should(Equal(2), "told of what cannot be known")
	g.Expect(proxy.Accept()).To(Succeed())
	g.Eventually(early.all).Should(And(ContainElement(HavePrefix("delete")), ContainElement("update stays@"+versionBefore(early)+" to stays@"+stays.ResourceVersion)))

	late := newTold()
	_, err = i.AddEventHandler(late)
	g.Expect(err).NotTo(HaveOccurred())
	if diff := cmp.Diff([]string{"add stays@" + stays.ResourceVersion + " initial=true"}, late.all()); diff != "" {
		t.Errorf("the late handler (-want +got):\n%s", diff)
	}
	g.Expect(i.RemoveEventHandler(registration)).To(Succeed())
	before := early.all()
	g.Expect(cp.Client.Delete(t.Context(), stays)).To(Succeed())
	expect(late, "delete", stays)
	g.Expect(early.all()).To(Equal(before), "a handler that was removed is told")
}

// versionBefore is the version of the run "stays" that was added.
func versionBefore(o *told) string {
	for _, event := range o.all() {
		var version string
		if _, err := fmt.Sscanf(event, "add stays@%s", &version); err == nil {
			return version
		}
	}
	return ""
}

// TestInformerEnds: no handler joins what tells nothing any longer.
func TestInformerEnds(t *testing.T) {
	g := NewWithT(t)
	i := newInformer(&toolscache.ListWatch{}, runKind, 0, toolscache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i.RunWithContext(ctx)
	g.Expect(i.IsStopped()).To(BeTrue())
	_, err := i.AddEventHandler(newTold())
	g.Expect(err).To(MatchError(errStopped))
}
