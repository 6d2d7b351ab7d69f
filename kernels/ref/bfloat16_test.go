package ref_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// pair is one call bound twice to the same values, all of them bfloat16s: as float32 and as bfloat16.
type pair struct {
	wide, short *bound
}

func bindPair(t *testing.T, op kernels.Op, descs []kernels.Desc, seed uint64) pair {
	t.Helper()
	short := op
	if e, ok := op.(kernels.Embedding); ok {
		e.To = kernels.BFloat16
		short = e
	}
	p := pair{bind(t, op, descs, seed), bind(t, short, in(short, descs, kernels.BFloat16), seed)}
	p.wide.roundTensors(kernels.RoundBFloat16, p.wide.o.DY, p.wide.o.Y)
	p.wide.roundTensors(kernels.RoundBFloat16, p.wide.o.DX...)
	for i, d := range descs {
		if activation(op, i, d) {
			p.wide.roundTensors(kernels.RoundBFloat16, p.wide.o.X[i])
		}
	}
	if _, norm := op.(kernels.BatchNorm); norm { // a running variance is positive
		for _, b := range []*bound{p.wide, p.short} {
			b.put(b.o.Params[3], slices.Repeat([]float32{0.7}, len(b.get(b.o.Params[3])))...)
		}
	}
	return p
}

func (b *bound) roundTensors(round func(float32) float32, spans ...runtime.Span) {
	for _, s := range spans {
		v := b.get(s)
		for i := range v {
			v[i] = round(v[i])
		}
		b.put(s, v...)
	}
}

// brains returns the elements of a tensor in bfloat16.
func (b *bound) brains(s runtime.Span) []float32 {
	v := make([]float32, s.Bytes/2)
	for i := range v {
		v[i] = kernels.FromBFloat16(binary.LittleEndian.Uint16(b.bytes[s.Offset+int64(2*i):]))
	}
	return v
}

// run runs one pass on both.
func (p pair) run(t *testing.T, pass kernels.Pass, train, add bool) {
	t.Helper()
	for _, b := range []*bound{p.wide, p.short} {
		b.call.Train, b.call.UpdateStats, b.call.AddParams = train, train, add
		b.call.AddDX = slices.Repeat([]bool{add}, len(b.call.In))
		b.pass(t, pass)
	}
}

// compare calls f with everything that the two have computed: activations and gradients, then what stays float32.
func (p pair) compare(f func(what string, wide, short []float32, rounded bool)) {
	loss := kernels.IsLoss(p.wide.call.Op)
	w, s := &p.wide.o, &p.short.o
	if loss {
		f("Y", p.wide.get(w.Y), p.short.get(s.Y), false)
	} else {
		f("Y", p.wide.get(w.Y), p.short.brains(s.Y), true)
	}
	for i := range w.DX {
		if !p.wide.call.Skips(i) {
			f(fmt.Sprintf("DX[%d]", i), p.wide.get(w.DX[i]), p.short.brains(s.DX[i]), true)
		}
	}
	for role, spans := range map[string][2][]runtime.Span{"Saved": {w.Saved, s.Saved}, "DParams": {w.DParams, s.DParams}, "Params": {w.Params, s.Params}} {
		for i := range spans[0] {
			f(fmt.Sprintf("%s[%d]", role, i), p.wide.get(spans[0][i]), p.short.get(spans[1][i]), false)
		}
	}
}

// If the weights are bfloat16s too, a call in bfloat16 gives the float32 result on the same values, bit for bit. Each element of Y and DX
// is rounded once. With any other weights the result is near.
func TestBFloat16(t *testing.T) {
	t.Parallel()
	compared := 0
	for i, c := range ops {
		for k := range 8 {
			train, add, exact := k&1 == 0, k&2 != 0, k&4 == 0
			p := bindPair(t, c.op, c.in, uint64(i))
			if c.op.Split() && exact {
				p.wide.roundTensors(kernels.RoundBFloat16, p.wide.o.Params[0])
				p.short.roundTensors(kernels.RoundBFloat16, p.short.o.Params[0])
			}
			check := func(what string, wide, short []float32, rounded bool) {
				compared++
				for j := range wide {
					want, most := wide[j], largest(wide)
					if exact && rounded {
						want = kernels.RoundBFloat16(want)
					}
					if d := math.Abs(float64(short[j] - want)); exact && short[j] != want || d > 1e-2*most {
						t.Fatalf("%d %s, train %v, add %v: element %d of %s is %v, want %v", i, c.op.Kind(), train, add, j, what, short[j], want)
					}
				}
			}
			for _, pass := range append([]kernels.Pass{kernels.Forward}, backwards(c.op)...) {
				if _, pool := c.op.(kernels.MaxPool); pool && !train && pass != kernels.Forward {
					break // it saved no indices
				}
				p.run(t, pass, train, add && pass != kernels.Forward)
				p.compare(check)
				if !kernels.IsLoss(c.op) {
					p.wide.roundTensors(kernels.RoundBFloat16, p.wide.o.Y) // as backward reads it
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("compared %d tensors", compared)
	}
}

func largest(v []float32) float64 {
	most := 0.0
	for _, x := range v {
		most = max(most, math.Abs(float64(x)))
	}
	return most
}

// A sum of products is rounded at its end, not on the way; a weight is rounded before, a bias is not.
func TestBFloat16ByHand(t *testing.T) {
	t.Parallel()
	b := bind(t, kernels.Linear{Out: 1, Bias: true}, []kernels.Desc{kernels.F32(1, 3).As(kernels.BFloat16)}, 1)
	one := []byte{0x80, 0x3f}
	copy(b.bytes[b.o.X[0].Offset:], slices.Repeat(one, 3))
	b.put(b.o.Params[0], 1, 0x1p-8, 0x1p-8) // 1 + 2^-8 would be 1
	b.put(b.o.Params[1], 0)
	b.pass(t, kernels.Forward)
	is(t, "a sum", b.brains(b.o.Y), 1+0x1p-7)
	b.put(b.o.Params[0], 1+0x1p-8, -1, 0)
	b.pass(t, kernels.Forward)
	is(t, "a rounded weight", b.brains(b.o.Y), 0)
	b.put(b.o.Params[0], 1, -1, 0)
	b.put(b.o.Params[1], 0x1.01p-8)
	b.pass(t, kernels.Forward)
	if got, want := b.brains(b.o.Y)[0], kernels.RoundBFloat16(0x1.01p-8); got != want {
		t.Errorf("a bias is %v, want %v", got, want)
	}
}

// Cast rounds one way and widens the other; its backward does the opposite, and can add.
func TestCast(t *testing.T) {
	t.Parallel()
	b := bind(t, kernels.Cast{To: kernels.BFloat16}, []kernels.Desc{kernels.F32(3)}, 1)
	b.put(b.o.X[0], 1+0x1p-8, float32(math.Inf(-1)), 3)
	b.pass(t, kernels.Forward)
	if got := b.brains(b.o.Y); !slices.Equal(got, []float32{1, float32(math.Inf(-1)), 3}) {
		t.Errorf("the cast is %v", got)
	}
	copy(b.bytes[b.o.DY.Offset:], b.bytes[b.o.Y.Offset:b.o.Y.End()])
	b.put(b.o.DX[0], 0x1p-20, 0, 0)
	b.call.AddDX = []bool{true}
	b.pass(t, kernels.Backward)
	if got := b.get(b.o.DX[0]); !slices.Equal(got, []float32{1 + 0x1p-20, float32(math.Inf(-1)), 3}) {
		t.Errorf("its gradient is %v", got)
	}

	b = bind(t, kernels.Cast{}, []kernels.Desc{kernels.F32(3).As(kernels.BFloat16)}, 1)
	b.put(b.o.DY, 1+0x1p-8, 1+0x1.8p-7, 0)
	b.pass(t, kernels.Forward, kernels.Backward)
	if !slices.Equal(b.get(b.o.Y), b.brains(b.o.X[0])) {
		t.Errorf("%v became %v", b.brains(b.o.X[0]), b.get(b.o.Y))
	}
	if got := b.brains(b.o.DX[0]); !slices.Equal(got, []float32{1, 1 + 0x1p-6, 0}) {
		t.Errorf("the gradient of widening is %v", got)
	}
	before := slices.Clone(b.bytes)
	b.call.SkipDX = []bool{true}
	b.pass(t, kernels.Backward)
	if !slices.Equal(b.bytes, before) {
		t.Error("a gradient that nobody wants is written")
	}
}

// A product has the same bits from a weight in float32, which it rounds, and from one that an update has rounded in memory.
func TestRoundedWeight(t *testing.T) {
	t.Parallel()
	descs := []kernels.Desc{kernels.F32(3, 5).As(kernels.BFloat16)}
	b := bind(t, kernels.Linear{Out: 7, Bias: true}, descs, 1)
	weight, n := b.o.Params[0], int64(7*5)
	rounded := b.tensor(kernels.Desc{Shape: kernels.Shape{7, 5}, DType: kernels.BFloat16})
	o := kernels.UpdateOperands{Elements: n, Param: weight, Grad: b.tensor(kernels.F32(7, 5)), Rounded: rounded, Scalars: b.tensor(kernels.F32(kernels.ScalarsBytes / 4))}
	kernels.Scalars{LR: 0.1, GradScale: 1}.Put(b.bytes[o.Scalars.Offset:])
	launch, err := b.lib.PrepareUpdate(kernels.SGD{}, o)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(b.get(weight))
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(before, b.get(weight)) {
		t.Fatal("the update moved nothing")
	}
	for i, w := range b.get(weight) {
		if got := b.brains(rounded)[i]; got != kernels.RoundBFloat16(w) {
			t.Errorf("weight %d is %v, rounded %v", i, w, got)
		}
	}
	for pass, out := range map[kernels.Pass]*runtime.Span{kernels.Forward: &b.o.Y, kernels.BackwardInput: &b.o.DX[0]} {
		c := kernels.Call{Op: kernels.Linear{Out: 7, Bias: true}, In: descs, Pass: pass, Train: true}
		b.run(t, c, b.o)
		want, narrow := slices.Clone(b.brains(*out)), b.o
		narrow.Params = slices.Clone(b.o.Params)
		narrow.Params[0], c.Weight = rounded, kernels.BFloat16
		clear(b.bytes[out.Offset:out.End()])
		b.run(t, c, narrow)
		if got := b.brains(*out); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", pass, got, want)
		}
	}
}
