// Package fake builds libraries for tests that stand for cuDNN and cuBLAS on the emulated GPU. They check what they are
// given, and compute with plain loops.
//
// The environment variable FAKE_FAIL=CALL=STATUS makes a call fail, FAKE_WRONG=MISTAKE makes results wrong: see Mistakes in
// src/fake.h.
package fake

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed src
var sources embed.FS

// Library is one that Build makes.
type Library struct {
	Source  string   // "cudnn", "cublas"
	File    string   // "libcudnn.so.9"
	Defines []string // "FAKE_VERSION=91002"
}

// The libraries as they should be.
var (
	CuDNN  = Library{"cudnn", "libcudnn.so.9", []string{"FAKE_VERSION=91002"}}
	CuBLAS = Library{"cublas", "libcublas.so.12", []string{"FAKE_VERSION=12"}}
)

// Build compiles libraries and returns their folder. The test is skipped where there is no g++.
func Build(t testing.TB, libraries ...Library) string {
	t.Helper()
	folder := t.TempDir()
	BuildIn(t, folder, libraries...)
	return folder
}

// BuildIn compiles libraries into a folder.
func BuildIn(t testing.TB, folder string, libraries ...Library) {
	t.Helper()
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("needs g++")
	}
	if err := os.CopyFS(folder, sources); err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries {
		args := []string{"-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-o", filepath.Join(folder, l.File)}
		for _, d := range l.Defines {
			args = append(args, "-D"+d)
		}
		out, err := exec.Command(compiler, append(args, filepath.Join(folder, "src", l.Source+".cc"), "-ldl")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", l.File, err, out)
		}
	}
}
