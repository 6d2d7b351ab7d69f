//go:build cuda

package emulator

import (
	"math"
	"testing"
)

// Events: a wait is for the latest record at the time of the call, and one that was never recorded is complete.
func TestEventSemantics(t *testing.T) {
	g := start(t, false)
	busy, other, e, f := g.stream(), g.stream(), g.event(), g.event()
	at := g.alloc(4)
	g.ok("cuEventQuery", e)
	g.ok("cuStreamWaitEvent", other, e, 0)
	g.ok("cuStreamSynchronize", other)
	g.want(invalidHandle, "cuEventElapsedTime", g.out.Address(), e, f)

	g.ok("cuEventRecord", f, other)
	g.launch(busy, "spin", shape{1, 1, 0}, scaleArgs{at, 0, 1, 0, 30_000_000}.bytes())
	g.ok("cuEventRecord", e, busy)
	g.want(notReady, "cuEventQuery", e)
	g.want(notReady, "cuStreamQuery", busy)
	g.want(notReady, "cuEventElapsedTime", g.out.Address(), f, e)
	g.ok("cuStreamWaitEvent", other, e, 0)
	g.ok("cuEventRecord", e, other) // behind the wait: the wait was for the record before
	g.ok("cuEventSynchronize", e)
	g.ok("cuStreamQuery", busy)
	g.ok("cuEventElapsedTime", g.out.Address(), f, e)
	if ms := Elements[float32](g.out)[0]; ms <= 0 || ms > 60_000 {
		t.Errorf("%v ms between the events", ms)
	}
	untimed := g.create("cuEventCreate", 2)
	g.ok("cuEventRecord", untimed, other)
	g.want(invalidHandle, "cuEventElapsedTime", g.out.Address(), e, untimed)
	g.want(invalidHandle, "cuEventQuery", 12345)
	g.wantNoFinding()
}

// A chain of copies over two streams and two devices, ordered by events, arrives whole under every chaos.
func TestChaosKeepsTheOrderOfEvents(t *testing.T) {
	const rounds, count = 10, 256
	for _, seed := range []string{"CHAOS=1", "CHAOS=2", "CHAOS=3"} {
		g := start(t, true, seed, "DEVICES=2")
		first := g.alloc(4 * count)
		s, e := g.stream(), g.event()
		other := g.create("cuCtxCreate_v2", 0, 1)
		second := g.alloc(4 * count)
		u, f := g.stream(), g.event()
		g.ok("cuCtxSetCurrent", g.context)
		g.upload(first, ramp(count))
		for range rounds {
			g.launch(s, "scale", shape{1, count, 0}, scaleArgs{first, first, 1, 1, count}.bytes())
			g.ok("cuEventRecord", e, s)
			g.ok("cuStreamWaitEvent", u, e, 0)
			g.ok("cuMemcpyPeerAsync", second, other, first, g.context, 4*count, u)
			g.ok("cuMemsetD32Async", first, 0, count, u)
			g.ok("cuMemcpyPeerAsync", first, g.context, second, other, 4*count, u)
			g.ok("cuCtxSetCurrent", other)
			g.ok("cuEventRecord", f, u)
			g.ok("cuCtxSetCurrent", g.context)
			g.ok("cuStreamWaitEvent", s, f, 0)
		}
		g.ok("cuStreamSynchronize", s)
		for i, v := range g.download(first, count) {
			if v != float32(i+rounds) {
				t.Fatalf("element %d is %v, want %d", i, v, i+rounds)
			}
		}
		g.wantNoFinding()
	}
}

func TestPeerCopiesNameTheContextsOfTheirAddresses(t *testing.T) {
	g := start(t, false, "DEVICES=2")
	first := g.alloc(64)
	other := g.create("cuCtxCreate_v2", 0, 1)
	second := g.alloc(64)
	g.ok("cuMemcpyPeerAsync", second, other, first, g.context, 64, g.stream())
	g.want(invalidValue, "cuMemcpyPeerAsync", second, g.context, first, other, 64, g.stream())
	g.want(invalidValue, "cuMemcpyPeer", second, 0, first, 0, 64)
	g.ok("cuCtxSynchronize")
}

// Blocking streams and the default stream wait for each other, the others do not.
func TestDefaultStreamBlocks(t *testing.T) {
	g := start(t, true, "CHAOS=5")
	blocking := g.create("cuStreamCreate", 0)
	a, b := g.alloc(4*planes), g.alloc(4*planes)
	for range 10 {
		g.ok("cuMemsetD32Async", a, 0x3f800000, planes, blocking)
		g.launch(0, "scale", planeShape, scaleArgs{b, a, 2, 0, planes}.bytes())
		g.launch(blocking, "scale", planeShape, scaleArgs{a, b, 3, 0, planes}.bytes())
	}
	g.ok("cuStreamSynchronize", 0)
	for _, v := range g.download(a, planes) {
		if v != 6 {
			t.Fatalf("%v, want 6", v)
		}
	}
	g.wantNoFinding()
	free := g.stream()
	g.ok("cuMemsetD32Async", a, 0, planes, free)
	g.ok("cuCtxSynchronize")
	g.ok("cuMemsetD32Async", a, 0, planes, 0)
	g.ok("cuMemsetD32Async", a, 0, planes, free)
	g.ok("cuCtxSynchronize")
	g.wantFinding("unordered", "fill of 2048 bytes")
}

func TestMemory(t *testing.T) {
	g := start(t, true, "MEMORY=1048576")
	free := func() int {
		g.ok("cuMemGetInfo_v2", g.out.Address(), g.out.Address()+8)
		if total := Elements[uint64](g.out)[1]; total != 1<<20 {
			t.Fatalf("total is %d", total)
		}
		return int(Elements[uint64](g.out)[0])
	}
	a := g.alloc(1 << 19)
	g.want(outOfMemory, "cuMemAlloc_v2", g.out.Address(), 1<<19+1)
	g.want(invalidValue, "cuMemAlloc_v2", g.out.Address(), 0)
	b := g.alloc(1<<19 - 511)
	if free() != 0 {
		t.Errorf("%d bytes free, want 0", free())
	}
	for _, v := range g.download(b, 8) {
		if !math.IsNaN(float64(v)) {
			t.Errorf("new memory holds %v, want poison", v)
		}
	}
	g.ok("cuMemFree_v2", a)
	if free() != 1<<19 {
		t.Errorf("%d bytes free, want half", free())
	}
	values, at := pinned[float32](g, 4)
	copy(values, ramp(4))
	g.ok("cuMemcpyHtoD_v2", b, at, 16)
	g.ok("cuMemcpyDtoD_v2", b+16, b, 16)
	if got := g.download(b, 8); got[7] != 3 || got[4] != 0 || got[3] != 3 {
		t.Errorf("%v", got)
	}
	g.wantNoFinding()
	g.want(invalidValue, "cuMemcpyDtoD_v2", b, a, 16) // a was freed
	g.wantFinding("of 16 bytes at byte 0 of allocation 0 (524288 bytes) of emulated device 0, which was released")
	g.want(invalidValue, "cuMemFree_v2", a)
}

// An invalid launch, attribute, module or name of a function is refused at the call.
func TestLaunchValidation(t *testing.T) {
	g := start(t, false)
	at := g.alloc(4096)
	args := scaleArgs{at, at, 1, 0, 1}.bytes()
	cases := []struct {
		name, kernel string
		s            shape
		want         int
	}{
		{"no block", "scale", shape{0, 32, 0}, invalidValue},
		{"no thread", "scale", shape{1, 0, 0}, invalidValue},
		{"more threads than a block has", "scale", shape{1, 1025, 0}, invalidValue},
		{"beyond the launch bounds", "spin", shape{1, 129, 0}, outOfResources},
		{"at the launch bounds", "spin", shape{1, 128, 0}, success},
		{"more shared memory than the default", "scale", shape{1, 1, 48<<10 + 1}, invalidValue},
		{"all of the default", "scale", shape{1, 1, 48 << 10}, success},
		{"more blocks than a grid has", "scale", shape{1 << 31, 1, 0}, invalidValue},
	}
	for _, c := range cases {
		if got := g.tryLaunch(g.stream(), c.kernel, c.s, args); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	f := g.function("scale")
	g.want(invalidValue, "cuFuncSetAttribute", f, 8, 227<<10+1)
	g.ok("cuFuncSetAttribute", f, 8, 227<<10)
	if got := g.tryLaunch(0, "scale", shape{1, 1, 227 << 10}, args); got != success {
		t.Errorf("opted in: %d", got)
	}
	g.want(noBinary, "cuModuleLoadData", g.out.Address(), g.text(".visible .entry nobody() {}"))
	g.want(invalidPTX, "cuModuleLoadData", g.out.Address(), g.text(".visible .entry scale() { ret; }\nxx"))
	g.want(notFound, "cuModuleGetFunction", g.out.Address(), g.module, g.text("nobody"))
}

// Kernels that must not come through end the context; the finding says where its threads wait.
func TestKernelsThatFail(t *testing.T) {
	cases := []struct {
		kernel  string
		want    int
		finding string
	}{
		{"deadlock", launchTimeout, "32 threads wait for ever, thread (0,0,0) of block (0,0,0) in __syncthreads at basic.cu:"},
		{"divergent", success, "divergent __syncthreads in kernel divergent"},
		{"trap", launchFailed, ""},
	}
	for _, c := range cases {
		t.Run(c.kernel, func(t *testing.T) {
			g := start(t, true)
			at, s := g.alloc(4096), g.stream()
			g.launch(s, c.kernel, shape{1, 64, 0}, scaleArgs{at, at, 1, 0, 0}.bytes())
			g.want(c.want, "cuStreamSynchronize", s)
			g.want(c.want, "cuMemGetInfo_v2", g.out.Address(), g.out.Address()+8)
			if c.finding == "" {
				g.wantNoFinding()
			} else {
				g.wantFinding(c.finding)
			}
		})
	}
}

// A race of lanes that only a __syncwarp orders.
func TestWarpFence(t *testing.T) {
	for _, fence := range []float32{0, 1} {
		g := start(t, true)
		from, to := g.alloc(128), g.alloc(128)
		g.upload(from, ramp(32))
		g.launch(0, "warp_swap", shape{1, 32, 0}, scaleArgs{to, from, 1, fence, 32}.bytes())
		if fence == 0 {
			g.ok("cuCtxSynchronize")
			g.wantFinding("race in a block", "warp_swap", "shared memory")
			continue
		}
		for i, v := range g.download(to, 32) {
			if v != float32(i^1) {
				t.Errorf("lane %d has %v", i, v)
			}
		}
		g.wantNoFinding()
	}
}

// Injected failures come when they were asked for, and as on a real GPU.
func TestInjectedFailures(t *testing.T) {
	g := start(t, false, "DEVICES=2", "FAIL=cuMemAlloc:2=2")
	g.alloc(64)
	g.want(outOfMemory, "cuMemAlloc_v2", g.out.Address(), 64)
	at := g.alloc(64)
	if g.lib.Call("plimsollEmulatorFail", g.text("nonsense")) == 0 {
		t.Error("a fault that is none is accepted")
	}
	g.ok("plimsollEmulatorFail", g.text("copy:2=214"))
	s := g.stream()
	_, host := pinned[byte](g, 64)
	g.ok("cuMemcpyHtoDAsync_v2", at, host, 64, s)
	g.ok("cuStreamSynchronize", s)
	g.ok("cuMemcpyHtoDAsync_v2", at, host, 64, s)
	g.want(eccError, "cuStreamSynchronize", s)
	g.want(eccError, "cuCtxSynchronize")
	g.want(eccError, "cuCtxCreate_v2", g.out.Address(), 0, 0)
	g.create("cuCtxCreate_v2", 0, 1) // the other device lives
	g.ok("cuMemFree_v2", g.alloc(64))
	if n := g.lib.Call("plimsollEmulatorCount", g.text("copy")); n != 2 {
		t.Errorf("%d copies counted, want 2", n)
	}
}

func TestCallsWithoutContext(t *testing.T) {
	lib, err := Open(copyFile(t, library(t, false)))
	if err != nil {
		t.Fatal(err)
	}
	p := NewScratch(64)
	defer p.Free()
	if got := lib.Call("cuDeviceGetCount", p.Address()); got != notInitialized {
		t.Errorf("before cuInit: %d", got)
	}
	lib.Call("cuInit", 0)
	if got := lib.Call("cuMemAlloc_v2", p.Address(), 64); got != invalidContext {
		t.Errorf("without a context: %d", got)
	}
	if got := lib.Call("cuTexRefSetFlags", 0, 0); got != notSupported {
		t.Errorf("what is not emulated: %d", got)
	}
	lib.Call("cuDeviceGetName", p.Address(), 64, 0)
	if got := string(p.Bytes()[:21]); got != "Plimsoll emulated GPU" {
		t.Errorf("the name is %q", got)
	}
}
