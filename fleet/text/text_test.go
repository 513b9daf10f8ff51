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

package text

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestShorten(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"a text that fits stays":                    {"0123456789ab", "0123456789ab"},
		"one that does not keeps beginning and end": {"what failed, and why", "wha… and why"},
		"between characters":                        {"éèéèéèéèéèéèé", "éèé…èéèéèéèé"},
		"line breaks become spaces before the cut":  {"a\nb", "a b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Shorten(tc.text, 12)); diff != "" {
				t.Errorf("Shorten(%q) (-want +got):\n%s", tc.text, diff)
			}
		})
	}
}

func TestClip(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"a short text stays":                              {"pull failed", "pull failed"},
		"a long text is cut":                              {"0123456789abcdef", "0123456789ab"},
		"a text is cut between characters, not in one":    {"ééééééééééééé", "éééééééééééé"},
		"line breaks and tabs become spaces":              {"a\nb\tc\u2028d", "a b c d"},
		"terminal control is removed":                     {"\x1b[31mred\x07\x7f", "[31mred"},
		"marks that reverse the text's order are removed": {"a\u202eb\u200bc", "abc"},
		"bytes that are not UTF-8 are removed":            {"a\xffb\xc3", "ab"},
		"blanks around are removed":                       {" \n a \n", "a"},
		"runs of blanks become one":                       {"a \r\n  b", "a b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Clip(tc.text, 12)
			if got != tc.want {
				t.Errorf("Clip(%q) = %q, want %q", tc.text, got, tc.want)
			}
			if !utf8.ValidString(got) {
				t.Errorf("Clip(%q) = %q is not UTF-8", tc.text, got)
			}
		})
	}
}
