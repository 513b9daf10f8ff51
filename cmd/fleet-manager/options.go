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
	"flag"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/konveyor/agentrun-fleet/fleet/startup"
	"github.com/konveyor/agentrun-fleet/fleet/ttl"
	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
)

// options are the manager's flags.
type options struct {
	// startupDeadline is the default for runs whose spec names none; 0 disables it.
	startupDeadline time.Duration
	// fatalReasons are waiting reasons, each with an optional grace: Reason or Reason=1m.
	fatalReasons []string
	// secretNamespaces are where kubeconfig Secrets are looked for; empty means all.
	secretNamespaces []string
	metricsAddr      string
	probeAddr        string
	// memberQPS and memberBurst bound the requests to each member.
	memberQPS   float32
	memberBurst int
	// memberCacheLimit bounds what is held of each member, in bytes.
	memberCacheLimit        resource.QuantityValue
	maxConcurrentReconciles int
	zap                     zap.Options
	// version prints the version and ends.
	version bool
	// allowMemberProxy and allowInsecureMembers accept what kubeconfigs are else refused for.
	allowMemberProxy     bool
	allowInsecureMembers bool
	// memberServers are CIDRs, host names and ends of such where members may be; empty means
	// anywhere but on the hub's own link.
	memberServers []string
	// ttlAfterFinished is how long finished runs are kept whose spec names no TTL; failedTTL
	// is the same for failed ones. 0 means for ever; nil means as the other.
	ttlAfterFinished time.Duration
	failedTTL        *time.Duration

	leaderElect              bool
	leaderElectLeaseDuration time.Duration
	leaderElectRenewDeadline time.Duration
	leaderElectRetryPeriod   time.Duration
	// leaderElectNamespace holds the Lease; empty means the pod's own.
	leaderElectNamespace string
}

func newOptions() *options {
	return &options{
		fatalReasons:            defaultFatalReasons(),
		metricsAddr:             ":8080",
		probeAddr:               ":8081",
		memberQPS:               200,
		memberBurst:             400,
		memberCacheLimit:        resource.QuantityValue{Quantity: resource.MustParse("64Mi")},
		maxConcurrentReconciles: 40,
		zap:                     zap.Options{TimeEncoder: zapcore.RFC3339NanoTimeEncoder},
		// A leader outlives two minutes without the hub: docs/adr/0010.
		leaderElect:              true,
		leaderElectLeaseDuration: 180 * time.Second,
		leaderElectRenewDeadline: 150 * time.Second,
		leaderElectRetryPeriod:   10 * time.Second,
	}
}

func defaultFatalReasons() []string {
	return slices.Sorted(maps.Keys(startup.DefaultFatal()))
}

// AddFlags binds the options to fs.
func (o *options) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.startupDeadline, "agentrun-startup-deadline", o.startupDeadline,
		"How long an AgentRun whose spec.startupDeadlineSeconds is not set may take until its pod runs, for example 10m. 0 disables the deadline.")
	fs.StringSliceVar(&o.fatalReasons, "fatal-waiting-reasons", o.fatalReasons,
		"Container waiting reasons that fail an AgentRun: Reason fails it at once, Reason=grace (for example ImagePullBackOff=2m) when the reason has stood for the grace. Replaces the default list: name every reason you want. docs/reasons.md lists what kubelet reports.")
	fs.StringSliceVar(&o.secretNamespaces, "kubeconfig-secret-namespaces", o.secretNamespaces,
		"Namespaces of the hub in which kubeconfig Secrets of member clusters are looked for. Empty means all.")
	fs.StringVar(&o.metricsAddr, "metrics-bind-address", o.metricsAddr, "Address that serves /metrics. 0 disables it.")
	fs.StringVar(&o.probeAddr, "health-probe-bind-address", o.probeAddr, "Address that serves /healthz and /readyz. 0 disables it.")
	fs.Float32Var(&o.memberQPS, "member-qps", o.memberQPS, "Requests a second to each member cluster, on average.")
	fs.IntVar(&o.memberBurst, "member-burst", o.memberBurst, "Requests to each member cluster that may exceed --member-qps for a moment.")
	fs.Var(&o.memberCacheLimit, "member-cache-limit",
		"Memory that the AgentRuns, pods and Sandboxes of each member cluster may take, as estimated. A member with more is TooLarge. While one is listed again it may take twice that.")
	fs.IntVar(&o.maxConcurrentReconciles, "max-concurrent-reconciles", o.maxConcurrentReconciles,
		"How many AgentRuns are worked on at a time, over all member clusters. One of them has at most a tenth, rounded up, and slow ones at most half together.")
	fs.BoolVar(&o.version, "version", false, "Print the version and end.")
	fs.BoolVar(&o.allowMemberProxy, "allow-member-proxy", o.allowMemberProxy,
		"Accept proxy-url in the kubeconfigs of members. The hub then connects to where the author of a kubeconfig says.")
	fs.BoolVar(&o.allowInsecureMembers, "allow-insecure-members", o.allowInsecureMembers,
		"Accept insecure-skip-tls-verify in the kubeconfigs of members. Whoever answers in a member's place then gets its credentials.")
	fs.StringSliceVar(&o.memberServers, "member-server-allowlist", o.memberServers,
		"CIDRs, host names, and ends of such as .example.com, where the API servers and proxies of members may be. Empty means anywhere but at link-local, unspecified and multicast addresses, which are refused unless listed.")
	fs.DurationVar(&o.ttlAfterFinished, "agentrun-ttl-after-finished", o.ttlAfterFinished,
		"How long a finished AgentRun whose spec.ttlSecondsAfterFinished is not set is kept, for example 24h. 0 keeps it.")
	fs.Var(optionalDuration{&o.failedTTL}, "agentrun-failed-ttl",
		"How long a failed AgentRun whose spec.ttlSecondsAfterFinished is not set is kept. 0 keeps it. Not given means as --agentrun-ttl-after-finished.")
	o.addLeaderElectionFlags(fs)

	gofs := flag.NewFlagSet("", flag.ContinueOnError)
	config.RegisterFlags(gofs)
	o.zap.BindFlags(gofs)
	fs.AddGoFlagSet(gofs)
}

// addLeaderElectionFlags names the flags as Kubernetes' own components do.
func (o *options) addLeaderElectionFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect,
		"Work only while holding a Lease on the hub, so that of several managers one works and the others stand by.")
	fs.DurationVar(&o.leaderElectLeaseDuration, "leader-elect-lease-duration", o.leaderElectLeaseDuration,
		"How long after its last renewal a Lease may be taken by another manager: the take-over after a crash lasts this long. Whole seconds.")
	fs.DurationVar(&o.leaderElectRenewDeadline, "leader-elect-renew-deadline", o.leaderElectRenewDeadline,
		"How long a leader that cannot renew its Lease goes on working before it ends: the longest outage of the hub's API server during which members are served.")
	fs.DurationVar(&o.leaderElectRetryPeriod, "leader-elect-retry-period", o.leaderElectRetryPeriod,
		"How often the Lease is renewed by the leader and looked at by the others.")
	fs.StringVar(&o.leaderElectNamespace, "leader-elect-resource-namespace", o.leaderElectNamespace,
		"Namespace of the hub that holds the Lease. Empty means the pod's own; required outside of a pod.")
}

// Validate returns what is wrong with the options, a line for each flag.
func (o *options) Validate() field.ErrorList {
	var errs field.ErrorList
	if o.startupDeadline < 0 {
		errs = append(errs, field.Invalid(flagPath("agentrun-startup-deadline"), o.startupDeadline.String(), "must not be negative; 0 disables the deadline"))
	}
	_, reasonErrs := parseFatalReasons(o.fatalReasons)
	errs = append(errs, reasonErrs...)
	for _, ns := range o.secretNamespaces {
		for _, msg := range validation.IsDNS1123Label(ns) {
			errs = append(errs, field.Invalid(flagPath("kubeconfig-secret-namespaces"), ns, msg))
		}
	}
	if !(o.memberQPS > 0) || math.IsInf(float64(o.memberQPS), 0) { // NaN is not greater than 0
		errs = append(errs, field.Invalid(flagPath("member-qps"), fmt.Sprint(o.memberQPS), "must be a number greater than 0"))
	}
	if o.memberCacheLimit.Value() < 1<<20 {
		errs = append(errs, field.Invalid(flagPath("member-cache-limit"), o.memberCacheLimit.String(), "must be at least 1Mi"))
	}
	if o.memberBurst < 1 {
		errs = append(errs, field.Invalid(flagPath("member-burst"), o.memberBurst, "must be at least 1"))
	}
	if o.maxConcurrentReconciles < 1 {
		errs = append(errs, field.Invalid(flagPath("max-concurrent-reconciles"), o.maxConcurrentReconciles, "must be at least 1"))
	}
	if _, err := kubeconfigsecret.ParseAllowlist(o.memberServers); err != nil {
		errs = append(errs, field.Invalid(flagPath("member-server-allowlist"), strings.Join(o.memberServers, ","), err.Error()))
	}
	errs = append(errs, o.validateTTL()...)
	return append(errs, o.validateLeaderElection()...)
}

func (o *options) validateTTL() field.ErrorList {
	var errs field.ErrorList
	if o.ttlAfterFinished < 0 {
		errs = append(errs, field.Invalid(flagPath("agentrun-ttl-after-finished"), o.ttlAfterFinished.String(), "must not be negative; 0 keeps finished runs"))
	}
	if o.failedTTL != nil && *o.failedTTL < 0 {
		errs = append(errs, field.Invalid(flagPath("agentrun-failed-ttl"), o.failedTTL.String(),
			"must not be negative; 0 keeps failed runs, and without the flag they are kept as --agentrun-ttl-after-finished says"))
	}
	return errs
}

// validateLeaderElection: a leader must have given up before another may take over. It
// begins to count the renew deadline up to a retry period after its last renewal.
func (o *options) validateLeaderElection() field.ErrorList {
	if !o.leaderElect {
		return nil
	}
	var errs field.ErrorList
	lease, renew, retry := o.leaderElectLeaseDuration, o.leaderElectRenewDeadline, o.leaderElectRetryPeriod
	if retry <= 0 {
		errs = append(errs, field.Invalid(flagPath("leader-elect-retry-period"), retry.String(), "must be greater than 0"))
	}
	if renew <= time.Duration(leaderelection.JitterFactor*float64(retry)) {
		errs = append(errs, field.Invalid(flagPath("leader-elect-renew-deadline"), renew.String(),
			fmt.Sprintf("must be greater than %v times --leader-elect-retry-period, %s", leaderelection.JitterFactor, retry)))
	}
	if lease.Truncate(time.Second) <= renew+retry { // a Lease counts in whole seconds
		errs = append(errs, field.Invalid(flagPath("leader-elect-lease-duration"), lease.String(),
			fmt.Sprintf("must be, in whole seconds, greater than --leader-elect-renew-deadline and --leader-elect-retry-period together, %s", renew+retry)))
	}
	for _, msg := range namespaceErrors(o.leaderElectNamespace) {
		errs = append(errs, field.Invalid(flagPath("leader-elect-resource-namespace"), o.leaderElectNamespace, msg))
	}
	return errs
}

// namespaceErrors says what is wrong with a namespace; empty stands for the pod's own.
func namespaceErrors(namespace string) []string {
	if namespace == "" {
		return nil
	}
	return validation.IsDNS1123Label(namespace)
}

// ttlPolicy returns what the flags say of how long finished runs are kept.
func (o *options) ttlPolicy() ttl.Policy {
	policy := ttl.Policy{Succeeded: o.ttlAfterFinished, Failed: o.ttlAfterFinished}
	if o.failedTTL != nil {
		policy.Failed = *o.failedTTL
	}
	return policy
}

// optionalDuration is the value of a flag for which not given differs from 0.
type optionalDuration struct {
	value **time.Duration
}

// Set parses the flag.
func (d optionalDuration) Set(s string) error {
	parsed, err := time.ParseDuration(s)
	*d.value = &parsed
	return err
}

// String is empty when the flag is not given. pflag also calls it on the zero value.
func (d optionalDuration) String() string {
	if d.value == nil || *d.value == nil {
		return ""
	}
	return (*d.value).String()
}

// Type is how usage calls the value.
func (optionalDuration) Type() string { return "duration" }

// memberPolicy returns what the flags let kubeconfigs ask for. The options must be valid.
func (o *options) memberPolicy() kubeconfigsecret.Policy {
	servers, _ := kubeconfigsecret.ParseAllowlist(o.memberServers)
	return kubeconfigsecret.Policy{AllowProxy: o.allowMemberProxy, AllowInsecure: o.allowInsecureMembers, Servers: servers}
}

func flagPath(name string) *field.Path {
	return field.NewPath("--" + name)
}

// policy returns what the flags say of startup. The options must be valid.
func (o *options) policy() startup.Policy {
	fatal, _ := parseFatalReasons(o.fatalReasons)
	return startup.Policy{Deadline: o.startupDeadline, Fatal: fatal}
}

var reasonPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

// notWaiting are reasons of conditions and outcomes, which no container waits on.
var notWaiting = []string{
	startup.ReasonStartupDeadlineExceeded, startup.ReasonDeleted, startup.ReasonPending, startup.ReasonRunning,
	startup.ReasonCompleted, startup.ReasonFailed, startup.ReasonPodNotRunning,
}

// inProgress are waiting reasons that every healthy pod shows.
var inProgress = []string{"ContainerCreating", "PodInitializing"}

func parseFatalReasons(flags []string) (map[string]time.Duration, field.ErrorList) {
	var errs field.ErrorList
	path := flagPath("fatal-waiting-reasons")
	fatal := make(map[string]time.Duration, len(flags))
	for _, value := range flags {
		reason, grace, hasGrace := strings.Cut(value, "=")
		switch {
		case !reasonPattern.MatchString(reason):
			errs = append(errs, field.Invalid(path, value, "must be a waiting reason as kubelet spells it, such as ImagePullBackOff, or Reason=grace"))
			continue
		case slices.Contains(inProgress, reason):
			errs = append(errs, field.Invalid(path, value, "every starting pod waits on it; use --agentrun-startup-deadline to bound startup"))
			continue
		case slices.Contains(notWaiting, reason):
			errs = append(errs, field.Invalid(path, value, "no container waits on it; docs/reasons.md lists waiting reasons"))
			continue
		case reason == startup.ReasonErrImagePull:
			errs = append(errs, field.Invalid(path, value, "a first failed pull is retried by kubelet; use ImagePullBackOff, whose grace counts from the first ErrImagePull"))
			continue
		}
		if _, twice := fatal[reason]; twice {
			errs = append(errs, field.Duplicate(path, reason))
			continue
		}
		fatal[reason] = 0
		if !hasGrace {
			continue
		}
		d, err := time.ParseDuration(grace)
		if err != nil || d < 0 {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("grace %q must be a duration of 0 or more, such as 90s or 2m", grace)))
			continue
		}
		fatal[reason] = d
	}
	return fatal, errs
}
