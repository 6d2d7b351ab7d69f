//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/kernels/cuda/resources"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
)

// withWarpgroups returns a library whose products run by wgmma wherever they can, with tiles of a size; the zero tile: each product chooses.
// There is none where the GPU lacks wgmma.
func withWarpgroups(t testing.TB, b *bench, size tile) []*Library {
	t.Helper()
	l := *libraries(t, b)[0]
	if !hasWarpgroups(b.device) {
		return nil
	}
	l.warpgroups, l.tile = true, size
	l.choose = func(call kernels.Call, c convolution) (algorithm, error) {
		all := l.candidates(call, c)
		return all[len(all)-1], nil
	}
	return []*Library{&l}
}

// warpgroupCalls have rows and columns that fill no tile, padding, strides, dilation, groups, one slab and many, and images that are folded.
var warpgroupCalls = []struct {
	op    kernels.Op
	shape []int
}{
	{kernels.Linear{Out: 304, Bias: true}, []int{301, 520}},
	{kernels.Linear{Out: 264}, []int{5, 2104}},
	{kernels.Linear{Out: 8}, []int{1, 8}},
	{kernels.Conv2D{Out: 264, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: true}, []int{1, 11, 13, 24}},
	{kernels.Conv2D{Out: 72, KernelH: 3, KernelW: 2, PadH: 2, StrideH: 2, StrideW: 2, DilationH: 2}, []int{2, 13, 12, 72}},
	{kernels.Conv2D{Out: 272, KernelH: 2, KernelW: 3, PadW: 1, Groups: 2}, []int{1, 13, 12, 272}},
	{kernels.Conv2D{Out: 32, KernelH: 1, KernelW: 1, StrideH: 2, StrideW: 2}, []int{2, 15, 15, 72}},
	{kernels.Conv2D{Out: 24, KernelH: 7, KernelW: 7, StrideH: 2, StrideW: 2, PadH: 3, PadW: 3}, []int{2, 18, 19, 3}},
}

// TestWarpgroupProducts: products by wgmma in every size of tile against the reference, twice for the same bits.
func TestWarpgroupProducts(t *testing.T) {
	b := newBench(t)
	ran, splits := map[string]int{}, 0
	for i, c := range warpgroupCalls {
		if cudatest.Checked() && i%3 != 0 {
			continue // slow
		}
		r := rand.New(rand.NewPCG(61, uint64(i)))
		forward, backward := randomCalls(r, c.op, []kernels.Desc{typed(kernels.BFloat16, c.shape...)})
		for j := range backward {
			backward[j].SkipDX = nil
		}
		inputs := randomInputs(r, forward)
		for k, size := range append(slices.Clone(warpgroups.tiles), tile{}) {
			if (i+k)%2 != 0 || testing.Short() && (i+k)%4 != 0 {
				continue // slow
			}
			for _, l := range withWarpgroups(t, b, size) {
				check(t, b, l, forward, backward, inputs)
				splits += sums(t, l, append(backward, forward))
				for _, call := range append(backward, forward) {
					ran[productKernels(t, l, call)[0]]++
				}
			}
		}
	}
	for _, size := range warpgroups.tiles {
		for _, product := range []string{"window", "pixel"} {
			if name := warpgroups.name(product, size); ran[name] == 0 && hasWarpgroups(b.device) && !cudatest.Checked() {
				t.Errorf("%s ran in no call: %v", name, ran)
			}
		}
	}
	if splits == 0 && hasWarpgroups(b.device) {
		t.Error("no product was split")
	}
}

// TestRandomWarpgroupCalls: random convolutions of whole vectors by wgmma, as in TestRandomCalls, and with NaNs as in
// TestNaNsStayInTheirWindows.
func TestRandomWarpgroupCalls(t *testing.T) {
	b := newBench(t)
	rounds := 60
	if testing.Short() {
		rounds = 6
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(62, uint64(round)))
		op, x := randomConv(r, kernels.BFloat16)
		c := op.(kernels.Conv2D)
		c.Out, x[0].Shape[3] = 8*c.Out, 8*x[0].Shape[3]
		for x[0].Shape[3] > 100 && c.Groups == 1 {
			x[0].Shape[3] -= 96
		}
		forward, backward := randomCalls(r, c, x)
		inputs := randomInputs(r, forward)
		for _, l := range withWarpgroups(t, b, tile{}) {
			check(t, b, l, forward, backward, inputs)
			nan := encode(kernels.BFloat16, []float32{float32(math.NaN())})
			for range 4 {
				copy(inputs[operand(kernels.X, 0)][r.IntN(int(x[0].Elements()))*2:], nan)
			}
			compare(t, forward, kernels.BFloat16, newRig(forward, 0, nil).types, compute(t, b, l, forward, inputs, nil), reference(t, forward, inputs))
		}
	}
}

// TestWarpgroupTiles: large products take the largest tile, and small ones smaller tiles in parts that keep a GPU busy. Two blocks of a
// multiprocessor, or one with the largest tile, fit into the shared memory of a multiprocessor.
func TestWarpgroupTiles(t *testing.T) {
	for _, c := range []struct {
		rows, columns, inner int64
		want                 tile
		splits               bool
	}{
		{16384, 3072, 768, tile{128, 256}, false}, {64 * 56 * 56, 256, 64, tile{128, 256}, false},
		{64 * 56 * 56, 64, 576, tile{128, 64}, false}, {64, 64, 64 * 56 * 56, tile{128, 64}, true}, {512, 4608, 3136, tile{128, 256}, false},
	} {
		size, splits := warpgroups.cut(c.rows, c.columns, c.inner, 1, true)
		if size != c.want || (splits > 1) != c.splits {
			t.Errorf("%+v: %d parts of %v", c, splits, size)
		}
	}
	for i, size := range warpgroups.tiles {
		held := resources.Hopper.Resident(int(warpgroups.block), 0, int(warpgroups.windowShared(size))+128*8)
		if int64(held) != warpgroups.room[i] || warpgroups.windowShared(size) != warpgroups.pixelShared(size) {
			t.Errorf("%v: %d blocks are held, there is room for %d", size, held, warpgroups.room[i])
		}
	}
}

// warpgroupsFirst is a clock for which wgmma is the fastest.
func warpgroupsFirst(a algorithm, _ cuda.Launch) (float64, error) {
	return map[algorithm]float64{ours: 2, wgmma: 1}[a], nil
}

// TestWarpgroupsAreChosen: wgmma is a candidate where channels are whole vectors of bfloat16, and is taken if it is the fastest, with no
// vendor's library. A process that cannot use it does not go on with another one's choice.
func TestWarpgroupsAreChosen(t *testing.T) {
	b := newBench(t)
	if !hasWarpgroups(b.device) {
		t.Skip("needs capability 9.0")
	}
	for _, c := range []struct {
		op    kernels.Op
		dtype kernels.DType
		in    []int
		pass  kernels.Pass
		want  bool
	}{
		{kernels.Linear{Out: 16}, kernels.BFloat16, []int{4, 24}, kernels.Forward, true},
		{kernels.Linear{Out: 16}, kernels.BFloat16, []int{4, 24}, kernels.BackwardInput, true},
		{kernels.Linear{Out: 16}, kernels.BFloat16, []int{4, 24}, kernels.BackwardParams, true},
		{kernels.Linear{Out: 16}, kernels.Float32, []int{4, 24}, kernels.Forward, false},
		{kernels.InTF32(kernels.Linear{Out: 16}), kernels.TF32, []int{4, 24}, kernels.Forward, false},
		{kernels.Linear{Out: 12}, kernels.BFloat16, []int{4, 24}, kernels.Forward, true},
		{kernels.Linear{Out: 12}, kernels.BFloat16, []int{4, 24}, kernels.BackwardInput, false},
		{kernels.Linear{Out: 12}, kernels.BFloat16, []int{4, 24}, kernels.BackwardParams, false},
		{kernels.Linear{Out: 16}, kernels.BFloat16, []int{4, 20}, kernels.Forward, false},
		{kernels.Conv2D{Out: 16, KernelH: 3, KernelW: 3, Groups: 2}, kernels.BFloat16, []int{1, 5, 5, 24}, kernels.Forward, false},
		{kernels.Conv2D{Out: 16, KernelH: 3, KernelW: 3}, kernels.BFloat16, []int{1, 5, 5, 3}, kernels.Forward, true}, // folded
	} {
		call := kernels.Call{Op: c.op, Pass: c.pass, In: []kernels.Desc{typed(c.dtype, c.in...)}, Train: true}
		for _, on := range []bool{true, false} {
			l := libraries(t, b)[0]
			l.warpgroups, l.vendors.choices = on, &choices{}
			l.vendors.time = warpgroupsFirst
			if _, err := l.Workspace(call); err != nil {
				t.Fatal(err)
			}
			chosen := len(l.Choices()) == 1 && l.Choices()[0].Algorithm == wgmma.String()
			if chosen != (on && c.want) {
				t.Errorf("%+v, wgmma %v: %+v", call, on, l.Choices())
			}
		}
	}
}

// TestWarpgroupsAreAgreed: a library that refuses vendors' libraries times nothing, and so cannot repeat a choice of wgmma.
func TestWarpgroupsAreAgreed(t *testing.T) {
	b := newBench(t)
	call := kernels.Call{Op: kernels.Linear{Out: 16}, In: []kernels.Desc{typed(kernels.BFloat16, 4, 24)}}
	for _, l := range withWarpgroups(t, b, tile{}) {
		l.vendors.choices, l.choose = &choices{}, l.measured
		l.vendors.time = warpgroupsFirst
		if _, err := l.Workspace(call); err != nil {
			t.Fatal(err)
		}
		exported, err := l.ExportChoices()
		if err != nil || !strings.Contains(string(exported), wgmma.String()) {
			t.Fatalf("%s, %v", exported, err)
		}
		refusing, err := New(b.device, Options{Vendor: nvidia.Refuse})
		if err != nil {
			t.Fatal(err)
		}
		refusing.vendors.choices = &choices{}
		if err := refusing.vendors.choices.adopt(refusing, exported); err != nil {
			t.Fatal(err)
		}
		if _, err := refusing.Workspace(call); err == nil || !strings.Contains(err.Error(), WgmmaVariable+"=1") {
			t.Errorf("another process's choice: %v", err)
		}
	}
}

// TestWarpgroupsAreAskedFor: no GPU has run wgmma, so the variable alone makes it a candidate, and only where algorithms are timed.
func TestWarpgroupsAreAskedFor(t *testing.T) {
	for _, c := range []struct {
		variable string
		mode     nvidia.Mode
		want     bool
	}{{"", nvidia.Prefer, false}, {"0", nvidia.Prefer, false}, {"1", nvidia.Prefer, true}, {"1", nvidia.Require, true}, {"1", nvidia.Refuse, false}, {"1", "", false}} {
		if got := timesWarpgroups(c.variable, c.mode); got != c.want {
			t.Errorf("%s=%q, vendor=%q: %v, want %v", WgmmaVariable, c.variable, c.mode, got, c.want)
		}
	}
}

// TestWarpgroupsAreRefused: wgmma is not taken if it computes wrongly.
func TestWarpgroupsAreRefused(t *testing.T) {
	b := newBench(t)
	for _, l := range withWarpgroups(t, b, tile{}) {
		l.vendors.choices, l.choose, l.note = &choices{}, l.measured, func(string) {}
		l.vendors.time = warpgroupsFirst
		l.prove = func(call kernels.Call, a algorithm) error {
			if a == wgmma {
				return ErrWrong
			}
			return l.proof(call, a)
		}
		call := kernels.Call{Op: kernels.Linear{Out: 16}, In: []kernels.Desc{typed(kernels.BFloat16, 4, 24)}}
		if _, err := l.Workspace(call); err != nil {
			t.Fatal(err)
		}
		if c := l.Choices(); len(c) != 1 || c[0].Algorithm != ours.String() || len(c[0].Refused) != 1 {
			t.Errorf("%+v", c)
		}
		if err := l.Prove(call, wgmma.String()); err != nil || errors.Is(err, ErrWrong) {
			t.Error(err)
		}
	}
}

// TestOtherCapabilities: on GPUs of another capability nothing has a kernel for sm_90a, and all other modules load. The test runs itself
// again, as the emulated driver reads its capability once.
func TestOtherCapabilities(t *testing.T) {
	const variable = "PLIMSOLL_EMULATOR_CAPABILITY"
	b := newBench(t)
	if !cudatest.Emulated() {
		t.Skip("needs the emulated driver")
	}
	if os.Getenv(variable) == "" {
		for _, capability := range []string{"89", "100"} {
			again := exec.Command(os.Args[0], "-test.run=^TestOtherCapabilities$")
			again.Env = append(os.Environ(), variable+"="+capability)
			if text, err := again.CombinedOutput(); err != nil {
				t.Errorf("capability %s: %v: %s", capability, err, text)
			}
		}
		return
	}
	l, err := New(b.device, Options{Vendor: nvidia.Prefer})
	if err != nil {
		t.Fatal(err)
	}
	if l.warpgroups || len(l.Modules()) != len(images)-1 {
		t.Errorf("wgmma %v, modules %v", l.warpgroups, l.Modules())
	}
	for _, name := range l.Modules() {
		if err := l.LoadModule(name); err != nil {
			t.Error(err)
		}
	}
	if err := l.LoadModule(warpgroups.module); err == nil {
		t.Error("the module for sm_90a is loaded")
	}
	call := kernels.Call{Op: kernels.Linear{Out: 16}, In: []kernels.Desc{typed(kernels.BFloat16, 4, 24)}}
	if err := l.Prove(call, wgmma.String()); err == nil {
		t.Error("wgmma computes")
	}
}
