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
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// putsAtOnce is how many objects go into one transaction; etcd allows 128.
const putsAtOnce = 100

// keyValue is a put request of etcd's JSON gateway, which takes bytes as base64.
type keyValue struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

type putOp struct {
	Put keyValue `json:"request_put"`
}

// Store puts objects into etcd, where the API server finds them as if it had stored them,
// with the status and the creation time that they are given. It is for what cannot be
// created: the objects of a cluster whose clock is off, or very many. Custom objects and
// those of the core group can be stored.
func (cp *ControlPlane) Store(ctx context.Context, objects ...client.Object) error {
	for batch := range slices.Chunk(objects, putsAtOnce) {
		puts := make([]putOp, len(batch))
		for i, o := range batch {
			put, err := cp.stored(o)
			if err != nil {
				return fmt.Errorf("storing %T %s in %q: %w", o, client.ObjectKeyFromObject(o), cp.Name, err)
			}
			puts[i] = putOp{put}
		}
		if err := cp.transact(ctx, map[string]any{"success": puts}); err != nil {
			return fmt.Errorf("storing %d objects in %q: %w", len(batch), cp.Name, err)
		}
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
	o.SetUID(uuid.NewUUID())
	o.SetGeneration(1)
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	value, err := json.Marshal(o)
	key := path.Join("/registry", gvk.Group, mapping.Resource.Resource, o.GetNamespace(), o.GetName())
	return keyValue{[]byte(key), value}, err
}

func (cp *ControlPlane) transact(ctx context.Context, txn any) error {
	body, err := json.Marshal(txn)
	if err != nil {
		return err
	}
	endpoint := cp.env.ControlPlane.Etcd.URL.JoinPath("/v3/kv/txn").String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	httpClient := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
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
