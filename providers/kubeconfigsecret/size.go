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
	"reflect"
	"time"
)

// perObject is what an informer needs for an object beside it, in bytes: its key, its place
// in the store and in the indexes.
const perObject = 512

// sizeOf estimates what a cache's object takes, in bytes.
func sizeOf(o any) int64 {
	return perObject + beyond(reflect.ValueOf(o))
}

var timeType = reflect.TypeFor[time.Time]()

// beyond is what a value takes outside of itself.
func beyond(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + beyond(v.Elem()) //nolint:gosec // a size in memory
	case reflect.Slice:
		size := int64(v.Cap()) * int64(v.Type().Elem().Size()) //nolint:gosec // a size in memory
		return size + elements(v)
	case reflect.Array:
		return elements(v)
	case reflect.Map:
		return entries(v)
	case reflect.Struct:
		return structFields(v)
	}
	return 0
}

func elements(v reflect.Value) int64 {
	var size int64
	if holdsNothing(v.Type().Elem().Kind()) {
		return 0
	}
	for i := range v.Len() {
		size += beyond(v.Index(i))
	}
	return size
}

func holdsNothing(k reflect.Kind) bool {
	return k <= reflect.Complex128 // booleans and numbers
}

func entries(v reflect.Value) int64 {
	if v.Len() == 0 {
		return 0
	}
	// A map has slots by eights, of which some are empty, and some bytes of its own.
	slots := int64(max(8, 2*v.Len()))
	size := 64 + slots*int64(v.Type().Key().Size()+v.Type().Elem().Size()) //nolint:gosec // a size in memory
	for each := v.MapRange(); each.Next(); {
		size += beyond(each.Key()) + beyond(each.Value())
	}
	return size
}

func structFields(v reflect.Value) int64 {
	if v.Type() == timeType { // the time zone it points to is shared
		return 0
	}
	var size int64
	for _, field := range v.Fields() {
		size += beyond(field)
	}
	return size
}
