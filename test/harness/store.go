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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// putters is how many objects are put at a time.
const putters = 8

// keyValue is a put request of etcd's JSON gateway, which takes bytes as base64.
type keyValue struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Store puts objects into etcd, in no order, where the API server finds them as if it had
// stored them, with the status and the creation time that they are given. It is for what
// cannot be created: the objects of a cluster whose clock is off, or very many at once.
// What is stored a second time is another version of the object. Custom objects and those
// of the core group can be stored.
func (cp *ControlPlane) Store(ctx context.Context, objects ...client.Object) error {
	transport := &http.Transport{MaxIdleConnsPerHost: putters}
	defer transport.CloseIdleConnections()
	httpClient := &http.Client{Transport: transport}
	errs := make([]error, putters)
	var wg sync.WaitGroup
	for putter := range putters {
		wg.Go(func() {
			for i := putter; i < len(objects) && errs[putter] == nil; i += putters {
				errs[putter] = cp.store(ctx, httpClient, objects[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// store puts one object. Each needs a put, and with it a resource version, of its own: a
// watch that is cut between two objects of one version has lost the second.
func (cp *ControlPlane) store(ctx context.Context, httpClient *http.Client, o client.Object) error {
	put, err := cp.stored(o)
	if err == nil {
		err = cp.put(ctx, httpClient, put)
	}
	if err != nil {
		return fmt.Errorf("storing %T %s in %q: %w", o, client.ObjectKeyFromObject(o), cp.Name, err)
	}
	return nil
}

// stored completes an object by what the API server would have chosen.
func (cp *ControlPlane) stored(o client.Object) (keyValue, error) {
	gvk, err := apiutil.GVKForObject(o, cp.Scheme)
	if err != nil {
		return keyValue{}, err
	}
	mapping, err := cp.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return keyValue{}, err
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	if o.GetUID() == "" {
		o.SetUID(uuid.NewUUID())
		o.SetGeneration(1)
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	value, err := json.Marshal(o)
	key := path.Join("/registry", gvk.Group, mapping.Resource.Resource, o.GetNamespace(), o.GetName())
	return keyValue{[]byte(key), value}, err
}

func (cp *ControlPlane) put(ctx context.Context, httpClient *http.Client, put keyValue) error {
	body, err := json.Marshal(put)
	if err != nil {
		return err
	}
	endpoint := cp.env.ControlPlane.Etcd.URL.JoinPath("/v3/kv/put").String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd answers %s: %s", response.Status, answer)
	}
	return err
}
