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
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	agentv1alpha1 "github.com/konveyor/agentrun-fleet/api/agent/v1alpha1"
	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// graceful is how long a server is given to end by itself before it is killed;
// its data is thrown away, so nothing is lost.
const graceful = time.Millisecond

// AdminUserAgent is sent by the administrator's client of every control plane,
// so that a test can tell its own requests from those it counts.
const AdminUserAgent = "agentrun-fleet-harness"

// Options says what a control plane consists of. The zero value is an API server
// without CRDs.
type Options struct {
	// Name stands in errors and in the name of the temporary folder.
	Name string
	// CRDPaths are files and folders of CRDs to install.
	CRDPaths []string
	// Scheduler runs kube-scheduler.
	Scheduler bool
	// ControllerManager runs kube-controller-manager, and with it garbage
	// collection and the deletion of namespaces.
	ControllerManager bool
	// Audit records every request for ControlPlane.Requests.
	Audit bool
	// APIServerFlags are set on kube-apiserver: name without dashes to value.
	APIServerFlags map[string]string
}

// ControlPlane is a running cluster without nodes.
type ControlPlane struct {
	Name string
	// Dir holds everything that the control plane writes. Stop removes it.
	Dir string
	// Config is the administrator's, without client-side rate limits.
	Config *rest.Config
	// Client is the administrator's. It knows Scheme and reads no cache.
	Client client.WithWatch
	Scheme *runtime.Scheme

	env      *envtest.Environment
	audit    *auditLog
	stopOnce sync.Once
	stopErr  error

	mu        sync.Mutex
	processes []*process
}

// NewScheme knows Kubernetes' own kinds, CRDs and this project's.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		apiextensionsv1.AddToScheme,
		agentv1alpha1.AddToScheme,
		fleetv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

// Start starts a control plane and returns once it serves its CRDs. The caller
// must Stop it.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "agentrun-fleet-"+o.Name+"-")
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{Name: o.Name, Dir: dir, Scheme: NewScheme()}
	if err := cp.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("starting control plane %q: %w", o.Name, err), cp.Stop())
	}
	return cp, nil
}

// StartAll starts control planes side by side, in the order of the options. When
// one cannot be started the others are stopped.
func StartAll(ctx context.Context, options ...Options) ([]*ControlPlane, error) {
	planes := make([]*ControlPlane, len(options))
	errs := make([]error, len(options))
	var wg sync.WaitGroup
	for i, o := range options {
		wg.Go(func() { planes[i], errs[i] = Start(ctx, o) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, StopAll(planes...))
	}
	return planes, nil
}

// StopAll stops control planes side by side. Nil ones are passed over.
func StopAll(planes ...*ControlPlane) error {
	errs := make([]error, len(planes))
	var wg sync.WaitGroup
	for i, cp := range planes {
		if cp != nil {
			wg.Go(func() { errs[i] = cp.Stop() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (cp *ControlPlane) start(ctx context.Context, o Options) error {
	if err := cp.startServers(o); err != nil {
		return err
	}
	if err := os.WriteFile(cp.KubeconfigPath(), Kubeconfig(cp.Config, ""), 0o600); err != nil {
		return err
	}
	if o.ControllerManager {
		if err := cp.startControllerManager(ctx); err != nil {
			return err
		}
	}
	if o.Scheduler {
		return cp.startScheduler(ctx)
	}
	return nil
}

// startServers starts etcd and the API server, and installs the CRDs.
func (cp *ControlPlane) startServers(o Options) error {
	env, err := cp.environment(o)
	if err != nil {
		return err
	}
	cp.env = env
	config, err := env.Start()
	if err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, tail(cp.path("etcd.log")), tail(cp.path("kube-apiserver.log")))
	}
	cp.Config = unlimited(config)
	cp.Config.UserAgent = AdminUserAgent
	cp.Client, err = client.NewWithWatch(cp.Config, client.Options{Scheme: cp.Scheme})
	return err
}

func (cp *ControlPlane) environment(o Options) (*envtest.Environment, error) {
	server, err := cp.apiServer(o)
	if err != nil {
		return nil, err
	}
	etcd, err := cp.etcd()
	if err != nil {
		return nil, err
	}
	env := &envtest.Environment{
		Scheme:                   cp.Scheme,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  graceful,
		CRDDirectoryPaths:        o.CRDPaths,
		ErrorIfCRDPathMissing:    true,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: startTimeout, PollInterval: pollInterval},
	}
	env.ControlPlane.APIServer = server
	env.ControlPlane.Etcd = etcd
	// envtest would otherwise use a real cluster when a variable says so.
	env.UseExistingCluster = new(bool)
	return env, nil
}

func (cp *ControlPlane) etcd() (*envtest.Etcd, error) {
	script, err := cp.guardedBinary("etcd")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(cp.path("etcd.log"))
	if err != nil {
		return nil, err
	}
	data := cp.path("etcd")
	return &envtest.Etcd{Path: script, DataDir: data, Out: log, Err: log}, os.Mkdir(data, 0o700)
}

func (cp *ControlPlane) apiServer(o Options) (*envtest.APIServer, error) {
	script, err := cp.guardedBinary("kube-apiserver")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(cp.path("kube-apiserver.log"))
	if err != nil {
		return nil, err
	}
	server := &envtest.APIServer{Path: script, CertDir: cp.path("certs"), Out: log, Err: log}
	for flag, value := range o.APIServerFlags {
		server.Configure().Set(flag, value)
	}
	if o.Audit {
		if cp.audit, err = newAuditLog(cp.Dir); err != nil {
			return nil, err
		}
		for flag, value := range cp.audit.flags() {
			server.Configure().Set(flag, value)
		}
	}
	return server, os.Mkdir(server.CertDir, 0o700)
}

// Stop kills every process of the control plane and removes its folder. It
// returns the first call's result when called again.
func (cp *ControlPlane) Stop() error {
	cp.stopOnce.Do(func() { cp.stopErr = errors.Join(cp.stop(), os.RemoveAll(cp.Dir)) })
	return cp.stopErr
}

func (cp *ControlPlane) stop() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, p := range cp.processes {
		p.kill()
	}
	if cp.env == nil {
		return nil
	}
	err := cp.stopAPIServer()
	// Being killed counts as an error to envtest; what matters is that it is gone.
	_ = cp.env.ControlPlane.Etcd.Stop()
	if url := cp.env.ControlPlane.Etcd.URL; url != nil {
		err = errors.Join(err, awaitClosed(context.Background(), url.Host))
	}
	closeLog(cp.env.ControlPlane.Etcd.Out)
	closeLog(cp.env.ControlPlane.APIServer.Out)
	// envtest makes certificates for webhooks outside of Dir, though there are none.
	return errors.Join(err, cp.env.WebhookInstallOptions.Cleanup())
}

func (cp *ControlPlane) stopAPIServer() error {
	_ = cp.env.ControlPlane.APIServer.Stop() // as for etcd
	if cp.env.ControlPlane.APIServer.Port == "" {
		return nil
	}
	return awaitClosed(context.Background(), cp.Addr())
}

// KillAPIServer ends the API server as a crash would. Its data stay in etcd.
func (cp *ControlPlane) KillAPIServer() error {
	return cp.stopAPIServer()
}

// RestartAPIServer starts the API server again after KillAPIServer, on the same
// address, with the same data, certificates and users.
func (cp *ControlPlane) RestartAPIServer() error {
	if err := cp.env.ControlPlane.APIServer.Start(); err != nil {
		return fmt.Errorf("restarting the API server of %q: %w\n%s", cp.Name, err, tail(cp.path("kube-apiserver.log")))
	}
	return nil
}

// Addr is the API server's address, as host:port.
func (cp *ControlPlane) Addr() string { return cp.env.ControlPlane.APIServer.HostPort() }

// URL is the API server's URL.
func (cp *ControlPlane) URL() string { return httpsURL(cp.Addr()) }

// KubeconfigPath is the file with the administrator's kubeconfig.
func (cp *ControlPlane) KubeconfigPath() string { return cp.path("admin.kubeconfig") }

func (cp *ControlPlane) path(name string) string { return filepath.Join(cp.Dir, name) }

func httpsURL(addr string) string { return (&url.URL{Scheme: "https", Host: addr}).String() }

func localURL(scheme, port, path string) string {
	return (&url.URL{Scheme: scheme, Host: net.JoinHostPort("127.0.0.1", port), Path: path}).String()
}

func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Burst = 0
	return config
}
