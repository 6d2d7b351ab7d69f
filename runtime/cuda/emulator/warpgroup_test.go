//go:build cuda

package emulator

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// side is the number of rows, columns and inner indices of a product of four warps. Each row of A and column of B has 128 bytes of bfloat16.
const side = 64

var warpgroup = shape{1, 128, 2*2*side*side + 4096}

// Planted faults of the kernel warpgroup, as in testdata/warpgroup.cu.
const (
	noWait = 1 + iota
	noProxyFence
	noFence
	refill
	misalignedMatrix
	noSwizzle
	warpsDiffer
	lanesDiffer
	beyond
	lateFence
	across // no fault: see transposed
)

// swizzled lays out rows of bfloat16 as wgmma reads them: of row r, vector v of eight values is at v ^ r%8.
func swizzled(rows []float32) []byte {
	b := make([]byte, 2*len(rows))
	for i, x := range rows {
		r, k := i/side, i%side
		binary.LittleEndian.PutUint16(b[128*r+16*(k/8^r%8)+2*(k%8):], uint16(math.Float32bits(x)>>16))
	}
	return b
}

// transposed exchanges rows and inner indices.
func transposed(rows []float32) []float32 {
	t := make([]float32, len(rows))
	for i, x := range rows {
		t[i%side*side+i/side] = x
	}
	return t
}

// multiplied returns the rows of the kernel's product with a fault; left and right are bytes of shared memory.
func multiplied(g *gpu, left, right []byte, s shape, fault float32) []float32 {
	g.Helper()
	bytes := append(slices.Clone(left), right...)
	values := make([]float32, len(bytes)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	from, to := g.alloc(len(bytes)), g.alloc(4*side*side)
	g.upload(from, values)
	g.upload(to, make([]float32, side*side))
	g.launch(0, "warpgroup", s, scaleArgs{to, from, 1, fault, 0}.bytes())
	if g.call("cuCtxSynchronize") != success {
		return nil
	}
	return g.download(to, side*side)
}

// integers returns small ones, which products of float32 add up exactly.
func integers(seed int) []float32 {
	v := make([]float32, side*side)
	for i := range v {
		v[i] = float32((i*i*seed+i/7)%13 - 6)
	}
	return v
}

// TestWarpgroupsMultiply: the sums of a product are there once it is waited for, and not before.
func TestWarpgroupsMultiply(t *testing.T) {
	left, right := integers(3), integers(5)
	want := make([]float32, side*side)
	for i := range want {
		for k := range side {
			want[i] += left[i/side*side+k] * right[i%side*side+k]
		}
	}
	for _, checked := range []bool{false, true} {
		g := start(t, checked)
		if got := multiplied(g, swizzled(left), swizzled(right), warpgroup, 0); !slices.Equal(got, want) {
			t.Errorf("checked %v: the product is wrong: %v", checked, got)
		}
		if got := multiplied(g, swizzled(transposed(left)), swizzled(transposed(right)), warpgroup, across); !slices.Equal(got, want) {
			t.Errorf("checked %v: the product of factors that lie across is wrong: %v", checked, got)
		}
		if got := multiplied(g, swizzled(left), swizzled(right), warpgroup, noWait); !slices.Equal(got, make([]float32, side*side)) {
			t.Errorf("checked %v: sums are there before the wait", checked)
		}
		g.wantNoFinding()
	}
}

// TestSwizzleIsTheISAs: with the unit matrix on the other side, one value at a byte of shared memory is one value of the result.
func TestSwizzleIsTheISAs(t *testing.T) {
	unit := make([]float32, side*side)
	for i := range side {
		unit[i*side+i] = 1
	}
	for _, c := range []struct{ at, row, k int }{
		{0, 0, 0},
		{2, 0, 1},
		{16, 0, 8},
		{128 + 16, 1, 0},              // row 1 has its vectors 0 and 1 exchanged
		{7*128 + 7*16 + 6, 7, 3},      // row 7 has them in reverse
		{7*128 + 14, 7, 63},           // the last value is in the first vector
		{1024 + 128 + 48 + 10, 9, 21}, // row 1 of the second atom, vector 2 at 3, value 5
		{7*1024 + 4*128 + 16, 60, 40}, // row 4 of the last atom, vector 5 at 1
	} {
		bytes := make([]byte, 2*side*side)
		binary.LittleEndian.PutUint16(bytes[c.at:], 0x3f80)
		g := start(t, false)
		for which, got := range [][]float32{
			multiplied(g, bytes, swizzled(unit), warpgroup, 0), multiplied(g, swizzled(unit), bytes, warpgroup, 0),
		} {
			want := make([]float32, side*side)
			want[[]int{c.row*side + c.k, c.k*side + c.row}[which]] = 1
			if !slices.Equal(got, want) {
				t.Errorf("factor %d: byte %d is %d values elsewhere than row %d, inner index %d", which, c.at, slices.Index(got, 1), c.row, c.k)
			}
		}
		g.wantNoFinding()
	}
}

// TestWarpgroupsAreChecked: each planted fault is a finding.
func TestWarpgroupsAreChecked(t *testing.T) {
	matrix := swizzled(integers(1))
	small, half := warpgroup, warpgroup
	small.shared, half.threads = 2*2*side*side, 64
	for name, c := range map[string]struct {
		s      shape
		fault  float32
		result int
		text   string
	}{
		"no proxy fence":         {warpgroup, noProxyFence, launchFailed, "without a fence.proxy.async behind"},
		"a proxy fence in front": {warpgroup, lateFence, launchFailed, "without a fence.proxy.async behind"},
		"no fence":               {warpgroup, noFence, launchFailed, "no wgmma.fence is in front of the first product"},
		"refill":                 {warpgroup, refill, launchFailed, "writes to shared memory that a product under way reads"},
		"misaligned":             {warpgroup, misalignedMatrix, launchFailed, "does not begin at a multiple of 1024 bytes"},
		"no swizzle":             {warpgroup, noSwizzle, launchFailed, "no swizzle of 128 bytes"},
		"warps differ":           {warpgroup, warpsDiffer, launchFailed, "begin different products"},
		"lanes differ":           {warpgroup, lanesDiffer, launchFailed, "other descriptors in another lane"},
		"beyond the row":         {warpgroup, beyond, launchFailed, "does not begin at a multiple of 1024 bytes"},
		"too little memory":      {small, 0, illegalAddress, "of 16384 bytes of dynamic shared memory"},
		"half a group":           {half, 0, notSupported, "wants whole groups of four warps"},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, false)
			multiplied(g, matrix, matrix, c.s, c.fault)
			g.want(c.result, "cuCtxSynchronize")
			g.wantFinding(c.text)
		})
	}
}

// TestTargetsAreOfTheGPU: PTX for an older GPU is loaded, and PTX for one capability alone on that one only.
func TestTargetsAreOfTheGPU(t *testing.T) {
	for _, c := range []struct {
		capability, target string
		result             int
	}{{"90", "sm_75", success}, {"90", "sm_90a", success}, {"89", "sm_90a", noBinary}, {"100", "sm_90a", noBinary}, {"89", "sm_90", noBinary}, {"100", "sm_90", success}} {
		t.Run(c.capability+" "+c.target, func(t *testing.T) {
			g := start(t, false, "CAPABILITY="+c.capability)
			g.want(c.result, "cuModuleLoadData", g.out.Address(), g.text(".version 8.0\n.target "+c.target+"\n.visible .entry warpgroup() { ret; }\n"))
		})
	}
}
