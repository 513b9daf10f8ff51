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
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=agentrun-fleet-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=agentrun-fleet-system,resources=leases,resourceNames=agentrun-fleet-manager,verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,namespace=agentrun-fleet-system,resources=events,verbs=create;patch

const (
	leaseName = "agentrun-fleet-manager"
	// leaseTimeout bounds each request for the Lease, so that many fit into the renew
	// deadline: after an outage one of them soon goes out on a new connection.
	leaseTimeout = 10 * time.Second
	// releaseTimeout leaves room, after shutdownTimeout, within the 10 s that a manager may take to end.
	releaseTimeout = time.Second

	// errLeaderElectionLost is what controller-runtime says, which exports no error for it.
	errLeaderElectionLost = "leader election lost"
)

// podNamespaceFile names the namespace of the pod that the process runs in.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// lock is the Lease that makes a manager the one that works. It differs from client-go's:
//
//   - The identity of each process is its own, and yet a container that is restarted in its
//     pod takes over at once from the one before it, which has ended.
//   - A leader that finds the Lease in other hands is told so at once, and not when its
//     renew deadline is over.
//   - It is released by release alone, once all work is known to have ended. client-go's
//     ReleaseOnCancel would also release it while that is still going on.
type lock struct {
	resourcelock.LeaseLock
	// pod is what the identities of all processes of this pod begin with; empty outside of one.
	pod string
	// leads is whether the process has become the leader.
	leads atomic.Bool
	// follows is whether the process has seen another lead.
	follows atomic.Bool
	// lost gets the error that ends a leader.
	lost chan error
}

// newLock returns the lock that the options ask for, or nil when they ask for none.
func newLock(hub *rest.Config, o *options) (*lock, error) {
	if !o.leaderElect {
		return nil, nil
	}
	namespace, err := o.leaseNamespace(podNamespaceFile)
	if err != nil {
		return nil, err
	}
	config := rest.AddUserAgent(rest.CopyConfig(hub), "leader-election")
	config.Timeout = min(leaseTimeout, max(time.Second, o.leaderElectRenewDeadline/2))
	leases, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("setting up leader election: %w", err)
	}
	identity, pod, err := newIdentity()
	if err != nil {
		return nil, err
	}
	return &lock{
		LeaseLock: resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		pod:  pod,
		lost: make(chan error, 1),
	}, nil
}

// newIdentity returns a name that no other process has, and what the names of all
// processes of this pod begin with.
func newIdentity() (identity, pod string, err error) {
	unique := string(uuid.NewUUID())
	if name, uid := os.Getenv("POD_NAME"), os.Getenv("POD_UID"); name != "" && uid != "" {
		pod = name + "_" + uid + "_"
		return pod + unique, pod, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", "", fmt.Errorf("naming this manager for leader election: %w", err)
	}
	return host + "_" + unique, "", nil
}

// Get returns who leads.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	switch holder := record.HolderIdentity; {
	case holder == "" || holder == l.Identity():
	case l.leads.Load():
		l.lose(holder)
	case l.pod != "" && strings.HasPrefix(holder, l.pod):
		record.HolderIdentity = "" // it has ended, or else this container would not run
	default:
		l.follows.Store(true)
	}
	return record, raw, nil
}

// Create makes the Lease, held by this process.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.led(l.LeaseLock.Create(ctx, record))
}

// Update takes or renews the Lease.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.led(l.LeaseLock.Update(ctx, record))
}

func (l *lock) led(err error) error {
	if err == nil {
		l.leads.Store(true)
	}
	return err
}

func (l *lock) lose(to string) {
	select {
	case l.lost <- fmt.Errorf("lost the Lease %s to %s: ending at once", l.Describe(), to):
	default: // said already
	}
}

// release lets another manager take over at once. All work must have ended.
func (l *lock) release() error {
	if !l.leads.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	record, _, err := l.LeaseLock.Get(ctx)
	if err == nil && record.HolderIdentity == l.Identity() {
		now := metav1.Now()
		err = l.LeaseLock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1,
			AcquireTime:          now,
			RenewTime:            now,
			LeaderTransitions:    record.LeaderTransitions,
		})
	}
	return err
}

// after says how a manager ended that has the lock, and lets the next one begin when that
// was clean: Start returns nil only once all work has ended.
func (l *lock) after(err error) error {
	switch {
	case err == nil:
		if err := l.release(); err != nil {
			ctrl.Log.Error(err, "Another manager has to wait for the Lease to expire", "lease", l.Describe())
		}
		return nil
	case l.leads.Load() && err.Error() == errLeaderElectionLost:
		return fmt.Errorf("the Lease %s could not be renewed in time, and another manager may take it: ending: %w", l.Describe(), err)
	default:
		return err
	}
}

// elect has a manager work only while it holds the lock, if there is one.
func (l *lock) elect(o *options, to ctrl.Options) ctrl.Options {
	if l == nil {
		return to
	}
	to.Logger = ctrl.Log.WithSink(endedElection{ctrl.Log.GetSink()})
	to.LeaderElection = true
	to.LeaderElectionID = leaseName // of metrics
	to.LeaderElectionResourceLockInterface = l
	to.LeaseDuration = &o.leaderElectLeaseDuration
	to.RenewDeadline = &o.leaderElectRenewDeadline
	to.RetryPeriod = &o.leaderElectRetryPeriod
	return to
}

// endedElection leaves out the error that controller-runtime logs whenever a manager with
// leader election is stopped. When the Lease is lost, Start returns it.
type endedElection struct {
	logr.LogSink
}

// Error logs an error.
func (s endedElection) Error(err error, msg string, keysAndValues ...any) {
	if err == nil || err.Error() != errLeaderElectionLost {
		s.LogSink.Error(err, msg, keysAndValues...)
	}
}

// recordEvents records who leads as Events of the Lease.
func (l *lock) recordEvents(mgr ctrl.Manager) {
	if l != nil {
		l.LockConfig.EventRecorder = leaseEvents{mgr.GetEventRecorder("fleet-manager")}
	}
}

// standby is an error unless another manager is known to lead.
func (l *lock) standby() error {
	switch {
	case l == nil || l.leads.Load():
		return errors.New("the work has not begun yet")
	case !l.follows.Load():
		return fmt.Errorf("the Lease %s has been neither taken nor found taken: see the log, and --leader-elect-resource-namespace", l.Describe())
	default:
		return nil
	}
}

// leaseNamespace is where the Lease is. podFile names the pod's own, if there is a pod.
func (o *options) leaseNamespace(podFile string) (string, error) {
	if o.leaderElectNamespace != "" {
		return o.leaderElectNamespace, nil
	}
	content, err := os.ReadFile(podFile)
	switch namespace := strings.TrimSpace(string(content)); {
	case err == nil && namespace != "":
		return namespace, nil
	case err == nil || errors.Is(err, os.ErrNotExist):
		return "", errors.New("--leader-elect-resource-namespace: Required value: outside of a pod, name the hub's namespace that is to hold the Lease, or give --leader-elect=false")
	default:
		return "", fmt.Errorf("--leader-elect-resource-namespace: not given, and the pod's own is not known: %w", err)
	}
}

// leaseEvents makes a recorder one of a resource lock.
type leaseEvents struct {
	events.EventRecorder
}

// Eventf is what a resource lock calls.
func (e leaseEvents) Eventf(lease runtime.Object, eventType, reason, message string, args ...any) {
	e.EventRecorder.Eventf(lease, nil, eventType, reason, "Elect", message, args...)
}

var (
	_ resourcelock.Interface     = (*lock)(nil)
	_ resourcelock.EventRecorder = leaseEvents{}
)
