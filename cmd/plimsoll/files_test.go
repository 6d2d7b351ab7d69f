package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// --out is made when it is opened and gone again when nothing was written into it; what cannot be one is refused.
func TestOutFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var errs bytes.Buffer
	a := &app{stderr: &stream{Writer: &errs}}
	path := filepath.Join(dir, "a")
	f, err := (&outFlags{path: path}).open(t.Context(), a, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&outFlags{path: path}).open(t.Context(), a, ""); !isInput(err) || !strings.Contains(err.Error(), "--option out.wait") {
		t.Errorf("a second one: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if f, err := (&outFlags{}).open(t.Context(), a, ""); f != nil || err != nil {
		t.Errorf("without --out: %v, %v", f, err)
	}
	bad := []string{filepath.Join(write(t, filepath.Join(dir, "file"), ""), "x"), filepath.Join(dir, "file")}
	if runtime.GOOS == "linux" {
		bad = append(bad, "/proc/x") // not even root can write there
	}
	for _, path := range bad {
		if _, err := (&outFlags{path: path}).open(t.Context(), a, ""); !isInput(err) || !strings.Contains(err.Error(), "--out "+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if errs.Len() > 0 {
		t.Errorf("notes: %s", errs.String())
	}
}
