//go:build cuda

package emulator

import (
	"encoding/binary"
	"testing"
	"unsafe"
)

func TestKernelsCompute(t *testing.T) {
	const count = 1000
	cases := []struct {
		kernel string
		s      shape
	}{
		{"scale", shape{4, 256, 0}},
		{"block_sum", shape{4, 256, 0}},
		{"warp_sum", shape{4, 256, 32}},
	}
	for _, checked := range []bool{false, true} {
		g := start(t, checked)
		from, to := g.alloc(4*count), g.alloc(4*count)
		g.upload(from, ramp(count))
		for _, c := range cases {
			g.launch(0, c.kernel, c.s, scaleArgs{to, from, 2, 1, count}.bytes())
			for i, v := range g.download(to, 4) {
				if want := expect(c.kernel, i, count); v != want {
					t.Errorf("%s: element %d is %v, want %v", c.kernel, i, v, want)
				}
			}
		}
		g.wantNoFinding()
	}
}

// expect returns the number that a kernel writes into element i, for a ramp.
func expect(kernel string, i, count int) float32 {
	if kernel == "scale" {
		return 2*float32(i) + 1
	}
	var sum float32
	for j := 256 * i; j < 256*(i+1) && j < count; j++ {
		sum += float32(j)
	}
	return sum
}

func TestLaneIntrinsics(t *testing.T) {
	g := start(t, false)
	to := g.alloc(4 * 8 * 32)
	g.launch(0, "lanes", shape{1, 32, 0}, binary.LittleEndian.AppendUint64(nil, to))
	got := g.download(to, 8*32)
	ints := unsafe.Slice((*int32)(unsafe.Pointer(&got[0])), len(got))
	for lane := range 32 {
		up, down := lane-3, lane+3
		if up < 0 {
			up = lane
		}
		if down > 31 {
			down = lane
		}
		want := [8]int{5, up, down, lane ^ 8, lane/8*8 + 2, 11, 1, 0}
		for i, w := range want {
			if int(ints[8*lane+i]) != w {
				t.Errorf("lane %d, result %d is %d, want %d", lane, i, ints[8*lane+i], w)
			}
		}
	}
}

func TestAtomicsCount(t *testing.T) {
	g := start(t, false, "PROCESSORS=4")
	at := g.alloc(64)
	g.ok("cuMemsetD32_v2", at, 0, 16)
	var args []byte
	for _, offset := range []uint64{0, 4, 8, 16} {
		args = binary.LittleEndian.AppendUint64(args, at+offset)
	}
	const blocks, threads = 1000, 128
	g.launch(0, "count", shape{blocks, threads, 0}, args)
	p := NewScratch(20)
	defer p.Free()
	g.ok("cuMemcpyDtoH_v2", p.Address(), at, 20)
	ints, all := Elements[int32](p), blocks*threads
	if int(ints[0]) != all || Elements[float32](p)[1] != float32(all) || int(ints[2]) != all || int(ints[4]) != all-1 {
		t.Errorf("counters %v, want %d", ints, all)
	}
}

// TestGridsBeyondTheLimits: a driver refuses grids of more blocks than an axis may have.
func TestGridsBeyondTheLimits(t *testing.T) {
	g := start(t, false)
	from, to := g.alloc(64), g.alloc(64)
	argument := scaleArgs{to, from, 2, 1, 1}.bytes()
	a := NewScratch(len(argument) + 8)
	defer a.Free()
	copy(a.Bytes()[8:], argument)
	Elements[uint64](a)[0] = a.Address() + 8
	for _, c := range []struct {
		x, y, z uint64
		want    int
	}{
		{1, 1<<16 - 1, 1, success}, {1, 1, 1<<16 - 1, success},
		{1, 1 << 16, 1, invalidValue}, {1, 1, 1 << 16, invalidValue}, {1, 0, 1, invalidValue},
	} {
		stream := g.create("cuStreamCreate", 1) // a refused call on a stream that goes on would be a finding
		if got := g.call("cuLaunchKernel", g.function("scale"), c.x, c.y, c.z, 1, 1, 1, 0, stream, a.Address(), 0); got != c.want {
			t.Errorf("a grid of %d x %d x %d blocks: %d, want %d", c.x, c.y, c.z, got, c.want)
		}
	}
	g.ok("cuCtxSynchronize")
}
