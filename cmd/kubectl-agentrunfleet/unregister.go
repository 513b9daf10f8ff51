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
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/konveyor/agentrun-fleet/providers/kubeconfigsecret"
)

// unregister deletes what register has made. What is gone already does not matter.
func unregister(ctx context.Context, o *options, out io.Writer) error {
	c, err := loadContexts(o.kubeconfig)
	if err != nil {
		return err
	}
	s, err := open(ctx, o, c, out)
	if err != nil {
		return fmt.Errorf("nothing was deleted: %w; for a member that is gone for good, delete Secret %s/%s of the hub by hand",
			err, o.namespace, o.name+kubeconfigsecret.NameSuffix)
	}
	// First, so that the manager lets go of the member before its rights go.
	if err := s.removeSecret(ctx); err != nil {
		return err
	}
	objects, err := s.inUse(ctx)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := s.member.remove(ctx, object); err != nil {
			return err
		}
	}
	if len(objects) == 0 {
		s.member.sayf("has nothing of %s/%s", s.namespace, s.name)
	}
	return nil
}

// inUse is what the member has of the registration, rights first.
func (s *session) inUse(ctx context.Context) ([]client.Object, error) {
	grants, err := s.grants(ctx, s.member)
	if err != nil {
		return nil, err
	}
	accounts, err := s.list(ctx, s.member, &corev1.ServiceAccountList{}, &corev1.NamespaceList{})
	return slices.Concat(grants, accounts), err
}

func (s *session) removeSecret(ctx context.Context) error {
	switch {
	case s.secret == nil:
		s.hub.sayf("Secret %s is not there", s.secretKey())
		return nil
	case !s.made(s.secret):
		s.hub.sayf("%s was not made by `register` with this hub and is left alone", nameOf(s.secret))
		return nil
	}
	return s.hub.remove(ctx, s.secret)
}
