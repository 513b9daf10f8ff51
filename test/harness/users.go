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

package harness

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// AddUser makes a user that is known by a client certificate and may do nothing
// but what RBAC grants to it or its groups.
func (cp *ControlPlane) AddUser(name string, groups ...string) (*rest.Config, error) {
	user, err := cp.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding user %q to %q: %w", name, cp.Name, err)
	}
	return unlimited(user.Config()), nil
}

// ServiceAccount makes a ServiceAccount, its namespace too where there is none,
// and has a token issued that is good for an hour.
func (cp *ControlPlane) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	account, err := cp.ensureServiceAccount(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	token := &authenticationv1.TokenRequest{}
	if err := cp.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("requesting a token of ServiceAccount %s/%s in %q: %w", namespace, name, cp.Name, err)
	}
	return cp.withToken(token.Status.Token), nil
}

// ServiceAccountUntil is ServiceAccount with a token that expires at a given time,
// which may be past.
func (cp *ControlPlane) ServiceAccountUntil(ctx context.Context, namespace, name string, expires time.Time) (*rest.Config, error) {
	account, err := cp.ensureServiceAccount(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	token, err := cp.signToken(cp.tokenClaims(namespace, name, string(account.UID), expires))
	if err != nil {
		return nil, fmt.Errorf("signing a token of ServiceAccount %s/%s in %q: %w", namespace, name, cp.Name, err)
	}
	return cp.withToken(token), nil
}

func (cp *ControlPlane) ensureServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if err := cp.EnsureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := cp.Client.Create(ctx, account)
	if apierrors.IsAlreadyExists(err) {
		err = cp.Client.Get(ctx, client.ObjectKeyFromObject(account), account)
	}
	if err != nil {
		return nil, fmt.Errorf("ensuring ServiceAccount %s/%s in %q: %w", namespace, name, cp.Name, err)
	}
	return account, nil
}

// withToken is the config of whoever has the token.
func (cp *ControlPlane) withToken(token string) *rest.Config {
	config := rest.AnonymousClientConfig(cp.Config)
	config.UserAgent = ""
	config.BearerToken = token
	return config
}

// EnsureNamespace makes a namespace unless it exists.
func (cp *ControlPlane) EnsureNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreAlreadyExists(cp.Client.Create(ctx, namespace)); err != nil {
		return fmt.Errorf("creating Namespace %s in %q: %w", name, cp.Name, err)
	}
	return nil
}

// Kubeconfig puts a config's credentials and CA into a kubeconfig. The server is
// the URL to connect to, for example a Proxy's; the config's own when empty.
func Kubeconfig(config *rest.Config, server string) []byte {
	const name = "default"
	if server == "" {
		server = config.Host
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		panic(err) // a kubeconfig of strings and bytes can always be encoded
	}
	return content
}

// MemberSecret makes a cluster known to a hub, in the form of Cluster API.
func MemberSecret(namespace, cluster string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      cluster + "-kubeconfig",
			Labels:    map[string]string{"cluster.x-k8s.io/cluster-name": cluster},
		},
		Type: "cluster.x-k8s.io/secret",
		Data: map[string][]byte{"value": kubeconfig},
	}
}
