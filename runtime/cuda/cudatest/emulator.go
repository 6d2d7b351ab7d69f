//go:build cuda && linux && amd64

package cudatest

// #include <stddef.h>
// #include <stdint.h>
// #include <stdlib.h>
//
// static int fail(void *f, const char *faults) { return ((int (*)(const char *))f)(faults); }
// static void call(void *f) { ((void (*)(void))f)(); }
// static void last_blocks(void *f, uint64_t n) { ((void (*)(uint64_t))f)(n); }
// static int checked(void *f) { return ((int (*)(void))f)(); }
// static uint64_t count(void *f, const char *name) { return ((uint64_t (*)(const char *))f)(name); }
// static size_t findings(void *f, char *text, size_t bytes) { return ((size_t (*)(char *, size_t))f)(text, bytes); }
import "C"

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"plimsoll/runtime/cuda/driver"
)

// Emulated reports whether the driver is the emulated one.
func Emulated() bool { return driver.Symbol("plimsollEmulatorFail") != nil }

// Fail makes calls fail until the test ends: "cuMemAlloc:2=2" makes the second call from now return 2 (see
// emulator/emulator.h).
func Fail(t testing.TB, faults string) {
	t.Helper()
	text := C.CString(faults)
	defer C.free(unsafe.Pointer(text))
	if C.fail(symbol(t, "plimsollEmulatorFail"), text) != 0 {
		t.Fatalf("the emulated driver does not understand %q", faults)
	}
	t.Cleanup(func() { C.call(symbol(t, "plimsollEmulatorFailClear")) })
}

// Count returns how often a function of the driver was called, without the _v2 of its name.
func Count(t testing.TB, name string) int {
	t.Helper()
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return int(C.count(symbol(t, "plimsollEmulatorCount"), text))
}

// Launches returns how often a kernel was launched or captured in this process on the emulated driver; 0 on another.
func Launches(kernel string) int {
	if !Emulated() {
		return 0
	}
	text := C.CString("kernel " + kernel)
	defer C.free(unsafe.Pointer(text))
	return int(C.count(driver.Symbol("plimsollEmulatorCount"), text))
}

// Checked reports whether the driver is the emulated one that watches every access, which takes much memory.
func Checked() bool { return Emulated() && C.checked(driver.Symbol("plimsollEmulatorChecked")) != 0 }

// LastBlocks makes launches of more than n blocks run their last ones only, until the test ends. A real GPU runs them all.
func LastBlocks(t testing.TB, n uint64) {
	t.Helper()
	if f := driver.Symbol("plimsollEmulatorLastBlocks"); f != nil {
		C.last_blocks(f, C.uint64_t(n))
		t.Cleanup(func() { C.last_blocks(f, 0) })
	}
}

// Judge returns the exit code of a package's tests: 1 instead of 0 when the emulated driver has found something wrong,
// which it prints. For TestMain.
func Judge(code int) int {
	f := driver.Symbol("plimsollEmulatorFindings")
	if f == nil {
		return code
	}
	text := found(f)
	fmt.Print(text)
	if text != "" && code == 0 {
		code = 1
	}
	return code
}

// Findings returns the errors that the emulated driver has found so far, a line each, and forgets them.
func Findings(t testing.TB) []string {
	t.Helper()
	text := found(symbol(t, "plimsollEmulatorFindings"))
	C.call(symbol(t, "plimsollEmulatorFindingsClear"))
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

func found(f unsafe.Pointer) string {
	n := C.findings(f, nil, 0)
	text := (*C.char)(C.calloc(1, n+1))
	defer C.free(unsafe.Pointer(text))
	C.findings(f, text, n+1)
	return C.GoString(text)
}

// Finish has the emulated driver look for what is left in contexts that are never destroyed; Findings has it then.
func Finish(t testing.TB) {
	t.Helper()
	C.call(symbol(t, "plimsollEmulatorFinish"))
}

func symbol(t testing.TB, name string) unsafe.Pointer {
	t.Helper()
	p := driver.Symbol(name)
	if p == nil {
		t.Skipf("needs the emulated driver: the driver has no %s", name)
	}
	return p
}
