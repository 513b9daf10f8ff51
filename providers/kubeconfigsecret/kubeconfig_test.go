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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"
)

// valid is a kubeconfig that is accepted; the cases below change one thing in it.
const valid = `apiVersion: v1
kind: Config
current-context: admin
clusters:
- name: east
  cluster:
    server: https://east.example:6443
contexts:
- name: admin
  context: {cluster: east, user: hub, namespace: default}
users:
- name: hub
  user:
    token: s3cret-token
preferences: {}
`

func TestParseKubeconfigAccepts(t *testing.T) {
	certPEM, keyPEM := keyPair(t)
	cert, key := base64.StdEncoding.EncodeToString(certPEM), base64.StdEncoding.EncodeToString(keyPEM)
	tests := map[string]struct {
		kubeconfig string
		want       *rest.Config
	}{
		"a token and the system's CAs": {
			kubeconfig: valid,
			want:       &rest.Config{Host: "https://east.example:6443", BearerToken: "s3cret-token"},
		},
		"a client certificate, a CA and a server name": {
			kubeconfig: replace(t, replace(t, valid, "    token: s3cret-token\n", "    client-certificate-data: "+cert+"\n    client-key-data: "+key+"\n"),
				"6443\n", "6443/k8s/clusters/c-1\n    tls-server-name: kubernetes\n    certificate-authority-data: "+cert+"\n"),
			want: &rest.Config{
				Host: "https://east.example:6443/k8s/clusters/c-1",
				TLSClientConfig: rest.TLSClientConfig{
					ServerName: "kubernetes", CAData: certPEM, CertData: certPEM, KeyData: keyPEM,
				},
			},
		},
		"JSON, which is YAML": {
			kubeconfig: `{"clusters":[{"name":"a","cluster":{"server":"https://[::1]:6443"}}],"contexts":[{"name":"c","context":{"cluster":"a","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`,
			want:       &rest.Config{Host: "https://[::1]:6443", BearerToken: "t"},
		},
		"no current context where there is one only": {
			kubeconfig: replace(t, valid, "current-context: admin\n", ""),
			want:       &rest.Config{Host: "https://east.example:6443", BearerToken: "s3cret-token"},
		},
		"an exec plugin of a user that is not used, and one that is null": {
			kubeconfig: replace(t, valid, "    token: s3cret-token\n", "    token: s3cret-token\n    exec: null\n- name: other\n  user: {exec: {command: /bin/false}}\n"),
			want:       &rest.Config{Host: "https://east.example:6443", BearerToken: "s3cret-token"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseKubeconfig([]byte(tc.kubeconfig), Policy{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want.String(), got.String()); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want.TLSClientConfig, got.TLSClientConfig); diff != "" || got.BearerToken != tc.want.BearerToken {
				t.Errorf("credentials differ:\n%s", diff)
			}
		})
	}
}

func TestParseKubeconfigRefuses(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	user := func(fields string) string { return replace(t, valid, "    token: s3cret-token\n", fields) }
	server := func(url string) string { return replace(t, valid, "https://east.example:6443", url) }
	clusterField := func(field string) string { return replace(t, valid, "6443\n", "6443\n    "+field+"\n") }
	tests := map[string]struct {
		kubeconfig string
		want       string // in the error
	}{
		"nothing":                {"", "empty"},
		"blanks":                 {" \n\t\n", "empty"},
		"no YAML":                {"a: b: c: {", "kubeconfig is not YAML"},
		"binary":                 {"\x00\x01\x02\xff", "not YAML"},
		"a word":                 {"hello", "wrong type at line 1"},
		"another kind":           {replace(t, valid, "kind: Config", "kind: Pod"), "apiVersion and kind"},
		"an unknown field":       {clusterField("certificate-authority-dat: x"), "no kubeconfig has, or a value of the wrong type at line 8"},
		"two documents":          {valid + "---\n" + valid, "more than one YAML document"},
		"more than 1 MiB":        {valid + "#" + strings.Repeat("x", 1<<20), "larger than 1048576"},
		"a YAML bomb":            {bomb(), "anchors and aliases"},
		"an alias":               {replace(t, valid, "preferences: {}", "preferences: &a {}\nextensions: *a"), "anchors and aliases"},
		"deep nesting":           {valid + "extensions: " + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "\n", "nests deeper"},
		"very many values":       {valid + "extensions: [" + strings.Repeat("a,", 30_000) + "]\n", "nests deeper"},
		"a YAML tag":             {replace(t, valid, "token: s3cret-token", "token: !!binary czNjcmV0"), "tags are refused"},
		"a duplicate key":        {user("    token: a\n    token: b\n"), "line 15: the same key stands there twice"},
		"a duplicate inside":     {replace(t, valid, "namespace: default}", "namespace: default, user: root}"), "twice"},
		"a merge key":            {replace(t, valid, "preferences: {}", "<<: {kind: Config}"), "plain word"},
		"a key that is a list":   {replace(t, valid, "preferences: {}", "[a]: b"), "plain word"},
		"several, none current":  {replace(t, replace(t, valid, "current-context: admin\n", ""), "users:\n", "- name: second\n  context: {cluster: east, user: hub}\nusers:\n"), "field current-context: not set, with 2 contexts"},
		"no context at all":      {"kind: Config\napiVersion: v1\n", "field current-context: not set, with 0 contexts"},
		"a context not there":    {replace(t, valid, "current-context: admin", "current-context: root"), "field contexts: has no entry"},
		"an empty context":       {replace(t, valid, "  context: {cluster: east, user: hub, namespace: default}\n", ""), "field contexts[0].context: missing"},
		"a cluster not there":    {replace(t, valid, "cluster: east,", "cluster: west,"), "field clusters: has no entry"},
		"a user not there":       {replace(t, valid, "user: hub,", "user: me,"), "field users: has no entry"},
		"two of the same name":   {replace(t, valid, "contexts:\n", "- name: east\n  cluster: {server: https://west.example}\ncontexts:\n"), "field clusters[1].name: another entry"},
		"an empty cluster":       {replace(t, valid, "  cluster:\n    server: https://east.example:6443\n", ""), "field clusters[0].cluster: missing"},
		"an empty user":          {user(""), "field users[0].user: missing"},
		"no server":              {server(`""`), "field clusters[0].cluster.server: missing"},
		"plain http":             {server("http://east.example"), "only https"},
		"no scheme":              {server("east.example:6443"), "field clusters[0].cluster.server: not a URL with a host"},
		"a file as server":       {server("file:///etc/passwd"), "not a URL with a host"},
		"credentials in the URL": {server("https://root:hunter2@east.example"), "credentials in the URL"},
		"a query in the URL":     {server("https://east.example/?a=b"), "query or fragment"},
		"not a URL":              {server(`"https://east.example:port"`), "not a URL with a host"},
		"a proxy":                {clusterField("proxy-url: http://proxy.example:3128"), "cluster.proxy-url: refused"},
		"no verification":        {clusterField("insecure-skip-tls-verify: true"), "cluster.insecure-skip-tls-verify: refused: put the CA"},
		"a CA by path":           {clusterField("certificate-authority: /etc/ssl/ca.pem"), "cluster.certificate-authority: refused"},
		"a CA that is not one":   {clusterField("certificate-authority-data: aGVsbG8="), "holds no PEM certificate"},
		"a CA not in base64":     {clusterField("certificate-authority-data: '%%%'"), "certificate-authority-data: not base64"},
		"an exec plugin":         {user("    exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [" + marker + "]}\n"), "field users[0].user.exec: refused"},
		"an auth provider":       {user("    auth-provider: {name: gcp}\n"), "user.auth-provider: refused"},
		"a token by path":        {user("    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token\n"), "user.tokenFile: refused"},
		"a certificate by path":  {user("    client-certificate: /etc/c.pem\n"), "user.client-certificate: refused"},
		"a key by path":          {user("    client-key: /etc/k.pem\n"), "user.client-key: refused"},
		"another user's name":    {user("    token: s3cret-token\n    as: admin\n"), "user.as: refused"},
		"another user's uid":     {user("    token: s3cret-token\n    as-uid: '1'\n"), "user.as-uid: refused"},
		"another user's groups":  {user("    token: s3cret-token\n    as-groups: [system:masters]\n"), "user.as-groups: refused"},
		"another user's extra":   {user("    token: s3cret-token\n    as-user-extra: {a: [b]}\n"), "user.as-user-extra: refused"},
		"no credentials":         {user("    {}\n"), "field users[0].user: has no credentials"},
		"two credentials":        {user("    token: s3cret-token\n    username: a\n"), "both are set"},
		"a header in the token":  {user("    token: \"s3cret-token\\r\\nX-A: b\"\n"), "user.token: contains a line break"},
		"a certificate, no key":  {user("    client-certificate-data: aGVsbG8=\n"), "not a PEM certificate with its key"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := ParseKubeconfig([]byte(tc.kubeconfig), Policy{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got error %v, want one with %q", err, tc.want)
			}
			if cfg != nil {
				t.Errorf("got a config beside the error")
			}
			if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes a credential: %v", err)
			}
			if len(err.Error()) > 300 {
				t.Errorf("the error has %d characters", len(err.Error()))
			}
		})
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the exec plugin was run")
	}
}

func TestParseKubeconfigByPolicy(t *testing.T) {
	field := func(field string) string { return replace(t, valid, "6443\n", "6443\n    "+field+"\n") }
	server := func(url string) string { return replace(t, valid, "https://east.example:6443", url) }
	list := func(entries ...string) Policy {
		servers, err := ParseAllowlist(entries)
		if err != nil {
			t.Fatal(err)
		}
		return Policy{Servers: servers, AllowProxy: true}
	}
	cert, _ := keyPair(t)
	ca := "certificate-authority-data: " + base64.StdEncoding.EncodeToString(cert)
	tests := map[string]struct {
		policy     Policy
		kubeconfig string
		want       string // in the error; empty when it is accepted
	}{
		"a proxy that may be":                  {Policy{AllowProxy: true}, field("proxy-url: http://proxy.example:3128"), ""},
		"a SOCKS proxy":                        {Policy{AllowProxy: true}, field("proxy-url: socks5://proxy.example:1080"), ""},
		"a proxy that is offered certificates": {Policy{AllowProxy: true}, field("proxy-url: https://proxy.example"), "cluster.proxy-url: not the URL of a proxy"},
		"a proxy without a host":               {Policy{AllowProxy: true}, field("proxy-url: http:///"), "cluster.proxy-url: not the URL of a proxy"},
		"a proxy with credentials":             {Policy{AllowProxy: true}, field("proxy-url: http://root:hunter2@proxy.example"), "cluster.proxy-url: credentials"},
		"a proxy on the hub's link":            {Policy{AllowProxy: true}, field("proxy-url: http://169.254.169.254"), "cluster.proxy-url: the hub does not connect"},
		"a proxy that is not listed":           {list("east.example"), field("proxy-url: http://proxy.example"), "cluster.proxy-url: the hub does not connect"},
		"no verification":                      {Policy{AllowInsecure: true}, field("insecure-skip-tls-verify: true"), ""},
		"no verification, with a CA":           {Policy{AllowInsecure: true}, field("insecure-skip-tls-verify: true\n    " + ca), "both are set"},
		"no verification is not a proxy":       {Policy{AllowProxy: true}, field("insecure-skip-tls-verify: true"), "refused"},
		"a proxy is not insecure":              {Policy{AllowInsecure: true}, field("proxy-url: http://proxy.example:3128"), "refused"},
		"a server on the hub's link":           {Policy{}, server("https://169.254.169.254"), "cluster.server: the hub does not connect"},
		"a server that is listed":              {list(".example"), valid, ""},
		"a server that is not":                 {list(".example.org"), valid, "--member-server-allowlist"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := ParseKubeconfig([]byte(tc.kubeconfig), tc.policy)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(tc.kubeconfig, "proxy-url") != (cfg.Proxy != nil) || strings.Contains(tc.kubeconfig, "insecure") != cfg.Insecure {
					t.Errorf("got %v", cfg)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// FuzzParseKubeconfig checks that whatever is accepted stays within the contract, whatever the policy allows.
func FuzzParseKubeconfig(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte(bomb()))
	f.Add([]byte(`{"users":[{"name":"u","user":{"exec":{"command":"x"}}}]}`))
	f.Add([]byte(strings.Replace(valid, "6443\n", "6443\n    proxy-url: http://proxy.example:3128\n    insecure-skip-tls-verify: true\n", 1)))
	servers, err := ParseAllowlist([]string{".example", "192.0.2.0/24"})
	if err != nil {
		f.Fatal(err)
	}
	policies := []Policy{{}, {AllowProxy: true}, {AllowInsecure: true}, {Servers: servers}, {AllowProxy: true, AllowInsecure: true, Servers: servers}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, policy := range policies {
			cfg, err := ParseKubeconfig(raw, policy)
			if err == nil {
				checkAccepted(t, cfg, policy)
				continue
			}
			if cfg != nil || len(err.Error()) > 300 || strings.ContainsFunc(err.Error(), isControl) {
				t.Errorf("refused by %q, with %v", err, cfg)
			}
		}
	})
}

// checkAccepted fails for what no kubeconfig may have a rest.Config say.
func checkAccepted(t *testing.T, cfg *rest.Config, policy Policy) {
	t.Helper()
	allowed := &rest.Config{
		Host: cfg.Host, BearerToken: cfg.BearerToken, Username: cfg.Username, Password: cfg.Password,
		DisableCompression: cfg.DisableCompression,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure: cfg.Insecure && policy.AllowInsecure, ServerName: cfg.ServerName,
			CAData: cfg.CAData, CertData: cfg.CertData, KeyData: cfg.KeyData,
		},
	}
	if diff := cmp.Diff(allowed, cfg, cmpopts.IgnoreFields(rest.Config{}, "Proxy")); diff != "" {
		t.Errorf("accepted more than is allowed:\n%s", diff)
	}
	server, err := url.Parse(cfg.Host)
	if err != nil || server.Scheme != "https" || server.User != nil || !policy.Servers.mayPermit(server.Hostname()) {
		t.Errorf("accepted the server %q", cfg.Host)
	}
	if strings.ContainsFunc(cfg.BearerToken+cfg.Username+cfg.Password, isControl) {
		t.Error("accepted a control character in a credential")
	}
	if cfg.BearerToken == "" && cfg.Username == "" && len(cfg.CertData) == 0 {
		t.Error("accepted without credentials")
	}
	checkProxy(t, cfg, policy)
}

func checkProxy(t *testing.T, cfg *rest.Config, policy Policy) {
	t.Helper()
	if cfg.Proxy == nil {
		return
	}
	proxy, err := cfg.Proxy(&http.Request{})
	if err != nil || !policy.AllowProxy || proxy.User != nil || (proxy.Scheme != "http" && proxy.Scheme != "socks5") || !policy.Servers.mayPermit(proxy.Hostname()) {
		t.Errorf("accepted the proxy %v", proxy)
	}
}

func replace(t *testing.T, in, old, with string) string {
	t.Helper()
	out := strings.Replace(in, old, with, 1)
	if out == in {
		t.Fatalf("%q is not in the kubeconfig", old)
	}
	return out
}

// bomb would expand to 10^9 values.
func bomb() string {
	b := &strings.Builder{}
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := byte('1'); i < '9'; i++ {
		prev := "*a" + string(i-1)
		b.WriteString("a" + string(i) + ": &a" + string(i) + " [" + strings.Repeat(prev+",", 9) + prev + "]\n")
	}
	return b.String()
}

func keyPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}
