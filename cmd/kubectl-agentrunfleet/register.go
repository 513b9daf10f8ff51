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

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
)

// Annotations of a member's Secret, beside kubeconfigsecret.NamespacesAnnotation. The manager does not
// read them.
const (
	// expiryAnnotation is when the token expires (RFC 3339).
	expiryAnnotation = "fleet.konveyor.io/token-expires"
	// uidAnnotation is the UID of the member's Namespace kube-system: a mistaken
	// --member-context is noticed by it.
	uidAnnotation = "fleet.konveyor.io/member-uid"
	// serverAnnotation is what --server was given as.
	serverAnnotation = "fleet.konveyor.io/server"
)

// session is a command at work on one registration.
type session struct {
	*registration
	contexts
	hub, member *cluster
	memberUID   types.UID
	// secret is the one in the hub, with or without register's marks; nil when there is none.
	secret *corev1.Secret
}

// open finds hub and member, and what they have of the registration.
func open(ctx context.Context, o *options, c contexts, out io.Writer) (*session, error) {
	s, err := openHub(ctx, o, c, out)
	if err != nil {
		return nil, err
	}
	return s, s.openMember(ctx)
}

// openHub asks the member nothing yet.
func openHub(ctx context.Context, o *options, c contexts, out io.Writer) (*session, error) {
	s := &session{contexts: c}
	if err := s.connect(o, out); err != nil {
		return nil, err
	}
	hubUID, err := s.hub.uid(ctx)
	if err != nil {
		return nil, err
	}
	s.registration = newRegistration(hubUID, o.namespace, o.name)
	return s, s.find(ctx)
}

func (s *session) openMember(ctx context.Context) (err error) {
	if s.memberUID, err = s.member.uid(ctx); err != nil {
		return err
	}
	return s.sameMember()
}

func (s *session) connect(o *options, out io.Writer) error {
	if err := s.has("--member-context", o.memberContext); err != nil {
		return err
	}
	hubContext, err := s.contexts.hub(o.hubContext)
	if err != nil {
		return err
	}
	if s.hub, err = connect(s.contexts, "hub", hubContext, o.dryRun, out); err != nil {
		return err
	}
	s.member, err = connect(s.contexts, "member", o.memberContext, o.dryRun, out)
	return err
}

func (s *session) secretKey() client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: s.name + kubeconfigsecret.NameSuffix}
}

// find reads the Secret.
func (s *session) find(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := s.hub.Get(ctx, s.secretKey(), secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: reading Secret %s: %w", s.hub.title, s.secretKey(), err)
	}
	s.secret = secret
	return nil
}

// sameMember: under the name of one cluster nothing is done to another.
func (s *session) sameMember() error {
	if s.secret == nil || !s.made(s.secret) || s.secret.Annotations[uidAnnotation] == string(s.memberUID) {
		return nil
	}
	return fmt.Errorf("--member-context: %s is another cluster than the one that is registered as %s/%s: give that one's context, or choose another NAME",
		s.member.title, s.namespace, s.name)
}

// register makes the member's account and the hub's Secret, or corrects them.
func register(ctx context.Context, o *options, out io.Writer) error {
	c, err := loadContexts(o.kubeconfig)
	if err != nil {
		return err
	}
	if o.renew {
		return renew(ctx, o, c, out)
	}
	s, err := openHub(ctx, o, c, out)
	if err != nil {
		return err
	}
	if err := s.own(); err != nil {
		return err
	}
	server := s.server(o)
	endpoint, err := c.endpoint(o.memberContext, server)
	if err != nil {
		return err
	}
	if err := s.openMember(ctx); err != nil {
		return err
	}
	namespaces := s.limit(o)
	if err := s.ready(ctx, namespaces); err != nil {
		return err
	}
	return s.put(ctx, o.expiration, endpoint, namespaces, map[string]string{
		kubeconfigsecret.NamespacesAnnotation: strings.Join(slices.Sorted(slices.Values(namespaces)), ","),
		serverAnnotation:                      server,
		uidAnnotation:                         string(s.memberUID),
	})
}

// put makes what is wanted in the member, then the Secret.
func (s *session) put(ctx context.Context, expiration time.Duration, endpoint *clientcmdapi.Cluster, namespaces []string, annotations map[string]string) error {
	objects, err := s.inMember(namespaces)
	if err != nil {
		return err
	}
	if err := s.member.ensure(ctx, s.registration, objects...); err != nil {
		return err
	}
	token, err := s.token(ctx, expiration)
	if err != nil {
		return err
	}
	if err := s.ensureSecret(ctx, endpoint, token, annotations); err != nil {
		return err
	}
	// Last, so that a manager that is told of a narrower limit keeps within it before it must.
	return s.prune(ctx, s.member, objects)
}

// own refuses a Secret that something else has made.
func (s *session) own() error {
	if s.secret != nil && !s.made(s.secret) {
		return fmt.Errorf("%s: %w", s.hub.title, notMade(s.secret))
	}
	return nil
}

// limit is the namespaces that the registration is to have rights in; none means all. A
// limit that was given once is not lifted by forgetting the flag.
func (s *session) limit(o *options) []string {
	if o.limitGiven || s.secret == nil {
		return o.memberNamespaces
	}
	return splitNamespaces(s.secret.Annotations[kubeconfigsecret.NamespacesAnnotation])
}

// server is the URL for the hub to use; empty means that of the member's context. One that
// was given once is not undone by forgetting the flag.
func (s *session) server(o *options) string {
	if o.serverGiven || s.secret == nil {
		return o.server
	}
	return s.secret.Annotations[serverAnnotation]
}

// ready checks what register does not make, before it makes anything.
func (s *session) ready(ctx context.Context, namespaces []string) error {
	if err := s.hub.serves(fleetv1alpha1.GroupVersion.WithResource("agentrunclusterstatuses")); err != nil {
		return fmt.Errorf("%w: install the hub first, by `kubectl apply -k config/default`, or give the hub's --context", err)
	}
	if err := s.hub.hasNamespace(ctx, s.namespace); err != nil {
		return fmt.Errorf("%w: create it, or give another --namespace", err)
	}
	for _, namespace := range namespaces {
		if err := s.member.hasNamespace(ctx, namespace); err != nil {
			return fmt.Errorf("%w: create it, or leave it out of --%s", err, memberNamespacesFlag)
		}
	}
	if err := s.member.serves(agentv1alpha1.GroupVersion.WithResource("agentruns")); err != nil {
		if !meta.IsNoMatchError(err) {
			return err
		}
		s.member.sayf("AgentRuns are not served yet: it will be connected once their CRD is installed (config/crd/member)")
	}
	return nil
}

func (c *cluster) serves(gvr schema.GroupVersionResource) error {
	if _, err := c.RESTMapper().KindFor(gvr); err != nil {
		return fmt.Errorf("%s does not serve %s: %w", c.title, gvr.GroupResource(), err)
	}
	return nil
}

func (c *cluster) hasNamespace(ctx context.Context, name string) error {
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); err != nil {
		return fmt.Errorf("%s: Namespace %s: %w", c.title, name, err)
	}
	return nil
}

// token is a bound token and when it expires.
type token struct {
	value   string
	expires string
}

// token returns the one that the Secret holds as long as the member accepts it, else a new one.
func (s *session) token(ctx context.Context, expiration time.Duration) (token, error) {
	if s.secret != nil {
		_, value := stored(s.secret.Data[kubeconfigsecret.Key])
		have := token{value: value, expires: s.secret.Annotations[expiryAnnotation]}
		accepted, err := s.accepts(ctx, value)
		if err != nil {
			return token{}, err
		}
		if accepted {
			s.member.sayf("token unchanged, expires %s; --renew renews it", have.expires)
			return have, nil
		}
	}
	return s.issue(ctx, expiration)
}

// accepts asks whether the token is one of the registration's account and valid.
func (s *session) accepts(ctx context.Context, value string) (bool, error) {
	if value == "" {
		return false, nil
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: value}}
	if err := s.member.Create(ctx, review); err != nil {
		return false, fmt.Errorf("%s: asking whether the present token is valid: %w", s.member.title, err)
	}
	return review.Status.Authenticated && review.Status.User.Username == "system:serviceaccount:"+s.objects+":"+s.objects, nil
}

// issue has a new token issued and says when it expires.
func (s *session) issue(ctx context.Context, expiration time.Duration) (token, error) {
	if s.member.dryRun {
		s.member.sayf("token issued (dry run), valid for %s if the API server grants that", expiration)
		return token{value: "dry-run"}, nil
	}
	seconds := int64(expiration / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := s.member.SubResource("token").Create(ctx, s.serviceAccount(), request); err != nil {
		return token{}, fmt.Errorf("%s: requesting a token of %s: %w", s.member.title, nameOf(s.serviceAccount()), err)
	}
	// The server's answer says what it granted, in the place of what was asked for.
	granted := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
	note := ""
	if granted < expiration.Truncate(time.Second) {
		note = fmt.Sprintf("; the API server granted %s instead of %s", granted, expiration)
	}
	issued := token{value: request.Status.Token, expires: request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339)}
	s.member.sayf("token issued, expires %s%s", issued.expires, note)
	return issued, nil
}

func (s *session) ensureSecret(ctx context.Context, endpoint *clientcmdapi.Cluster, t token, annotations map[string]string) error {
	content, err := kubeconfigOf(endpoint, t.value)
	if err != nil {
		return err
	}
	key := s.secretKey()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return s.hub.ensure(ctx, s.registration, wanted{secret, func() {
		secret.Type = kubeconfigsecret.SecretType
		label(secret, kubeconfigsecret.ClusterNameLabel, s.name)
		for key, value := range annotations {
			annotate(secret, key, value)
		}
		setToken(secret, content, t.expires)
	}})
}

func setToken(secret *corev1.Secret, kubeconfig []byte, expires string) {
	secret.Data = map[string][]byte{kubeconfigsecret.Key: kubeconfig}
	annotate(secret, expiryAnnotation, expires)
}

// renew puts a new token into the Secret and leaves everything else as it is.
func renew(ctx context.Context, o *options, c contexts, out io.Writer) error {
	s, err := open(ctx, o, c, out)
	if err != nil {
		return err
	}
	if err := s.own(); err != nil {
		return err
	}
	if s.secret == nil {
		return fmt.Errorf("--renew: %s has no Secret %s: register it first, without --renew", s.hub.title, s.secretKey())
	}
	endpoint, _ := stored(s.secret.Data[kubeconfigsecret.Key])
	if endpoint == nil {
		return fmt.Errorf("--renew: %s of %s holds no kubeconfig that register made: register it again, without --renew", nameOf(s.secret), s.hub.title)
	}
	t, err := s.issue(ctx, o.expiration)
	if err != nil {
		return err
	}
	content, err := kubeconfigOf(endpoint, t.value)
	if err != nil {
		return err
	}
	setToken(s.secret, content, t.expires)
	// The resourceVersion that was read holds, as in ensure.
	if err := s.hub.unlessDry(func() error { return s.hub.Update(ctx, s.secret) }); err != nil {
		return fmt.Errorf("%s: %s: %w", s.hub.title, nameOf(s.secret), err)
	}
	s.hub.say(s.secret, "updated")
	return nil
}
