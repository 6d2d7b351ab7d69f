package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plimsoll/kernels/cuda/resources"
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
	if stale := all.Stale(string(hash)); len(stale) > 0 || string(hash) != all.Hashes(nil) {
		t.Errorf("the sources of %v have changed since their PTX was made: run make kernels", stale)
	}
	for _, name := range all.Modules() {
		text, err := sources.ReadPTX(os.DirFS("ptx"), name)
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

// TestUpdatesAreNotContracted: the PTX of modules without contraction rounds each product and each sum of float32 by itself. Each of these
// instructions names its rounding mode, because NVIDIA's assembler fuses products and sums that name none.
func TestUpdatesAreNotContracted(t *testing.T) {
	all, err := sources.Read(os.DirFS("src"))
	if err != nil {
		t.Fatal(err)
	}
	joined := regexp.MustCompile(`(?m)^\s*(fma|mad)\S*\.f32|^\s*(mul|add|sub)\.f(32|64)`)
	var exact []string
	for _, name := range all.Modules() {
		text, err := sources.ReadPTX(os.DirFS("ptx"), name)
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

// TestPTXAssembles: NVIDIA's assembler takes every kernel for every GPU since the oldest. No kernel spills registers, has a local array,
// serializes wgmma, or takes more registers or fewer resident threads than resources.txt says. `make test-ptxas` fetches the assembler; -update writes the table.
func TestPTXAssembles(t *testing.T) {
	ptxas := os.Getenv("PLIMSOLL_PTXAS")
	if ptxas == "" {
		ptxas = "ptxas"
	}
	if _, err := exec.LookPath(ptxas); err != nil {
		t.Skipf("needs NVIDIA's ptxas (in PATH, or named by PLIMSOLL_PTXAS): %v", err)
	}
	version, err := exec.Command(ptxas, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := resources.Committed()
	if err != nil {
		t.Fatal(err)
	}
	a := &assembly{T: t, ptxas: ptxas, allowed: allowed, has: &resources.Table{Version: resources.Version(string(version)), Rows: map[string]resources.Row{}}}
	all, err := sources.Read(os.DirFS("src"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range all.Modules() {
		for _, g := range resources.GPUs {
			if arch := assembledFor(module, g); arch != "" {
				a.assemble(module, g, arch)
			}
		}
	}
	t.Logf("%d kernels assembled", a.assembled)
	if least := 80 * len(resources.GPUs); a.assembled < least {
		t.Errorf("%d kernels assembled, want at least %d", a.assembled, least)
	}
	if *rewrite {
		if err := os.WriteFile(filepath.Join("resources", "resources.txt"), []byte(a.has.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if a.has.Version == allowed.Version && len(a.has.Rows) != len(allowed.Rows) {
		t.Errorf("the table of resources has %d kernels, the PTX has %d: run with -update", len(allowed.Rows), len(a.has.Rows))
	}
}

// assembledFor returns the architecture that a module is assembled for on a generation; "": the generation does not run it.
func assembledFor(module string, g resources.GPU) string {
	switch needs := sources.Architecture(module); {
	case needs == "compute_90a" && g.Name == resources.Hopper.Name:
		return "sm_90a"
	case needs == "compute_90a", needs != "compute_75" && g.Name == "sm_75":
		return ""
	}
	return g.Name
}

// serialized is in each warning of the assembler that products by wgmma wait for each other, or for a wait that it puts in.
const serialized = "(C75"

// assembly compares what an assembler reports with the table.
type assembly struct {
	*testing.T
	ptxas        string
	allowed, has *resources.Table
	assembled    int
}

func (a *assembly) assemble(module string, g resources.GPU, arch string) {
	path := filepath.Join(a.TempDir(), module+".ptx")
	text, err := sources.ReadPTX(os.DirFS("ptx"), module)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		a.Fatal(err)
	}
	threads, err := resources.Threads(string(text))
	if err != nil {
		a.Fatalf("%s: %v", path, err)
	}
	report, err := exec.Command(a.ptxas, "-v", "-arch", arch, "-o", os.DevNull, path).CombinedOutput()
	if err != nil {
		a.Errorf("%s for %s: %v: %s", module, g.Name, err, report)
	}
	if strings.Contains(string(report), serialized) {
		a.Errorf("%s for %s: %s", module, arch, report)
	}
	all := resources.Parse(string(report))
	if len(all) != len(threads) {
		a.Errorf("%s for %s: the report has %d kernels, the PTX has %d", module, g.Name, len(all), len(threads))
	}
	a.assembled += len(all)
	for _, k := range all {
		a.has.Add(module, g, k, threads[k.Name])
		allowed := a.allowed
		if *rewrite {
			allowed = a.has
		}
		for _, wrong := range allowed.Judge(module, a.has.Version, g, k, threads[k.Name]) {
			a.Error(wrong)
		}
	}
}
