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
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/onsi/gomega"
)

// orphanEnv turns the test program into one that starts a control plane and waits
// to be killed.
const orphanEnv = "HARNESS_TEST_ORPHAN"

func TestAControlPlaneDoesNotOutliveItsKilledProgram(t *testing.T) {
	g := NewGomega(t)
	cmd := exec.Command(os.Args[0])
	// The folder stays behind, as the log of a crash should.
	cmd.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(cmd.Start()).To(gomega.Succeed())
	var server, etcd string
	_, err = fmt.Fscanln(bufio.NewReader(out), &server, &etcd)
	g.Expect(cmd.Process.Kill()).To(gomega.Succeed())
	g.Expect(cmd.Wait()).NotTo(gomega.Succeed(), "it was killed")
	g.Expect(err).NotTo(gomega.HaveOccurred(), "the program tells its addresses")

	g.Expect(awaitClosed(t.Context(), server)).To(gomega.Succeed())
	g.Expect(awaitClosed(t.Context(), etcd)).To(gomega.Succeed())
}

// awaitKill starts a control plane, prints its addresses and waits for ever.
func awaitKill() {
	cp, err := Start(context.Background(), Options{Name: "orphan"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(cp.Addr(), cp.env.ControlPlane.Etcd.URL.Host)
	select {}
}
