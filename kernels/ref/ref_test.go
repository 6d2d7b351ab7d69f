package ref_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
)

// memory is a heap whose spans the library resolves.
type memory struct {
	bytes []byte
	lib   *ref.Library
}

func newMemory() *memory {
	m := &memory{}
	m.lib = ref.New(m)
	return m
}

func (m *memory) Bytes(s runtime.Span) ([]byte, error) {
	if s.End() > int64(len(m.bytes)) {
		return nil, fmt.Errorf("%v is not there", s)
	}
	return m.bytes[s.Offset:s.End()], nil
}

func (m *memory) alloc(d kernels.Desc) runtime.Span {
	s := runtime.Span{Offset: int64(len(m.bytes)), Bytes: d.Bytes()}
	m.bytes = append(m.bytes, make([]byte, d.Storage())...)
	return s
}

func (m *memory) put(s runtime.Span, v ...float32) {
	for i, x := range v {
		binary.LittleEndian.PutUint32(m.bytes[s.Offset+int64(4*i):], math.Float32bits(x))
	}
}

func (m *memory) get(s runtime.Span) []float32 {
	v := make([]float32, s.Bytes/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(m.bytes[s.Offset+int64(4*i):]))
	}
	return v
}

func (m *memory) run(t testing.TB, c kernels.Call, o kernels.Operands) {
	t.Helper()
	l, err := m.lib.Prepare(c, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
}

// bound is a call's operands, each in memory of its own, with random contents.
type bound struct {
	*memory
	call kernels.Call
	o    kernels.Operands
	rand *rand.Rand
}

func bind(t testing.TB, op kernels.Op, in []kernels.Desc, seed uint64) *bound {
	t.Helper()
	b := &bound{memory: newMemory(), call: kernels.Call{Op: op, In: in, Train: true, Salt: 5}, rand: rand.New(rand.NewPCG(seed, 9))}
	y, err := op.Infer(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range in {
		b.o.X = append(b.o.X, b.tensor(d))
		b.o.DX = append(b.o.DX, b.tensor(d))
		b.call.SkipDX = append(b.call.SkipDX, !d.DType.Float())
	}
	for _, d := range op.Saved(in) {
		b.o.Saved = append(b.o.Saved, b.tensor(d))
	}
	for _, p := range op.Params(in) {
		b.o.Params = append(b.o.Params, b.tensor(p.Desc))
		b.o.DParams = append(b.o.DParams, b.tensor(p.Desc))
	}
	b.o.Y, b.o.DY = b.tensor(y), b.tensor(y)
	b.o.Scalars = b.alloc(kernels.F32(kernels.ScalarsBytes / 4))
	kernels.Scalars{Seed: 1, Step: 2}.Put(b.bytes[b.o.Scalars.Offset:])
	return b
}

func (b *bound) tensor(d kernels.Desc) runtime.Span {
	s := b.alloc(d)
	for i := range d.Elements() {
		switch d.DType {
		case kernels.Int32:
			binary.LittleEndian.PutUint32(b.bytes[s.Offset+4*i:], uint32(b.rand.IntN(3)))
		case kernels.BFloat16:
			binary.LittleEndian.PutUint16(b.bytes[s.Offset+2*i:], kernels.ToBFloat16(float32(b.rand.NormFloat64())))
		default:
			b.put(runtime.Span{Offset: s.Offset + 4*i}, float32(b.rand.NormFloat64()))
		}
	}
	return s
}

func (b *bound) pass(t testing.TB, passes ...kernels.Pass) {
	t.Helper()
	for _, p := range passes {
		c := b.call
		c.Pass = p
		b.run(t, c, b.o)
	}
}

func backwards(op kernels.Op) []kernels.Pass {
	if op.Split() {
		return []kernels.Pass{kernels.BackwardParams, kernels.BackwardInput}
	}
	return []kernels.Pass{kernels.Backward}
}

// image is a batch of small images, large enough that no window is empty.
var image = kernels.F32(3, 5, 4, 4)

var ops = []struct {
	op kernels.Op
	in []kernels.Desc
}{
	{kernels.Conv2D{Out: 3, KernelH: 3, KernelW: 2}, []kernels.Desc{image}},
	{kernels.Conv2D{Out: 6, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 1, PadH: 1, PadW: 2, DilationH: 2, DilationW: 1, Groups: 2, Bias: true}, []kernels.Desc{image}},
	{kernels.BatchNorm{}, []kernels.Desc{image}},
	{kernels.BatchNorm{Epsilon: 0.1}, []kernels.Desc{kernels.F32(7, 3)}},
	{kernels.BatchNorm{ReLU: true}, []kernels.Desc{image}},
	{kernels.BatchNorm{Residual: true, ReLU: true}, []kernels.Desc{image, image}},
	{kernels.ReLU{}, []kernels.Desc{image}},
	{kernels.ReLU{Max: 0.5}, []kernels.Desc{image}},
	{kernels.Add{}, []kernels.Desc{image, image}},
	{kernels.Concat{}, []kernels.Desc{image, kernels.F32(3, 5, 4, 2), kernels.F32(3, 5, 4, 1)}},
	{kernels.Concat{Axis: 1}, []kernels.Desc{image, kernels.F32(3, 2, 4, 4)}},
	{kernels.MaxPool{KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 1, PadH: 1, PadW: 1}, []kernels.Desc{image}},
	{kernels.AvgPool{KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 1, PadH: 1, PadW: 1}, []kernels.Desc{image}},
	{kernels.GlobalAvgPool{}, []kernels.Desc{image}},
	{kernels.AdaptiveAvgPool{OutH: 2, OutW: 7}, []kernels.Desc{image}},
	{kernels.Pack{}, []kernels.Desc{image, kernels.F32(3, 7)}},
	{kernels.Slice{Rows: 5, From: 3, H: 5, W: 2, C: 4}, []kernels.Desc{image}},
	{kernels.Upsample{Factor: 3}, []kernels.Desc{image}},
	{kernels.Pad{Top: 2, Bottom: -1, Left: -1, Right: 3}, []kernels.Desc{image}},
	{kernels.Pad{Top: 7, Bottom: -2, Left: -1, Right: 1, Circular: true}, []kernels.Desc{image}},
	{kernels.Resize{OutH: 7, OutW: 3}, []kernels.Desc{image}},
	{kernels.Resize{OutH: 3, OutW: 9, AlignCorners: true}, []kernels.Desc{image}},
	{kernels.Resize{OutH: 7, OutW: 3, Nearest: true}, []kernels.Desc{image}},
	{kernels.Linear{Out: 3}, []kernels.Desc{kernels.F32(4, 5)}},
	{kernels.Linear{Out: 3, Bias: true}, []kernels.Desc{image}},
	{kernels.Dropout{P: 0.4}, []kernels.Desc{image}},
	{kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(6, 3), {Shape: kernels.Shape{6}, DType: kernels.Int32}}},
	{kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(2, 3, 3), {Shape: kernels.Shape{2, 3}, DType: kernels.Int32}}},
	{kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(2, 3, 2, 3), {Shape: kernels.Shape{2, 3, 2}, DType: kernels.Int32}}},
	{kernels.ElementLoss{Of: kernels.MSE}, []kernels.Desc{kernels.F32(6, 3), kernels.F32(6, 3)}},
	{kernels.ElementLoss{Of: kernels.L1}, []kernels.Desc{kernels.F32(6, 3), kernels.F32(6, 3)}},
	{kernels.ElementLoss{Of: kernels.BCE}, []kernels.Desc{kernels.F32(6, 3), kernels.F32(6, 3)}},
	{kernels.Linear{Out: 3, Bias: true, LastAxis: true}, []kernels.Desc{image}},
	{kernels.Embedding{Vocabulary: 3, Width: 4, Positions: 6}, []kernels.Desc{{Shape: kernels.Shape{2, 5}, DType: kernels.Int32}}},
	{kernels.Embedding{Vocabulary: 3, Width: 4}, []kernels.Desc{{Shape: kernels.Shape{2, 5}, DType: kernels.Int32}}},
	{kernels.LayerNorm{}, []kernels.Desc{kernels.F32(2, 3, 5)}},
	{kernels.LayerNorm{Epsilon: 0.1, FromOne: true}, []kernels.Desc{kernels.F32(2, 3, 5)}},
	{kernels.RMSNorm{Epsilon: 0.1}, []kernels.Desc{kernels.F32(2, 3, 5)}},
	{kernels.RMSNorm{Epsilon: 0.1, FromOne: true}, []kernels.Desc{kernels.F32(2, 3, 5)}},
	{kernels.Affine{Factor: -0.5, Plus: 2}, []kernels.Desc{image}},
	{kernels.GELU{}, []kernels.Desc{image}},
	{kernels.GELU{Tanh: true}, []kernels.Desc{image}},
	{kernels.SiLU{}, []kernels.Desc{image}},
	{kernels.Multiply{}, []kernels.Desc{image, image}},
	{kernels.Rotary{Heads: 2, Dim: 6, Base: 10, Turned: 4}, []kernels.Desc{kernels.F32(2, 6, 13)}},
	{kernels.Rotary{Heads: 2, Dim: 4, Base: 10}, []kernels.Desc{kernels.F32(2, 6, 10)}},
	{kernels.Attention{Heads: 2}, []kernels.Desc{kernels.F32(2, 5, 6*3)}},
	{kernels.Attention{Heads: 4, KVHeads: 2}, []kernels.Desc{kernels.F32(2, 5, 8*3)}},
	{kernels.Attention{Heads: 4, KVHeads: 2, Bidirectional: true}, []kernels.Desc{kernels.F32(2, 5, 8*3)}},
	{kernels.Attention{Heads: 4, KVHeads: 2, Bidirectional: true, Scale: 0.4, Table: 3, Masks: 2}, []kernels.Desc{kernels.F32(4, 5, 8*3)}},
	{kernels.Attention{Heads: 2, Table: 3, Masks: 1, MaskHeads: true}, []kernels.Desc{kernels.F32(2, 5, 6*3)}},
	{kernels.NewRearrange([]int{2, 5, 3}, 3, []kernels.Loop{{N: 2, Stride: 20}, {N: 5, Stride: 1}, {N: 3, Stride: 6}}), []kernels.Desc{kernels.F32(2, 4, 5)}},
	{kernels.Bias{Axes: 2}, []kernels.Desc{kernels.F32(3, 4, 5)}},
	{kernels.Scale{Axes: 2}, []kernels.Desc{kernels.F32(3, 4, 5)}},
	{kernels.AddRows{Rows: 7, First: 2, Step: 1}, []kernels.Desc{kernels.F32(3, 4, 5)}},
	{kernels.AddRows{Rows: 3, First: 1}, []kernels.Desc{kernels.F32(3, 4, 5)}},
	{kernels.Prepend{Rows: 2}, []kernels.Desc{kernels.F32(3, 4, 5)}},
	{kernels.Gate{}, []kernels.Desc{image, kernels.F32(image.Shape[0], image.Shape[3])}},
	{kernels.Pointwise{Of: kernels.Sigmoid}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.Tanh}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.HardSigmoid}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.HardSwish}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.Leaky, By: 0.25}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.ELU, By: 0.75}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.Softplus}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.Mish}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.Abs}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.AtLeast, By: -0.25}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.AtMost, By: 0.25}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.Exp}, []kernels.Desc{image}},
	{kernels.Pointwise{Of: kernels.Power, By: 3}, []kernels.Desc{image}},
	{kernels.GroupNorm{Groups: 2, Epsilon: 0.1}, []kernels.Desc{kernels.F32(2, 3, 2, 4)}},
	{kernels.GroupNorm{Groups: 3, Plain: true}, []kernels.Desc{kernels.F32(2, 3, 2, 3)}},
	{kernels.ConvTranspose2D{Out: 4, KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 3, PadH: 1, ExtraH: 1, ExtraW: 2, DilationH: 2, Groups: 2}, []kernels.Desc{kernels.F32(2, 3, 2, 6)}},
	{kernels.BatchNorm{Frozen: true}, []kernels.Desc{image}},
	{kernels.MaxPool{KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 3, PadH: 1, Ceil: true}, []kernels.Desc{kernels.F32(2, 6, 6, 3)}},
	{kernels.AvgPool{KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 3, PadH: 1, Ceil: true, Inside: true}, []kernels.Desc{kernels.F32(2, 6, 6, 3)}},
	{kernels.AvgPool{KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 3, PadH: 1, PadW: 1, Ceil: true}, []kernels.Desc{kernels.F32(2, 6, 6, 3)}},
}

// Every gradient of every op is the slope of its output: along the gradient, the output moves as far as it says.
func TestGradients(t *testing.T) {
	t.Parallel()
	compared := 0
	for i, c := range ops {
		t.Run(fmt.Sprintf("%d %s", i, c.op.Kind()), func(t *testing.T) {
			b := bind(t, c.op, c.in, uint64(i))
			if kernels.IsLoss(c.op) {
				b.put(b.o.DY, 1, 0, 0)
			}
			b.pass(t, kernels.Forward)
			b.pass(t, backwards(c.op)...)
			for j := range c.in {
				if !b.call.Skips(j) {
					slope(t, b, fmt.Sprintf("X[%d]", j), b.o.X[j], b.o.DX[j])
					compared++
				}
			}
			for j, p := range c.op.Params(c.in) {
				if p.Trained {
					slope(t, b, p.Name, b.o.Params[j], b.o.DParams[j])
					compared++
				}
			}
		})
	}
	if compared != 121 {
		t.Errorf("compared %d gradients", compared)
	}
}

// slope moves x along its gradient, in steps so short that no ReLU or maximum switches, and compares.
func slope(t *testing.T, b *bound, name string, x, dx runtime.Span) {
	t.Helper()
	at, g := b.get(x), b.get(dx)
	norm := math.Sqrt(dot(g, g))
	const step = 2e-3
	value := func(s float64) float64 {
		moved := slices.Clone(at)
		for i := range moved {
			moved[i] += float32(s / norm * float64(g[i]))
		}
		b.put(x, moved...)
		b.pass(t, kernels.Forward)
		b.put(x, at...)
		return dot(b.get(b.o.DY), b.get(b.o.Y))
	}
	if d := (value(step) - value(-step)) / (2 * step); math.Abs(d/norm-1) > 5e-3 {
		t.Errorf("%s: slope %v, the gradient says %v", name, d, norm)
	}
}

func dot(v, w []float32) (sum float64) {
	for i := range v {
		sum += float64(v[i]) * float64(w[i])
	}
	return sum
}

// AddDX and AddParams add to what is there, SkipDX leaves alone what is there.
func TestAccumulation(t *testing.T) {
	t.Parallel()
	for i, c := range ops {
		b := bind(t, c.op, c.in, uint64(i))
		b.pass(t, kernels.Forward)
		before := b.gradients()
		b.pass(t, backwards(c.op)...)
		written := b.gradients()
		b.setGradients(before)
		b.call.AddDX, b.call.AddParams = slices.Repeat([]bool{true}, len(c.in)), true
		b.pass(t, backwards(c.op)...)
		for j, added := range b.gradients() {
			if !b.trained(j) {
				continue
			}
			for k := range added {
				if want := float64(before[j][k]) + float64(written[j][k]); math.Abs(float64(added[k])-want) > 1e-5*(1+math.Abs(want)) {
					t.Fatalf("%d %s: gradient %d, element %d is %v after adding, want %v", i, c.op.Kind(), j, k, added[k], want)
				}
			}
		}
		b.setGradients(before)
		b.call.SkipDX = slices.Repeat([]bool{true}, len(c.in))
		b.pass(t, backwards(c.op)...)
		for j := range c.in {
			if !slices.Equal(b.gradients()[j], before[j]) {
				t.Errorf("%d %s: gradient %d was skipped and changed", i, c.op.Kind(), j)
			}
		}
	}
}

// gradients returns the contents of DX, then of DParams.
func (b *bound) gradients() (all [][]float32) {
	for _, s := range slices.Concat(b.o.DX, b.o.DParams) {
		all = append(all, b.get(s))
	}
	return all
}

func (b *bound) setGradients(all [][]float32) {
	for i, s := range slices.Concat(b.o.DX, b.o.DParams) {
		b.put(s, all[i]...)
	}
}

// trained reports whether gradient j is computed: not that of labels or buffers.
func (b *bound) trained(j int) bool {
	if j < len(b.call.In) {
		return !b.call.Skips(j)
	}
	return b.call.Op.Params(b.call.In)[j-len(b.call.In)].Trained
}

// Every alias that an op declares changes no bit.
func TestAliases(t *testing.T) {
	t.Parallel()
	aliases := map[kernels.DType]int{}
	for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
		for _, c := range ops {
			in := in(c.op, c.in, d)
			for _, pass := range append([]kernels.Pass{kernels.Forward}, backwards(c.op)...) {
				for _, out := range []kernels.Operand{{Role: kernels.Y}, {Role: kernels.DX}, {Role: kernels.DX, Index: 1}} {
					for _, from := range []kernels.Operand{{Role: kernels.X}, {Role: kernels.X, Index: 1}, {Role: kernels.Y}, {Role: kernels.DY}, {Role: kernels.Save}} {
						if has(in, pass, out) && has(in, pass, from) && c.op.Alias(pass, out, from) && alias(t, c.op, in, pass, out, from) {
							aliases[d]++
						}
					}
				}
			}
		}
	}
	if aliases[kernels.Float32] != 126 || aliases[kernels.BFloat16] != 126 {
		t.Errorf("tried %v aliases", aliases)
	}
}

// activation reports whether input i of an op is one: labels and targets are none.
func activation(op kernels.Op, i int, d kernels.Desc) bool {
	return d.DType.Float() && !(i == 1 && kernels.IsLoss(op))
}

// in returns inputs in another type; labels and targets stay what they are.
func in(op kernels.Op, descs []kernels.Desc, d kernels.DType) []kernels.Desc {
	descs = slices.Clone(descs)
	for i := range descs {
		if activation(op, i, descs[i]) {
			descs[i].DType = d
		}
	}
	return descs
}

// has reports whether a pass over inputs in has the operand.
func has(in []kernels.Desc, pass kernels.Pass, o kernels.Operand) bool {
	switch o.Role {
	case kernels.X:
		return o.Index < len(in)
	case kernels.DX:
		return pass != kernels.Forward && o.Index < len(in) && in[o.Index].DType.Float()
	}
	return true
}

// alias runs a pass with and without the alias, and reports whether the two operands have the same bytes to share.
func alias(t *testing.T, op kernels.Op, in []kernels.Desc, pass kernels.Pass, out, from kernels.Operand) bool {
	t.Helper()
	var results [2][]byte
	for shared := range results {
		b := bind(t, op, in, 1)
		if pass != kernels.Forward {
			b.pass(t, kernels.Forward)
		}
		if b.operand(out).Bytes != b.operand(from).Bytes {
			return false
		}
		if shared == 1 {
			*b.operand(out) = *b.operand(from)
		}
		b.pass(t, pass)
		results[shared], _ = b.Bytes(*b.operand(out))
	}
	if !slices.Equal(results[0], results[1]) {
		t.Errorf("%s of %v, %v: %v on %v changes it", op.Kind(), in, pass, out, from)
	}
	return true
}

func (b *bound) operand(o kernels.Operand) *runtime.Span {
	switch o.Role {
	case kernels.X:
		return &b.o.X[o.Index]
	case kernels.Y:
		return &b.o.Y
	case kernels.DX:
		return &b.o.DX[o.Index]
	case kernels.DY:
		return &b.o.DY
	}
	return &b.o.Saved[o.Index]
}

// Values worked out by hand.
func TestByHand(t *testing.T) {
	t.Parallel()
	b := bind(t, kernels.Conv2D{Out: 1, KernelH: 2, KernelW: 2, PadW: 1, Bias: true}, []kernels.Desc{kernels.F32(1, 2, 2, 1)}, 1)
	b.put(b.o.X[0], 1, 2, 3, 4)
	b.put(b.o.Params[0], 10, 20, 30, 40)
	b.put(b.o.Params[1], 5)
	b.pass(t, kernels.Forward)
	is(t, "conv2d", b.get(b.o.Y), 20*1+40*3+5, 10*1+20*2+30*3+40*4+5, 10*2+30*4+5)

	b = bind(t, kernels.MaxPool{KernelH: 1, KernelW: 2}, []kernels.Desc{kernels.F32(1, 1, 4, 1)}, 1)
	b.put(b.o.X[0], 7, 7, -2, -1)
	b.put(b.o.DY, 3, 4)
	b.pass(t, kernels.Forward, kernels.Backward)
	is(t, "maxpool", b.get(b.o.Y), 7, -1)
	is(t, "gradient of maxpool", b.get(b.o.DX[0]), 3, 0, 0, 4)

	b = bind(t, kernels.BatchNorm{Epsilon: 1, Momentum: 0.5}, []kernels.Desc{kernels.F32(2, 1)}, 1)
	b.call.UpdateStats = true
	b.put(b.o.X[0], 1-math.Sqrt2*2, 1+math.Sqrt2*2) // mean 1, variance 8, unbiased 16
	for i, v := range []float32{6, 1, 3, 2} {
		b.put(b.o.Params[i], v)
	}
	b.pass(t, kernels.Forward)
	is(t, "batchnorm", b.get(b.o.Y), 1-4*math.Sqrt2, 1+4*math.Sqrt2)
	is(t, "running mean", b.get(b.o.Params[2]), 2)
	is(t, "running variance", b.get(b.o.Params[3]), 9)

	b = bind(t, kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(2, 2), {Shape: kernels.Shape{2}, DType: kernels.Int32}}, 1)
	b.put(b.o.X[0], 0, float32(math.Log(3)), 500, 500)
	binary.LittleEndian.PutUint64(b.bytes[b.o.X[1].Offset:], 1) // labels 1, 0
	b.pass(t, kernels.Forward, kernels.Backward)
	is(t, "loss", b.get(b.o.Y), float32((math.Log(4.0/3)+math.Log(2))/2), 2, 2)
	is(t, "gradient of loss", b.get(b.o.DX[0]), 0.125, -0.125, -0.25, 0.25)
	binary.LittleEndian.PutUint64(b.bytes[b.o.X[1].Offset:], 2)
	b.pass(t, kernels.Forward)
	if y := b.get(b.o.Y); y[0] == y[0] {
		t.Errorf("the loss of a label out of range is %v", y[0])
	}

	// An image of 2x2 pixels: ln 2 of each that counts, and 0 where there is none.
	b = bind(t, kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(1, 2, 2, 2), {Shape: kernels.Shape{1, 2, 2}, DType: kernels.Int32}}, 1)
	b.put(b.o.X[0], 1, 1, 2, 2, 3, 3, 4, 4)
	label := func(pixel int, class int32) {
		binary.LittleEndian.PutUint32(b.bytes[b.o.X[1].Offset+int64(4*pixel):], uint32(class))
	}
	for pixel, class := range []int32{1, kernels.Ignored, 0, 0} {
		label(pixel, class)
	}
	b.pass(t, kernels.Forward, kernels.Backward)
	is(t, "loss of pixels", b.get(b.o.Y), math.Ln2, 2, 3)
	is(t, "gradient of pixels", b.get(b.o.DX[0]), 0.5/3, -0.5/3, 0, 0, -0.5/3, 0.5/3, -0.5/3, 0.5/3)
	for pixel := range 4 {
		label(pixel, kernels.Ignored)
	}
	b.pass(t, kernels.Forward, kernels.Backward)
	is(t, "loss of nothing", append(b.get(b.o.Y), b.get(b.o.DX[0])...), make([]float32, 11)...)
}

// Transformers' ops in closed form.
func TestSequencesByHand(t *testing.T) {
	t.Parallel()
	tokens := kernels.Desc{Shape: kernels.Shape{1, 2}, DType: kernels.Int32}
	b := bind(t, kernels.Embedding{Vocabulary: 2, Width: 1, Positions: 3}, []kernels.Desc{tokens}, 1)
	b.put(b.o.Params[0], 10, 20)
	b.put(b.o.Params[1], 1, 2, 3)
	b.put(b.o.DY, 5, 7)
	binary.LittleEndian.PutUint64(b.bytes[b.o.X[0].Offset:], 1<<32|1)
	b.pass(t, kernels.Forward, kernels.Backward)
	is(t, "embedding", b.get(b.o.Y), 21, 22)
	is(t, "gradient of tokens", b.get(b.o.DParams[0]), 0, 12)
	is(t, "gradient of positions", b.get(b.o.DParams[1]), 5, 7, 0)
	binary.LittleEndian.PutUint32(b.bytes[b.o.X[0].Offset:], 2)
	b.pass(t, kernels.Forward)
	if y := b.get(b.o.Y); y[0] == y[0] || y[1] != 22 {
		t.Errorf("a token out of range and one in it embed as %v", y)
	}

	b = bind(t, kernels.LayerNorm{Epsilon: 1}, []kernels.Desc{kernels.F32(1, 2)}, 1)
	b.put(b.o.X[0], 1-math.Sqrt2*2, 1+math.Sqrt2*2) // mean 1, variance 8
	b.put(b.o.Params[0], 6, 3)
	b.put(b.o.Params[1], 1, 2)
	b.pass(t, kernels.Forward)
	is(t, "layernorm", b.get(b.o.Y), 1-4*math.Sqrt2, 2+2*math.Sqrt2)
	is(t, "its statistics", append(b.get(b.o.Saved[0]), b.get(b.o.Saved[1])...), 1, 1.0/3)

	b = bind(t, kernels.RMSNorm{Epsilon: 3.5}, []kernels.Desc{kernels.F32(1, 2)}, 1)
	b.put(b.o.X[0], 3, 4) // mean square 12.5
	b.put(b.o.Params[0], 4, 8)
	b.pass(t, kernels.Forward)
	is(t, "rmsnorm", b.get(b.o.Y), 3, 8)

	for op, want := range map[kernels.Op]float32{
		kernels.GELU{}: 0.8413447, kernels.GELU{Tanh: true}: 0.8411920, kernels.SiLU{}: 0.7310586, // PyTorch's at 1
	} {
		b = bind(t, op, []kernels.Desc{kernels.F32(2)}, 1)
		b.put(b.o.X[0], 1, -1)
		b.pass(t, kernels.Forward)
		is(t, op.Kind(), b.get(b.o.Y), want, want-1)
	}

	b = bind(t, kernels.Rotary{Heads: 1, Dim: 2}, []kernels.Desc{kernels.F32(1, 2, 3)}, 1)
	b.put(b.o.X[0], 1, 2, 3, 1, 0, 4)
	b.pass(t, kernels.Forward)
	is(t, "rotary", b.get(b.o.Y), 1, 2, 3, float32(math.Cos(1)), float32(math.Sin(1)), 4)

	// The second position's query meets scores ln 3 and 0: its weights are 3/4 and 1/4.
	b = bind(t, kernels.Attention{Heads: 1}, []kernels.Desc{kernels.F32(1, 2, 3)}, 1)
	b.put(b.o.X[0], 9, float32(math.Log(3)), 8, 1, 0, 4)
	b.pass(t, kernels.Forward)
	is(t, "attention", b.get(b.o.Y), 8, 7)
	is(t, "its rows", b.get(b.o.Saved[0]), 9*float32(math.Log(3)), float32(math.Log(4)))
}

func is(t *testing.T, what string, got []float32, want ...float32) {
	t.Helper()
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-5*(1+math.Abs(float64(want[i]))) {
			t.Errorf("%s is %v, want %v", what, got, want)
			return
		}
	}
}

// Two steps of every rule, worked out by hand: weight 1, gradients 2 (scaled by 1/2 to 1) and -1/2, rate 0.1.
func TestUpdates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule kernels.Update
		want [2]float32
	}{
		{kernels.SGD{}, [2]float32{0.9, 0.95}},
		{kernels.SGD{WeightDecay: 0.5}, [2]float32{1 - 0.15, 0.85 - 0.1*(-0.5+0.425)}},
		{kernels.SGD{Momentum: 0.9}, [2]float32{0.9, 0.9 - 0.1*(0.9-0.5)}},
		{kernels.SGD{Momentum: 0.9, Dampening: 0.5}, [2]float32{0.9, 0.9 - 0.1*(0.9-0.25)}},
		{kernels.SGD{Momentum: 0.9, Nesterov: true}, [2]float32{1 - 0.19, 0.81 - 0.1*(-0.5+0.9*0.4)}},
		// m = 0.5, v = 0.25 after one step, both corrected to 1; then m = 0, v = (3*0.25+0.25)/4 = 0.25.
		{kernels.Adam{Beta1: 0.5, Beta2: 0.75}, [2]float32{0.9, 0.9}},
		{kernels.Adam{Beta1: 0, Beta2: 0.75, WeightDecay: 1}, [2]float32{0.9, 0.9 - 0.1*0.4/float32(math.Sqrt((0.75*1+0.25*0.16)/0.4375))}},
		{kernels.AdamW{Beta1: 0.5, Beta2: 0.75, WeightDecay: 1}, [2]float32{0.8, 0.72}},
	} {
		m := newMemory()
		one := kernels.F32(1)
		o := kernels.UpdateOperands{Elements: 1, Param: m.alloc(one), Grad: m.alloc(one), Scalars: m.alloc(kernels.F32(kernels.ScalarsBytes / 4))}
		for range c.rule.States() {
			o.States = append(o.States, m.alloc(one))
		}
		m.put(o.Param, 1)
		l, err := m.lib.PrepareUpdate(c.rule, o)
		if err != nil {
			t.Fatal(err)
		}
		for step, gradient := range []float32{2, -1} {
			m.put(o.Grad, gradient)
			kernels.Scalars{Update: uint64(step), LR: 0.1, GradScale: 0.5}.Put(m.bytes[o.Scalars.Offset:])
			if err := l.(interface{ Run() error }).Run(); err != nil {
				t.Fatal(err)
			}
			is(t, fmt.Sprintf("%+v after step %d", c.rule, step+1), m.get(o.Param), c.want[step])
		}
	}
}

// A call that no library can run is refused when it is prepared. A fault that shows only when the call runs is an error
// then.
func TestErrors(t *testing.T) {
	t.Parallel()
	b := bind(t, kernels.ReLU{}, []kernels.Desc{image}, 1)
	b.o.Y.Bytes -= 4
	if _, err := b.lib.Prepare(b.call, b.o); err == nil {
		t.Error("an output that is too short is accepted")
	}
	b = bind(t, kernels.Conv2D{Out: 1, KernelH: 9, KernelW: 9}, []kernels.Desc{kernels.F32(1, 9, 9, 1)}, 1)
	b.call.In = []kernels.Desc{image}
	if _, err := b.lib.Prepare(b.call, b.o); err == nil {
		t.Error("a window that does not fit is accepted")
	}
	if _, err := b.lib.Workspace(b.call); err == nil {
		t.Error("a window that does not fit has a workspace")
	}
	if _, err := b.lib.PrepareUpdate(kernels.Adam{Beta1: 2}, kernels.UpdateOperands{}); err == nil {
		t.Error("an update without operands is accepted")
	}
	b = bind(t, kernels.ReLU{}, []kernels.Desc{image}, 1)
	b.o.Y.Offset = 1 << 30
	if _, err := b.lib.Prepare(b.call, b.o); err == nil {
		t.Error("memory that is not there is accepted")
	}
	b = bind(t, kernels.MaxPool{KernelH: 2, KernelW: 2}, []kernels.Desc{image}, 1)
	b.put(b.o.Saved[0], float32(math.NaN()))
	b.call.Pass = kernels.Backward
	l, err := b.lib.Prepare(b.call, b.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.(interface{ Run() error }).Run(); err == nil {
		t.Error("an index that nobody saved is used")
	}
}

// Dropout keeps 1-P of the elements, scaled, and its gradient passes where they pass; another salt keeps others.
func TestDropout(t *testing.T) {
	t.Parallel()
	in := []kernels.Desc{kernels.F32(100, 100)}
	b := bind(t, kernels.Dropout{P: 0.4}, in, 1)
	b.put(b.o.X[0], slices.Repeat([]float32{3}, 10_000)...)
	b.put(b.o.DY, slices.Repeat([]float32{1}, 10_000)...)
	b.pass(t, kernels.Forward, kernels.Backward)
	y, dx, kept := b.get(b.o.Y), b.get(b.o.DX[0]), 0
	for i := range y {
		if y[i] != 0 {
			kept++
		}
		if math.Abs(float64(y[i]-3*dx[i])) > 1e-6 || y[i] != 0 && y[i] != 5 {
			t.Fatalf("element %d is %v, its gradient %v", i, y[i], dx[i])
		}
	}
	if math.Abs(float64(kept)-6000) > 4*math.Sqrt(2400) {
		t.Errorf("%d of 10000 elements are kept, want about 6000", kept)
	}
	b.call.Salt++
	b.pass(t, kernels.Forward)
	if slices.Equal(b.get(b.o.Y), y) {
		t.Error("two salts drop the same elements")
	}
	b.call.Train = false
	b.pass(t, kernels.Forward)
	if !slices.Equal(b.get(b.o.Y), b.get(b.o.X[0])) {
		t.Error("evaluation drops")
	}
}
