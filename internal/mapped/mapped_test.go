package mapped

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, text := range []string{"", "a", string(make([]byte, 10000))} {
		path := filepath.Join(dir, "x")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Open(path); err != nil || string(got) != text {
			t.Errorf("%d bytes of %d: %v", len(got), len(text), err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := Open(path); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}
