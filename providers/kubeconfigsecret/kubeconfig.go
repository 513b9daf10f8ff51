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
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/rest"
)

const (
	// maxKubeconfigBytes is what a Secret may hold at most; no honest kubeconfig comes near.
	maxKubeconfigBytes = 1 << 20
	// maxKubeconfigNodes and maxKubeconfigDepth bound the YAML tree; a kubeconfig with 500 contexts
	// has about 10,000 nodes, and none is deeper than an exec plugin's env list.
	maxKubeconfigNodes = 20_000
	maxKubeconfigDepth = 20
)

// kubeconfigFile has every field of a v1 kubeconfig, also those that are refused:
// a field that is not here is a typing error and is refused as one.
type kubeconfigFile struct {
	APIVersion     string       `yaml:"apiVersion"`
	Kind           string       `yaml:"kind"`
	CurrentContext string       `yaml:"current-context"`
	Clusters       []namedEntry `yaml:"clusters"`
	Contexts       []namedEntry `yaml:"contexts"`
	Users          []namedEntry `yaml:"users"`
	Preferences    yaml.Node    `yaml:"preferences"`
	Extensions     yaml.Node    `yaml:"extensions"`
}

type namedEntry struct {
	Name    string        `yaml:"name"`
	Cluster *clusterEntry `yaml:"cluster"`
	Context *contextEntry `yaml:"context"`
	User    *userEntry    `yaml:"user"`
}

type contextEntry struct {
	Cluster    string    `yaml:"cluster"`
	User       string    `yaml:"user"`
	Namespace  string    `yaml:"namespace"`
	Extensions yaml.Node `yaml:"extensions"`
}

type clusterEntry struct {
	Server                   string    `yaml:"server"`
	TLSServerName            string    `yaml:"tls-server-name"`
	InsecureSkipTLSVerify    bool      `yaml:"insecure-skip-tls-verify"`
	CertificateAuthority     string    `yaml:"certificate-authority"`
	CertificateAuthorityData string    `yaml:"certificate-authority-data"`
	ProxyURL                 string    `yaml:"proxy-url"`
	DisableCompression       bool      `yaml:"disable-compression"`
	Extensions               yaml.Node `yaml:"extensions"`
}

type userEntry struct {
	ClientCertificate     string    `yaml:"client-certificate"`
	ClientCertificateData string    `yaml:"client-certificate-data"`
	ClientKey             string    `yaml:"client-key"`
	ClientKeyData         string    `yaml:"client-key-data"`
	Token                 string    `yaml:"token"`
	TokenFile             string    `yaml:"tokenFile"`
	As                    string    `yaml:"as"`
	AsUID                 string    `yaml:"as-uid"`
	AsGroups              yaml.Node `yaml:"as-groups"`
	AsUserExtra           yaml.Node `yaml:"as-user-extra"`
	Username              string    `yaml:"username"`
	Password              string    `yaml:"password"`
	AuthProvider          yaml.Node `yaml:"auth-provider"`
	Exec                  yaml.Node `yaml:"exec"`
	Extensions            yaml.Node `yaml:"extensions"`
}

// Policy is what a kubeconfig may ask of the hub. The zero value allows least.
type Policy struct {
	// AllowProxy accepts proxy-url, of the schemes http and socks5, without credentials.
	AllowProxy bool
	// AllowInsecure accepts insecure-skip-tls-verify. Whoever answers then gets the credentials.
	AllowInsecure bool
	// Servers are where members, and the proxies that they choose, may be.
	Servers Allowlist
}

// ParseKubeconfig turns a kubeconfig that comes from outside into a rest.Config, or
// says which field is wrong and what to put there. Nothing is executed, dialled or
// read from disk, and the result is built, once all of it was checked, only from these fields:
// server, tls-server-name, disable-compression, the CA and credentials given inline, and
// what policy allows. Errors never quote a value of the kubeconfig.
func ParseKubeconfig(raw []byte, policy Policy) (*rest.Config, error) {
	file, err := decodeKubeconfig(raw)
	if err != nil {
		return nil, err
	}
	sel, err := file.current()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(sel.cluster.refused(sel.clusterPath, policy), sel.user.refused(sel.userPath)); err != nil {
		return nil, err
	}
	server, err := sel.cluster.checked(sel.clusterPath, policy.Servers)
	if err != nil {
		return nil, err
	}
	user, err := sel.user.checked(sel.userPath)
	if err != nil {
		return nil, err
	}
	return configOf(sel, server, user), nil
}

// configOf needs what was checked.
func configOf(sel *chosen, server checkedCluster, user checkedUser) *rest.Config {
	cfg := &rest.Config{
		Host:        sel.cluster.Server,
		BearerToken: sel.user.Token, Username: sel.user.Username, Password: sel.user.Password,
		DisableCompression: sel.cluster.DisableCompression,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure: sel.cluster.InsecureSkipTLSVerify, ServerName: sel.cluster.TLSServerName,
			CAData: server.ca, CertData: user.cert, KeyData: user.key,
		},
	}
	if server.proxy != nil {
		cfg.Proxy = http.ProxyURL(server.proxy)
	}
	return cfg
}

// chosen is the one context that is used, with the paths that errors name.
type chosen struct {
	cluster               *clusterEntry
	user                  *userEntry
	clusterPath, userPath string
}

func (f *kubeconfigFile) current() (*chosen, error) {
	name := f.CurrentContext
	if name == "" && len(f.Contexts) == 1 {
		name = f.Contexts[0].Name
	}
	if name == "" {
		return nil, fmt.Errorf("field current-context: not set, with %d contexts to choose from: set it", len(f.Contexts))
	}
	i, err := find("contexts", f.Contexts, name)
	if err != nil {
		return nil, err
	}
	context := f.Contexts[i].Context
	if context == nil {
		return nil, fmt.Errorf("field contexts[%d].context: missing: name a cluster and a user", i)
	}
	c, err := find("clusters", f.Clusters, context.Cluster)
	if err != nil {
		return nil, err
	}
	u, err := find("users", f.Users, context.User)
	if err != nil {
		return nil, err
	}
	sel := &chosen{
		cluster: f.Clusters[c].Cluster, clusterPath: fmt.Sprintf("clusters[%d].cluster", c),
		user: f.Users[u].User, userPath: fmt.Sprintf("users[%d].user", u),
	}
	switch {
	case sel.cluster == nil:
		return nil, fmt.Errorf("field %s: missing: give at least server", sel.clusterPath)
	case sel.user == nil:
		return nil, fmt.Errorf("field %s: missing: give a token, or client certificate and key", sel.userPath)
	}
	return sel, nil
}

// find returns the index of the one entry with that name.
func find(list string, entries []namedEntry, name string) (int, error) {
	found := -1
	for i, entry := range entries {
		if entry.Name != name {
			continue
		}
		if found >= 0 {
			return 0, fmt.Errorf("field %s[%d].name: another entry has the same name: keep one", list, i)
		}
		found = i
	}
	if found < 0 {
		return 0, fmt.Errorf("field %s: has no entry of the name that the current context asks for: add it", list)
	}
	return found, nil
}

// refusal is a field that makes the hub run, read, dial or impersonate something
// that the kubeconfig's author chose.
type refusal struct {
	present bool
	field   string
	remedy  string
}

func (c *clusterEntry) refused(path string, policy Policy) error {
	return firstPresent(path, []refusal{
		{c.InsecureSkipTLSVerify && !policy.AllowInsecure, "insecure-skip-tls-verify", "put the CA in certificate-authority-data"},
		{c.CertificateAuthority != "", "certificate-authority", "files of the hub are not read; put the content in certificate-authority-data"},
		{c.ProxyURL != "" && !policy.AllowProxy, "proxy-url", "proxies chosen by a member are not used; remove it"},
	})
}

func (u *userEntry) refused(path string) error {
	return firstPresent(path, []refusal{
		{present(u.Exec), "exec", "the hub runs no programs for a member; use a token or a client certificate"},
		{present(u.AuthProvider), "auth-provider", "auth providers are not supported; use a token or a client certificate"},
		{u.TokenFile != "", "tokenFile", "files of the hub are not read; put the content in token"},
		{u.ClientCertificate != "", "client-certificate", "files of the hub are not read; put the content in client-certificate-data"},
		{u.ClientKey != "", "client-key", "files of the hub are not read; put the content in client-key-data"},
		{u.As != "", "as", "impersonation is refused; use credentials of the identity itself"},
		{u.AsUID != "", "as-uid", "impersonation is refused; use credentials of the identity itself"},
		{present(u.AsGroups), "as-groups", "impersonation is refused; use credentials of the identity itself"},
		{present(u.AsUserExtra), "as-user-extra", "impersonation is refused; use credentials of the identity itself"},
	})
}

func firstPresent(path string, refusals []refusal) error {
	for _, r := range refusals {
		if r.present {
			return fmt.Errorf("field %s.%s: refused: %s", path, r.field, r.remedy)
		}
	}
	return nil
}

func present(node yaml.Node) bool {
	return !node.IsZero() && node.Tag != "!!null"
}

// checkedCluster is what a cluster's entry holds in another form.
type checkedCluster struct {
	ca    []byte
	proxy *url.URL // nil when there is none
}

func (c *clusterEntry) checked(path string, servers Allowlist) (checkedCluster, error) {
	switch problem := serverProblem(c.Server, servers); problem {
	case "":
	case notAllowed:
		return checkedCluster{}, fmt.Errorf("field %s.server: %s", path, problem)
	default:
		return checkedCluster{}, fmt.Errorf("field %s.server: %s: write https://host:port", path, problem)
	}
	proxy, err := c.checkedProxy(path, servers)
	if err != nil {
		return checkedCluster{}, err
	}
	ca, err := decodeData(path+".certificate-authority-data", c.CertificateAuthorityData)
	if err != nil {
		return checkedCluster{}, err
	}
	if len(ca) > 0 && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return checkedCluster{}, fmt.Errorf("field %s.certificate-authority-data: holds no PEM certificate: put the base64 of one there", path)
	}
	if len(ca) > 0 && c.InsecureSkipTLSVerify {
		return checkedCluster{}, fmt.Errorf("fields %[1]s.certificate-authority-data and %[1]s.insecure-skip-tls-verify: both are set: keep the former", path)
	}
	return checkedCluster{ca: ca, proxy: proxy}, nil
}

func (c *clusterEntry) checkedProxy(path string, servers Allowlist) (*url.URL, error) {
	if c.ProxyURL == "" {
		return nil, nil
	}
	proxy, err := url.Parse(c.ProxyURL)
	switch {
	// To an https proxy Go would offer the member's client certificate.
	case err != nil || proxy.Hostname() == "" || (proxy.Scheme != "http" && proxy.Scheme != "socks5"):
		return nil, fmt.Errorf("field %s.proxy-url: not the URL of a proxy: write http://host:port or socks5://host:port", path)
	case proxy.User != nil:
		return nil, fmt.Errorf("field %s.proxy-url: credentials in the URL are refused: use a proxy that needs none", path)
	case !servers.mayPermit(proxy.Hostname()):
		return nil, fmt.Errorf("field %s.proxy-url: %s", path, notAllowed)
	}
	return proxy, nil
}

// serverProblem says why a URL cannot be an API server's, without repeating it: it may hold a password.
func serverProblem(server string, servers Allowlist) string {
	u, err := url.Parse(server)
	switch {
	case server == "":
		return "missing"
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return "not a URL with a host"
	case u.Scheme != "https":
		return "only https is allowed"
	case u.User != nil:
		return "credentials in the URL are refused"
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "a query or fragment is refused"
	case !servers.mayPermit(u.Hostname()):
		return notAllowed
	}
	return ""
}

// checkedUser is what a user's entry holds in another form.
type checkedUser struct{ cert, key []byte }

func (u *userEntry) checked(path string) (checkedUser, error) {
	cert, err := decodeData(path+".client-certificate-data", u.ClientCertificateData)
	if err != nil {
		return checkedUser{}, err
	}
	key, err := decodeData(path+".client-key-data", u.ClientKeyData)
	if err != nil {
		return checkedUser{}, err
	}
	if len(cert) > 0 || len(key) > 0 {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			return checkedUser{}, fmt.Errorf("fields %[1]s.client-certificate-data and %[1]s.client-key-data: not a PEM certificate with its key: put the base64 of both there", path)
		}
	}
	for field, value := range map[string]string{"token": u.Token, "username": u.Username, "password": u.Password} {
		if strings.ContainsFunc(value, isControl) {
			return checkedUser{}, fmt.Errorf("field %s.%s: contains a line break or another control character: remove it", path, field)
		}
	}
	switch {
	case u.Token != "" && u.Username != "":
		return checkedUser{}, fmt.Errorf("fields %[1]s.token and %[1]s.username: both are set: keep one", path)
	case u.Token == "" && u.Username == "" && len(cert) == 0:
		return checkedUser{}, fmt.Errorf("field %s: has no credentials: give a token, or client-certificate-data and client-key-data", path)
	}
	return checkedUser{cert: cert, key: key}, nil
}

func decodeData(field, value string) ([]byte, error) {
	if value == "" {
		return nil, nil
	}
	data, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, fmt.Errorf("field %s: not base64: encode the PEM text", field)
	}
	return data, nil
}
