//go:build cuda

package emulator

import (
	"os"
	"regexp"
	"testing"
)

// Every function that cuda.h declares is there, under the name that its version has.
func TestExportsEverythingInTheHeader(t *testing.T) {
	text, err := os.ReadFile("../include/cuda.h")
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define (cu\w+) (cu\w+)$`).FindAllSubmatch(text, -1) {
		versions[string(m[1])] = string(m[2])
	}
	lib, err := Open(copyFile(t, library(t, false)))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, m := range regexp.MustCompile(`(?m)^CUresult (cu\w+)\(`).FindAllSubmatch(text, -1) {
		name := string(m[1])
		if v, ok := versions[name]; ok {
			name = v
		}
		seen++
		if !lib.Has(name) {
			t.Errorf("%s is missing", name)
		}
	}
	if seen < 161 { // as many as gorgonia.org/cu uses
		t.Errorf("the header declares %d functions, want at least 161", seen)
	}
}
