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
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
)

const (
	// defaultNamespace is where config/default puts the manager.
	defaultNamespace = "agentrun-fleet-system"

	// defaultExpiration is what is asked for; API servers may grant less.
	defaultExpiration = 8760 * time.Hour
	// minExpiration is the least that API servers issue tokens for.
	minExpiration = 10 * time.Minute
	// maxExpiration is the most that a TokenRequest can ask for.
	maxExpiration = (1 << 32) * time.Second

	memberNamespacesFlag = "member-namespaces"
	// maxMemberNamespaces is how many the manager takes.
	maxMemberNamespaces = 32
)

// options are the flags and the argument of all commands.
type options struct {
	// name is the member's, on the hub.
	name string
	// kubeconfig is a file, or empty for the usual places.
	kubeconfig string
	// hubContext is empty for the current context.
	hubContext, memberContext string
	// namespace of the hub; empty means all, for members only.
	namespace string
	// memberNamespaces limit a member; empty means no limit. Without limitGiven the
	// limit of the existing registration stays.
	memberNamespaces []string
	limitGiven       bool
	// server is empty for that of the member's context. Without serverGiven the one of the
	// existing registration stays.
	server      string
	serverGiven bool
	expiration  time.Duration
	renew       bool
	dryRun      bool
	output      string
}

func (o *options) addHubFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.hubContext, "context", "", "Context of the hub. Default: the current one.")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "File with both contexts. Default: $KUBECONFIG, or ~/.kube/config.")
}

func (o *options) addMemberFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.memberContext, "member-context", "", "Context of the member. Required.")
	fs.StringVarP(&o.namespace, "namespace", "n", defaultNamespace, "Namespace of the hub that holds the Secret.")
	fs.BoolVar(&o.dryRun, "dry-run", false, "Say what would be done, and change nothing.")
}

func (o *options) addRegisterFlags(fs *pflag.FlagSet) {
	o.addMemberFlags(fs)
	fs.StringSliceVar(&o.memberNamespaces, memberNamespacesFlag, nil,
		"Namespaces of the member in which the hub gets rights, instead of all. Left out, what NAME was registered with stays; \"\" lifts the limit.")
	fs.StringVar(&o.server, "server", "",
		"URL at which the hub reaches the member's API server, instead of that of the member's context. Left out, what NAME was registered with stays; \"\" stands for the context's.")
	fs.DurationVar(&o.expiration, "expiration", defaultExpiration, "How long a new token is to be valid. The API server may grant less; what it granted is printed.")
	fs.BoolVar(&o.renew, "renew", false, "Renew the token of a registered member and nothing else. The former one stays valid until it expires.")
}

func (o *options) addUnregisterFlags(fs *pflag.FlagSet) { o.addMemberFlags(fs) }

func (o *options) addMembersFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the hub. Default: all.")
	fs.StringVarP(&o.output, "output", "o", "", "wide adds how long CONNECTED has stood, the endpoint and the message.")
}

// takeName takes the NAME from the arguments that are no flags.
func (o *options) takeName(args []string, wanted bool) error {
	switch {
	case !wanted && len(args) > 0:
		return fmt.Errorf("unexpected argument %q: members takes none", args[0])
	case wanted && len(args) != 1:
		return fmt.Errorf("got %d arguments: give one NAME, by which the hub is to know the member", len(args))
	case wanted:
		o.name = args[0]
	}
	return nil
}

func (o *options) validateMember() error {
	errs := []error{nameProblem(o.name)}
	if o.memberContext == "" {
		errs = append(errs, errors.New("--member-context: required: give the kubeconfig context of the member"))
	}
	for _, msg := range validation.IsDNS1123Label(o.namespace) {
		errs = append(errs, fmt.Errorf("--namespace: %q: %s", o.namespace, msg))
	}
	return errors.Join(errs...)
}

// nameProblem is why the manager would not take NAME: it is a label's value, and begins the
// name of the Secret.
func nameProblem(name string) error {
	problems := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...)
	problems = append(problems, validation.IsDNS1123Subdomain(name+kubeconfigsecret.NameSuffix)...)
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("NAME %q cannot name a member: %s", name, problems[0])
}

func (o *options) validateRegister() error {
	errs := []error{o.validateMember()}
	slices.Sort(o.memberNamespaces)
	o.memberNamespaces = slices.Compact(o.memberNamespaces)
	for _, namespace := range o.memberNamespaces {
		for _, msg := range validation.IsDNS1123Label(namespace) {
			errs = append(errs, fmt.Errorf("--%s: %q: %s", memberNamespacesFlag, namespace, msg))
		}
	}
	if n := len(o.memberNamespaces); n > maxMemberNamespaces {
		errs = append(errs, fmt.Errorf("--%s: has %d: give at most %d, or leave it out for all", memberNamespacesFlag, n, maxMemberNamespaces))
	}
	if o.expiration < minExpiration || o.expiration > maxExpiration {
		errs = append(errs, fmt.Errorf("--expiration: %s: must be %s to %s", o.expiration, minExpiration, maxExpiration))
	}
	if o.renew && (o.limitGiven || o.serverGiven) {
		errs = append(errs, errors.New("--renew: changes the token alone: leave out --server and --member-namespaces, or leave out --renew"))
	}
	return errors.Join(errs...)
}

func (o *options) validateUnregister() error { return o.validateMember() }

func (o *options) validateMembers() error {
	if o.output != "" && o.output != "wide" {
		return fmt.Errorf("--output: %q: must be wide or left out", o.output)
	}
	return nil
}

// splitNamespaces reads the value of the annotation that limits a member.
func splitNamespaces(value string) []string {
	namespaces := []string{}
	for namespace := range strings.SplitSeq(value, ",") {
		if namespace = strings.TrimSpace(namespace); namespace != "" {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}
