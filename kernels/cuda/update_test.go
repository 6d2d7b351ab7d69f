//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda/cudatest"
)

var updates = []kernels.Update{
	kernels.SGD{},
	kernels.SGD{WeightDecay: 0.1},
	kernels.SGD{Momentum: 0.9},
	kernels.SGD{Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01},
	kernels.SGD{Momentum: 0.9, WeightDecay: 0.01, Nesterov: true},
	kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
	kernels.Adam{Beta1: 0.8, Beta2: 0.99, Epsilon: 1e-3, WeightDecay: 0.1},
	kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.05},
}

// optimizer is a parameter with its gradient, states and scalars, one behind the other.
type optimizer struct {
	operands kernels.UpdateOperands
	memory   []byte
}

// newOptimizer places what an update needs. Odd seeds have gradients in bfloat16.
func newOptimizer(u kernels.Update, n int64, seed uint64) *optimizer {
	o := &optimizer{operands: kernels.UpdateOperands{Elements: n}}
	if seed%2 == 1 {
		o.operands.GradType = kernels.BFloat16
	}
	place := func(bytes int64) runtime.Span {
		s := runtime.Span{Offset: int64(len(o.memory)), Bytes: bytes}
		o.memory = append(o.memory, make([]byte, kernels.Align(bytes)+kernels.Alignment)...)
		return s
	}
	o.operands.Param, o.operands.Grad, o.operands.Scalars = place(4*n), place(n*o.operands.GradType.Size()), place(kernels.ScalarsBytes)
	for range u.States() {
		o.operands.States = append(o.operands.States, place(4*n))
	}
	o.operands.Rounded = place(2 * n)
	o.put(o.operands.Param, random(rand.New(rand.NewPCG(5, seed)), n))
	return o
}

func (o *optimizer) put(s runtime.Span, v []float32) { copy(floats(o.memory[s.Offset:s.End()]), v) }

// putGrad writes a gradient in its type.
func (o *optimizer) putGrad(v []float32) { narrowed(o.memory, o.operands.Grad, o.operands.GradType, v) }

// narrowed writes numbers in a type.
func narrowed(memory []byte, s runtime.Span, of kernels.DType, v []float32) {
	if of == kernels.Float32 {
		copy(floats(memory[s.Offset:s.End()]), v)
		return
	}
	for i, x := range v {
		binary.LittleEndian.PutUint16(memory[s.Offset+2*int64(i):], kernels.ToBFloat16(x))
	}
}

func (o *optimizer) scalars(s kernels.Scalars) { s.Put(o.memory[o.operands.Scalars.Offset:]) }

// rounded fails unless the copy of the parameter in bfloat16 is the parameter, rounded.
func (o *optimizer) rounded(t *testing.T, what string) {
	t.Helper()
	got := o.copyOf(o.memory)
	for i, w := range floats(o.memory[o.operands.Param.Offset:o.operands.Param.End()]) {
		if want := float64(kernels.RoundBFloat16(w)); got[i] != want {
			t.Fatalf("%s: parameter %d is %v, its copy in bfloat16 %v, want %v", what, i, w, got[i], want)
		}
	}
}

// copyOf returns the copy of the parameter in bfloat16.
func (o *optimizer) copyOf(memory []byte) []float64 {
	return values(kernels.BFloat16, memory[o.operands.Rounded.Offset:o.operands.Rounded.End()])
}

// withoutRounded returns memory with zeros in place of the copy, in which numbers that differ in a last bit may be rounded apart.
func (o *optimizer) withoutRounded(memory []byte) []byte {
	memory = slices.Clone(memory)
	clear(memory[o.operands.Rounded.Offset:o.operands.Rounded.End()])
	return memory
}

// behind returns the operands of a parameter that lies behind so many bytes, the first of which are the scalars.
func (o *optimizer) behind(bytes int64, earlier uint64) kernels.UpdateOperands {
	p := o.operands
	p.Earlier, p.Scalars, p.States = earlier, runtime.Span{Bytes: kernels.ScalarsBytes}, slices.Clone(p.States)
	p.Param.Offset += bytes
	p.Grad.Offset += bytes
	p.Rounded.Offset += bytes
	for i := range p.States {
		p.States[i].Offset += bytes
	}
	return p
}

// TestUpdates: five updates of each rule follow the reference, also when a run begins with the fourth; a step that is skipped
// changes no bit.
func TestUpdates(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	steps := 0
	for i, u := range updates {
		for _, n := range []int64{1, 5, 33, 17_000} {
			o := newOptimizer(u, n, uint64(i))
			var launch runtime.Launch
			for step := range 5 {
				o.operands.Earlier = uint64(step / 3 * 3)
				var err error
				if launch, err = l.PrepareUpdate(u, o.operands); err != nil {
					t.Fatal(err)
				}
				o.putGrad(random(rand.New(rand.NewPCG(6, uint64(step))), n))
				o.scalars(kernels.Scalars{Step: 7, Update: uint64(step % 3), LR: 0.1 / float32(step+1), GradScale: 0.5})
				want := expected(t, u, o)
				o.memory = b.run(t, o.memory, launch)
				what := fmt.Sprintf("%+v, step %d of %d elements", u, step, n)
				o.rounded(t, what)
				near(t, what, o.withoutRounded(o.memory), o.withoutRounded(want))
				steps++
			}
			o.scalars(kernels.Scalars{Update: 5, LR: 0.1, GradScale: 1, Skip: 1})
			if !bytes.Equal(b.run(t, o.memory, launch), o.memory) {
				t.Errorf("%+v: a skipped step changes something", u)
			}
		}
	}
	if want := len(updates) * 4 * 5; steps != want {
		t.Errorf("ran %d steps, want %d", steps, want)
	}
}

// TestUpdatesAtOnce: parameters of all sizes, more than a launch has room for, are updated as each by itself. They take as few launches as
// they need, and each parameter counts its own earlier updates.
func TestUpdatesAtOnce(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	const parameters = 161 // ResNet-50's
	for i, u := range []kernels.Update{updates[0], updates[4], updates[7]} {
		r := rand.New(rand.NewPCG(11, uint64(i)))
		whole, all := make([]byte, kernels.ScalarsBytes), []kernels.UpdateOperands(nil)
		kernels.Scalars{LR: 0.1, GradScale: 0.5}.Put(whole)
		for k := range parameters {
			o := newOptimizer(u, []int64{1, 3, 64, 257, 5000}[k%5]+int64(k), r.Uint64())
			o.putGrad(random(r, o.operands.Elements))
			all = append(all, o.behind(int64(len(whole)), uint64(k%3)))
			whole = append(whole, o.memory...)
		}
		want := whole
		for _, o := range all {
			launch, err := l.PrepareUpdate(u, o)
			if err != nil {
				t.Fatal(err)
			}
			want = b.run(t, want, launch)
		}
		launches := func() int { return cudatest.Launches("sgd_update") + cudatest.Launches("adam_update") }
		before := launches()
		launch, err := l.PrepareUpdate(u, all...)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.run(t, whole, launch); !bytes.Equal(got, want) || bytes.Equal(got, whole) {
			t.Errorf("%+v: parameters that are updated at once have other bits", u)
		}
		if n := launches() - before; cudatest.Emulated() && n != 3 {
			t.Errorf("%+v: %d parameters take %d launches, want 3", u, parameters, n)
		}
	}
}

// expected is the memory after a step of the reference.
func expected(t *testing.T, u kernels.Update, o *optimizer) []byte {
	t.Helper()
	after := slices.Clone(o.memory)
	l, err := ref.New(plain(after)).PrepareUpdate(u, o.operands)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
	return after
}

// near compares memory as float32.
func near(t *testing.T, what string, got, want []byte) {
	t.Helper()
	g, w := values(kernels.Float32, got), values(kernels.Float32, want)
	for i := range w {
		if w[i] != g[i] && !(math.Abs(g[i]-w[i]) <= 1e-5*(1+math.Abs(w[i]))) {
			t.Fatalf("%s: word %d is %v, want %v", what, i, g[i], w[i])
		}
	}
}

// TestGuard: norm, clipping and skipping are those of the reference, for more gradients than one launch has room for.
func TestGuard(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	cases := 0
	for _, c := range []struct {
		maxNorm float32
		spoiled bool
	}{{0, false}, {0.5, false}, {1e9, false}, {1, true}} {
		r := rand.New(rand.NewPCG(8, uint64(cases)))
		var o kernels.GuardOperands
		end, partials := int64(0), int64(0)
		place := func(bytes int64) runtime.Span {
			s := runtime.Span{Offset: end, Bytes: bytes}
			end += kernels.Align(bytes)
			return s
		}
		for i := range 400 {
			n := int64(1 + r.IntN(100))
			if i == 7 {
				n = 3*kernels.GuardChunk + 5
			}
			of := kernels.Float32
			if i%3 == 1 {
				of = kernels.BFloat16
			}
			o.Grads, o.Types = append(o.Grads, place(n*of.Size())), append(o.Types, of)
			partials += kernels.GuardPartials(n)
		}
		o.Partials, o.Norm, o.Scalars = place(8*partials), place(4), place(kernels.ScalarsBytes)
		memory := make([]byte, end)
		for i, g := range o.Grads {
			narrowed(memory, g, o.Type(i), random(r, o.Elements(i)))
		}
		if c.spoiled {
			narrowed(memory, o.Grads[250], o.Type(250), []float32{float32(math.Inf(-1))})
		}
		kernels.Scalars{LR: 0.1, GradScale: 0.25}.Put(memory[o.Scalars.Offset:])
		guard := kernels.Guard{MaxNorm: c.maxNorm}
		want := slices.Clone(memory)
		reference, err := ref.New(plain(want)).PrepareGuard(guard, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := reference.(interface{ Run() error }).Run(); err != nil {
			t.Fatal(err)
		}
		launch, err := l.PrepareGuard(guard, o)
		if err != nil {
			t.Fatal(err)
		}
		got := b.run(t, memory, launch)
		near(t, fmt.Sprintf("guard %+v", c), got[o.Norm.Offset:o.Norm.End()], want[o.Norm.Offset:o.Norm.End()])
		g, w := kernels.GetScalars(got[o.Scalars.Offset:]), kernels.GetScalars(want[o.Scalars.Offset:])
		if g.Skip != w.Skip || math.Abs(float64(g.GradScale-w.GradScale)) > 1e-6 || (w.Skip != 0) != c.spoiled {
			t.Errorf("guard %+v: scalars %+v, want %+v", c, g, w)
		}
		if apart := measuredApart(t, b, l, guard, o, memory); !bytes.Equal(apart[o.Norm.Offset:], got[o.Norm.Offset:]) {
			t.Errorf("guard %+v: measured apart and judged together it gives other bits", c)
		}
		cases++
	}
	if cases != 4 {
		t.Errorf("ran %d cases", cases)
	}
}

// measuredApart returns the memory behind a guard whose gradients are measured in two parts.
func measuredApart(t *testing.T, b *bench, l *Library, g kernels.Guard, o kernels.GuardOperands, memory []byte) []byte {
	t.Helper()
	run := func(o kernels.GuardOperands) []byte {
		launch, err := l.PrepareGuard(g, o)
		if err != nil {
			t.Fatal(err)
		}
		return b.run(t, memory, launch)
	}
	var partials []byte
	for _, at := range [][2]int{{0, 251}, {251, len(o.Grads)}} {
		part := kernels.GuardOperands{Grads: o.Grads[at[0]:at[1]], Types: o.Types[at[0]:at[1]], Partials: o.Partials}
		partials = append(partials, run(part)[o.Partials.Offset:][:8*part.Parts()]...)
	}
	copy(memory[o.Partials.Offset:], partials)
	o.Grads, o.Types = nil, nil
	return run(o)
}

// TestBadLabel: a label that is no class makes the loss NaN.
func TestBadLabel(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for i, label := range []uint32{5, 1 << 31, math.MaxUint32} {
		c := kernels.Call{Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(3, 5), {Shape: kernels.Shape{3}, DType: kernels.Int32}}, Train: true}
		in := randomInputs(rand.New(rand.NewPCG(9, uint64(i))), c)
		copy(floats(in[operand(kernels.X, 1)]), []float32{math.Float32frombits(1), math.Float32frombits(label)})
		out := compute(t, b, l, c, in, nil)
		if loss := values(kernels.Float32, out[operand(kernels.Y, 0)])[0]; !math.IsNaN(loss) {
			t.Errorf("the loss of label %d is %v", int32(label), loss)
		}
	}
}

// TestTensorCores: products of bfloat16 run on tensor cores, and nothing else does.
func TestTensorCores(t *testing.T) {
	b := newBench(t)
	for _, l := range libraries(t, b) {
		for _, d := range types {
			c := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3}, In: []kernels.Desc{typed(d, 1, 8, 8, 8)}}
			built, err := l.build(c, nil)
			if err != nil {
				t.Fatal(err)
			}
			module := built.steps[1].module
			if want := l.tensor && d == kernels.BFloat16; (module == "mma") != want {
				t.Errorf("%s: a product of %v runs in module %s", l.Name(), d, module)
			}
		}
	}
}

// TestErrors: what a GPU cannot run is refused when it is prepared.
func TestErrors(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for what, c := range map[string]kernels.Call{
		"a window that does not fit": {Op: kernels.Conv2D{Out: 1, KernelH: 9, KernelW: 9}, In: []kernels.Desc{kernels.F32(1, 4, 4, 1)}},
		"too many pixels":            {Op: kernels.Conv2D{Out: 1, KernelH: 3, KernelW: 3}, In: []kernels.Desc{kernels.F32(1<<14, 1<<10, 1<<10, 1)}},
		"too many groups":            {Op: kernels.Conv2D{Out: 1 << 17, KernelH: 3, KernelW: 3, Groups: 1 << 17}, In: []kernels.Desc{kernels.F32(1, 3, 3, 1<<17)}},
	} {
		if _, err := l.Workspace(c); err == nil {
			t.Errorf("%s has a workspace", what)
		}
	}
	c := kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(8)}}
	o := newRig(c, 0, nil).operands
	o.Y.Offset = benchBytes
	if _, err := l.Prepare(c, o); err == nil {
		t.Error("memory that is not there is accepted")
	}
	if _, err := l.PrepareUpdate(kernels.Adam{Beta1: 2}, kernels.UpdateOperands{}); err == nil {
		t.Error("an update without operands is accepted")
	}
	if _, err := l.PrepareGuard(kernels.Guard{MaxNorm: -1}, kernels.GuardOperands{}); err == nil {
		t.Error("a negative norm is accepted")
	}
}
