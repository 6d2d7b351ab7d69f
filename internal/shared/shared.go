// Package shared finds, for tests, the folder of oracles and known answers that lies beside the repository.
package shared

import (
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of a file or folder of the shared folder; a test that asks for a missing one is skipped.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(append([]string{filepath.Dir(root), "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared folder beside the repository: %v", err)
	}
	return path
}

// repository returns the folder of go.mod above the working directory, which for a test is its package's.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}
