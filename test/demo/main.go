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
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errInterrupted is why the demo ends when it is asked to.
var errInterrupted = errors.New("interrupted")

func main() {
	oneshot := flag.Bool("oneshot", false, "End after the story, with code 1 when a number was wrong, instead of staying until Ctrl-C.")
	flag.Parse()
	if err := run(*oneshot); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run brings everything up, tells the story and takes everything down again, whatever
// happens in between.
func run(oneshot bool) (err error) {
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	d := &demo{created: map[string][]demoRun{}, screen: screen{out: os.Stdout, started: time.Now(), fail: fail}}
	defer onSignal(func() {
		d.screen.printf("\nStopping. This takes some seconds.\n")
		fail(errInterrupted)
	})()
	defer func() { err = errors.Join(err, d.close()) }()

	err = d.show(ctx, fail, oneshot)
	if errors.Is(err, errInterrupted) && !oneshot {
		return nil // that is how the interactive form ends
	}
	return err
}

// show runs the demo until it ends or ctx is done, and then returns ctx's cause too.
func (d *demo) show(ctx context.Context, fail context.CancelCauseFunc, oneshot bool) error {
	if err := d.start(ctx, fail); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if err := d.tell(ctx); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if oneshot {
		return d.verdict(ctx)
	}
	d.invite()
	<-ctx.Done()
	return context.Cause(ctx)
}

func (d *demo) close() error {
	if d.fleet == nil {
		return nil
	}
	d.screen.say("Stopping the manager, then the clusters.")
	return d.fleet.close()
}

// onSignal calls do when the process is asked to end, and lets it live until it has
// cleaned up. Output that nobody reads is an error of the write instead of a signal.
func onSignal(do func()) (stop func()) {
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for range signals {
			do()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}
