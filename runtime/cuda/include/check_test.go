// Package include has NVIDIA's interface in our words, cuda.h, and what compares it with NVIDIA's own file.
package include

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newer is our header as a later version of CUDA might have it: a function has a new version under its name, and the old one stays.
func newer(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("cuda.h")
	if err != nil {
		t.Fatal(err)
	}
	return replaced(t, string(text),
		"#define CUDA_VERSION 12060", "#define CUDA_VERSION 13000",
		"#define cuCtxCreate cuCtxCreate_v2", "#define cuCtxCreate cuCtxCreate_v4",
		"CUresult cuCtxCreate(CUcontext *, unsigned, CUdevice);", `CUresult cuCtxCreate(CUcontext *, void *, unsigned, CUdevice);
#ifdef __CUDA_API_VERSION_INTERNAL
#undef cuCtxCreate
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
#endif`)
}

// replaced replaces texts, each of which must be there.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(text, pairs[i]) != 1 {
			t.Fatalf("the header has %q %d times", pairs[i], strings.Count(text, pairs[i]))
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// TestCheck: the check takes a header with newer versions of functions that we call by their old names. It refuses a header that lacks a
// function, or that has another old version, value or size.
func TestCheck(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	for name, c := range map[string]struct {
		from, to string
		want     string // of the output; "": the check passes
	}{
		"a newer version":     {"", "", ""},
		"another old version": {"CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);", "CUresult cuCtxCreate_v2(CUcontext *, CUdevice, unsigned long);", "cuCtxCreate_v2"},
		"no old version":      {"CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);", "", "cuCtxCreate_v2"},
		"another value":       {"CU_CTX_MAP_HOST = 8,", "CU_CTX_MAP_HOST = 9,", "CU_CTX_MAP_HOST == 8"},
		"no such function":    {"CUresult cuInit(unsigned);", "", "cuInit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := newer(t)
			if c.from != "" {
				text = replaced(t, text, c.from, c.to)
			}
			theirs := filepath.Join(t.TempDir(), "cuda.h")
			if err := os.WriteFile(theirs, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("sh", "check.sh", theirs).CombinedOutput()
			if c.want == "" {
				if err != nil || !strings.Contains(string(out), "newer there: cuCtxCreate_v4, we call cuCtxCreate_v2") {
					t.Errorf("%v\n%s", err, out)
				}
			} else if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, want a complaint about %s\n%s", err, c.want, out)
			}
		})
	}
}
