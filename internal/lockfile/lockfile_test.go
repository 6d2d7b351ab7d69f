package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

type here struct{}

func (here) Lstat(name string) (os.FileInfo, error) { return os.Lstat(name) }

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // some are closed before
	return f
}

// One open file has the lock, until it is closed.
func TestOneHoldsTheLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := Try(first); errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := Try(first); err != nil {
		t.Errorf("once more: %v", err)
	}
	if err := Try(second); !errors.Is(err, ErrHeld) {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Try(second); err != nil {
		t.Errorf("after the first one: %v", err)
	}
	if err := Try(first); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("a closed file: %v", err)
	}
}

// A lock of a file that nobody can find any more is none.
func TestNames(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	f := open(t, path)
	if !Names(here{}, path, f) {
		t.Error("a new file is another")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if Names(here{}, path, f) {
		t.Error("a removed file is still there")
	}
	open(t, path)
	if Names(here{}, path, f) {
		t.Error("another file is the removed one")
	}
}
