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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// maxCheckBody is the most that is read of an answer to a check; a group's resource list has some 10 kB.
const maxCheckBody = 4 << 20

// checker asks a member whether it can be worked with.
type checker struct {
	client    rest.Interface
	resources []schema.GroupVersionResource
	access    []authorizationv1.ResourceAttributes
}

func newChecker(cfg *rest.Config, httpClient *http.Client, o Options) (checker, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.GroupVersion = &schema.GroupVersion{}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, httpClient)
	return checker{client: client, resources: o.RequiredResources, access: o.RequiredAccess}, err
}

// all makes every check and returns the member's version, or a failure.
func (c checker) all(ctx context.Context) (string, error) {
	version, err := c.alive(ctx)
	if err != nil {
		return "", err
	}
	if err := c.served(ctx); err != nil {
		return "", err
	}
	return version, c.allowed(ctx)
}

// alive asks for the member's version, which needs valid credentials but no rights.
func (c checker) alive(ctx context.Context) (string, error) {
	info := version.Info{}
	if err := c.get(ctx, "/version", &info); err != nil {
		return "", classify(err)
	}
	return printable(info.GitVersion, maxVersion), nil
}

// served checks that the member serves all required resources.
func (c checker) served(ctx context.Context) error {
	missing := []string{}
	known := map[schema.GroupVersion]map[string]bool{}
	for _, want := range c.resources {
		gv := want.GroupVersion()
		if known[gv] == nil {
			resources, err := c.resourcesOf(ctx, gv)
			if err != nil {
				return err
			}
			known[gv] = resources
		}
		if !known[gv][want.Resource] {
			missing = append(missing, fmt.Sprintf("%s (%s)", want.GroupResource(), want.Version))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &failure{
		reason:  ReasonCRDNotInstalled,
		message: "The member does not serve " + strings.Join(missing, ", ") + ": install the CRDs in config/member; this is noticed by itself",
	}
}

// resourcesOf lists what the member serves in a group and version; nothing when it does not know these.
func (c checker) resourcesOf(ctx context.Context, gv schema.GroupVersion) (map[string]bool, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	list := metav1.APIResourceList{}
	err := c.get(ctx, path, &list)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, classify(err)
	}
	resources := map[string]bool{}
	for _, r := range list.APIResources {
		resources[r.Name] = true
	}
	return resources, nil
}

// allowed checks that the kubeconfig's user has all required rights.
func (c checker) allowed(ctx context.Context) error {
	missing := []string{}
	for _, want := range c.access {
		ok, err := c.review(ctx, want)
		if apierrors.IsForbidden(err) {
			missing = append(missing, "create selfsubjectaccessreviews.authorization.k8s.io")
			break
		}
		if err != nil {
			return classify(err)
		}
		if !ok {
			missing = append(missing, accessName(want))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &failure{
		reason: ReasonForbidden,
		message: "The user of the kubeconfig may not " + strings.Join(slices.Compact(missing), ", ") +
			": grant it, as config/member does; this is noticed by itself",
	}
}

func (c checker) review(ctx context.Context, want authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &want},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	answer, err := c.client.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return false, err
	}
	review = authorizationv1.SelfSubjectAccessReview{}
	if err := json.Unmarshal(answer, &review); err != nil {
		return false, notKubernetes()
	}
	return review.Status.Allowed, nil
}

func (c checker) get(ctx context.Context, path string, into any) error {
	answer, err := c.client.Get().AbsPath(path).SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return notKubernetes()
	}
	return nil
}

func notKubernetes() *failure {
	return unreachable("What answers is no Kubernetes API server")
}

// accessName reads like a rule: "patch agentruns.konveyor.io/status in namespace a".
func accessName(a authorizationv1.ResourceAttributes) string {
	name := a.Verb + " " + a.Resource
	if a.Group != "" {
		name += "." + a.Group
	}
	if a.Subresource != "" {
		name += "/" + a.Subresource
	}
	if a.Namespace != "" {
		name += " in namespace " + a.Namespace
	}
	return name
}

// limitBody bounds the answers of a member that may be hostile.
type limitBody struct{ http.RoundTripper }

// RoundTrip limits the body of the answer.
func (l limitBody) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := l.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	res.Body = limitedBody{io.LimitReader(res.Body, maxCheckBody), res.Body}
	return res, nil
}

type limitedBody struct {
	io.Reader
	io.Closer
}
