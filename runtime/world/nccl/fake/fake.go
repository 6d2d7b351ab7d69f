// Package fake builds a libnccl.so.2 for tests: see src/nccl.c.
package fake

import (
	"cmp"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed src/nccl.c
var source string

// Variable is the environment's, which asks for a fault.
const Variable = "PLIMSOLL_NCCL_FAKE"

// Build compiles the library with definitions, as FAKE_INCOMPLETE, which leaves out a function, and returns its path.
func Build(t testing.TB, defines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	args := []string{"-std=gnu11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-x", "c", "-", "-o", path, "-ldl"}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	c := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), args...)
	c.Stdin = strings.NewReader(source)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}
