package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// TestUpdatesAreNotContracted: the PTX of modules without contraction rounds each product and each sum of float32 by itself, and says so,
// as NVIDIA's assembler joins those that do not say how they are rounded.
func TestUpdatesAreNotContracted(t *testing.T) {
	all, err := sources.Read(os.DirFS("src"))
	if err != nil {
		t.Fatal(err)
	}
	joined := regexp.MustCompile(`(?m)^\s*(fma|mad)\S*\.f32|^\s*(mul|add|sub)\.f(32|64)`)
	var exact []string
	for _, name := range all.Modules() {
		text, err := os.ReadFile(filepath.Join("ptx", name+".ptx"))
		if err != nil {
			t.Fatal(err)
		}
		if all.Options(name) == nil {
			continue
		}
		exact = append(exact, name)
		if line := joined.Find(text); line != nil {
			t.Errorf("%s.ptx has %q", name, line)
		}
	}
	if strings.Join(exact, " ") != "update" {
		t.Errorf("modules without contraction: %q, want update", exact)
	}
}

// architectures are those that the PTX is assembled for: one of each generation since Turing.
var architectures = []string{"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100"}

// TestPTXAssembles: NVIDIA's assembler takes every kernel for every GPU since the oldest, and none spills registers or
// has more shared memory than a block may declare. `make test-ptxas` fetches the assembler.
func TestPTXAssembles(t *testing.T) {
	ptxas := os.Getenv("PLIMSOLL_PTXAS")
	if ptxas == "" {
		ptxas = "ptxas"
	}
	if _, err := exec.LookPath(ptxas); err != nil {
		t.Skipf("needs NVIDIA's ptxas (in PATH, or named by PLIMSOLL_PTXAS): %v", err)
	}
	all, err := sources.Read(os.DirFS("src"))
	if err != nil {
		t.Fatal(err)
	}
	assembled := 0
	for _, module := range all.Modules() {
		for _, arch := range architectures {
			if arch == "sm_75" && sources.Architecture(module) != "compute_75" {
				continue
			}
			report, err := exec.Command(ptxas, "-v", "-arch", arch, "-o", os.DevNull, filepath.Join("ptx", module+".ptx")).CombinedOutput()
			if err != nil {
				t.Errorf("%s for %s: %v: %s", module, arch, err, report)
			}
			assembled += checkAssembly(t, module+" for "+arch, string(report))
		}
	}
	t.Logf("%d kernels assembled", assembled)
	if least := 80 * len(architectures); assembled < least {
		t.Errorf("%d kernels assembled, want at least %d", assembled, least)
	}
}

// mostStatic is the shared memory that a block may declare, in bytes.
const mostStatic = 48 << 10

// slowPaths are kernels whose frame is not a spill: the double cosine reduces large angles in a local array.
var slowPaths = map[string]bool{"rotary_table": true}

// checkAssembly reads what ptxas says of each kernel, and returns how many there are.
func checkAssembly(t *testing.T, what, report string) int {
	t.Helper()
	kernels := regexp.MustCompile(`Function properties for (\w+)\n\s*(.*)\n.*Used \d+ registers(.*)`).FindAllStringSubmatch(report, -1)
	for _, k := range kernels {
		frame := !strings.HasPrefix(k[2], "0 bytes stack frame") && !slowPaths[k[1]]
		if frame || !strings.HasSuffix(k[2], "0 bytes spill stores, 0 bytes spill loads") {
			t.Errorf("%s: %s has %s", what, k[1], k[2])
		}
		smem := regexp.MustCompile(`(\d+) bytes smem`).FindStringSubmatch(k[3])
		if smem == nil {
			continue
		}
		if bytes, err := strconv.Atoi(smem[1]); err != nil || bytes > mostStatic {
			t.Errorf("%s: %s has %s bytes of shared memory, a block may declare %d", what, k[1], smem[1], mostStatic)
		}
	}
	return len(kernels)
}
