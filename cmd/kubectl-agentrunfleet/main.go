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

// Command kubectl-agentrunfleet is a kubectl plugin: `kubectl agentrunfleet register` makes
// a cluster a member of the hub, `unregister` takes that back, `members` prints all members.
//
// # What register makes
//
// In the member, all under one name that no other registration has: a Namespace, in it a
// ServiceAccount, and the rights of config/rbac/member/role.yaml, as a ClusterRole that is
// bound in the whole cluster or as a Role that is bound in each of --member-namespaces. In
// the hub: the kubeconfig Secret, which holds the member's server and CA and a token of
// that ServiceAccount. The credentials of whoever runs the command are copied nowhere.
//
// Everything made carries the labels managedByLabel and registrationLabel. Nothing
// without them is changed or deleted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is set when the plugin is built.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

const usage = `Manage the member clusters of agentrun-fleet.

Usage:
  kubectl agentrunfleet register NAME --member-context CONTEXT [flags]     make a cluster a member of the hub
  kubectl agentrunfleet register NAME --member-context CONTEXT --renew     renew its token and nothing else
  kubectl agentrunfleet unregister NAME --member-context CONTEXT [flags]   take both back
  kubectl agentrunfleet members [-o wide] [flags]                          print the members
  kubectl agentrunfleet version                                            print the plugin's version

Flags of each: kubectl agentrunfleet COMMAND --help
`

// command is one of the plugin's commands.
type command struct {
	addFlags func(*options, *pflag.FlagSet)
	validate func(*options) error
	run      func(context.Context, *options, io.Writer) error
	// named says that it takes a NAME.
	named bool
}

func commands() map[string]command {
	return map[string]command{
		"register":   {addFlags: (*options).addRegisterFlags, validate: (*options).validateRegister, run: register, named: true},
		"unregister": {addFlags: (*options).addUnregisterFlags, validate: (*options).validateUnregister, run: unregister, named: true},
		"members":    {addFlags: (*options).addMembersFlags, validate: (*options).validateMembers, run: members},
	}
}

func execute(ctx context.Context, args []string, out io.Writer) error {
	ctrl.SetLogger(logr.Discard()) // what there is to say goes to out
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		_, err := io.WriteString(out, usage)
		return err
	}
	if args[0] == "version" {
		_, err := fmt.Fprintln(out, version)
		return err
	}
	cmd, ok := commands()[args[0]]
	if !ok {
		return fmt.Errorf("there is no command %q: use register, unregister, members or version", args[0])
	}
	o := &options{}
	fs := pflag.NewFlagSet("kubectl agentrunfleet "+args[0], pflag.ContinueOnError)
	fs.SetOutput(out)
	fs.SortFlags = false
	cmd.addFlags(o, fs)
	o.addHubFlags(fs)
	if err := fs.Parse(args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if err := o.takeName(fs.Args(), cmd.named); err != nil {
		return err
	}
	o.limitGiven = fs.Changed(memberNamespacesFlag)
	o.serverGiven = fs.Changed("server")
	if err := cmd.validate(o); err != nil {
		return err
	}
	return cmd.run(ctx, o, out)
}
