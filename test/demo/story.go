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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/konveyor/agentrun-fleet/test/harness"
)

// demo is the story that is told of a fleet.
type demo struct {
	screen  screen
	fleet   *fleet
	created map[string][]demoRun // runs by member, so far

	passed, failed int
}

func (d *demo) start(ctx context.Context, fail context.CancelCauseFunc) (err error) {
	d.screen.say("Starting a hub and three members, each with its own API server; the members also with\n" +
		"         kube-scheduler, agent-sandbox and KWOK as their nodes.")
	d.fleet, err = startFleet(ctx)
	if err != nil {
		return err
	}
	d.screen.kubeconfig = d.fleet.kubeconfigPath()
	d.fleet.playKonveyor(ctx, d.screen.say)
	d.screen.say("Starting fleet-manager against the hub, with the rights of config/rbac/hub.")
	if err := d.fleet.startManager(ctx); err != nil {
		return err
	}
	go func() {
		select {
		case <-d.fleet.manager.Exited():
			fail(errors.New("fleet-manager has ended by itself\n" + lastLines(d.fleet.managerLog(), 20)))
		case <-ctx.Done():
		}
	}()
	d.screen.say("Telling the hub of the members: a kubeconfig Secret for each, with the rights of config/rbac/member.")
	if err := d.fleet.register(ctx); err != nil {
		return err
	}
	return d.screen.kubectl(ctx, "get", "secrets", "-n", clustersNamespace, "-L", "cluster.x-k8s.io/cluster-name")
}

// tell is the story. What it awaits is checked, and it breaks off at a wrong number.
func (d *demo) tell(ctx context.Context) error {
	for _, act := range []func(context.Context) error{d.manyRuns, d.outage, d.lateFailure, d.collected} {
		if err := act(ctx); err != nil || d.failed > 0 {
			return err
		}
	}
	return nil
}

func (d *demo) manyRuns(ctx context.Context) error {
	if err := d.awaitConnected(ctx); err != nil {
		return err
	}
	total := 0
	for _, list := range initialRuns {
		total += len(list)
	}
	d.screen.say("Creating %d AgentRuns in the members. Some can never start. What the hub says of them:", total)
	stop, err := d.screen.watch(ctx, "get", "agentrunfleetstatus")
	if err != nil {
		return err
	}
	defer stop()
	if err := d.fleet.forEachMember(func(cp *harness.ControlPlane) error {
		for _, run := range initialRuns[cp.Name] {
			if err := run.create(ctx, cp); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for name, list := range initialRuns {
		d.created[name] = slices.Clone(list)
	}
	if err := d.settle(ctx, settled); err != nil {
		return err
	}
	stop()
	d.screen.say("Nothing changes any more. In which members, and what else is known:")
	if err := d.showHub(ctx); err != nil {
		return err
	}
	d.screen.say("One member itself:")
	if err := d.screen.kubectl(ctx, "--context", west, "get", "ar"); err != nil {
		return err
	}
	d.screen.say("Why one of its runs failed:")
	return d.screen.kubectl(ctx, "--context", west, "events", "--for", "agentrun/missing-config-1")
}

func (d *demo) showHub(ctx context.Context) error {
	return errors.Join(
		d.screen.kubectl(ctx, "get", "agentrunfleetstatus", "-o", "wide"),
		d.screen.kubectl(ctx, "get", "arcs", "-A"),
	)
}

func (d *demo) awaitConnected(ctx context.Context) error {
	return await(ctx, func() (bool, error) {
		s, err := d.fleet.observe(ctx)
		return err == nil && s.fleet.Status.Clusters.Ratio == "3/3", err
	})
}

// outage cuts edge off; a run fails there that nobody sees until it is back.
func (d *demo) outage(ctx context.Context) error {
	d.screen.say("Cutting off %s: packets vanish. Three failed probes make it Unknown, not failed and not zero.", edge)
	stop, err := d.screen.watch(ctx, "get", "agentrunfleetstatus", "-o", "wide")
	if err != nil {
		return err
	}
	defer stop()
	d.fleet.proxy.Pause()
	if err := d.create(ctx, edge, edgeLateRun); err != nil {
		return err
	}
	if err := d.settle(ctx, cutOff); err != nil {
		return err
	}
	stop()
	if err := d.screen.kubectl(ctx, "get", "arcs", "-A"); err != nil || d.failed > 0 {
		return err
	}
	d.screen.say("%s is back. AgentRun %s, created there meanwhile, fails now:", edge, edgeLateRun.name)
	if stop, err = d.screen.watch(ctx, "get", "agentrunfleetstatus", "-o", "wide"); err != nil {
		return err
	}
	defer stop()
	d.fleet.proxy.Resume()
	return d.settle(ctx, backAgain)
}

// lateFailure creates a run that cannot start and tells how soon the hub knows.
func (d *demo) lateFailure(ctx context.Context) error {
	d.screen.say("One more AgentRun that cannot start, in %s:", west)
	before := time.Now()
	if err := d.create(ctx, west, westLateRun); err != nil {
		return err
	}
	if err := d.settle(ctx, oneMore); err != nil {
		return err
	}
	d.screen.say("%.1f s after it was created, its failure stands in the summary:", time.Since(before).Seconds())
	if err := d.showHub(ctx); err != nil {
		return err
	}
	return d.screen.kubectl(ctx, "--context", west, "get", "ar", westLateRun.name, "-o", "wide")
}

// collected creates a run that is deleted as soon as it has failed and is on record.
func (d *demo) collected(ctx context.Context) error {
	d.screen.say("An AgentRun in %s with ttlSecondsAfterFinished: 0. It fails, is put on record, and goes:", west)
	stop, err := d.screen.watch(ctx, "--context", west, "get", "ar", "--field-selector=metadata.name="+goneRun.name)
	if err != nil {
		return err
	}
	defer stop()
	if err := goneRun.create(ctx, d.fleet.members[west]); err != nil {
		return err
	}
	if err := d.settle(ctx, final); err != nil {
		return err
	}
	stop()
	d.screen.say("FAILED counts the runs that exist, TOTAL all that ever failed:")
	return d.screen.kubectl(ctx, "get", "agentrunfleetstatus")
}

func (d *demo) create(ctx context.Context, member string, run demoRun) error {
	d.created[member] = append(d.created[member], run)
	return run.create(ctx, d.fleet.members[member])
}

// settle waits until everything is as expected, and says what is not.
func (d *demo) settle(ctx context.Context, want expectation) error {
	var checks []check
	err := await(ctx, func() (bool, error) {
		s, err := d.fleet.observe(ctx)
		if err != nil {
			return false, err
		}
		checks = s.checks(want, d.created)
		return len(failed(checks)) == 0, nil
	})
	wrong := failed(checks)
	d.passed += len(checks) - len(wrong)
	d.failed += len(wrong)
	if err != nil {
		return err
	}
	for _, c := range wrong {
		d.screen.printf("WRONG %s: %s\n", c.what, c.diff)
	}
	return nil
}

// verdict is the end of the oneshot form. Where a number was wrong, it shows what is
// needed to find out why: everything is about to be removed.
func (d *demo) verdict(ctx context.Context) error {
	d.screen.printf("\ndemo: %d checks passed, %d failed\n", d.passed, d.failed)
	if d.failed == 0 {
		return nil
	}
	err := fmt.Errorf("%d numbers are wrong", d.failed)
	for _, name := range memberNames {
		err = errors.Join(err, d.screen.kubectl(ctx, "--context", name, "get", "agentruns,sandboxes,pods", "-o", "wide"))
		for _, program := range []string{"kwok", "agent-sandbox-controller"} {
			d.showLog(name+": "+program, filepath.Join(d.fleet.members[name].Dir, program+".log"))
		}
	}
	err = errors.Join(err, d.screen.kubectl(ctx, "get", "arcs,arfs", "-A", "-o", "yaml"))
	d.showLog("fleet-manager", d.fleet.managerLog())
	return err
}

func (d *demo) showLog(title, file string) {
	d.screen.printf("\n--- end of the log of %s\n%s\n", title, lastLines(file, 60))
}

// invite tells how to look around.
func (d *demo) invite() {
	binary, err := harness.BinaryPath("kubectl")
	if err != nil {
		binary = "kubectl"
	}
	root, err := harness.RepoRoot()
	if err != nil {
		root = "."
	}
	d.screen.say("Everything keeps running until Ctrl-C. In another terminal:")
	d.screen.printf(`
  export KUBECONFIG=%[1]s
  alias kubectl=%[2]s
  kubectl get agentrunfleetstatus --watch
  kubectl get arcs -A -o wide
  kubectl describe arcs -n %[3]s %[4]s
  kubectl --context %[5]s get ar -o wide     # contexts: hub, %[6]s
  kubectl --context %[7]s delete ar crash-loop
  kubectl --context %[7]s create -f %[9]s/config/samples/agentrun.yaml
  sed s/migrate-billing/never-starts/ %[9]s/config/samples/agentrun.yaml |
    kubectl label --local -f - -o yaml %[10]s=%[11]s |
    kubectl --context %[7]s create -f -
  tail -f %[8]s

`, d.screen.kubeconfig, binary, clustersNamespace, edge, west, strings.Join(memberNames, ", "), east, d.fleet.managerLog(), root, outcomeLabel, imageMissing)
}

func lastLines(file string, count int) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
