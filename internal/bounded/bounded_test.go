package bounded

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// endless gives zeros for ever and counts them.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.n += int64(len(p))
	return len(p), nil
}

func TestWhatIsReadIsBounded(t *testing.T) {
	t.Parallel()
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

// A pipe is read like a file; one that nobody writes into is refused at once.
func TestPipes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := exec.Command("mkfifo", path).Run(); err != nil {
		t.Skip("no mkfifo: ", err)
	}
	var refused *fs.PathError
	if _, err := ReadFile(path); !errors.As(err, &refused) || refused.Path != path || !errors.Is(err, errNoWriter) {
		t.Errorf("%v", err)
	}
	hold, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // what is written stays until it is read
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("sh", "-c", "echo text >"+path).Run(); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(path); err != nil || string(text) != "text\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := hold.Close(); err != nil {
		t.Error(err)
	}
}
