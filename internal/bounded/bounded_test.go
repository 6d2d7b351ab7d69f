package bounded

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// endless gives zeros for ever and counts them.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.n += int64(len(p))
	return len(p), nil
}

func TestWhatIsReadIsBounded(t *testing.T) {
	dir := t.TempDir()
	small, large := filepath.Join(dir, "small"), filepath.Join(dir, "large")
	if err := os.WriteFile(small, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(small); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, 1<<33)); err != nil {
		t.Fatal(err)
	}
	var size *SizeError
	for _, path := range []string{large, "/dev/zero"} {
		if _, err := ReadFile(path); !errors.As(err, &size) || size.Name != path {
			t.Errorf("%s: %v", path, err)
		}
	}
	e := &endless{}
	if _, err := ReadAll(e, "standard input"); !errors.As(err, &size) || size.Name != "standard input" || e.n > 3*Most {
		t.Errorf("%v after %d bytes", err, e.n)
	}
	if text, err := ReadAll(bytes.NewReader(nil), "nothing"); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := ReadFile(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ReadFile(dir); err == nil {
		t.Error("a folder was read")
	}
}
