package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The committed notices are those of what is linked now.
func TestCurrent(t *testing.T) {
	t.Parallel()
	var now strings.Builder
	if err := run(&now); err != nil {
		if exec.Command("go", "list", "-deps", "-tags", "cuda highs", "plimsoll/cmd/plimsoll").Run() != nil {
			t.Skipf("the modules of builds with CUDA and HiGHS cannot be had here: %v", err)
		}
		t.Fatal(err)
	}
	const file = "../../THIRD_PARTY_NOTICES"
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(committed) != now.String() {
		t.Errorf("%s is not current: make notices", file)
	}
	for _, want := range []string{"github.com/spf13/cobra", "gorgonia.org/cu", "Go's standard library", "HiGHS", "CC BY 4.0"} {
		if !strings.Contains(now.String(), want) {
			t.Errorf("no notice of %s", want)
		}
	}
}

// A license that the project does not take is an error, and so is none.
func TestOtherLicenses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "LICENSE")
	for text, want := range map[string]string{
		"Mozilla Public License Version 2.0":           "neither MIT, BSD nor Apache 2.0",
		"The FreeType Project LICENSE":                 "neither MIT",
		"Apache License\nVersion 2.0":                  "",
		"Permission is hereby granted, free of charge": "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		licensed := map[string]bool{}
		err := add(map[string]*part{}, "m", file, licensed)
		if want == "" != (err == nil) || want == "" != licensed["m"] || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, licensed %v", text, err, licensed)
		}
	}
}
