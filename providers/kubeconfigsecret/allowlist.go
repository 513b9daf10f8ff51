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
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Allowlist is where members may be. The zero value allows every address but those of
// the hub's own link (169.254.0.0/16 and fe80::/10, where clouds hand out credentials), the unspecified
// and multicast ones.
type Allowlist struct {
	networks []netip.Prefix
	hosts    []string // a name, or with a leading dot the end of one
}

// notAllowed is said of an address or name that is not in the list.
const notAllowed = "the hub does not connect to that address or name: use another, or have the hub's operator list it in --member-server-allowlist"

// ParseAllowlist takes CIDRs, addresses, host names and, with a leading dot, the ends of
// such. With any, what matches none is refused; a name may match by what it resolves to. Link-local,
// unspecified and multicast addresses must be listed as addresses, whatever the name.
func ParseAllowlist(entries []string) (Allowlist, error) {
	list := Allowlist{}
	for _, entry := range entries {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if prefix, ok := parsePrefix(entry); ok {
			list.networks = append(list.networks, prefix)
			continue
		}
		if problems := validation.IsDNS1123Subdomain(strings.TrimPrefix(entry, ".")); len(problems) > 0 || looksNumeric(entry) {
			return Allowlist{}, fmt.Errorf("%q is neither a CIDR such as 10.0.0.0/8, nor a host name, nor the end of one such as .example.com", entry)
		}
		list.hosts = append(list.hosts, entry)
	}
	return list, nil
}

// looksNumeric tells a mistyped address from a name: no top-level domain is a number.
func looksNumeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return strings.Trim(last, "0123456789") == ""
}

func parsePrefix(entry string) (netip.Prefix, bool) {
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		return prefix.Masked(), true
	}
	addr, err := netip.ParseAddr(entry)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, addr.BitLen()), true
}

func (l Allowlist) empty() bool { return len(l.networks) == 0 && len(l.hosts) == 0 }

// permit decides on an address, as host:port, to which host was resolved.
func (l Allowlist) permit(host, resolved string) error {
	addr, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return errors.New("dialling: not an IP address and port")
	}
	if !l.has(host, addr.Addr()) {
		return refusedServer()
	}
	return nil
}

// mayPermit decides on a host before it is resolved: no when it could not be permitted whatever it resolves to.
func (l Allowlist) mayPermit(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return l.has(host, addr)
	}
	return l.empty() || len(l.networks) > 0 || l.names(host)
}

// permitUnresolved decides on a host that somebody else will resolve.
func (l Allowlist) permitUnresolved(host string) error {
	allowed := l.empty() || l.names(host)
	if addr, err := netip.ParseAddr(host); err == nil {
		allowed = l.has(host, addr)
	}
	if !allowed {
		return refusedServer()
	}
	return nil
}

func (l Allowlist) has(host string, addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	for _, network := range l.networks {
		if network.Contains(addr) {
			return true
		}
	}
	if addr.IsLinkLocalUnicast() || addr.IsUnspecified() || addr.IsMulticast() {
		return false
	}
	return l.empty() || l.names(host)
}

// names says whether the host is listed by its name.
func (l Allowlist) names(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, listed := range l.hosts {
		if host == listed || (strings.HasPrefix(listed, ".") && strings.HasSuffix(host, listed)) {
			return true
		}
	}
	return false
}

func refusedServer() *failure {
	return &failure{reason: ReasonInvalidKubeconfig, message: "Field server or proxy-url of the kubeconfig: " + notAllowed}
}
