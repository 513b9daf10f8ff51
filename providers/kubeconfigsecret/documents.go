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

// maxValues bounds the values of one JSON document, an object or a page of such or an event of a
// watch. What is decoded takes a thousand times the bytes that came where these are but "{},{},{}".
// An honest object of 1.5 MiB has fewer.
const maxValues = 128 << 10

var errTooManyValues = &failure{reason: ReasonUnreachable, tooLong: true, message: "An answer of the API server is made of too many values"}

// documents counts the values in a stream of JSON documents.
type documents struct {
	inString, escaped bool
	depth, values     int
}

// read goes on with the stream. What is not JSON is for the decoder to refuse.
func (d *documents) read(p []byte) error {
	for _, b := range p {
		switch {
		case d.escaped:
			d.escaped = false
		case d.inString:
			d.inString, d.escaped = b != '"', b == '\\'
		case b == '"':
			d.inString = true
		case b == '{', b == '[':
			d.depth++
			d.values++
		case b == ',':
			d.values++
		case b == '}', b == ']':
			if d.depth--; d.depth <= 0 {
				d.depth, d.values = 0, 0
			}
		}
		if d.values > maxValues {
			return errTooManyValues
		}
	}
	return nil
}
