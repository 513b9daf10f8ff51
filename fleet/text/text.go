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

// Package text makes foreign text fit for a status, an Event or a terminal. It is pure.
//
// What kubelet, a scheduler, another controller or a registry wrote is not ours: it may be
// long, of many lines, not UTF-8, or drive the terminal it is printed on.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clip returns s as one line of at most limit characters that is safe to print on a
// terminal: line breaks, tabs and runs of blanks become one space; other control and
// formatting characters, and bytes that are not UTF-8, are removed.
func Clip(s string, limit int) string {
	s = oneLine(s)
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit])
}

// Shorten is Clip for text that is read. It cuts out of the middle, and an ellipsis says
// so: kubelet's messages begin with what failed and end with why.
func Shorten(s string, limit int) string {
	s = oneLine(s)
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	runes := []rune(s)
	head := (limit - 1) / 3
	tail := limit - 1 - head
	return string(runes[:head]) + "…" + string(runes[len(runes)-tail:])
}

func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(printable, strings.ToValidUTF8(s, ""))), " ")
}

// printable maps a character to the one to print, or to -1 for none.
func printable(r rune) rune {
	switch {
	case unicode.IsSpace(r), r == '\u2028', r == '\u2029':
		return ' '
	case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
		return -1
	}
	return r
}
