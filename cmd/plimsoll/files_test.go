package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestMakeableLeavesNothingAndRefusesWhatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := makeable(filepath.Join(dir, "a", "b")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := []string{filepath.Join(file, "x")}
	if runtime.GOOS == "linux" {
		bad = append(bad, "/proc/x") // not even root can write there
	}
	for _, path := range bad {
		if err := makeable(path); err == nil {
			t.Errorf("%s was accepted", path)
		}
	}
}
