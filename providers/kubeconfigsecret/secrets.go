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
	"bytes"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

const (
	// minSecret is how long a credential must be to be told from what an honest member says, in bytes.
	minSecret = 8
	// comparedSecret is how much of a credential's end is looked for: enough to know it, and a token begins as others do.
	comparedSecret = 48
	// maxForeignError bounds the text of an error that a member has a part in, in bytes.
	maxForeignError = 512
)

// secrets are the ends of what a member is sent in confidence, in the forms in which others repeat it: as it is, in base64
// at any offset, and escaped for a URL. What is escaped for JSON is looked for as well.
type secrets [][]byte

func secretsOf(cfg *rest.Config) secrets {
	confided := []string{cfg.BearerToken, cfg.Password}
	if cfg.Password != "" {
		confided = append(confided, base64.StdEncoding.EncodeToString([]byte(cfg.Username+":"+cfg.Password)))
	}
	var found secrets
	for _, secret := range confided {
		if len(secret) < minSecret {
			continue
		}
		for _, form := range append(inBase64(secret), secret, url.QueryEscape(secret), url.PathEscape(secret)) {
			found = append(found, []byte(form[max(0, len(form)-comparedSecret):]))
		}
	}
	slices.SortFunc(found, bytes.Compare)
	return slices.CompactFunc(found, bytes.Equal)
}

// inBase64 returns the characters that depend on the secret alone, wherever in the encoded text it begins.
func inBase64(secret string) []string {
	forms := make([]string, 0, 6)
	for before := range 3 {
		padded := strings.Repeat("\x00", before) + secret
		whole := padded[:len(padded)/3*3]
		std := base64.StdEncoding.EncodeToString([]byte(whole))[(before*4+2)/3:]
		forms = append(forms, std, strings.NewReplacer("+", "-", "/", "_").Replace(std))
	}
	return forms
}

// in says whether text repeats one of them.
func (s secrets) in(text []byte) bool {
	repeats := func(form []byte) bool { return bytes.Contains(text, form) }
	if slices.ContainsFunc(s, repeats) {
		return true
	}
	if len(s) == 0 || !bytes.Contains(text, []byte(`\u00`)) {
		return false
	}
	text = asciiEscape.ReplaceAllFunc(text, unescape)
	return slices.ContainsFunc(s, repeats)
}

var asciiEscape = regexp.MustCompile(`\\u00[0-7][0-9a-fA-F]`)

func unescape(escape []byte) []byte {
	value, err := strconv.ParseUint(string(escape[len(`\u`):]), 16, 8)
	if err != nil {
		return escape
	}
	return []byte{byte(value)}
}

// overlap is how much of two texts must be looked at together where one goes on with the other, in bytes.
func (s secrets) overlap() int {
	if len(s) == 0 {
		return 0
	}
	return comparedSecret*len(`\u0000`) - 1
}

// clean returns an error that is safe to log: transports quote what is no HTTP, or the farewell of a server.
func (s secrets) clean(err error) error {
	text := err.Error()
	switch shown := printable(text, maxForeignError); {
	case s.in([]byte(text)):
		return &cleanError{text: redacted, cause: err}
	case shown != text:
		return &cleanError{text: shown, cause: err}
	}
	return err
}

// cleanError is another error with another text.
type cleanError struct {
	text  string
	cause error
}

func (e *cleanError) Error() string { return e.text }
func (e *cleanError) Unwrap() error { return e.cause }
