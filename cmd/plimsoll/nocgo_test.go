//go:build !cgo

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Built without cgo the program plans, checks and draws as ever, says what is missing for the rest, and trains with the reference
// kernels, which are Go.
func TestWithoutCgo(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "p.json")
	works(t, "plan", "-c", five, "--memory", "70%", "--strategy", "rotor-exact", "-o", p)
	works(t, "check", "-c", five, "-p", p)
	works(t, "trace", "-c", five, "-p", p, "-o", filepath.Join(t.TempDir(), "trace.json"))
	works(t, "frontier", "-c", five, "--strategy", "rotor-exact")
	works(t, "bench", "-c", five, "--strategy", "rotor", "--points", "2", "--out", t.TempDir())
	works(t, "plan", "-c", five, "--devices", "2", "--bandwidth", "1GB/s", "--strategy", "gpipe")
	if out := works(t, "devices").out; !strings.Contains(out, "built without cgo") {
		t.Errorf("devices does not say what is missing: %s", out)
	}
	job := []string{"-m", "tiny", "--batch", "4", "--image", "8", "--option", "profile.no-cache", "-q"}
	for _, command := range []string{"train", "validate"} {
		r := plimsoll(t, append([]string{command}, job...)...)
		if r.code != exitUsage || !strings.Contains(r.err, "built without cgo") || !strings.Contains(r.err, "--debug reference") {
			t.Errorf("%s: exit code %d: %s", command, r.code, r.err)
		}
	}
	r := plimsoll(t, append([]string{"train", "--debug", "reference", "--world", "2", "--option", "world.rank=0", "--option", "world.master=127.0.0.1:29400", "--transport", "mpi"}, job...)...)
	if r.code != exitUsage || !strings.Contains(r.err, "mpi: this program was built without cgo") || !strings.Contains(r.err, ", or use --transport tcp") {
		t.Errorf("--transport mpi: exit code %d: %s", r.code, r.err)
	}
	works(t, append([]string{"train", "--debug", "reference", "--steps", "1", "--memory", "100%"}, job...)...)
}
