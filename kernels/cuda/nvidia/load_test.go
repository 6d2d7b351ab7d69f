//go:build cuda && linux && amd64

package nvidia_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/kernels/cuda/nvidia/fake"
)

// TestLoad: what fits is loaded, from where and in which version it says; anything else is refused in one line that says
// what to do.
func TestLoad(t *testing.T) {
	good := fake.Build(t, fake.CuDNN, fake.CuBLAS)
	all, err := nvidia.Load(nvidia.Require, nvidia.Search{Folders: []string{good}})
	if err != nil {
		t.Fatal(err)
	}
	if all.DNN.Version != "9.10.2" || all.BLAS.Version != "12.6.4" || all.DNN.Path != filepath.Join(good, "libcudnn.so.9") || all.BLAS.Path != filepath.Join(good, "libcublas.so.12") {
		t.Errorf("loaded %+v, %+v", all.DNN, all.BLAS)
	}
	if all, err := nvidia.Load(nvidia.Refuse, nvidia.Search{Folders: []string{good}}); err != nil || all.DNN != nil || all.BLAS != nil {
		t.Errorf("refused: %+v, %v", all, err)
	}
	cases := 0
	for _, c := range []struct {
		library fake.Library
		says    string
	}{
		{fake.Library{Source: "cudnn", File: "libcudnn.so.9", Defines: []string{"FAKE_VERSION=8907"}}, "libcudnn.so.9 is cuDNN 8.9.7, and version 9"},
		{fake.Library{Source: "cudnn", File: "libcudnn.so.9", Defines: []string{"FAKE_VERSION=100000"}}, "cuDNN 10.0.0"},
		{fake.Library{Source: "cudnn", File: "libcudnn.so.9", Defines: []string{"FAKE_VERSION=90100", "FAKE_INCOMPLETE"}}, "has no cudnnConvolutionForward"},
		{fake.Library{Source: "cublas", File: "libcublas.so.12", Defines: []string{"FAKE_VERSION=11"}}, "cuBLAS 11.6.4, and version 12"},
		{fake.Library{Source: "cudnn", File: "libcublas.so.12", Defines: []string{"FAKE_VERSION=90100"}}, "has no cublasGetProperty"},
	} {
		s := nvidia.Search{Folders: []string{fake.Build(t, c.library)}}
		refused(t, c.library.File, s, c.says)
		cases++
	}
	junk := t.TempDir()
	for _, file := range []string{"libcudnn.so.9", "libcublas.so.12"} {
		if err := os.WriteFile(filepath.Join(junk, file), []byte("no library"), 0o666); err != nil {
			t.Fatal(err)
		}
		refused(t, file, nvidia.Search{Folders: []string{junk}}, "cannot be loaded")
		refused(t, file, nvidia.Search{Folders: []string{filepath.Join(junk, "none")}}, "is not a folder")
		cases++
	}
	if cases != 7 {
		t.Errorf("%d cases", cases)
	}
}

// refused fails unless a library is refused, noted with Prefer and an error with Require.
func refused(t *testing.T, file string, s nvidia.Search, says string) {
	t.Helper()
	load := func() error {
		_, err := nvidia.LoadBLAS(s)
		return err
	}
	if file == "libcudnn.so.9" {
		load = func() error {
			_, err := nvidia.LoadDNN(s)
			return err
		}
	}
	err := load()
	if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "--debug vendor") {
		t.Errorf("%s: %v; want %q", file, err, says)
	}
	if all, err := nvidia.Load(nvidia.Prefer, s); err != nil || len(all.Missing()) == 0 {
		t.Errorf("preferred: %+v, %v", all, err)
	}
	if _, err := nvidia.Load(nvidia.Require, s); err == nil {
		t.Errorf("required: %s is accepted", says)
	}
}

// TestFailingProperty: a cuBLAS that cannot say its version.
func TestFailingProperty(t *testing.T) {
	s := nvidia.Search{Folders: []string{fake.Build(t, fake.CuBLAS)}}
	t.Setenv("FAKE_FAIL", "cublasGetProperty=7")
	if _, err := nvidia.LoadBLAS(s); err == nil || !strings.Contains(err.Error(), "cublasGetProperty: FAKE_INVALID_VALUE (7)") {
		t.Errorf("%v", err)
	}
}
