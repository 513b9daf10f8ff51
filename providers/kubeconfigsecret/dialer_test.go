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

package kubeconfigsecret

import (
	"errors"
	"net"
	"testing"
)

func TestDialerEndsAllTraffic(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	address := listener.Addr().String()
	d := newDialer(Allowlist{})

	ended, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	open, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.conns) != 1 {
		t.Errorf("%d connections are kept, want the open one", len(d.conns))
	}

	d.close()
	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading from an open connection: %v, want it closed", err)
	}
	if _, err := d.DialContext(t.Context(), "tcp", address); !errors.Is(err, errDisengaged) {
		t.Errorf("dialling again: %v, want %v", err, errDisengaged)
	}
}
