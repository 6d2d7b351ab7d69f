//go:build cuda && linux && amd64

package cuda

import (
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda/cudatest"
)

// TestFolded: which convolution stands for another one.
func TestFolded(t *testing.T) {
	for _, c := range []struct {
		name     string
		op       kernels.Conv2D
		shape    []int
		d        kernels.DType
		channels int64 // of the folded image; 0: the convolution stays
		in, taps int64 // along w
		lies     bool
	}{
		{"first of a ResNet", kernels.Conv2D{Out: 64, KernelH: 7, KernelW: 7, StrideH: 2, StrideW: 2, PadH: 3, PadW: 3}, []int{2, 224, 224, 3}, kernels.BFloat16, 8, 115, 4, false},
		{"first of a ResNet", kernels.Conv2D{Out: 64, KernelH: 7, KernelW: 7, StrideH: 2, StrideW: 2, PadH: 3, PadW: 3}, []int{2, 224, 224, 3}, kernels.TF32, 8, 115, 4, false},
		{"first of a VGG", kernels.Conv2D{Out: 64, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, []int{2, 32, 32, 3}, kernels.BFloat16, 8, 34, 3, false},
		{"first of a VGG", kernels.Conv2D{Out: 64, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, []int{2, 32, 32, 3}, kernels.Float32, 4, 34, 3, false},
		{"patches", kernels.Conv2D{Out: 64, KernelH: 16, KernelW: 16, StrideH: 16, StrideW: 16}, []int{2, 224, 224, 3}, kernels.BFloat16, 48, 14, 1, true},
		{"dilated", kernels.Conv2D{Out: 64, KernelH: 3, KernelW: 3, DilationW: 2, PadW: 2}, []int{2, 32, 32, 3}, kernels.BFloat16, 8, 32, 3, false},
		{"whole vectors", kernels.Conv2D{Out: 64, KernelH: 7, KernelW: 7}, []int{2, 32, 32, 8}, kernels.BFloat16, 0, 0, 0, false},
		{"groups", kernels.Conv2D{Out: 64, KernelH: 7, KernelW: 7, Groups: 2}, []int{2, 32, 32, 6}, kernels.BFloat16, 0, 0, 0, false},
		{"a kernel that looks once", kernels.Conv2D{Out: 64, KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2, PadW: 1}, []int{2, 32, 32, 3}, kernels.BFloat16, 0, 0, 0, false},
		{"rows beyond 32 bits", kernels.Conv2D{Out: 1, KernelH: 1, KernelW: 3}, []int{1, 1, 1 << 28, 1}, kernels.BFloat16, 0, 0, 0, false},
	} {
		given := newConvolution(as(c.d, c.op).(kernels.Conv2D).Defaults(), typed(c.d, c.shape...))
		f, pixel := given.folded()
		if c.channels == 0 {
			if f != given || pixel != 0 {
				t.Errorf("%s in %v: %+v becomes %+v, want itself", c.name, c.d, given, f)
			}
			continue
		}
		if f.channels != c.channels || f.w.in != c.in || f.w.kernel != c.taps || f.w.out != given.w.out || f.h != given.h || given.liesAs(f, pixel) != c.lies {
			t.Errorf("%s in %v: %+v becomes %+v, pixels of %d channels", c.name, c.d, given, f, pixel)
		}
	}
}

// foldedCalls are edge cases of folding. Kernels have one row or column, or are wider than the image; a stride reaches beyond the kernel.
// Patches lie as they are, or leave columns over. Output channels are no whole vectors, or are in groups.
var foldedCalls = []struct {
	op    kernels.Conv2D
	shape []int
	image bool // a folded image is written
}{
	{kernels.Conv2D{Out: 64, KernelH: 7, KernelW: 7, StrideH: 2, StrideW: 2, PadH: 3, PadW: 3}, []int{2, 21, 23, 3}, true},
	{kernels.Conv2D{Out: 16, KernelH: 1, KernelW: 7, PadW: 3, Bias: true}, []int{1, 9, 10, 1}, true},
	{kernels.Conv2D{Out: 24, KernelH: 7, KernelW: 1, PadH: 2}, []int{1, 11, 5, 7}, true},
	{kernels.Conv2D{Out: 8, KernelH: 5, KernelW: 7, PadH: 4, PadW: 6}, []int{1, 3, 2, 5}, true},
	{kernels.Conv2D{Out: 8, KernelH: 9, KernelW: 1, StrideW: 3, PadW: 1}, []int{2, 12, 13, 6}, true},
	{kernels.Conv2D{Out: 16, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1, Bias: true}, []int{2, 17, 18, 3}, true},
	{kernels.Conv2D{Out: 8, KernelH: 5, KernelW: 3, StrideH: 3, StrideW: 3, DilationH: 2, PadW: 2}, []int{2, 17, 19, 2}, false},
	{kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3, DilationH: 3, DilationW: 2, PadH: 1, PadW: 2, StrideW: 2}, []int{2, 10, 19, 3}, true},
	{kernels.Conv2D{Out: 136, KernelH: 8, KernelW: 8, StrideH: 8, StrideW: 8}, []int{2, 24, 32, 3}, false},
	{kernels.Conv2D{Out: 16, KernelH: 8, KernelW: 8, StrideH: 4, StrideW: 8}, []int{2, 24, 37, 3}, true},
	{kernels.Conv2D{Out: 5, KernelH: 3, KernelW: 3}, []int{2, 9, 9, 3}, true},
	{kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3, Groups: 2}, []int{2, 9, 9, 6}, false},
}

// TestFoldedCalls: convolutions of 1 to 7 channels against the reference, with random attributes and at the edges.
func TestFoldedCalls(t *testing.T) {
	b := newBench(t)
	ran := map[bool]int{} // by whether an image was folded
	run := func(seed uint64, d kernels.DType, op kernels.Conv2D, shape []int) (images int) {
		r := rand.New(rand.NewPCG(uint64(d), seed))
		forward, backward := randomCalls(r, as(d, op), []kernels.Desc{typed(d, shape...)})
		inputs := randomInputs(r, forward)
		for i, l := range libraries(t, b) {
			if i > 0 && d == kernels.Float32 {
				continue
			}
			check(t, b, l, forward, backward, inputs)
			images = imagesFolded(t, l, forward)
		}
		ran[images > 0]++
		return images
	}
	for i, c := range foldedCalls {
		for j, d := range factorTypes {
			if cudatest.Checked() && j != i%len(factorTypes) { // all accesses are watched: one type each
				continue
			}
			if images := run(uint64(i), d, c.op, c.shape); (images == 1) != c.image {
				t.Errorf("%+v of %v in %v folds %d images", c.op, c.shape, d, images)
			}
		}
	}
	rounds := 60
	switch {
	case cudatest.Checked():
		rounds = 4
	case testing.Short():
		rounds = 12
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(33, uint64(round)))
		pick := func(most int) int { return 1 + r.IntN(most) }
		op := kernels.Conv2D{
			Out: []int{8, 24, 5}[r.IntN(3)], KernelH: pick(7), KernelW: pick(7), StrideH: pick(3), StrideW: pick(3),
			PadH: r.IntN(4), PadW: r.IntN(4), DilationH: pick(2), DilationW: pick(2), Bias: r.IntN(2) == 0,
		}
		run(uint64(round), factorTypes[round%len(factorTypes)], op, []int{pick(2), 13 + pick(9), 13 + pick(9), pick(7)})
	}
	if ran[true] < rounds/2 || ran[false] < 3 {
		t.Errorf("ran %v calls", ran)
	}
}

// imagesFolded counts the folded images of a call.
func imagesFolded(t *testing.T, l *Library, c kernels.Call) (n int) {
	t.Helper()
	b, err := l.build(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range b.steps {
		if strings.HasPrefix(s.function, "fold_image") {
			n++
		}
	}
	return n
}
