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
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
)

// callTimeout bounds each request.
const callTimeout = 30 * time.Second

// Names within the kubeconfig that the Secret holds.
const (
	entryName = "member"
	userName  = "agentrun-fleet"
)

// contexts are those of the kubeconfig of whoever runs the command.
type contexts struct {
	raw *clientcmdapi.Config
}

func loadContexts(file string) (contexts, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	raw, err := rules.Load()
	if err != nil {
		return contexts{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return contexts{raw}, nil
}

// hub returns the name of the hub's context.
func (c contexts) hub(name string) (string, error) {
	if name == "" {
		name = c.raw.CurrentContext
	}
	if name == "" {
		return "", errors.New("--context: not given, and the kubeconfig has no current context: give the hub's")
	}
	return name, c.has("--context", name)
}

func (c contexts) has(flag, name string) error {
	if c.raw.Contexts[name] == nil {
		return fmt.Errorf("%s: the kubeconfig has no context %q: `kubectl config get-contexts` lists those it has", flag, name)
	}
	return nil
}

func (c contexts) restConfig(name string) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveClientConfig(*c.raw, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("context %q: %w", name, err)
	}
	config.Timeout = callTimeout
	config.QPS, config.Burst = 50, 100
	config.UserAgent = managedByValue
	config.WarningHandler = rest.NoWarnings{} // the only one, a shortened expiry, is told by the result
	return config, nil
}

// endpoint is where and by which CA the hub will find the member: of all that the context
// has, this alone goes into the Secret. server takes the place of the context's when it is not empty.
func (c contexts) endpoint(name, server string) (*clientcmdapi.Cluster, error) {
	if err := c.has("--member-context", name); err != nil {
		return nil, err
	}
	from := c.raw.Clusters[c.raw.Contexts[name].Cluster]
	switch {
	case from == nil:
		return nil, fmt.Errorf("--member-context: context %q names cluster %q, which the kubeconfig does not have: correct the kubeconfig", name, c.raw.Contexts[name].Cluster)
	case from.InsecureSkipTLSVerify:
		return nil, fmt.Errorf("--member-context: context %q has insecure-skip-tls-verify, which the manager refuses: put the CA in certificate-authority-data", name)
	case len(from.CertificateAuthorityData) == 0 && from.CertificateAuthority == "":
		return nil, fmt.Errorf("--member-context: context %q has no CA: put the one of the API server in certificate-authority-data", name)
	case from.ProxyURL != "" && server == "":
		return nil, fmt.Errorf("--member-context: context %q has a proxy-url, which the manager does not use: give --server with a URL that the hub reaches", name)
	}
	ca, err := caOf(from)
	if err != nil {
		return nil, fmt.Errorf("--member-context: context %q: reading its CA: %w", name, err)
	}
	to := &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	if server == "" {
		to.Server, to.TLSServerName = from.Server, from.TLSServerName
	}
	_, err = kubeconfigOf(to, "not-issued-yet") // what the manager refuses is said before anything is made
	return to, err
}

func caOf(cluster *clientcmdapi.Cluster) ([]byte, error) {
	if len(cluster.CertificateAuthorityData) > 0 {
		return cluster.CertificateAuthorityData, nil
	}
	return os.ReadFile(cluster.CertificateAuthority)
}

// kubeconfigOf is what the Secret holds. It is an error when a manager that allows nothing
// but the default would refuse it.
func kubeconfigOf(cluster *clientcmdapi.Cluster, token string) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[entryName] = cluster
	config.AuthInfos[userName] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[entryName] = &clientcmdapi.Context{Cluster: entryName, AuthInfo: userName}
	config.CurrentContext = entryName
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, err
	}
	if _, err := kubeconfigsecret.ParseKubeconfig(content, kubeconfigsecret.Policy{}); err != nil {
		return nil, fmt.Errorf("the manager would refuse this member's kubeconfig: %w", err)
	}
	return content, nil
}

// stored takes a Secret's kubeconfig apart. Both results are zero for one that
// register has not made.
func stored(content []byte) (cluster *clientcmdapi.Cluster, token string) {
	config, err := clientcmd.Load(content)
	if err != nil || config.Clusters[entryName] == nil || config.AuthInfos[userName] == nil {
		return nil, ""
	}
	from := config.Clusters[entryName]
	return &clientcmdapi.Cluster{
		Server: from.Server, TLSServerName: from.TLSServerName, CertificateAuthorityData: from.CertificateAuthorityData,
	}, config.AuthInfos[userName].Token
}
