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

package harness

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// signToken signs claims with the key that the API server signs ServiceAccount
// tokens with. TokenRequest cannot make a token that has expired.
func (cp *ControlPlane) signToken(claims map[string]any) (string, error) {
	file := cp.path("certs/sa-signer.key")
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return "", err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return "", fmt.Errorf("%s holds a %T, want an ECDSA key", file, parsed)
	}
	return signES256(key, claims)
}

// signES256 makes a JSON Web Token (RFC 7515, RFC 7518).
func signES256(key *ecdsa.PrivateKey, claims map[string]any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature), nil
}

// tokenClaims are those of a ServiceAccount's token that expires at a given time,
// and was issued an hour before that or before now.
func (cp *ControlPlane) tokenClaims(namespace, name, uid string, expires time.Time) map[string]any {
	issued := time.Now()
	if expires.Before(issued) {
		issued = expires
	}
	issued = issued.Add(-time.Hour)
	return map[string]any{
		"iss": cp.URL() + "/",
		"aud": []string{cp.URL() + "/"},
		"sub": "system:serviceaccount:" + namespace + ":" + name,
		"iat": issued.Unix(),
		"nbf": issued.Unix(),
		"exp": expires.Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      namespace,
			"serviceaccount": map[string]any{"name": name, "uid": uid},
		},
	}
}
