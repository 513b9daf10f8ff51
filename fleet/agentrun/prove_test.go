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
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	"github.com/konveyor/agentrun-fleet/fleet/tally"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// heavyRuns are runs of heavyRun bytes each: three times what one answer may have that is
// bounded by heavyAnswer.
const (
	heavyRuns   = 60
	heavyRun    = 512 << 10
	heavyAnswer = 10 << 20
)

// errTooLarge is what ends an answer that is larger than it may be.
var errTooLarge = errors.New("the answer is too large")

// narrow lets an answer have so many bytes, and notes what is asked for at a time.
type narrow struct {
	http.RoundTripper
	limit int64

	mu    sync.Mutex
	pages []string
}

func (n *narrow) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.pages = append(n.pages, req.URL.Query().Get("limit"))
	n.mu.Unlock()
	res, err := n.RoundTripper.RoundTrip(req)
	if err == nil {
		res.Body = &narrowBody{ReadCloser: res.Body, left: n.limit}
	}
	return res, err
}

type narrowBody struct {
	io.ReadCloser
	left int64
}

func (b *narrowBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// through is a member of which live reads have bounded answers.
type through struct {
	*engaged
	live client.Reader
}

func (r *through) GetAPIReader() client.Reader { return r.live }

// narrowed reads a member in answers of at most so many bytes.
func narrowed(t *testing.T, member *engaged, limit int64) (*through, *narrow) {
	t.Helper()
	n := &narrow{limit: limit}
	config := rest.CopyConfig(member.plane.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		n.RoundTripper = next
		return n
	})
	live, err := client.New(config, client.Options{Scheme: memberScheme, Mapper: memberMapper})
	if err != nil {
		t.Fatal(err)
	}
	return &through{member, live}, n
}

// TestProveInAnswersThatAreBounded: a tenant's runs are as large as an API server lets them
// be, and the proof is made all the same, in smaller pages of one moment.
func TestProveInAnswersThatAreBounded(t *testing.T) {
	member := engage(t)
	g := harness.NewGomega(t)
	want := sets.New[types.UID]()
	for i := range heavyRuns {
		run := failedAt(fmt.Sprintf("heavy-%d", i), noon).Obj()
		run.Spec.Instructions = strings.Repeat("x", heavyRun)
		g.Expect(member.plane.CreateRun(t.Context(), run)).To(Succeed())
		want.Insert(run.UID)
	}
	cases := map[string]struct {
		limit     int64
		wantErr   error
		wantPages []string
	}{
		"an answer that may have all is one page": {
			limit: heavyRuns * heavyRun * 2, wantPages: []string{"100"},
		},
		"pages are halved until one fits, and remain so": {
			limit: heavyAnswer, wantPages: []string{"100", "50", "25", "12", "12", "12", "12", "12"},
		},
		"an answer that may not have a single run is an error": {
			limit: heavyRun / 2, wantErr: errTooLarge, wantPages: []string{"100", "50", "25", "12", "6", "3", "1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			from, narrow := narrowed(t, member, tc.limit)
			proof, err := Prove(t.Context(), from, ledgerID)
			g.Expect(narrow.pages).To(Equal(tc.wantPages))
			if tc.wantErr != nil {
				g.Expect(err).To(MatchError(tc.wantErr))
				g.Expect(proof).To(BeZero())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(proof.Open).To(Equal(want))
			g.Expect(proof.Since).To(HaveKeyWithValue("", Not(BeEmpty())))
		})
	}
}

// failing is a reader of which each list fails.
type failing struct {
	client.Reader
	err   error
	lists int
}

func (f *failing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	f.lists++
	return f.err
}

// TestSmallerPagesAreForWhatTheyHelp: what fails for another reason fails at once.
func TestSmallerPagesAreForWhatTheyHelp(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	resource := agentv1alpha1.GroupVersion.WithResource("agentruns").GroupResource()
	cases := map[string]struct {
		ctx       context.Context
		err       error
		wantLists int
	}{
		"an answer that breaks off":            {t.Context(), io.ErrUnexpectedEOF, 7},
		"an answer that takes too long":        {t.Context(), context.DeadlineExceeded, 7},
		"the time for the whole proof is over": {ended, context.Canceled, 1},
		"the right is missing":                 {t.Context(), apierrors.NewForbidden(resource, "", nil), 1},
		"the CRD is gone":                      {t.Context(), apierrors.NewNotFound(resource, ""), 1},
		"the moment of the pages is too old":   {t.Context(), apierrors.NewResourceExpired("compacted"), 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := &failing{err: tc.err}
			err := eachPage(tc.ctx, live, "", func(*agentv1alpha1.AgentRunList) { t.Error("there is no page") })
			if !errors.Is(err, tc.err) || live.lists != tc.wantLists {
				t.Errorf("%d lists end with %v, want %d and %v", live.lists, err, tc.wantLists, tc.err)
			}
		})
	}
}

// TestProofSpansPages: a run that fails while the pages are read is younger than the proof.
func TestProofSpansPages(t *testing.T) {
	member := engage(t)
	g := harness.NewGomega(t)
	for i := range livePage + 1 {
		g.Expect(member.plane.CreateRun(t.Context(), failedAt(fmt.Sprintf("run-%03d", i), noon).Obj())).To(Succeed())
	}
	late := failedAt("zz-late", noon).Obj()
	from, narrow := narrowed(t, member, heavyAnswer)
	next := narrow.RoundTripper
	narrow.RoundTripper = roundTrip(func(req *http.Request) (*http.Response, error) {
		if isContinued(req.URL) {
			g.Expect(member.plane.CreateRun(req.Context(), late)).To(Succeed())
		}
		return next.RoundTrip(req)
	})
	proof, err := Prove(t.Context(), from, ledgerID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(narrow.pages).To(Equal([]string{"100", "100"}))
	g.Expect(proof.Open).To(HaveLen(livePage + 1))
	g.Expect(proof.Open).NotTo(HaveKey(late.UID))
	g.Expect(proof.MayCount(tally.Run{UID: late.UID, Version: late.ResourceVersion})).To(BeTrue())
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func isContinued(u *url.URL) bool { return u.Query().Get("continue") != "" }

// TestAProofIsOfEveryPhase: a run that has been counted may have been moved to another phase
// since, and a cache that does not show it yet must not be taken for its end.
func TestAProofIsOfEveryPhase(t *testing.T) {
	page := &agentv1alpha1.AgentRunList{}
	want := sets.New[types.UID]()
	for _, phase := range []agentv1alpha1.AgentRunPhase{
		"", agentv1alpha1.AgentRunPending, agentv1alpha1.AgentRunRunning, agentv1alpha1.AgentRunSucceeded, agentv1alpha1.AgentRunFailed,
	} {
		run := agentv1alpha1.AgentRun{Status: agentv1alpha1.AgentRunStatus{Phase: phase}}
		run.UID = types.UID("open-" + phase)
		want.Insert(run.UID)
		page.Items = append(page.Items, run)
		run.UID = types.UID("marked-" + phase)
		run.Annotations = map[string]string{agentv1alpha1.RecordedAnnotation: run.Mark("its")}
		page.Items = append(page.Items, run)
	}
	proof := tally.Proof{Since: map[string]string{}, Open: sets.New[types.UID]()}
	addTo(&proof, "", page, "its")
	if !proof.Open.Equal(want) {
		t.Errorf("without a mark: %v, want %v", sets.List(proof.Open), sets.List(want))
	}
}
