package cuda

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plimsoll/kernels/cuda/sources"
)

// TestPTXIsFresh: the PTX was compiled from the sources as they are, for what they are to be compiled for.
func TestPTXIsFresh(t *testing.T) {
	all, err := sources.Read(os.DirFS("src"))
	if err != nil {
		t.Fatal(err)
	}
	hash, err := os.ReadFile(filepath.Join("ptx", sources.HashFile))
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(hash)) != all.Hash() {
		t.Error("the sources have changed since their PTX was made: run make kernels")
	}
	for _, name := range all.Modules() {
		text, err := os.ReadFile(filepath.Join("ptx", name+".ptx"))
		if err != nil {
			t.Error(err)
			continue
		}
		target := strings.Replace(sources.Architecture(name), "compute_", ".target sm_", 1)
		if !strings.Contains(string(text), target) {
			t.Errorf("%s.ptx is not for %s", name, target)
		}
		if !strings.HasPrefix(string(text), ".version "+sources.PTXVersion+"\n") || strings.Contains(string(text), "used_bytes_mask") {
			t.Errorf("%s.ptx is not for drivers of CUDA 12.0", name)
		}
		if n := len(regexp.MustCompile(`(?m)^\.visible \.entry `).FindAll(text, -1)); n == 0 {
			t.Errorf("%s.ptx has no kernels", name)
		}
	}
}
