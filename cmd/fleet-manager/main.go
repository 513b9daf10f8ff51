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

// Command fleet-manager is the hub manager of agentrun-fleet: it discovers member
// clusters from kubeconfig Secrets, fails AgentRuns that never start, and keeps the
// fleet's summary. Everything it does is wired here and done elsewhere.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
)

// version is set by the linker.
var version = "dev"

func main() {
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fleet-manager:", err)
		os.Exit(1)
	}
}

func execute(args []string) error {
	o := newOptions()
	fs := pflag.NewFlagSet("fleet-manager", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("cannot start: %q is no flag; the manager takes flags only", fs.Arg(0))
	}
	if o.version {
		fmt.Println(version)
		return nil
	}
	if errs := o.Validate(); len(errs) > 0 {
		return fmt.Errorf("cannot start: %w", errs.ToAggregate())
	}
	setLogger(&o.zap)
	ctrl.Log.Info("Starting fleet-manager", "version", version)
	hub, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the hub: give --kubeconfig, set KUBECONFIG, or run in the hub: %w", err)
	}
	// client-go logs of leader election to the context's logger.
	return run(ctrl.LoggerInto(ctrl.SetupSignalHandler(), ctrl.Log), hub, o)
}
