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
	"testing"
)

func TestAllowlist(t *testing.T) {
	tests := map[string]struct {
		list     []string
		host     string
		resolved string // empty when the host is never resolved by the hub
		parse    bool   // accepted before it is resolved
		dial     bool   // and after
	}{
		"any address by default":                        {nil, "192.0.2.1", "192.0.2.1:6443", true, true},
		"any name by default":                           {nil, "c1.example.com", "192.0.2.1:6443", true, true},
		"loopback, for tunnels":                         {nil, "127.0.0.1", "127.0.0.1:6443", true, true},
		"not the clouds' credentials":                   {nil, "169.254.169.254", "169.254.169.254:443", false, false},
		"nor by a name that resolves to them":           {nil, "c1.example.com", "169.254.169.254:443", true, false},
		"nor written as an IPv6 address":                {nil, "::ffff:169.254.169.254", "[::ffff:169.254.169.254]:443", false, false},
		"nor an IPv6 link-local address":                {nil, "fe80::1", "[fe80::1%lo]:443", false, false},
		"nor one with a zone":                           {nil, "fe80::1%lo", "[fe80::1%lo]:443", false, false},
		"nor the unspecified address":                   {nil, "0.0.0.0", "0.0.0.0:443", false, false},
		"nor its IPv6 form":                             {nil, "::", "[::]:443", false, false},
		"nor a multicast address":                       {nil, "224.0.0.1", "224.0.0.1:443", false, false},
		"link-local when it is listed":                  {[]string{"169.254.0.0/16"}, "169.254.1.1", "169.254.1.1:443", true, true},
		"an address in a listed network":                {[]string{"10.0.0.0/8"}, "10.1.2.3", "10.1.2.3:6443", true, true},
		"and none outside":                              {[]string{"10.0.0.0/8"}, "192.0.2.1", "192.0.2.1:6443", false, false},
		"a single address":                              {[]string{"192.0.2.1"}, "192.0.2.1", "192.0.2.1:6443", true, true},
		"a name that resolves into a listed network":    {[]string{"10.0.0.0/8"}, "c1.example.com", "10.1.2.3:6443", true, true},
		"and one that does not":                         {[]string{"10.0.0.0/8"}, "c1.example.com", "192.0.2.1:6443", true, false},
		"the end of a name":                             {[]string{".example.com"}, "C1.Example.COM.", "192.0.2.1:6443", true, true},
		"but not of another":                            {[]string{".example.com"}, "evilexample.com", "192.0.2.1:6443", false, false},
		"nor the domain itself":                         {[]string{".example.com"}, "example.com", "192.0.2.1:6443", false, false},
		"a whole name":                                  {[]string{"c1.example.com"}, "c1.example.com", "192.0.2.1:6443", true, true},
		"and no other of its domain":                    {[]string{"c1.example.com"}, "a.c1.example.com", "192.0.2.1:6443", false, false},
		"a listed name that resolves to the hub's link": {[]string{".example.com"}, "c1.example.com", "169.254.169.254:443", true, false},
		"an address where only names are listed":        {[]string{".example.com"}, "192.0.2.1", "192.0.2.1:6443", false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list, err := ParseAllowlist(tc.list)
			if err != nil {
				t.Fatal(err)
			}
			if got := list.mayPermit(tc.host); got != tc.parse {
				t.Errorf("before it is resolved: %v, want %v", got, tc.parse)
			}
			if got := list.permit(tc.host, tc.resolved) == nil; got != tc.dial {
				t.Errorf("when it is dialled: %v, want %v", got, tc.dial)
			}
		})
	}
}

func TestAllowlistOfWhatAProxyResolves(t *testing.T) {
	list, err := ParseAllowlist([]string{"10.0.0.0/8", ".example.com"})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		host string
		want bool
	}{
		"a listed name": {"c1.example.com", true},
		"a name that might be in a listed network":  {"c1.example.org", false},
		"an address in a listed network":            {"10.0.0.1", true},
		"an address outside":                        {"192.0.2.1", false},
		"an address of the hub's link, as a number": {"169.254.169.254", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := list.permitUnresolved(tc.host) == nil; got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestParseAllowlistRefuses(t *testing.T) {
	for _, entry := range []string{"", ".", "10.0.0.0/33", "10.0.0.256", "10.0", "fe80::1%eth0", "*.example.com", "https://example.com", "example.com:443", "..example.com"} {
		if _, err := ParseAllowlist([]string{entry}); err == nil {
			t.Errorf("%q is accepted", entry)
		}
	}
}
