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

package kubeconfigsecret_test

import (
	"encoding/base64"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// attacker is a server to which no refused kubeconfig may bring the hub.
type attacker struct {
	*httptest.Server
	connections, requests atomic.Int64
}

func newAttacker(t *testing.T) *attacker {
	t.Helper()
	a := &attacker{}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { a.requests.Add(1) }))
	a.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			a.connections.Add(1)
		}
	}
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

// kubeconfig points at the attacker; the fields of cluster and user are lines of YAML.
func (a *attacker) kubeconfig(cluster, user string) []byte {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}))
	if cluster == "" {
		cluster = "certificate-authority-data: " + ca
	}
	server := a.URL
	if url, ok := strings.CutPrefix(cluster, "server: "); ok {
		server, cluster = url, "certificate-authority-data: "+ca
	}
	return []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
		"contexts:\n- name: c\n  context: {cluster: a, user: u}\n" +
		"clusters:\n- name: a\n  cluster:\n    server: " + server + "\n    " + cluster + "\n" +
		"users:\n- name: u\n  user:\n    " + user + "\n")
}

func TestRefusedKubeconfigsDoNothing(t *testing.T) {
	dir := t.TempDir()
	marker := filepath.Join(dir, "marker")
	// Whoever opens the pipe to read from it waits there, and can be seen.
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const token = "token: s3cret-token"
	tests := map[string]struct{ cluster, user string }{
		"exec":                       {"", "exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [" + marker + "], interactiveMode: Never}"},
		"exec-beside-token":          {"", token + "\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [" + marker + "], interactiveMode: Never}"},
		"auth-provider":              {"", "auth-provider: {name: oidc, config: {idp-issuer-url: 'https://127.0.0.1'}}"},
		"token-file":                 {"", "tokenFile: " + pipe},
		"client-certificate":         {"", "client-certificate: " + pipe + "\n    client-key: " + pipe},
		"client-key":                 {"", token + "\n    client-key: " + pipe},
		"certificate-authority":      {"certificate-authority: " + pipe, token},
		"as":                         {"", token + "\n    as: system:admin"},
		"as-groups":                  {"", token + "\n    as-groups: [system:masters]"},
		"as-uid":                     {"", token + "\n    as-uid: '0'"},
		"as-user-extra":              {"", token + "\n    as-user-extra: {scopes: [all]}"},
		"insecure":                   {"insecure-skip-tls-verify: true", token},
		"duplicate":                  {"", token + "\n    token: other"},
		"alias":                      {"", "token: &t s3cret-token\n    password: *t"},
		"no-credentials":             {"", "{}"},
		"metadata-of-a-cloud":        {"server: https://169.254.169.254", token},
		"metadata-as-an-ipv6-number": {"server: 'https://[::ffff:169.254.169.254]'", token},
	}
	evil := newAttacker(t)
	secrets := map[string][]byte{}
	for name, tc := range tests {
		secrets[name] = evil.kubeconfig(tc.cluster, tc.user)
	}
	plain := strings.Replace(evil.URL, "https://", "http://", 1)
	secrets["plain-http"] = evil.kubeconfig("server: "+plain, token)
	secrets["userinfo"] = evil.kubeconfig("server: "+strings.Replace(evil.URL, "https://", "https://root:hunter2@", 1), token)
	secrets["proxy"] = []byte(strings.Replace(string(admin(east)), "    server:", "    proxy-url: "+plain+"\n    server:", 1))
	f := newFleet(t, nil, secrets)
	for name := range secrets {
		f.awaitReason(name, kubeconfigsecret.ReasonInvalidKubeconfig)
		message := f.member(name).Connected.Message
		f.Expect(message).NotTo(Or(ContainSubstring("s3cret"), ContainSubstring("hunter2")), name)
	}
	// Longer than a few attempts would take.
	f.Consistently(evil.connections.Load).Should(BeZero(), "the attacker was dialled")
	f.Expect(marker).NotTo(BeAnExistingFile(), "a program was run")
	_, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	f.Expect(err).To(MatchError(syscall.ENXIO), "a file of the hub was opened")

	t.Log("The attacker is one that an accepted kubeconfig reaches")
	f.put("accepted", evil.kubeconfig("", token))
	f.Eventually(evil.requests.Load).Should(BeNumerically(">", 0))
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	f := newFleet(t, nil, nil)
	evil := newAttacker(t)
	front := harness.NewFront(t, east.Config)
	front.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, evil.URL+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	})
	f.put("a", front.Kubeconfig(""))
	f.awaitReason("a", kubeconfigsecret.ReasonUnreachable)
	f.Expect(f.member("a").Connected.Message).To(ContainSubstring("HTTP status 307"))
	f.Expect(front.Answered()).To(BeNumerically(">", 0))
	f.Expect(evil.connections.Load()).To(BeZero())
}

func TestServersThatAreNotListed(t *testing.T) {
	evil := newAttacker(t)
	elsewhere, err := kubeconfigsecret.ParseAllowlist([]string{"192.0.2.0/24", ".example.com"})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, func(o *kubeconfigsecret.Options) { o.Policy.Servers = elsewhere }, map[string][]byte{
		"literal": evil.kubeconfig("", "token: t"),
		// Resolves to loopback, which only the dialer sees.
		"name": evil.kubeconfig("server: "+strings.Replace(evil.URL, "127.0.0.1", "localhost", 1), "token: t"),
	})
	for _, name := range []string{"literal", "name"} {
		f.awaitReason(name, kubeconfigsecret.ReasonInvalidKubeconfig)
		f.Expect(f.member(name).Connected.Message).To(ContainSubstring("--member-server-allowlist"))
	}
	f.Consistently(evil.connections.Load).Should(BeZero())
}

func TestWhatTheOperatorAllows(t *testing.T) {
	listed, err := kubeconfigsecret.ParseAllowlist([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, func(o *kubeconfigsecret.Options) {
		o.Policy = kubeconfigsecret.Policy{AllowProxy: true, AllowInsecure: true, Servers: listed}
	}, nil)
	front, tunnel := harness.NewFront(t, east.Config), newTunnel(f)
	insecure := strings.Replace(string(front.Kubeconfig("")), "certificate-authority-data:", "insecure-skip-tls-verify: true\n    x:", 1)
	lines := strings.Split(insecure, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "    x:") {
			lines = append(lines[:i], lines[i+1:]...)
			break
		}
	}
	f.put("insecure", []byte(strings.Join(lines, "\n")))
	f.put("proxied", []byte(strings.Replace(string(admin(east)), "    server:", "    proxy-url: "+tunnel.URL+"\n    server:", 1)))
	f.awaitReason("insecure", kubeconfigsecret.ReasonConnected)
	f.awaitReason("proxied", kubeconfigsecret.ReasonConnected)
	f.Expect(tunnel.targets.Load()).To(BeNumerically(">", 0), "the proxy was not used")
	f.awaitReconciled(east, "proxied")
}

// tunnel is an HTTP proxy that knows CONNECT.
type tunnel struct {
	*httptest.Server
	targets atomic.Int64
}

func newTunnel(f *fleet) *tunnel {
	f.t.Helper()
	tn := &tunnel{}
	conns := make(chan net.Conn, 1000)
	tn.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(r.Context(), "tcp", r.Host)
		if r.Method != http.MethodConnect || err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = server.Close()
			return
		}
		tn.targets.Add(1)
		conns <- client
		_, _ = client.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
		go relay(server, client)
		relay(client, server)
	}))
	f.t.Cleanup(func() {
		close(conns)
		for conn := range conns {
			_ = conn.Close()
		}
		tn.Close()
	})
	return tn
}

func relay(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}
