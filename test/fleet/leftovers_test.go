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

package fleet

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/konveyor/agentrun-fleet/test/build"
	"github.com/konveyor/agentrun-fleet/test/harness"
)

// Bounds of foreign text: of a string in an object, in runes, and of a line in the log, in
// bytes, which has the trace of an error's origin too.
const (
	maxString  = 4096
	maxLogLine = 16 << 10
)

// foreign is text as no honest kubelet writes it.
var foreign = "\x1b[31mred\x00\x07\r\n" + strings.Repeat("\x1b]0;title\x07 long", 100_000/16)

// TestNothingIsLeftLyingAround: members of all kinds connect, are rotated, refused and lost,
// and hostile text comes from their pods and API servers. Afterwards no credential is
// anywhere but in the Secrets, and no text is unbounded or has control characters.
func TestNothingIsLeftLyingAround(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "alpha", "beta")
	alpha, beta := f.members["alpha"], f.members["beta"]
	found := &credentials{}

	f.put("alpha", found.kubeconfig(f, f.kubeconfig("alpha")))
	f.put("beta", found.kubeconfig(f, harness.Kubeconfig(f.serviceAccount(beta, "fleet"), beta.proxy.URL())))
	refused := f.hostileKubeconfigs(found)
	for name, kubeconfig := range refused {
		f.put(name, kubeconfig)
	}
	f.start("--zap-log-level=5")
	for _, name := range []string{"alpha", "beta"} {
		f.WithT.Eventually(f.clusterStatus(name)).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "Connected"))
	}
	f.hostilePods(alpha)

	alpha.user = "renewed"
	f.mend("alpha", found.kubeconfig(f, f.kubeconfig("alpha")))
	f.WithT.Eventually(func() bool { return f.watched(alpha, "renewed") }).Should(BeTrue())
	stranger := rest.AnonymousClientConfig(beta.Config)
	stranger.BearerToken = found.canary("stranger")
	f.mend("beta", harness.Kubeconfig(stranger, beta.proxy.URL()))
	f.WithT.Eventually(f.clusterStatus("beta")).Should(harness.HaveCondition("Connected", metav1.ConditionTrue, "RotationRefused"))
	beta.proxy.Pause()
	beta.proxy.Reset()
	f.WithT.Eventually(f.clusterStatus("beta")).Should(harness.HaveCondition("Connected", metav1.ConditionUnknown, "Unreachable"))
	for name := range refused {
		f.WithT.Eventually(f.clusterStatus(name)).Should(WithTransform(connectedMessage, Not(BeEmpty())), name)
		f.WithT.Eventually(f.clusterStatus(name)).ShouldNot(harness.HaveCondition("Connected", metav1.ConditionUnknown, "Connecting"), name)
	}

	outputs := f.outputs()
	for where, text := range outputs {
		for what, secret := range found.pieces {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %s", what, where)
			}
		}
		f.harmless(where, text)
	}
	f.WithT.Expect(len(found.pieces)).To(BeNumerically(">", 50))
	t.Logf("Looked for %d pieces of credentials in %d places", len(found.pieces), len(outputs))
}

// credentials are pieces of text that must not be found, by what they are of.
type credentials struct {
	pieces map[string]string
}

func (c *credentials) add(what, piece string) {
	if c.pieces == nil {
		c.pieces = map[string]string{}
	}
	c.pieces[fmt.Sprintf("%s (%d)", what, len(c.pieces))] = piece
}

// canary makes up a secret.
func (c *credentials) canary(what string) string {
	secret := "c4n4ry-" + what
	c.add(what, secret)
	c.add(what+" in base64", base64.StdEncoding.EncodeToString([]byte(secret))[:len(secret)/3*4])
	return secret
}

// kubeconfig takes note of what is secret in a kubeconfig, and returns it.
func (c *credentials) kubeconfig(f *fleet, kubeconfig []byte) []byte {
	f.Helper()
	parsed, err := clientcmd.Load(kubeconfig)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	for _, cluster := range parsed.Clusters {
		c.pem("the CA", cluster.CertificateAuthorityData)
	}
	for _, user := range parsed.AuthInfos {
		c.user(user)
	}
	return kubeconfig
}

func (c *credentials) user(user *clientcmdapi.AuthInfo) {
	c.pem("a client certificate", user.ClientCertificateData)
	c.pem("a client key", user.ClientKeyData)
	if parts := strings.Split(user.Token, "."); len(parts) == 3 {
		c.add("a token's claims", parts[1])
		c.add("a token's signature", parts[2])
	}
}

// pem takes note of PEM, of it in base64, and of what is in it. Every certificate begins
// alike, so the middle counts.
func (c *credentials) pem(what string, data []byte) {
	block, _ := pem.Decode(data)
	if block == nil {
		return
	}
	lines := strings.Split(string(data), "\n")
	c.add(what, lines[len(lines)/2])
	encoded := base64.StdEncoding.EncodeToString(data)
	c.add(what+" in base64", encoded[len(encoded)/2:][:40])
	c.add(what+" in Go's words", strings.Trim(fmt.Sprintf("%d", block.Bytes[len(block.Bytes)/2:][:16]), "[]"))
}

func (f *fleet) put(name string, kubeconfig []byte) {
	f.Helper()
	f.WithT.Expect(f.hub.Client.Create(f.Context(), harness.MemberSecret(clusters, name, kubeconfig))).To(Succeed())
}

// serviceAccount is an administrator by a token.
func (f *fleet) serviceAccount(m *member, name string) *rest.Config {
	f.Helper()
	config, err := m.ServiceAccount(f.Context(), "default", name)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	f.WithT.Expect(m.Client.Create(f.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	})).To(Succeed())
	return config
}

// hostileKubeconfigs are refused, and tempt whoever says why to quote them.
func (f *fleet) hostileKubeconfigs(found *credentials) map[string][]byte {
	f.Helper()
	alpha := f.members["alpha"]
	valid := string(found.kubeconfig(f, f.kubeconfig("alpha")))
	expired, err := alpha.ServiceAccountUntil(f.Context(), "default", "expired", time.Now().Add(-time.Hour))
	f.WithT.Expect(err).NotTo(HaveOccurred())
	user := func(lines string) []byte {
		before, _, _ := strings.Cut(valid, "  user:\n")
		return []byte(before + "  user:\n" + lines)
	}
	token := func(token, server string) []byte {
		config := rest.AnonymousClientConfig(alpha.Config)
		config.BearerToken = token
		return harness.Kubeconfig(config, server)
	}
	echo := f.echoing()
	return map[string][]byte{
		"expired":     found.kubeconfig(f, harness.Kubeconfig(expired, "")),
		"broken-yaml": []byte(valid + "\ttoken: " + found.canary("broken-yaml")),
		"duplicate":   []byte(valid + "current-context: " + found.canary("duplicate") + "\n"),
		"misspelt":    user("    toekn: " + found.canary("misspelt") + "\n"),
		"wrong-type":  user("    token: [" + found.canary("wrong-type") + "]\n"),
		"no-base64":   user("    client-key-data: " + found.canary("no-base64") + "\n"),
		"no-pem":      user("    client-certificate-data: Y2VydA==\n    client-key-data: " + base64.StdEncoding.EncodeToString([]byte(found.canary("no-pem"))) + "\n"),
		"password":    user("    username: fleet\n    password: " + found.canary("password") + "\n"),
		"exec":        user("    exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never, args: [" + found.canary("exec") + "]}\n"),
		"two-lines":   token(found.canary("two-lines")+"\nX-Header: 1", alpha.URL()),
		"userinfo":    token("t", "https://fleet:"+found.canary("userinfo")+"@"+alpha.Addr()),
		"query":       token("t", alpha.URL()+"/?token="+found.canary("query")),
		"no-url":      token("t", "https://fleet:"+found.canary("no-url")+"@[127.0.0.1"),
		"echo":        harness.Kubeconfig(&rest.Config{Host: echo.URL, BearerToken: found.canary("echo"), TLSClientConfig: rest.TLSClientConfig{CAData: certificateOf(echo)}}, ""),
	}
}

// echoing is an API server that repeats what it was sent in confidence, with more.
func (f *fleet) echoing() *httptest.Server {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
			Message: r.Header.Get("Authorization") + foreign,
		})
	}))
	f.Cleanup(server.Close)
	return server
}

func certificateOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// hostilePods are of runs that fail with text that is made to harm whoever shows it.
func (f *fleet) hostilePods(m *member) {
	f.Helper()
	pods := map[string]func(*build.PodWrapper) *build.PodWrapper{
		"message": func(p *build.PodWrapper) *build.PodWrapper { return p.Waiting("main", "ImagePullBackOff", foreign) },
		"reason": func(p *build.PodWrapper) *build.PodWrapper {
			return p.Phase(corev1.PodFailed).Terminated("main", foreign, 1)
		},
		"last-word": func(p *build.PodWrapper) *build.PodWrapper {
			return p.Phase(corev1.PodFailed).TerminatedMessage("main", "Error", foreign, 1)
		},
		"pod": func(p *build.PodWrapper) *build.PodWrapper { return p.PodFailed(foreign, foreign) },
		"disrupted": func(p *build.PodWrapper) *build.PodWrapper {
			return p.Phase(corev1.PodFailed).Disrupted("Evicted", foreign)
		},
		"image": func(p *build.PodWrapper) *build.PodWrapper {
			return p.Container("second", "i"+foreign+"i").Waiting("second", "InvalidImageName", foreign)
		},
	}
	for name, hostile := range pods {
		run := build.MakeAgentRun(name).Obj()
		f.WithT.Expect(m.create(f.Context(), run, hostile(labelled(run).Scheduled()).Obj())).To(Succeed(), name)
	}
	for name := range pods {
		f.WithT.Eventually(m.run(f.Context(), build.DefaultNamespace, name)).Should(harness.HavePhase("Failed"), name)
	}
	f.WithT.Eventually(f.fleetStatus).Should(HaveField("Status.Runs.Failed", BeNumerically("==", len(pods))))
	f.WithT.Eventually(func() int { return len(f.failureEvents(m)) }).Should(Equal(len(pods)))
	waiting := build.MakeAgentRun("waiting").Obj()
	f.WithT.Expect(m.create(f.Context(), waiting, labelled(waiting).Unschedulable(foreign).Obj())).To(Succeed())
	f.WithT.Eventually(m.run(f.Context(), build.DefaultNamespace, "waiting")).Should(harness.HavePhase("Pending"))
}

// outputs are all that the manager has said, by where: JSON where it is an object.
func (f *fleet) outputs() map[string]string {
	f.Helper()
	log, err := os.ReadFile(f.manager.LogFile)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	metrics, err := f.manager.Metrics(f.Context())
	f.WithT.Expect(err).NotTo(HaveOccurred())
	outputs := map[string]string{"the log": string(log), "the metrics": metrics}
	f.objects(outputs, f.hub, func(gvr schema.GroupVersionResource) bool { return gvr.Resource != "secrets" })
	for _, m := range f.members {
		f.objects(outputs, m.ControlPlane, func(gvr schema.GroupVersionResource) bool {
			return gvr.Resource == "events" || gvr.Resource == "agentruns"
		})
	}
	return outputs
}

// objects adds a cluster's objects of the wanted resources.
func (f *fleet) objects(to map[string]string, cp *harness.ControlPlane, wanted func(schema.GroupVersionResource) bool) {
	f.Helper()
	dc, err := discovery.NewDiscoveryClientForConfig(cp.Config)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	lists, err := dc.ServerPreferredResources()
	f.WithT.Expect(err).NotTo(HaveOccurred())
	listable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists)
	resources, err := discovery.GroupVersionResources(listable)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	objects, err := dynamic.NewForConfig(cp.Config)
	f.WithT.Expect(err).NotTo(HaveOccurred())
	for gvr := range resources {
		if !wanted(gvr) {
			continue
		}
		list, err := objects.Resource(gvr).List(f.Context(), metav1.ListOptions{})
		f.WithT.Expect(err).NotTo(HaveOccurred())
		for i := range list.Items {
			o := &list.Items[i]
			content, err := json.Marshal(o)
			f.WithT.Expect(err).NotTo(HaveOccurred())
			to[fmt.Sprintf("%s %s of %s", gvr.GroupResource(), o.GetNamespace()+"/"+o.GetName(), cp.Name)] = string(content)
		}
	}
}

// harmless checks that text is bounded and has no control characters.
func (f *fleet) harmless(where, text string) {
	f.Helper()
	var object any
	if json.Unmarshal([]byte(text), &object) == nil {
		f.harmlessValue(where, object)
		return
	}
	for line := range strings.Lines(text) {
		if len(line) > maxLogLine || strings.Contains(line, `\u00`) || hasControl(strings.TrimSuffix(line, "\n")) {
			f.Errorf("%s has a line of %d bytes, or control characters: %.300q", where, len(line), line)
		}
	}
}

func (f *fleet) harmlessValue(where string, value any) {
	f.Helper()
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			f.harmlessValue(where+"."+key, key)
			f.harmlessValue(where+"."+key, inner)
		}
	case []any:
		for _, inner := range v {
			f.harmlessValue(where, inner)
		}
	case string:
		if !isOurs(where) {
			return
		}
		if n := len([]rune(v)); n > maxString || hasControl(v) {
			f.Errorf("%s is text of %d characters, or has control characters: %.300q", where, n, v)
		}
	}
}

// isOurs says whether the manager wrote that; Kubernetes' own objects have descriptions of
// several lines.
func isOurs(where string) bool {
	resource, _, _ := strings.Cut(where, " ")
	return strings.HasSuffix(resource, "konveyor.io") || strings.HasPrefix(resource, "events")
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) })
}
