//go:build cuda

package emulator

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// Results of driver calls that the tests name.
const (
	success        = 0
	invalidValue   = 1
	outOfMemory    = 2
	notInitialized = 3
	noBinary       = 209
	invalidContext = 201
	invalidHandle  = 400
	illegalState   = 401
	notFound       = 500
	notReady       = 600
	invalidPTX     = 218
	illegalAddress = 700
	outOfResources = 701
	launchTimeout  = 702
	misaligned     = 716
	launchFailed   = 719
	notSupported   = 801
	unsupported    = 900
	invalidated    = 901
	merge          = 902
	unmatched      = 903
	unjoined       = 904
	isolation      = 905
	implicit       = 906
	capturedEvent  = 907
	eccError       = 214
)

var built = struct {
	sync.Mutex
	dir   string
	paths map[bool]string
}{paths: map[bool]string{}}

func TestMain(m *testing.M) {
	if built.dir = os.Getenv("PLIMSOLL_EMULATOR_CACHE"); built.dir != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "emulator")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir) // of temporary files
	os.Exit(code)
}

// library builds the emulator with the test kernels, once. PLIMSOLL_EMULATOR_BUILD adds options to build.sh;
// PLIMSOLL_EMULATOR_CACHE is a folder for what it makes, to keep.
func library(t *testing.T, checked bool) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path, ok := built.paths[checked]; ok {
		return path
	}
	out := filepath.Join(built.dir, fmt.Sprintf("checked-%v", checked))
	args := append([]string{"./build.sh", out, "testdata"}, strings.Fields(os.Getenv("PLIMSOLL_EMULATOR_BUILD"))...)
	if checked {
		args = append(args, "--checked")
	}
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD=", "PLIMSOLL_EMULATOR_OBJECTS="+filepath.Join(built.dir, "objects"))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, text)
	}
	built.paths[checked] = filepath.Join(out, "libcuda.so.1")
	return built.paths[checked]
}

// gpu is an emulated machine of its own with a context on device 0, and the test's way to talk to it.
type gpu struct {
	*testing.T
	lib *Library
	out *Scratch // where calls put handles

	context, module, host, exec uint64
	allocated, streams, events  []uint64
}

// start loads a fresh copy of the emulator, with the environment given as NAME=VALUE without PLIMSOLL_EMULATOR_. The
// test stays on one thread, where its context is current.
func start(t *testing.T, checked bool, env ...string) *gpu {
	t.Helper()
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv("PLIMSOLL_EMULATOR_"+name, value)
	}
	lib, err := Open(copyFile(t, library(t, checked)))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	g := &gpu{T: t, lib: lib, out: NewScratch(64)}
	t.Cleanup(g.out.Free)
	g.ok("cuInit", 0)
	g.context = g.create("cuCtxCreate_v2", 0, 0)
	return g
}

func copyFile(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "libcuda.so.1")
	r, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // was only read
	w, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}

func (g *gpu) call(name string, args ...uint64) int { return int(int32(g.lib.Call(name, args...))) }

func (g *gpu) want(result int, name string, args ...uint64) {
	g.Helper()
	if got := g.call(name, args...); got != result {
		g.Fatalf("%s returns %d, want %d; findings: %q", name, got, result, g.findings())
	}
}

func (g *gpu) ok(name string, args ...uint64) {
	g.Helper()
	g.want(success, name, args...)
}

// create calls a function that puts a handle where its first parameter says.
func (g *gpu) create(name string, args ...uint64) uint64 {
	g.Helper()
	g.ok(name, append([]uint64{g.out.Address()}, args...)...)
	return Elements[uint64](g.out)[0]
}

func (g *gpu) text(s string) uint64 {
	p := NewScratch(len(s) + 1)
	g.Cleanup(p.Free)
	copy(p.Bytes(), s)
	return p.Address()
}

func (g *gpu) stream() uint64 {
	g.Helper()
	g.streams = append(g.streams, g.create("cuStreamCreate", 1))
	return g.streams[len(g.streams)-1]
}

func (g *gpu) event() uint64 {
	g.Helper()
	g.events = append(g.events, g.create("cuEventCreate", 0))
	return g.events[len(g.events)-1]
}

func (g *gpu) alloc(bytes int) uint64 {
	g.Helper()
	g.allocated = append(g.allocated, g.create("cuMemAlloc_v2", uint64(bytes)))
	return g.allocated[len(g.allocated)-1]
}

func (g *gpu) endCapture(stream uint64) uint64 {
	g.Helper()
	g.ok("cuStreamEndCapture", stream, g.out.Address())
	return Elements[uint64](g.out)[0]
}

// destroy releases what the helpers made, whatever the calls return, and then the context.
func (g *gpu) destroy() {
	g.Helper()
	for _, s := range g.streams {
		g.call("cuStreamDestroy_v2", s)
	}
	for _, e := range g.events {
		g.call("cuEventDestroy_v2", e)
	}
	for _, a := range g.allocated {
		g.call("cuMemFree_v2", a)
	}
	if g.module != 0 {
		g.call("cuModuleUnload", g.module)
	}
	g.ok("cuCtxDestroy_v2", g.context)
}

// pinned allocates page-locked host memory and returns its content as T.
func pinned[T any](g *gpu, count int) ([]T, uint64) {
	g.Helper()
	var t T
	at := g.create("cuMemHostAlloc", uint64(count)*uint64(unsafe.Sizeof(t)), 0)
	return unsafe.Slice((*T)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), count), at
}

// function loads the test kernels at the first call.
func (g *gpu) function(name string) uint64 {
	g.Helper()
	if g.module == 0 {
		ptx, err := os.ReadFile("testdata/basic.ptx")
		if err != nil {
			g.Fatal(err)
		}
		g.module = g.create("cuModuleLoadData", g.text(string(ptx)))
	}
	return g.create("cuModuleGetFunction", g.module, g.text(name))
}

// scaleArgs is struct scale_args of testdata/basic.h.
type scaleArgs struct {
	to, from    uint64
	factor, add float32
	count       int32
}

func (a scaleArgs) bytes() []byte {
	b := make([]byte, 32)
	binary.LittleEndian.PutUint64(b[0:], a.to)
	binary.LittleEndian.PutUint64(b[8:], a.from)
	binary.LittleEndian.PutUint32(b[16:], math.Float32bits(a.factor))
	binary.LittleEndian.PutUint32(b[20:], math.Float32bits(a.add))
	binary.LittleEndian.PutUint32(b[24:], uint32(a.count))
	return b
}

// shape is a launch's geometry: blocks, threads and bytes of dynamic shared memory.
type shape struct{ blocks, threads, shared int }

// tryLaunch launches a kernel whose argument is these bytes.
func (g *gpu) tryLaunch(stream uint64, name string, s shape, argument []byte) int {
	g.Helper()
	a := NewScratch(len(argument) + 8)
	defer a.Free()
	copy(a.Bytes()[8:], argument)
	Elements[uint64](a)[0] = a.Address() + 8
	return g.call("cuLaunchKernel", g.function(name), uint64(s.blocks), 1, 1, uint64(s.threads), 1, 1, uint64(s.shared),
		stream, a.Address(), 0)
}

func (g *gpu) launch(stream uint64, name string, s shape, argument []byte) {
	g.Helper()
	if result := g.tryLaunch(stream, name, s, argument); result != success {
		g.Fatalf("launch of %s returns %d", name, result)
	}
}

func (g *gpu) upload(to uint64, values []float32) {
	g.Helper()
	p := NewScratch(4 * len(values))
	defer p.Free()
	copy(Elements[float32](p), values)
	g.ok("cuMemcpyHtoD_v2", to, p.Address(), uint64(4*len(values)))
}

func (g *gpu) download(from uint64, count int) []float32 {
	g.Helper()
	p := NewScratch(4 * count)
	defer p.Free()
	g.ok("cuMemcpyDtoH_v2", p.Address(), from, uint64(4*count))
	return append([]float32(nil), Elements[float32](p)...)
}

// findings returns them, a line each.
func (g *gpu) findings() []string {
	n := g.lib.Call("plimsollEmulatorFindings", 0, 0)
	p := NewScratch(int(n) + 1)
	defer p.Free()
	g.lib.Call("plimsollEmulatorFindings", p.Address(), n+1)
	return strings.FieldsFunc(string(p.Bytes()[:n]), func(r rune) bool { return r == '\n' })
}

// wantFinding wants at least one finding, and every one to hold all of these texts.
func (g *gpu) wantFinding(texts ...string) {
	g.Helper()
	all := g.findings()
	if len(all) == 0 {
		g.Fatalf("no finding, want one with %q", texts)
	}
	for _, f := range all {
		for _, text := range texts {
			if !strings.Contains(f, text) {
				g.Errorf("finding %q has no %q", f, text)
			}
		}
	}
}

func (g *gpu) wantNoFinding() {
	g.Helper()
	for _, f := range g.findings() {
		g.Errorf("finding: %s", f)
	}
}

func ramp(count int) []float32 {
	values := make([]float32, count)
	for i := range values {
		values[i] = float32(i)
	}
	return values
}
