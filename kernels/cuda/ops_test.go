//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda/cudatest"
)

// types of activations, and of factors.
var (
	types       = []kernels.DType{kernels.Float32, kernels.BFloat16}
	factorTypes = append(types, kernels.TF32)
)

// typed describes a tensor of a model of type d.
func typed(d kernels.DType, extents ...int) kernels.Desc {
	return kernels.Desc{Shape: extents, DType: d.Stored()}
}

// as returns an op as models of type d have it.
func as(d kernels.DType, op kernels.Op) kernels.Op {
	if d == kernels.TF32 {
		return kernels.InTF32(op)
	}
	return op
}

// kinds is how many kinds of ops randomOp draws from.
const kinds = 37

// randomOp returns an op with random attributes and inputs of type d that fit it; round cycles through the kinds.
func randomOp(r *rand.Rand, round int, d kernels.DType) (kernels.Op, []kernels.Desc) {
	pick := func(most int) int { return 1 + r.IntN(most) }
	image := typed(d, pick(3), pick(9), pick(9), []int{pick(20), 8 * pick(5)}[r.IntN(2)])
	switch round % kinds {
	case 0:
		return randomConv(r, d)
	case 1:
		return kernels.Linear{Out: pick(70), Bias: r.IntN(2) == 0, LastAxis: r.IntN(2) == 0}, []kernels.Desc{image}
	case 2:
		op := kernels.BatchNorm{Residual: r.IntN(2) == 0, ReLU: r.IntN(2) == 0, Frozen: r.IntN(3) == 0, Epsilon: 1e-3 * float32(r.IntN(2)), Momentum: 0.3 * float32(r.IntN(2))}
		if image.Elements() == channels(image) {
			image.Shape[0]++
		}
		if op.Residual {
			return op, []kernels.Desc{image, image}
		}
		return op, []kernels.Desc{image}
	case 3:
		return kernels.ReLU{Max: float32(r.IntN(2)) / 2}, []kernels.Desc{image}
	case 4:
		return kernels.Add{}, []kernels.Desc{image, image}
	case 5:
		return randomConcat(r, d, image)
	case 6:
		return kernels.MaxPool(randomPool(r, image)), []kernels.Desc{image}
	case 7:
		op := randomPool(r, image)
		op.Inside = r.IntN(2) == 0
		return op, []kernels.Desc{image}
	case 8:
		return kernels.GlobalAvgPool{}, []kernels.Desc{image}
	case 9:
		return kernels.Dropout{P: float32(r.IntN(10)) / 10}, []kernels.Desc{image}
	case 10:
		to := kernels.BFloat16
		if d == to {
			to = kernels.Float32
		}
		return kernels.Cast{To: to}, []kernels.Desc{image}
	case 11:
		return kernels.AdaptiveAvgPool{OutH: pick(9), OutW: pick(9)}, []kernels.Desc{image}
	case 12:
		return kernels.Pack{}, []kernels.Desc{image, typed(d, image.Shape[0], pick(4), pick(4), 4*pick(4)), image}[:pick(3)]
	case 13:
		return randomSlice(r, image), []kernels.Desc{image}
	case 14:
		return kernels.Upsample{Factor: pick(3)}, []kernels.Desc{image}
	case 15:
		image.Shape[3]++ // of one channel nothing is left but rounding
		return kernels.LayerNorm{Epsilon: 1e-3 * float32(r.IntN(2)), FromOne: r.IntN(2) == 0}, []kernels.Desc{image}
	case 16:
		return kernels.RMSNorm{Epsilon: 1e-3 * float32(r.IntN(2)), FromOne: r.IntN(2) == 0}, []kernels.Desc{image}
	case 17:
		return kernels.GELU{Tanh: r.IntN(2) == 0}, []kernels.Desc{image}
	case 18:
		return kernels.SiLU{}, []kernels.Desc{image}
	case 19:
		return kernels.Multiply{}, []kernels.Desc{image, image}
	case 20:
		length := pick(20)
		op := kernels.Embedding{Vocabulary: pick(30), Width: pick(300), Positions: r.IntN(2) * (length + r.IntN(5)), To: d.Stored()}
		op.Fixed = r.IntN(2) * pick(op.Vocabulary)
		if op.Positions > 0 && r.IntN(2) == 0 {
			op.Uncounted = pick(op.Vocabulary)
			op.Positions += op.Uncounted
		}
		return op, []kernels.Desc{{Shape: kernels.Shape{pick(4), length}, DType: kernels.Int32}}
	case 21:
		dim, heads := 2*pick(20), pick(3)
		scaling := []kernels.RotaryScaling{{}, {Factor: 4, High: 1}, {Factor: 8, Low: 1, High: 4, Positions: 16}}[r.IntN(3)]
		return kernels.Rotary{Heads: heads, Dim: dim, Base: 500 * float64(r.IntN(2)), Turned: 2 * r.IntN(dim/2+1), Scaling: scaling}, []kernels.Desc{typed(d, pick(3), pick(40), heads*dim+r.IntN(9))}
	case 22:
		shared, group := pick(2), pick(3)
		return randomTerms(r, kernels.Attention{Heads: shared * group, KVHeads: shared, Bidirectional: r.IntN(2) == 0}), []kernels.Desc{typed(d, pick(2), pick(100), shared*(group+2)*pick(90))}
	case 23:
		return randomRearrange(r, image), []kernels.Desc{image}
	case 24:
		return kernels.Bias{Axes: pick(3)}, []kernels.Desc{image}
	case 25:
		return kernels.Scale{Axes: pick(3)}, []kernels.Desc{image}
	case 26:
		return kernels.Prepend{Rows: pick(3)}, []kernels.Desc{typed(d, pick(3), pick(20), pick(90))}
	case 27:
		return kernels.Gate{}, []kernels.Desc{image, typed(d, image.Shape[0], image.Shape[3])}
	case 28:
		rows, step, length := pick(9), r.IntN(2), pick(20)
		return kernels.AddRows{Rows: rows + step*(length-1), First: r.IntN(rows), Step: step}, []kernels.Desc{typed(d, pick(3), length, pick(90))}
	case 29:
		return randomFunction(r), []kernels.Desc{image}
	case 30:
		return kernels.Affine{Factor: r.Float32(), Plus: r.Float32()}, []kernels.Desc{image}
	case 31:
		return randomPad(r, image), []kernels.Desc{image}
	case 32:
		op := kernels.Resize{OutH: pick(20), OutW: pick(20), Nearest: r.IntN(3) == 0, RatioH: float32(r.IntN(2)) * r.Float32()}
		op.AlignCorners = !op.Nearest && r.IntN(2) == 0
		return op, []kernels.Desc{image}
	case 33:
		groups := pick(4)
		x := typed(d, pick(3), 1+pick(9), 1+pick(9), groups*[]int{pick(20), 8 * pick(5)}[r.IntN(2)])
		return kernels.GroupNorm{Groups: groups, Plain: r.IntN(2) == 0, Epsilon: 1e-3 * float32(r.IntN(2))}, []kernels.Desc{x}
	case 34:
		return randomConvTranspose(r, d)
	case 35:
		return kernels.ElementLoss{Of: kernels.MSE + kernels.Criterion(r.IntN(3))}, []kernels.Desc{image, kernels.F32(image.Shape...)}
	}
	n, classes := pick(40), []int{pick(40), 200 + pick(200)}[r.IntN(2)]
	switch r.IntN(3) {
	case 0:
		return kernels.SoftmaxCrossEntropy{}, []kernels.Desc{typed(d, n, 2, classes), {Shape: kernels.Shape{n, 2}, DType: kernels.Int32}}
	case 1:
		return kernels.SoftmaxCrossEntropy{}, []kernels.Desc{typed(d, 2, n, 3, 1+classes%5), {Shape: kernels.Shape{2, n, 3}, DType: kernels.Int32}}
	}
	return kernels.SoftmaxCrossEntropy{}, []kernels.Desc{typed(d, n, classes), {Shape: kernels.Shape{n}, DType: kernels.Int32}}
}

// randomRearrange takes a part of each axis of an image, in another order of axes.
func randomRearrange(r *rand.Rand, x kernels.Desc) kernels.Op {
	from, stride, shape, loops := 0, 1, make([]int, 4), make([]kernels.Loop, 4)
	strides := make([]int, 4)
	for i := 3; i >= 0; i-- {
		strides[i], stride = stride, stride*x.Shape[i]
	}
	for k, i := range r.Perm(4) {
		step := 1 + r.IntN(2)*r.IntN(2)
		n := 1 + r.IntN((x.Shape[i]-1)/step+1)
		if r.IntN(2) == 0 {
			step, n = 1, x.Shape[i]
		}
		from += r.IntN(x.Shape[i]-(n-1)*step) * strides[i]
		shape[k], loops[k] = n, kernels.Loop{N: n, Stride: step * strides[i]}
	}
	return kernels.NewRearrange(shape, from, loops)
}

// randomConcat has widths that are whole vectors, and others.
func randomConcat(r *rand.Rand, d kernels.DType, image kernels.Desc) (kernels.Op, []kernels.Desc) {
	in := make([]kernels.Desc, 1+r.IntN(4))
	if r.IntN(3) == 0 {
		for i := range in {
			in[i] = typed(d, image.Shape[0], 1+r.IntN(9), image.Shape[2], image.Shape[3])
		}
		return kernels.Concat{Axis: 1}, in
	}
	whole := r.IntN(2) == 0
	for i := range in {
		width := 1 + r.IntN(9)
		if whole {
			width *= 8
		}
		in[i] = typed(d, image.Shape[0], image.Shape[1], image.Shape[2], width)
	}
	return kernels.Concat{}, in
}

// randomPad leaves at least one row and one column.
func randomPad(r *rand.Rand, x kernels.Desc) kernels.Pad {
	side := func(extent int) (int, int) { return r.IntN(extent+3) - extent/2, r.IntN(extent+3) - (extent-1)/2 }
	p := kernels.Pad{Circular: r.IntN(2) == 0}
	p.Top, p.Bottom = side(x.Shape[1])
	p.Left, p.Right = side(x.Shape[2])
	return p
}

// randomSlice takes a part of each row of an image, or of each sample: whole vectors, and others.
func randomSlice(r *rand.Rand, x kernels.Desc) kernels.Slice {
	rows, length := 1, x.Shape[1]*x.Shape[2]*x.Shape[3]
	if r.IntN(2) == 0 {
		rows, length = x.Shape[1], length/x.Shape[1]
	}
	unit := 1
	if length%8 == 0 && r.IntN(4) > 0 {
		unit = 8
	}
	from := r.IntN(length / unit)
	return kernels.Slice{Rows: rows, From: from * unit, H: rows, W: 1, C: (1 + r.IntN(length/unit-from)) * unit}
}

func randomPool(r *rand.Rand, x kernels.Desc) kernels.AvgPool {
	p := kernels.AvgPool{KernelH: 1 + r.IntN(x.Shape[1]), KernelW: 1 + r.IntN(x.Shape[2]), StrideH: r.IntN(4), StrideW: r.IntN(4)}
	p.PadH, p.PadW = r.IntN(p.KernelH/2+1), r.IntN(p.KernelW/2+1)
	p.Ceil = r.IntN(2) == 0
	return p
}

// randomFunction has a parameter where there is one.
func randomFunction(r *rand.Rand) kernels.Pointwise {
	f := kernels.Pointwise{Of: kernels.Function(r.IntN(int(kernels.Functions)))}
	if f.Of.HasParameter() {
		f.By = []float32{0.25, 0.5, 2, 3}[r.IntN(4)]
	}
	return f
}

// randomConvTranspose returns attributes and an image that fit.
func randomConvTranspose(r *rand.Rand, d kernels.DType) (kernels.Op, []kernels.Desc) {
	pick := func(most int) int { return 1 + r.IntN(most) }
	for {
		groups, depth := pick(3), []int{pick(9), 8 * pick(4)}[r.IntN(2)]
		x := typed(d, pick(2), pick(6), pick(6), groups*depth)
		op := kernels.ConvTranspose2D{
			Out: groups * depth, KernelH: pick(4), KernelW: pick(4), StrideH: pick(3), StrideW: pick(3), PadH: pick(3) - 1, PadW: pick(3) - 1,
			DilationH: pick(2), DilationW: pick(2), ExtraH: pick(3) - 1, ExtraW: pick(3) - 1, Groups: groups,
		}
		if _, err := op.Infer([]kernels.Desc{x}); err == nil {
			return op, []kernels.Desc{x}
		}
	}
}

func randomConv(r *rand.Rand, d kernels.DType) (kernels.Op, []kernels.Desc) {
	groups := 1 + r.IntN(3)*r.IntN(2)
	depths := []int{1, 2, 3, 5, 16, 24, 33, 70}
	depth, out := depths[r.IntN(len(depths))], depths[r.IntN(len(depths))]
	c := kernels.Conv2D{
		Out: groups * out, KernelH: 1 + r.IntN(4), KernelW: 1 + r.IntN(4), StrideH: r.IntN(4), StrideW: r.IntN(4),
		PadH: r.IntN(4), PadW: r.IntN(4), DilationH: r.IntN(4), DilationW: r.IntN(4), Groups: groups, Bias: r.IntN(2) == 0,
	}
	x := typed(d, 1+r.IntN(3), 1+r.IntN(12), 1+r.IntN(12), groups*depth)
	for {
		if _, err := c.Infer([]kernels.Desc{x}); err == nil {
			return c, []kernels.Desc{x}
		}
		x.Shape[1]++
		x.Shape[2]++
	}
}

// randomCalls returns the forward and the backward calls of an op with random switches.
func randomCalls(r *rand.Rand, op kernels.Op, in []kernels.Desc) (forward kernels.Call, backward []kernels.Call) {
	flip := func() bool { return r.IntN(2) == 0 }
	forward = kernels.Call{Op: op, In: in, Train: r.IntN(4) > 0, UpdateStats: flip(), Salt: r.Uint64()}
	switch op.(type) {
	case kernels.BatchNorm, kernels.Dropout:
	default:
		forward.Train = true
	}
	passes := []kernels.Pass{kernels.Backward}
	if op.Split() {
		passes = []kernels.Pass{kernels.BackwardInput, kernels.BackwardParams}
	}
	for _, p := range passes {
		c := forward
		c.Pass, c.AddParams = p, flip()
		for range in {
			c.SkipDX, c.AddDX = append(c.SkipDX, r.IntN(4) == 0), append(c.AddDX, flip())
		}
		backward = append(backward, c)
	}
	return forward, backward
}

// check runs forward and then backward against the reference, each twice for the same bits, and returns what backward
// was given and how many calls ran.
func check(t testing.TB, b *bench, l *Library, forward kernels.Call, backward []kernels.Call, inputs data) (data, int) {
	t.Helper()
	d := activations(forward)
	given, expected := maps.Clone(inputs), maps.Clone(inputs)
	for i, c := range append([]kernels.Call{forward}, backward...) {
		want := reference(t, c, expected)
		got := compute(t, b, l, c, given, nil)
		compare(t, c, d, newRig(c, 0, nil).types, got, want)
		sameBits(t, fmt.Sprintf("a second run of %+v", c), compute(t, b, l, c, given, nil), got)
		if c.RoundsWeight() {
			c.Weight = kernels.BFloat16
			sameBits(t, fmt.Sprintf("a weight that is rounded in memory: %+v", c), compute(t, b, l, c, withRounded(given), nil), got)
		}
		if i > 0 {
			continue
		}
		for o, v := range want { // masks and statistics of one library, so that gradients can be compared
			if o.Role == kernels.Y || o.Role == kernels.Save {
				given[o], expected[o] = v, v
			}
		}
		if _, private := c.Op.(kernels.MaxPool); private {
			given[operand(kernels.Save, 0)] = got[operand(kernels.Save, 0)]
		}
	}
	return given, 1 + len(backward)
}

// withRounded returns operands whose weight is in bfloat16.
func withRounded(in data) data {
	out, weight := maps.Clone(in), operand(kernels.ParamRole, 0)
	if wide, ok := in[weight]; ok {
		out[weight] = make([]byte, len(wide)/2)
		for i, w := range floats(wide) {
			binary.LittleEndian.PutUint16(out[weight][2*i:], uint16(math.Float32bits(kernels.RoundBFloat16(w))>>16))
		}
	}
	return out
}

// activations is the least precise type of a call's activations, or factors.
func activations(c kernels.Call) kernels.DType {
	if kernels.UsesTF32(c.Op) {
		return kernels.TF32
	}
	if y, _ := c.Op.Infer(c.In); y.DType == kernels.BFloat16 {
		return y.DType
	}
	return c.In[0].DType
}

// libraries returns the libraries to test: with tensor cores where there are any, and without. When a kernel is not used because it
// computes wrongly, this is an error: the naive one would hide it.
func libraries(t testing.TB, b *bench) []*Library {
	t.Helper()
	var all []*Library
	for _, o := range []Options{{}, {NoTensorCores: true}} {
		o.Note = func(line string) { t.Error(line) }
		l, err := New(b.device, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 || l.tensor != all[0].tensor {
			all = append(all, l)
		}
	}
	return all
}

// TestRandomCalls: every op, pass, type, attribute and switch against the reference; outputs start as NaN, fences stay,
// and a second run gives the same bits.
func TestRandomCalls(t *testing.T) {
	b := newBench(t)
	rounds := 20 * kinds
	if testing.Short() {
		rounds = 4 * kinds
	}
	ran, calls := map[string]int{}, 0
	for round := range rounds {
		for _, d := range factorTypes {
			r := rand.New(rand.NewPCG(uint64(d), uint64(round)))
			op, x := randomOp(r, round, d)
			op = as(d, op)
			if d == kernels.TF32 && !kernels.UsesTF32(op) {
				continue
			}
			forward, backward := randomCalls(r, op, x)
			_, n := check(t, b, libraries(t, b)[0], forward, backward, randomInputs(r, forward))
			calls += n
			ran[fmt.Sprint(op.Kind(), d)] += n
		}
	}
	if len(ran) != 2*kinds+4 || calls < 2*2*rounds {
		t.Errorf("ran %d calls, %v: want %d ops and types", calls, ran, 2*kinds+4)
	}
}

// largeCalls reach what small shapes do not: several tiles and chunks, splits, wide loads, classes of strides.
var largeCalls = []struct {
	op    kernels.Op
	shape []int
}{
	{kernels.Conv2D{Out: 260, KernelH: 3, KernelW: 1, PadH: 1, Bias: true}, []int{2, 13, 13, 8}},
	{kernels.Conv2D{Out: 24, KernelH: 5, KernelW: 5, StrideH: 2, StrideW: 2, PadH: 2, PadW: 2}, []int{2, 24, 25, 3}},
	{kernels.Conv2D{Out: 136, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, []int{1, 14, 14, 32}},
	{kernels.Conv2D{Out: 32, KernelH: 1, KernelW: 1, StrideH: 2, StrideW: 2}, []int{2, 15, 15, 72}},
	{kernels.Conv2D{Out: 36, KernelH: 3, KernelW: 3, PadH: 2, PadW: 2, DilationH: 2, DilationW: 2, Groups: 18}, []int{2, 10, 10, 36}},
	{kernels.Conv2D{Out: 64, KernelH: 1, KernelW: 1}, []int{2, 20, 20, 128}},
	{kernels.Linear{Out: 140, Bias: true}, []int{5, 2104}},
	{kernels.BatchNorm{ReLU: true}, []int{4, 30, 30, 40}},
	{kernels.BatchNorm{}, []int{40_000, 1}},
	{kernels.ReLU{}, []int{50_001}},
	{kernels.ReLU{Max: 0.75}, []int{50_001}},
	{kernels.MaxPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}, []int{2, 20, 21, 64}},
	{kernels.GlobalAvgPool{}, []int{3, 20, 21, 100}},
	{kernels.AdaptiveAvgPool{OutH: 7, OutW: 7}, []int{2, 9, 10, 300}},
	{kernels.Slice{From: 80, H: 9, W: 10, C: 320}, []int{2, 50_000}},
	{kernels.Slice{Rows: 20 * 20, From: 21, H: 20, W: 20, C: 30}, []int{2, 20, 20, 60}},
	{kernels.Upsample{Factor: 2}, []int{2, 20, 21, 40}},
	{kernels.Pad{Top: 2, Bottom: 3, Left: -4, Right: 5}, []int{2, 20, 21, 40}},
	{kernels.Pad{Top: -3, Bottom: 3, Left: 44, Right: 5, Circular: true}, []int{2, 20, 21, 40}},
	{kernels.Resize{OutH: 50, OutW: 33}, []int{2, 20, 21, 40}},
	{kernels.Dropout{P: 0.3}, []int{50_001}},
	{kernels.Linear{Out: 140, Bias: true, LastAxis: true}, []int{2, 5, 2104}},
	{kernels.LayerNorm{}, []int{3, 50, 300}},
	{kernels.RMSNorm{}, []int{700, 1001}},
	{kernels.LayerNorm{}, []int{70, 768}},
	{kernels.RMSNorm{}, []int{21, 1032}},
	{kernels.LayerNorm{}, []int{19, 2048}},
	{kernels.LayerNorm{}, []int{9, 2056}},
	{kernels.ElementLoss{Of: kernels.MSE}, []int{50_001}},
	{kernels.ElementLoss{Of: kernels.L1}, []int{50_001}},
	{kernels.ElementLoss{Of: kernels.BCE}, []int{50_001}},
	{kernels.GELU{}, []int{50_001}},
	{kernels.GELU{Tanh: true}, []int{50_001}},
	{kernels.SiLU{}, []int{50_001}},
	{kernels.Rotary{Heads: 3, Dim: 64}, []int{2, 150, 256}},
	{kernels.Attention{Heads: 2}, []int{2, 150, 6 * 64}},
	{kernels.Attention{Heads: 4, KVHeads: 2}, []int{1, 200, 8 * 130}},
	{kernels.Attention{Heads: 2, Bidirectional: true}, []int{2, 150, 6 * 64}},
	{kernels.Attention{Heads: 2, Bidirectional: true, Table: 7, Masks: 2}, []int{4, 150, 6 * 20}},
	{kernels.NewRearrange([]int{300, 50, 3}, 0, []kernels.Loop{{N: 300, Stride: 1}, {N: 50, Stride: 300}, {N: 3, Stride: 15_000}}), []int{3, 50, 300}},
	{kernels.Bias{Axes: 2}, []int{3, 50, 300}},
	{kernels.Scale{Axes: 1}, []int{30, 50, 300}},
	{kernels.Prepend{Rows: 2}, []int{3, 200, 100}},
	{kernels.Pointwise{Of: kernels.Tanh}, []int{50_001}},
	{kernels.Pointwise{Of: kernels.HardSwish}, []int{50_001}},
	{kernels.Pointwise{Of: kernels.Power, By: 1.5}, []int{50_001}},
	{kernels.GroupNorm{Groups: 8}, []int{3, 40, 41, 64}},
	{kernels.GroupNorm{Groups: 4}, []int{2, 12, 13, 600}},
	{kernels.ConvTranspose2D{Out: 72, KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2}, []int{2, 9, 10, 136}},
	{kernels.AvgPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1, Ceil: true, Inside: true}, []int{2, 20, 21, 64}},
}

// TestLargeCalls: as TestRandomCalls, on every way to compute products.
func TestLargeCalls(t *testing.T) {
	b := newBench(t)
	calls, splits := 0, 0
	for i, large := range largeCalls {
		if testing.Short() && i%3 != 0 {
			continue
		}
		for _, d := range factorTypes {
			if d == kernels.TF32 && !kernels.UsesTF32(as(d, large.op)) {
				continue
			}
			r := rand.New(rand.NewPCG(14, uint64(i)))
			in := []kernels.Desc{typed(d, large.shape...)}
			if kernels.IsLoss(large.op) { // of elements
				in = append(in, kernels.F32(large.shape...))
			}
			forward, backward := randomCalls(r, as(d, large.op), in)
			forward.Train = true
			for j := range backward {
				backward[j].Train, backward[j].SkipDX = true, nil
			}
			inputs := randomInputs(r, forward)
			for k, l := range libraries(t, b) {
				if cudatest.Checked() && (i/3+int(d)+k)%2 != 0 {
					continue // slow
				}
				_, n := check(t, b, l, forward, backward, inputs)
				calls += n
				splits += sums(t, l, append(backward, forward))
			}
		}
	}
	if calls < len(largeCalls) || splits == 0 {
		t.Errorf("ran %d calls, %d of them in splits", calls, splits)
	}
}

// sums counts the calls that add up splits.
func sums(t testing.TB, l *Library, calls []kernels.Call) (n int) {
	t.Helper()
	for _, c := range calls {
		b, err := l.build(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range b.steps {
			if s.module == "pack" && strings.HasPrefix(s.function, "sum_") {
				n++
			}
		}
	}
	return n
}

// TestAliases: wherever an op declares that an output may lie on an input, doing so changes no bit.
func TestAliases(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	ran := map[string]int{}
	for round := range 6 * kinds {
		d := types[round/kinds%2]
		r := rand.New(rand.NewPCG(3, uint64(round)))
		op, in := randomOp(r, round, d)
		if op.Split() {
			continue // no aliases
		}
		forward, backward := randomCalls(r, op, in)
		for i := range backward {
			backward[i].AddDX, backward[i].SkipDX = nil, nil
		}
		inputs := randomInputs(r, forward)
		given, _ := check(t, b, l, forward, backward, inputs)
		ran[op.Kind()] += aliases(t, b, l, forward, inputs)
		for _, c := range backward {
			ran[op.Kind()] += aliases(t, b, l, c, given)
		}
	}
	for _, kind := range []string{"relu", "add", "dropout", "batchnorm", "softmax_cross_entropy", "element_loss", "layernorm", "rmsnorm", "gelu", "silu", "multiply", "rotary"} {
		if ran[kind] == 0 {
			t.Errorf("no alias of %s was tried, want some", kind)
		}
	}
}

// aliases runs a call with each alias that it declares.
func aliases(t testing.TB, b *bench, l *Library, c kernels.Call, in data) (ran int) {
	t.Helper()
	apart := newRig(c, 0, nil)
	want := compute(t, b, l, c, in, nil)
	for _, out := range apart.uses {
		for _, from := range apart.uses {
			if !out.Write || from.Write || out.Bytes != from.Bytes || !c.Op.Alias(c.Pass, out.Operand, from.Operand) {
				continue
			}
			alias := map[kernels.Operand]kernels.Operand{out.Operand: from.Operand}
			sameBits(t, fmt.Sprintf("%+v with %v", c, alias), compute(t, b, l, c, in, alias), want)
			ran++
		}
	}
	return ran
}
