// Package shared finds, for tests, files of the repository and the folder of oracles and known answers that lies beside it.
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

// Chains returns the folder of the chains that documents use, or of one of its files.
func Chains(t testing.TB, elem ...string) string {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{root, "docs", "chains"}, elem...)...)
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
