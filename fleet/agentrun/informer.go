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
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// informer is a member's informer of one kind. client-go's has, for each handler, a buffer of
// 18 KiB and two goroutines, and a queue before them, which together cost more than the
// rest of an idle member. Here the reflector writes to the index and calls the handlers
// itself, in order, so that a handler must return soon and must not wait for the informer.
// There is no resync: what time alone changes is in the reconciler's requeues.
// docs/adr/0012 says why it is worth having.
type informer struct {
	source  toolscache.ListerWatcher
	kind    runtime.Object
	indexer toolscache.Indexer
	synced  chan struct{}

	transform  toolscache.TransformFunc
	watchError toolscache.WatchErrorHandlerWithContext

	// mu orders events, and the joining and leaving of handlers.
	mu        sync.Mutex
	handlers  []*registration
	reflector *toolscache.Reflector // nil before the start
	stopped   bool
}

var (
	_ toolscache.SharedIndexInformer = &informer{}
	_ toolscache.TransformingStore   = &store{}
)

// newInformer has the signature of cache.Options.NewInformer.
func newInformer(source toolscache.ListerWatcher, kind runtime.Object, _ time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	return &informer{
		source:     source,
		kind:       kind,
		indexer:    toolscache.NewIndexer(toolscache.DeletionHandlingMetaNamespaceKeyFunc, indexers),
		synced:     make(chan struct{}),
		watchError: toolscache.DefaultWatchErrorHandler,
	}
}

// registration is a handler as long as it is called.
type registration struct {
	toolscache.ResourceEventHandler
	informer *informer
}

// HasSynced says whether the handler has been told of all that there was at first: the informer has synced
// only once its handlers have been.
func (r *registration) HasSynced() bool { return r.informer.HasSynced() }

// HasSyncedChecker is HasSynced as a channel.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	return r.informer.HasSyncedChecker()
}

// reflectorBackoff is that of client-go's informers.
var reflectorBackoff = wait.Backoff{Duration: 800 * time.Millisecond, Cap: 30 * time.Second, Steps: 38, Factor: 2, Jitter: 1}

const reflectorBackoffReset = 2 * time.Minute

// RunWithContext lists and watches until ctx is done.
func (i *informer) RunWithContext(ctx context.Context) {
	// Of a context of another kind each request's descends by a goroutine.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reflector, ok := i.begin(ctx)
	if !ok {
		return
	}
	defer i.end()
	_ = reflectorBackoff.DelayWithReset(clock.RealClock{}, reflectorBackoffReset).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			i.watchError(ctx, reflector, err)
		}
		return false, nil
	})
}

func (i *informer) begin(ctx context.Context) (*toolscache.Reflector, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reflector != nil {
		return nil, false
	}
	logger := logr.FromContextOrDiscard(ctx)
	i.reflector = toolscache.NewReflectorWithOptions(i.source, i.kind, &store{i}, toolscache.ReflectorOptions{Logger: &logger, Name: "agentrun"})
	return i.reflector, true
}

func (i *informer) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
}

// Run is RunWithContext.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// AddEventHandler tells the handler of all that the index holds before it returns.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil, errStopped
	}
	r := &registration{ResourceEventHandler: handler, informer: i}
	for _, o := range i.indexer.List() {
		r.OnAdd(o, true)
	}
	i.handlers = append(i.handlers, r)
	return r, nil
}

var errStopped = errors.New("the informer has stopped: the member is disengaged")

// AddEventHandlerWithResyncPeriod is AddEventHandler: there is no resync.
func (i *informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// AddEventHandlerWithOptions is AddEventHandler: there is no resync, and nothing to log.
func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// RemoveEventHandler returns once the handler is not called any more.
func (i *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = slices.DeleteFunc(i.handlers, func(r *registration) bool { return r == handle })
	return nil
}

// GetStore is GetIndexer.
func (i *informer) GetStore() toolscache.Store { return i.indexer }

// GetIndexer returns the index, which is to be read only.
func (i *informer) GetIndexer() toolscache.Indexer { return i.indexer }

// AddIndexers adds to the index.
func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	return i.indexer.AddIndexers(indexers)
}

// GetController is deprecated and does nothing.
func (i *informer) GetController() toolscache.Controller { return nil }

// HasSynced says whether the index holds a whole list, and the handlers were told.
func (i *informer) HasSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// HasSyncedChecker is HasSynced as a channel.
func (i *informer) HasSyncedChecker() toolscache.DoneChecker { return syncedChecker{i} }

type syncedChecker struct{ *informer }

// Name names the kind.
func (c syncedChecker) Name() string { return c.kind.GetObjectKind().GroupVersionKind().Kind }

// Done is closed once the informer has synced.
func (c syncedChecker) Done() <-chan struct{} { return c.synced }

// LastSyncResourceVersion is the reflector's.
func (i *informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reflector == nil {
		return ""
	}
	return i.reflector.LastSyncResourceVersion()
}

// SetWatchErrorHandler must be called before the start, as must the two below.
func (i *informer) SetWatchErrorHandler(handler toolscache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *toolscache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext sets what is told of lists and watches that failed.
func (i *informer) SetWatchErrorHandlerWithContext(handler toolscache.WatchErrorHandlerWithContext) error {
	i.watchError = handler
	return nil
}

// SetTransform sets what strips an object before it is stored. It must leave alone what it has stripped.
func (i *informer) SetTransform(transform toolscache.TransformFunc) error {
	i.transform = transform
	return nil
}

// IsStopped says whether it has run.
func (i *informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}

// store is the informer as its reflector sees it.
type store struct{ *informer }

// Transformer has the reflector strip what it collects of a streamed list.
func (s *store) Transformer() toolscache.TransformFunc { return s.transform }

// Add stores an object and tells the handlers.
func (s *store) Add(o any) error { return s.Update(o) }

// Update stores an object and tells the handlers.
func (s *store) Update(o any) error {
	o, err := s.stripped(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(o)
}

// Delete removes an object and tells the handlers how it was at the end.
func (s *store) Delete(o any) error {
	o, err := s.stripped(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(o)
}

// Replace stores a list in place of all that there is. Only what differs is told.
func (s *store) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := map[string]any{}
	for _, o := range s.indexer.List() {
		key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if err != nil {
			return err
		}
		gone[key] = o
	}
	for _, o := range list {
		o, err := s.stripped(o)
		if err != nil {
			return err
		}
		key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if err != nil {
			return err
		}
		delete(gone, key)
		if err := s.put(o); err != nil {
			return err
		}
	}
	for key, o := range gone {
		if err := s.remove(toolscache.DeletedFinalStateUnknown{Key: key, Obj: o}); err != nil {
			return err
		}
	}
	if !s.HasSynced() {
		close(s.synced)
	}
	return nil
}

// Resync does nothing.
func (s *store) Resync() error { return nil }

func (s *store) stripped(o any) (any, error) {
	if s.transform == nil {
		return o, nil
	}
	return s.transform(o)
}

// put needs the lock.
func (s *store) put(o any) error {
	before, known, err := s.indexer.Get(o)
	if err != nil {
		return err
	}
	if err := s.indexer.Update(o); err != nil {
		return err
	}
	if known && sameVersion(before, o) {
		return nil // listed again
	}
	for _, h := range s.handlers {
		if known {
			h.OnUpdate(before, o)
		} else {
			h.OnAdd(o, !s.HasSynced())
		}
	}
	return nil
}

// remove needs the lock.
func (s *store) remove(o any) error {
	if err := s.indexer.Delete(o); err != nil {
		return err
	}
	for _, h := range s.handlers {
		h.OnDelete(o)
	}
	return nil
}

func sameVersion(a, b any) bool {
	before, err := meta.Accessor(a)
	if err != nil {
		return false
	}
	after, err := meta.Accessor(b)
	return err == nil && before.GetResourceVersion() == after.GetResourceVersion()
}
