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

package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/konveyor/agentrun-fleet/fleet/text"
)

// maxLogValue bounds each value in the log, and each message, in characters.
const maxLogValue = 1024

// setLogger has all that is logged in this process, by client-go too, go through one
// logger that bounds foreign text: libraries log what members answer and what objects there
// are called.
func setLogger(o *zap.Options) {
	logger := newLogger(o)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}

func newLogger(o *zap.Options, more ...zap.Opts) logr.Logger {
	bounded := uberzap.WrapCore(func(core zapcore.Core) zapcore.Core { return boundedCore{core} })
	return zap.New(append([]zap.Opts{zap.UseFlagOptions(o), zap.RawZapOpts(bounded)}, more...)...)
}

// boundedCore keeps each message and value to one line of at most maxLogValue characters,
// without control and formatting characters.
type boundedCore struct{ zapcore.Core }

// With binds fields.
func (c boundedCore) With(fields []zapcore.Field) zapcore.Core {
	return boundedCore{c.Core.With(boundedFields(fields))}
}

// Check has this core write what the one inside would.
func (c boundedCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write writes an entry.
func (c boundedCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	entry.Message = text.Shorten(entry.Message, maxLogValue)
	return c.Core.Write(entry, boundedFields(fields))
}

func boundedFields(fields []zapcore.Field) []zapcore.Field {
	out := make([]zapcore.Field, len(fields))
	for i, field := range fields {
		out[i] = boundedField(field)
	}
	return out
}

func boundedField(field zapcore.Field) zapcore.Field {
	switch field.Type {
	case zapcore.StringType:
		return uberzap.String(field.Key, text.Shorten(field.String, maxLogValue))
	case zapcore.ErrorType, zapcore.StringerType, zapcore.ReflectType, zapcore.ByteStringType,
		zapcore.ObjectMarshalerType, zapcore.InlineMarshalerType, zapcore.ArrayMarshalerType:
		return boundedValue(field)
	}
	return field // a number, a time, or nothing
}

// boundedValue keeps what is short and clean as it is.
func boundedValue(field zapcore.Field) zapcore.Field {
	if object, ok := field.Interface.(runtime.Object); ok {
		return boundedObject(field.Key, object)
	}
	values := zapcore.NewMapObjectEncoder()
	field.AddTo(values)
	if s, ok := values.Fields[field.Key].(string); ok {
		return uberzap.String(field.Key, text.Shorten(s, maxLogValue))
	}
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(values.Fields[field.Key]); err != nil {
		return uberzap.String(field.Key, "cannot be written")
	}
	plain := strings.TrimSuffix(written.String(), "\n")
	if short := text.Shorten(escaped.ReplaceAllString(plain, ""), maxLogValue); short != plain {
		return uberzap.String(field.Key, short)
	}
	return field
}

// escaped are the control characters in JSON.
var escaped = regexp.MustCompile(`\\u[0-9a-f]{4}`)

// boundedObject names an object: the rest of it may be a Secret's.
func boundedObject(key string, object runtime.Object) zapcore.Field {
	named, err := meta.Accessor(object)
	if err != nil {
		return uberzap.String(key, "an object without a name")
	}
	return uberzap.Any(key, map[string]string{
		"namespace": text.Shorten(named.GetNamespace(), maxLogValue),
		"name":      text.Shorten(named.GetName(), maxLogValue),
	})
}
