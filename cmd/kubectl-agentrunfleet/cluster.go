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
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(fleetv1alpha1.AddToScheme(s))
	return s
}

// cluster is the hub or a member, as the user of a kubeconfig context. It says what it does.
type cluster struct {
	client.Client
	// title is "hub" or "member", with the context.
	title  string
	dryRun bool
	out    io.Writer
}

func connect(c contexts, role, context string, dryRun bool, out io.Writer) (*cluster, error) {
	config, err := c.restConfig(context)
	if err != nil {
		return nil, err
	}
	cl, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("context %q: %w", context, err)
	}
	return &cluster{Client: cl, title: role + " " + context, dryRun: dryRun, out: out}, nil
}

// uid identifies the cluster: nothing else tells two clusters apart for good.
func (c *cluster) uid(ctx context.Context) (types.UID, error) {
	system := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
		return "", fmt.Errorf("%s: reading Namespace kube-system, whose UID identifies the cluster: %w", c.title, err)
	}
	return system.UID, nil
}

// wanted is an object and what must stand in it. What set leaves alone stays as it is.
type wanted struct {
	object client.Object
	set    func()
}

// ensure makes each object, or corrects it.
func (c *cluster) ensure(ctx context.Context, r *registration, objects ...wanted) error {
	for _, w := range objects {
		done, err := c.ensureOne(ctx, r, w)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", c.title, nameOf(w.object), err)
		}
		c.say(w.object, done)
	}
	return nil
}

func (c *cluster) ensureOne(ctx context.Context, r *registration, w wanted) (string, error) {
	err := c.Get(ctx, client.ObjectKeyFromObject(w.object), w.object)
	if apierrors.IsNotFound(err) {
		r.mark(w.object)
		w.set()
		return "created", c.unlessDry(func() error { return c.Create(ctx, w.object) })
	}
	if err != nil {
		return "", err
	}
	if !r.made(w.object) {
		return "", notMade(w.object)
	}
	if w.object.GetDeletionTimestamp() != nil {
		return "", errors.New("is being deleted: run the command again when it is gone")
	}
	before := w.object.DeepCopyObject()
	r.mark(w.object)
	w.set()
	if equality.Semantic.DeepEqual(before, w.object) {
		return "unchanged", nil
	}
	// The object's resourceVersion holds: what somebody else changed meanwhile is not overwritten.
	return "updated", c.unlessDry(func() error { return c.Update(ctx, w.object) })
}

// remove deletes an object if it is there. Nothing but the object that was read is deleted.
func (c *cluster) remove(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	err := c.unlessDry(func() error { return c.Delete(ctx, o, client.Preconditions{UID: &uid}) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s: deleting %s: %w", c.title, nameOf(o), err)
	}
	c.say(o, "deleted")
	return nil
}

func (c *cluster) unlessDry(write func() error) error {
	if c.dryRun {
		return nil
	}
	return write()
}

func (c *cluster) say(o client.Object, done string) {
	if c.dryRun && done != "unchanged" {
		done += " (dry run)"
	}
	c.sayf("%s %s", nameOf(o), done)
}

func (c *cluster) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(c.out, c.title+": "+format+"\n", args...) // nothing can be done about a closed terminal
}

// nameOf is how objects are called: Role a/b.
func nameOf(o client.Object) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return kindOf(o) + " " + name
}

// kindOf asks the scheme: clients leave the object's own kind empty.
func kindOf(o client.Object) string {
	gvk, err := apiutil.GVKForObject(o, scheme)
	utilruntime.Must(err) // only kinds of the scheme are used
	return gvk.Kind
}
