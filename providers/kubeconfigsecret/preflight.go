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
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// OldestVersion is the oldest Kubernetes that a member may run. Since 1.29 kubelet sets PodReadyToStartContainers
// by default, without which a pod whose network or volumes are not ready cannot be told from
// one whose images are being pulled.
const OldestVersion = "1.29"

var oldestVersion = utilversion.MustParseGeneric(OldestVersion)

// checker asks a member whether it can be worked with.
type checker struct {
	client            rest.Interface
	requiredResources []schema.GroupVersionResource
	requiredAccess    []authorizationv1.ResourceAttributes
	optionalResources []schema.GroupVersionResource
	optionalAccess    []authorizationv1.ResourceAttributes
	namespaces        []string
}

// resourceSet is the optional resources that a member serves.
type resourceSet = sets.Set[schema.GroupVersionResource]

// findings are what the checks learn of a member.
type findings struct {
	version string
	serves  resourceSet
}

func newChecker(cfg *rest.Config, httpClient *http.Client, namespaces []string, o Options) (checker, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.GroupVersion = &schema.GroupVersion{}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, httpClient)
	return checker{
		client: client, namespaces: namespaces,
		requiredResources: o.RequiredResources, requiredAccess: o.RequiredAccess,
		optionalResources: o.OptionalResources, optionalAccess: o.OptionalAccess,
	}, err
}

// all makes every check, or returns a failure.
func (c checker) all(ctx context.Context) (findings, error) {
	found, err := c.served(ctx)
	if err != nil {
		return findings{}, err
	}
	return found, c.allowed(ctx, found.serves)
}

// allFor makes every check that matters to a connection that was made when the member
// served these optional resources. It returns the member's version, or a failure.
func (c checker) allFor(ctx context.Context, known resourceSet) (string, error) {
	found, err := c.served(ctx)
	if err != nil {
		return "", err
	}
	return found.version, c.allowed(ctx, found.serves.Intersection(known))
}

// alive asks for the member's version, which needs valid credentials but no rights.
func (c checker) alive(ctx context.Context) (string, error) {
	info := version.Info{}
	if err := c.get(ctx, "/version", &info); err != nil {
		return "", classify(err)
	}
	return printable(info.GitVersion, maxVersion), nil
}

// served checks that the member answers and serves all required resources, and asks for the optional ones.
func (c checker) served(ctx context.Context) (found findings, err error) {
	if found.version, err = c.alive(ctx); err != nil {
		return findings{}, err
	}
	if err := supported(found.version); err != nil {
		return findings{}, err
	}
	if err := c.required(ctx); err != nil {
		return findings{}, err
	}
	found.serves, err = c.optional(ctx)
	return found, err
}

// supported refuses a member that is too old. What a distribution calls by a version that
// cannot be read is let pass.
func supported(version string) error {
	if parsed, err := utilversion.ParseGeneric(version); err == nil && parsed.LessThan(oldestVersion) {
		return &failure{
			reason:  ReasonVersionTooOld,
			message: fmt.Sprintf("The member runs Kubernetes %s: upgrade it to %s or later; this is noticed by itself", version, OldestVersion),
		}
	}
	return nil
}

// required checks that the member serves all required resources.
func (c checker) required(ctx context.Context) error {
	serves, err := c.servedOf(ctx, c.requiredResources)
	if err != nil {
		return err
	}
	missing := []string{}
	for _, want := range c.requiredResources {
		if !serves.Has(want) {
			missing = append(missing, fmt.Sprintf("%s (%s)", want.GroupResource(), want.Version))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &failure{
		reason:  ReasonCRDNotInstalled,
		message: "The member does not serve " + strings.Join(missing, ", ") + ": apply config/crd/member there; this is noticed by itself",
	}
}

// optional returns the optional resources that the member serves.
func (c checker) optional(ctx context.Context) (resourceSet, error) {
	return c.servedOf(ctx, c.optionalResources)
}

// servedOf returns those of the resources that the member serves. It takes a request for each group and version.
func (c checker) servedOf(ctx context.Context, resources []schema.GroupVersionResource) (resourceSet, error) {
	serves := resourceSet{}
	known := map[schema.GroupVersion]map[string]bool{}
	for _, want := range resources {
		gv := want.GroupVersion()
		if known[gv] == nil {
			found, err := c.resourcesOf(ctx, gv)
			if err != nil {
				return nil, err
			}
			known[gv] = found
		}
		if known[gv][want.Resource] {
			serves.Insert(want)
		}
	}
	return serves, nil
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

// allowed checks that the kubeconfig's user has all required rights, and those to the
// optional resources in use.
func (c checker) allowed(ctx context.Context, inUse resourceSet) error {
	missing := []string{}
	for _, want := range c.accessWith(inUse) {
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
		message: "The user of the kubeconfig is not allowed to " + strings.Join(slices.Compact(missing), ", ") +
			": apply config/rbac/member there, or register the member again; this is noticed by itself",
	}
}

// accessWith returns the rights that are needed while these optional resources are in use.
func (c checker) accessWith(inUse resourceSet) []authorizationv1.ResourceAttributes {
	served := sets.Set[schema.GroupResource]{}
	for gvr := range inUse {
		served.Insert(gvr.GroupResource())
	}
	access := slices.Clone(c.requiredAccess)
	for _, a := range c.optionalAccess {
		if served.Has(schema.GroupResource{Group: a.Group, Resource: a.Resource}) {
			access = append(access, a)
		}
	}
	return c.inNamespaces(access)
}

// inNamespaces asks for rights in each of the namespaces to which the member is limited, if it is.
func (c checker) inNamespaces(access []authorizationv1.ResourceAttributes) []authorizationv1.ResourceAttributes {
	if c.namespaces == nil {
		return access
	}
	each := make([]authorizationv1.ResourceAttributes, 0, len(c.namespaces)*len(access))
	for _, a := range access {
		if a.Namespace != "" {
			each = append(each, a)
			continue
		}
		for _, a.Namespace = range c.namespaces {
			each = append(each, a)
		}
	}
	return each
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
