//go:build cuda && linux && amd64

package nvidia

import (
	"errors"
	"path/filepath"
	"testing"
	"unsafe"
)

// TestNowhere: a library that no place has is missing; one in Python's folders is tried, and its error told, when the
// places before have none.
func TestNowhere(t *testing.T) {
	const name = "libplimsoll-none.so.1"
	accept := func(unsafe.Pointer, string) error { return errors.New("accepted") }
	if err := (Search{}).load([]string{name}, "None 1", "none", accept); !errors.Is(err, ErrMissing) {
		t.Errorf("%v", err)
	}
	site := t.TempDir()
	path := touch(t, filepath.Join(site, "nvidia", "none", "lib"), name)
	err := Search{Python: []string{site}}.load([]string{name}, "None 1", "none", accept)
	if err == nil || errors.Is(err, ErrMissing) || err.Error()[:len(path)] != path {
		t.Errorf("%v, want it to begin with %s", err, path)
	}
}
