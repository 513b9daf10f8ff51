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
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// listPage is how many objects a list asks for at a time, at first. One may have 1.5 MiB,
// and an answer is bounded to maxPageBody.
const listPage = 100

// budget bounds what all informers of a member hold. What an informer holds is counted from
// its last list on: each object that a watch delivers is added, none is taken off. When
// the budget is used up, informers with such an excess list again; when none has any,
// the member is too large.
type budget struct {
	limit    int64
	tooLarge func(*failure)

	mu     sync.Mutex
	used   int64
	shares []*share
}

// share is an informer's part of a budget, and where it lists and watches. It lists by
// pages, each of which is transformed before the next: an unbounded list would be held as it
// came.
type share struct {
	source    toolscache.ListerWatcherWithContext
	transform toolscache.TransformFunc
	budget    *budget
	// page is how many objects a list asks for at a time; only lists read it.
	page int64

	// Guarded by budget.mu: what is held in bytes, what of that the last list had, whether
	// a list is under way or has not been followed by a watch, whether the next watch must
	// be a list, and the watch.
	held, listed int64
	listing      bool
	expired      bool
	watch        watch.Interface
}

// newInformerFunc has the signature of cache.Options.NewInformer.
type newInformerFunc = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// informers has what is made hold to the budget; nil makes client-go's.
func (b *budget) informers(newOne newInformerFunc) newInformerFunc {
	if newOne == nil {
		newOne = toolscache.NewSharedIndexInformer
	}
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		s := &share{source: toolscache.ToListerWatcherWithContext(source), budget: b, page: listPage}
		b.mu.Lock()
		b.shares = append(b.shares, s)
		b.mu.Unlock()
		return &budgetedInformer{SharedIndexInformer: newOne(s, object, resync, indexers), share: s}
	}
}

type budgetedInformer struct {
	toolscache.SharedIndexInformer
	share *share
}

// SetTransform has what the transform returns counted.
func (i *budgetedInformer) SetTransform(transform toolscache.TransformFunc) error {
	i.share.transform = transform
	return i.SharedIndexInformer.SetTransform(i.share.take)
}

// take transforms an object of a watch and counts it. Those of a list pass a second time,
// and are counted already.
func (s *share) take(o any) (any, error) {
	out, err := s.transformed(o)
	if err == nil {
		s.budget.add(s, sizeOf(out), true)
	}
	return out, err
}

func (s *share) transformed(o any) (any, error) {
	if s.transform == nil {
		return o, nil
	}
	return s.transform(o)
}

// add counts an object and says whether there is room for it. Informers that hold less than is counted list again then.
func (b *budget) add(s *share, size int64, watched bool) bool {
	b.mu.Lock()
	if watched && s.listing {
		b.mu.Unlock()
		return true
	}
	s.held += size
	b.used += size
	var stop []watch.Interface
	over := b.used > b.limit
	if over {
		stop = b.expire()
	}
	b.mu.Unlock()
	for _, w := range stop {
		w.Stop()
	}
	return !over
}

// expire has all informers list again that were told of more than they listed, and returns
// their watches. Without one, what is counted is held.
func (b *budget) expire() []watch.Interface {
	var stop []watch.Interface
	excess := false
	for _, s := range b.shares {
		if s.listing || s.held == s.listed {
			continue
		}
		excess = true
		s.expired = true
		if s.watch != nil {
			stop = append(stop, s.watch)
			s.watch = nil
		}
	}
	if !excess {
		b.tooLarge(holdsTooMuch(b.limit))
	}
	return stop
}

// List is ListWithContext for who has no context.
func (s *share) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext for who has no context.
func (s *share) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// IsWatchListSemanticsUnSupported keeps reflectors from listing by a watch, which ends
// without an error when it is too much.
func (s *share) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists all pages, as of now.
func (s *share) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.begin()
	whole := &internalversion.List{}
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	options.Continue = ""
	for {
		options.Limit = s.page
		page, err := s.source.ListWithContext(ctx, options)
		if f := (*failure)(nil); errors.As(err, &f) && f.tooLong && s.page > 1 {
			s.page /= 2
			continue
		}
		if err == nil {
			options.Continue, err = s.keep(whole, page)
		}
		if err != nil {
			s.begin() // what came is dropped
			return nil, err
		}
		if options.Continue == "" {
			s.end()
			return whole, nil
		}
	}
}

// keep adds a page to the whole list and says from where to go on.
func (s *share) keep(whole *internalversion.List, page runtime.Object) (next string, err error) {
	list, err := meta.ListAccessor(page)
	if err != nil {
		return "", err
	}
	items, err := meta.ExtractListWithAlloc(page)
	if err != nil {
		return "", err
	}
	if len(items) == 0 && list.GetContinue() != "" {
		return "", unreachable("The API server answers lists by empty pages")
	}
	for _, item := range items {
		out, err := s.transformed(item)
		if err != nil {
			return "", err
		}
		if !s.budget.add(s, sizeOf(out), false) {
			return "", holdsTooMuch(s.budget.limit)
		}
		whole.Items = append(whole.Items, out.(runtime.Object))
	}
	whole.ResourceVersion = list.GetResourceVersion()
	return list.GetContinue(), nil
}

// begin forgets what was held: it is replaced by what is listed.
func (s *share) begin() {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= s.held
	s.held, s.listed, s.listing, s.expired = 0, 0, true, false
}

func (s *share) end() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.listed = s.held
}

// WatchWithContext watches, unless it must be listed again first.
func (s *share) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	b := s.budget
	b.mu.Lock()
	expired := s.expired
	s.listing = false
	b.mu.Unlock()
	if expired {
		return nil, apierrors.NewResourceExpired("what was watched is to be listed again, to know what of it is left")
	}
	w, err := s.source.WatchWithContext(ctx, options)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.watch = w
	return w, err
}
