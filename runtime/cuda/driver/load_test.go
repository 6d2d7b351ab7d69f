//go:build cuda && linux && amd64

package driver_test

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"plimsoll/runtime/cuda/driver"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A function without a slot would be an undefined symbol, which NVML's linker flags let pass.
func TestSymbolsAreThoseOfTheHeader(t *testing.T) {
	header := read(t, "../include/cuda.h")
	versioned := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define (cu\w+) (cu\w+)$`).FindAllStringSubmatch(header, -1) {
		versioned[m[1]] = m[2]
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^CUresult (cu\w+)\(`).FindAllStringSubmatch(header, -1) {
		name := m[1]
		if v, ok := versioned[name]; ok {
			name = v
		}
		want = append(want, name)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^SYMBOL\((\w+)\)$`).FindAllStringSubmatch(read(t, "symbols.h"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	if len(want) < 161 || !slices.Equal(got, want) {
		t.Errorf("%d symbols, %d prototypes; they differ, or are out of order", len(got), len(want))
	}
}

// The program must start where there is no NVIDIA file, and call nothing that nobody defines.
func TestTheProgramLinksNoNVIDIALibrary(t *testing.T) {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries {
		if !regexp.MustCompile(`^(libc|libdl|libpthread|libm|libresolv|libgcc_s|ld-linux-x86-64)\.so`).MatchString(l) {
			t.Errorf("it needs %s", l)
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Skipf("a stripped program: %v", err)
	}
	defined := 0
	for _, s := range symbols {
		if !regexp.MustCompile(`^cu[A-Z]`).MatchString(s.Name) {
			continue
		}
		if s.Section == elf.SHN_UNDEF {
			t.Errorf("%s is not defined", s.Name)
		}
		defined++
	}
	if defined < 161 {
		t.Errorf("it defines %d functions of the driver", defined)
	}
}

// elsewhere runs the test that calls it again, in a process whose driver is the file named.
func elsewhere(t *testing.T, library string) (here bool) {
	t.Helper()
	if os.Getenv("DRIVER_TEST_CHILD") != "" {
		return true
	}
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), "DRIVER_TEST_CHILD=1", driver.LibraryVariable+"="+library)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func TestBeforeLoadCallsSaySo(t *testing.T) {
	if !elsewhere(t, "/nowhere/libcuda.so.1") {
		return
	}
	if _, err := cu.NumDevices(); err != cu.NotInitialized {
		t.Errorf("cuDeviceGetCount: %v", err)
	}
}

func TestWithoutADriverThereAreNoDevices(t *testing.T) {
	if !elsewhere(t, "/nowhere/libcuda.so.1") {
		return
	}
	s := driver.Load()
	if !errors.Is(s.Err, driver.ErrNoDriver) || s.Devices != 0 || s.Version != 0 {
		t.Errorf("%+v", s)
	}
	for _, part := range []string{"/nowhere/libcuda.so.1", "No such file", driver.LibraryVariable} {
		if !strings.Contains(s.Err.Error(), part) || strings.Contains(s.Err.Error(), "\n") {
			t.Errorf("%q does not say %q on one line", s.Err, part)
		}
	}
	if n, err := cu.NumDevices(); n != 0 || err != nil {
		t.Errorf("%d devices, %v", n, err)
	}
	if _, err := cu.GetDevice(0); err != cu.NoDevice {
		t.Errorf("cuDeviceGet: %v", err)
	}
	if driver.Symbol("cuInit") != nil {
		t.Error("a symbol of no library")
	}
}

// The C library is a library without any function of the driver.
func TestAFileThatIsNoDriverIsRefused(t *testing.T) {
	if !elsewhere(t, "libc.so.6") {
		return
	}
	s := driver.Load()
	if s.Err == nil || s.Missing < 161 || !strings.Contains(s.Err.Error(), "CUDA_ERROR_NOT_FOUND") && !strings.Contains(s.Err.Error(), "500") {
		t.Errorf("%+v", s)
	}
}

// fake compiles a driver from testdata.
func fake(t *testing.T, flags ...string) string {
	t.Helper()
	if os.Getenv("DRIVER_TEST_CHILD") != "" {
		return ""
	}
	out := t.TempDir() + "/libcuda.so.1"
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if b, err := exec.Command(cc, append(flags, "-shared", "-fPIC", "-o", out, "testdata/old.c")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
}

func TestAnOldDriverIsRefused(t *testing.T) {
	if !elsewhere(t, fake(t)) {
		return
	}
	s := driver.Load()
	if !errors.Is(s.Err, driver.ErrOldDriver) || s.Devices != 0 || s.Missing == 0 {
		t.Errorf("%+v", s)
	}
	for _, part := range []string{"11.4", "12.0", "update"} {
		if !strings.Contains(s.Err.Error(), part) {
			t.Errorf("%q does not say %q", s.Err, part)
		}
	}
	// A function that the library lacks.
	if _, err := cu.GetDevice(0); err != cu.NotFound {
		t.Errorf("cuDeviceGet: %v", err)
	}
}

func TestADriverWithoutDevicesSaysWhy(t *testing.T) {
	if !elsewhere(t, fake(t, "-DNO_DEVICE")) {
		return
	}
	s := driver.Load()
	if !errors.Is(s.Err, driver.ErrNoDevice) || s.Devices != 0 || !strings.Contains(s.Err.Error(), "cuInit") {
		t.Errorf("%+v", s)
	}
	if _, err := cu.GetDevice(0); err != cu.NoDevice {
		t.Errorf("cuDeviceGet: %v", err)
	}
}
