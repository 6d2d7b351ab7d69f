package cpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"plimsoll/internal/cores"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// TestRunDoesNotAllocate: a prepared launch of every kind of op runs without Go heap.
func TestRunDoesNotAllocate(t *testing.T) {
	// Serial: it counts allocations.
	calls := append([]kernels.Call{
		{Op: kernels.Conv2D{Out: 64, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, In: []kernels.Desc{kernels.F32(4, 14, 14, 64)}},
		{Op: kernels.BatchNorm{ReLU: true}, In: []kernels.Desc{kernels.F32(4, 56, 56, 64)}, UpdateStats: true},
	}, gradientCalls...)
	for _, c := range calls {
		c.Train = true
		l := newLibrary(t, fastest(), 3)
		r := newRig(t, l, c, nil)
		r.fill(randomInputs(rand.New(rand.NewPCG(6, 6)), c))
		w := r.prepare(t, l)
		if n := testing.AllocsPerRun(20, func() { _ = w.Run() }); n != 0 {
			t.Errorf("%s: %v allocations a run, want none", w.Kernel(), n)
		}
	}
}

// TestConcurrentStreams: launches of many streams run on one pool at the same time, none waits for ever, and each
// gives the bits that it gives alone.
func TestConcurrentStreams(t *testing.T) {
	t.Parallel()
	const streams, rounds = 6, 15
	c := kernels.Call{Op: kernels.Conv2D{Out: 40, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: true}, In: []kernels.Desc{kernels.F32(2, 20, 20, 32)}, Train: true}
	var all sync.WaitGroup
	for s := range streams {
		c.Pass = []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams}[s%3]
		call := c
		l := newLibrary(t, fastest(), 2+s%2)
		in := randomInputs(rand.New(rand.NewPCG(7, uint64(s))), call)
		want := run(t, l, call, in)
		rig := newRig(t, l, call, nil)
		all.Go(func() {
			for range rounds {
				got := rig.run(t, l, in)
				sameBits(t, fmt.Sprintf("stream %d", s), got, want)
			}
		})
	}
	all.Wait()
}

// TestOneProcessor: helpers that never get a processor do not keep a launch from ending.
func TestOneProcessor(t *testing.T) {
	// Serial: it sets the number of processors.
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	c := kernels.Call{Op: kernels.Linear{Out: 300}, In: []kernels.Desc{kernels.F32(300, 100)}}
	in := randomInputs(rand.New(rand.NewPCG(8, 8)), c)
	sameBits(t, "one processor", run(t, newLibrary(t, fastest(), 8), c, in), run(t, newLibrary(t, fastest(), 1), c, in))
}

// TestSavedIsOptional: a training forward without room for saved tensors computes the same output.
func TestSavedIsOptional(t *testing.T) {
	t.Parallel()
	ran := 0
	for i, c := range gradientCalls {
		c.Train = true
		saved := c.Op.Saved(c.In)
		if len(saved) == 0 {
			continue
		}
		l := newLibrary(t, fastest(), 2)
		in := randomInputs(rand.New(rand.NewPCG(9, uint64(i))), c)
		want := run(t, l, c, in)
		r := newRig(t, l, c, nil)
		r.operands.Saved = nil
		r.uses = c.Uses(r.operands, r.workspace)
		sameBits(t, c.Op.Kind(), r.run(t, l, in), data{opY: want[opY]})
		ran++
	}
	if ran != 16 {
		t.Errorf("%d calls save something, want 16", ran)
	}
}

// TestNotFinite: a NaN goes through every op that passes values on, so that a broken step is seen.
func TestNotFinite(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for _, c := range gradientCalls {
		c.Train = false
		in := randomInputs(rand.New(rand.NewPCG(10, 1)), c)
		for i := range in[opX] {
			in[opX][i] = nan
		}
		for _, path := range Paths() {
			y := passedOn(c, run(t, newLibrary(t, path, 1), c, in)[opY])
			if !math.IsNaN(float64(y)) {
				t.Errorf("%v: %+v of NaN is %v, want NaN", path, c, y)
			}
		}
	}
}

// passedOn returns an element of an output that follows from the input: the first one, or behind rows that are put ahead the last.
func passedOn(c kernels.Call, y []float32) float32 {
	if _, ahead := c.Op.(kernels.Prepend); ahead {
		return y[len(y)-1]
	}
	return y[0]
}

// TestLabelOutOfRange: the loss and the row's gradient are NaN, other rows are not touched by it.
func TestLabelOutOfRange(t *testing.T) {
	t.Parallel()
	for _, label := range []int32{-1, 4, math.MaxInt32, math.MinInt32} {
		c := kernels.Call{Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(2, 4), {Shape: kernels.Shape{2}, DType: kernels.Int32}}, Train: true}
		in := randomInputs(rand.New(rand.NewPCG(11, 1)), c)
		in[opX1][1] = math.Float32frombits(uint32(label))
		l := newLibrary(t, fastest(), 1)
		out := run(t, l, c, in)
		if !math.IsNaN(float64(out[opY][0])) {
			t.Errorf("label %d: loss %v, want NaN", label, out[opY][0])
		}
		in[opSave], in[opY] = out[opSave], out[opY]
		c.Pass = kernels.Backward
		dx := run(t, l, c, in)[opDX]
		for i, v := range dx {
			if math.IsNaN(float64(v)) != (i >= 4) {
				t.Errorf("label %d: dx[%d] = %v", label, i, v)
			}
		}
	}
}

// TestIgnoredLabels: the loss is the loss of the other rows alone, to the bit, and 0 if there are none. An ignored row has a gradient of 0.
// If gradients are added, the row's gradient keeps its old value.
func TestIgnoredLabels(t *testing.T) {
	t.Parallel()
	loss := func(rows int) kernels.Call {
		return kernels.Call{Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(rows, 4), {Shape: kernels.Shape{rows}, DType: kernels.Int32}}, Train: true}
	}
	both := func(l *Library, c kernels.Call, in data, add bool) (y, dx []float32) {
		in = in.clone()
		y = run(t, l, c, in)[opY]
		in[opSave], in[opY] = run(t, l, c, in)[opSave], y
		c.Pass, c.AddDX = kernels.Backward, []bool{add}
		return y, run(t, l, c, in)[opDX]
	}
	label := int32(kernels.Ignored)
	ignored := math.Float32frombits(uint32(label))
	for _, path := range Paths() {
		l := newLibrary(t, path, 1)
		in := randomInputs(rand.New(rand.NewPCG(12, 1)), loss(4))
		few := data{opX: in[opX][:8], opX1: in[opX1][:2], opDX: in[opDX][:8]}
		in[opX1][2], in[opX1][3] = ignored, ignored
		for _, add := range []bool{false, true} {
			y, dx := both(l, loss(4), in, add)
			wantY, wantDX := both(l, loss(2), few, add)
			if !slices.Equal(y, wantY) || !slices.Equal(dx[:8], wantDX) {
				t.Errorf("%v: %v, %v; without the ignored rows %v, %v", path, y, dx[:8], wantY, wantDX)
			}
			for i, v := range dx[8:] {
				if was := in[opDX][8+i]; add && v != was || !add && v != 0 {
					t.Errorf("%v: dx of an ignored row is %v, was %v, adding %v", path, v, was, add)
				}
			}
		}
		in[opX1][0], in[opX1][1] = ignored, ignored
		y, dx := both(l, loss(4), in, false)
		if !slices.Equal(append(y, dx...), make([]float32, 3+16)) {
			t.Errorf("%v: no row counts: %v, %v", path, y, dx)
		}
	}
}

// TestExtremeLogits: the loss of logits far apart neither overflows nor loses the right answer.
func TestExtremeLogits(t *testing.T) {
	t.Parallel()
	c := kernels.Call{Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(2, 3), {Shape: kernels.Shape{2}, DType: kernels.Int32}}, Train: true}
	in := data{opX: {1e30, -1e30, 0, 300, 100, 299}, opX1: {0, math.Float32frombits(1)}}
	out := run(t, newLibrary(t, fastest(), 1), c, in)
	want := (0 + math.Log(1+math.Exp(-1)) + 200) / 2
	if !(math.Abs(float64(out[opY][0])-want) <= 1e-4) || out[opY][1] != 1 {
		t.Errorf("loss and hits are %v, want %v and 1", out[opY], want)
	}
	in[opSave], in[opY] = out[opSave], out[opY]
	c.Pass = kernels.Backward
	if dx := run(t, newLibrary(t, fastest(), 1), c, in)[opDX]; dx[0] != 0 || dx[1] != 0 || dx[2] != 0 {
		t.Errorf("the gradient of the logits that are sure is %v, want 0 0 0", dx[:3])
	}
}

// TestMaxPoolTies: of equal values the first in row-major order wins, and of NaNs the last, as in PyTorch.
func TestMaxPoolTies(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	c := kernels.Call{Op: kernels.MaxPool{KernelH: 2, KernelW: 2}, In: []kernels.Desc{kernels.F32(1, 2, 2, 20)}, Train: true}
	for _, window := range []struct {
		values [4]float32
		index  uint32
	}{
		{[4]float32{1, 1, 1, 1}, 0}, {[4]float32{0, 2, 2, 1}, 1}, {[4]float32{-2, -1, -3, -1}, 1},
		{[4]float32{1, nan, 2, nan}, 3}, {[4]float32{nan, 9, 9, 9}, 0},
	} {
		x := make([]float32, 80)
		for i := range x {
			x[i] = window.values[i/20]
		}
		for _, path := range Paths() {
			for k, v := range run(t, newLibrary(t, path, 1), c, data{opX: x})[opSave] {
				if math.Float32bits(v) != window.index {
					t.Errorf("%v: channel %d of %v takes %d, want %d", path, k, window.values, math.Float32bits(v), window.index)
				}
			}
		}
	}
}

// TestPaths: the environment and the option choose a path; unknown ones are refused with those there are.
func TestPaths(t *testing.T) {
	// Serial: it sets environment variables.
	for _, p := range Paths() {
		t.Setenv(PathVariable, p.String())
		l, err := New(nil, Options{})
		if err != nil || l.Path() != p || l.Name() != "cpu/"+p.String() {
			t.Errorf("%s=%v gives %v, %v", PathVariable, p, l, err)
		}
	}
	if l := newLibrary(t, Plain, 0); l.Threads() != cores.Count() {
		t.Errorf("0 threads become %d, want %d", l.Threads(), cores.Count())
	}
	if _, err := New(nil, Options{Path: "mmx"}); !errors.Is(err, ErrPath) || !strings.Contains(err.Error(), "plain") {
		t.Errorf("path mmx: %v", err)
	}
	for _, threads := range []int{-1, MaxThreads + 1} {
		if _, err := New(nil, Options{Threads: threads}); !errors.Is(err, ErrThreads) {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}

// TestBadOperands: spans that are short, misaligned, negative, elsewhere or overlapping are refused by name.
func TestBadOperands(t *testing.T) {
	t.Parallel()
	c := kernels.Call{Op: kernels.Conv2D{Out: 4, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: true}, In: []kernels.Desc{kernels.F32(1, 4, 4, 4)}}
	cases := map[string]func(*kernels.Operands){
		"X[0]":      func(o *kernels.Operands) { o.X[0].Bytes-- },
		"Y":         func(o *kernels.Operands) { o.Y.Offset += 4 },
		"Params[1]": func(o *kernels.Operands) { o.Params = o.Params[:1] },
		"Params[0]": func(o *kernels.Operands) { o.Params[0].Offset = -64 },
		"Workspace": func(o *kernels.Operands) { o.Workspace.Bytes-- },
		"overlaps":  func(o *kernels.Operands) { o.Y = o.X[0] },
		"arena":     func(o *kernels.Operands) { o.X[0].Space = runtime.Host },
		"bounds":    func(o *kernels.Operands) { o.X[0].Offset = 1 << 40 },
	}
	for want, spoil := range cases {
		l := newLibrary(t, Plain, 1)
		r := newRig(t, l, c, nil)
		l.memory = r.memory
		if _, err := l.Prepare(c, r.operands); err != nil {
			t.Fatal(err)
		}
		spoil(&r.operands)
		if _, err := l.Prepare(c, r.operands); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := newLibrary(t, Plain, 1).Prepare(c, newRig(t, newLibrary(t, Plain, 1), c, nil).operands); err == nil {
		t.Error("a library without memory prepared a launch")
	}
}
