//go:build cgo && linux

package nccl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/runtime/world/nccl/fake"
)

// A library that is no NCCL, or not one that can be used, is refused by one clear line.
func TestLibraries(t *testing.T) {
	// Serial: it sets environment variables.
	folder := t.TempDir()
	text := filepath.Join(folder, "text.so.2")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(folder, "missing.so.2"): "missing.so.2: cannot open shared object file",
		text:                                  "text.so.2: ",
		fake.Build(t, "FAKE_INCOMPLETE"):      "has no ncclCommAbort: it is no NCCL, or one before 2.18",
		fake.Build(t, "FAKE_VERSION=21605"):   "is NCCL 2.16.5, and 2.18 or later is needed",
		fake.Build(t, "FAKE_VERSION=2708"):    "is NCCL 2.7.8, and 2.18 or later is needed",
	} {
		t.Setenv(variable, path)
		_, err := Load()
		if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "in $"+variable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// NVIDIA's own library, which loads without a driver, has all that is called, and makes ids that differ. Where its header lies beside it,
// as in PyPI's wheel, our declarations are compared with it.
func TestRealLibrary(t *testing.T) {
	t.Parallel()
	path := os.Getenv(variable)
	if path == "" {
		t.Skip("no NCCL: give the path of a libnccl.so.2 in $" + variable + ", or use make test-nccl")
	}
	l, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("NCCL", l.Version())
	a, err := l.uniqueID()
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.uniqueID()
	if err != nil || len(a) != idBytes || bytes.Equal(a, b) {
		t.Errorf("ids %x and %x: %v", a, b, err)
	}
	compareHeader(t, filepath.Join(filepath.Dir(path), "..", "include"), l.Version())
}
