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
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decodeKubeconfig checks the shape of the YAML before any of it is interpreted.
func decodeKubeconfig(raw []byte) (*kubeconfigFile, error) {
	if len(raw) > maxKubeconfigBytes {
		return nil, fmt.Errorf("kubeconfig is larger than %d bytes: keep only the member's own context in it", maxKubeconfigBytes)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errors.New("kubeconfig is empty: put a kubeconfig there")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("kubeconfig is not YAML%s: put a kubeconfig there", atLine(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("kubeconfig holds more than one YAML document: keep one")
	}
	nodes := 0
	if err := checkNode(&document, 0, &nodes); err != nil {
		return nil, err
	}
	strict := yaml.NewDecoder(bytes.NewReader(raw))
	strict.KnownFields(true)
	file := &kubeconfigFile{}
	if err := strict.Decode(file); err != nil {
		return nil, fmt.Errorf("kubeconfig has a field that no kubeconfig has, or a value of the wrong type%s: correct it", atLine(err))
	}
	if (file.Kind != "" && file.Kind != "Config") || (file.APIVersion != "" && file.APIVersion != "v1") {
		return nil, errors.New("fields apiVersion and kind: want v1 and Config: put a kubeconfig there")
	}
	return file, nil
}

// checkNode refuses what lets a small document mean a large or an ambiguous one.
func checkNode(node *yaml.Node, depth int, nodes *int) error {
	*nodes++
	switch {
	case depth > maxKubeconfigDepth || *nodes > maxKubeconfigNodes:
		return fmt.Errorf("kubeconfig line %d: nests deeper than %d or has more than %d values: keep only the member's own context in it",
			node.Line, maxKubeconfigDepth, maxKubeconfigNodes)
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return fmt.Errorf("kubeconfig line %d: YAML anchors and aliases are refused: write the value out", node.Line)
	case node.Style&yaml.TaggedStyle != 0:
		return fmt.Errorf("kubeconfig line %d: YAML tags are refused: write the plain value", node.Line)
	}
	if node.Kind == yaml.MappingNode {
		if err := checkKeys(node); err != nil {
			return err
		}
	}
	for _, child := range node.Content {
		if err := checkNode(child, depth+1, nodes); err != nil {
			return err
		}
	}
	return nil
}

func checkKeys(mapping *yaml.Node) error {
	seen := map[string]bool{}
	for i := 0; i < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || key.Value == "<<":
			return fmt.Errorf("kubeconfig line %d: a key must be a plain word: correct it", key.Line)
		case seen[key.Value]:
			return fmt.Errorf("kubeconfig line %d: the same key stands there twice: keep one", key.Line)
		}
		seen[key.Value] = true
	}
	return nil
}

// atLine keeps the line number of a YAML error and drops the rest, which quotes the document.
func atLine(err error) string {
	if typed := (&yaml.TypeError{}); errors.As(err, &typed) && len(typed.Errors) > 0 {
		err = errors.New(typed.Errors[0])
	}
	var line int
	text := err.Error()
	if i := strings.Index(text, "line "); i >= 0 {
		if _, scanErr := fmt.Sscanf(text[i:], "line %d", &line); scanErr == nil {
			return fmt.Sprintf(" at line %d", line)
		}
	}
	return ""
}
