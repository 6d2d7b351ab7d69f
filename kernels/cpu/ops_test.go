package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
)

// draws is how many draws of randomOp have every kind of op.
const draws = 37

// randomOp returns an op with random attributes and inputs that fit it; round cycles through the kinds.
func randomOp(r *rand.Rand, round int) (kernels.Op, []kernels.Desc) {
	pick := func(max int) int { return 1 + r.IntN(max) }
	image := kernels.F32(pick(3), pick(9), pick(9), pick(20))
	switch round % draws {
	case 0, 1:
		return randomConv(r)
	case 2:
		return kernels.Linear{Out: pick(70), Bias: r.IntN(2) == 0, LastAxis: r.IntN(2) == 0}, []kernels.Desc{image}
	case 3:
		in := []kernels.Desc{image, image}
		op := kernels.BatchNorm{Residual: r.IntN(2) == 0, ReLU: r.IntN(2) == 0, Frozen: r.IntN(3) == 0, Epsilon: 1e-3 * float32(r.IntN(2)), Momentum: 0.3 * float32(r.IntN(2))}
		if !op.Residual {
			in = in[:1]
		}
		if image.Elements() == int64(image.Shape[3]) {
			image.Shape[0]++
		}
		return op, in
	case 4:
		return kernels.ReLU{Max: float32(r.IntN(2)) / 2}, []kernels.Desc{image}
	case 5:
		return kernels.Add{}, []kernels.Desc{image, image}
	case 6:
		in := make([]kernels.Desc, pick(4))
		for i := range in {
			in[i] = kernels.F32(image.Shape[0], image.Shape[1], image.Shape[2], pick(9))
		}
		if r.IntN(2) == 0 {
			for i := range in {
				in[i] = kernels.F32(image.Shape[0], pick(9), image.Shape[2], image.Shape[3])
			}
			return kernels.Concat{Axis: 1}, in
		}
		return kernels.Concat{}, in
	case 7:
		return kernels.MaxPool(randomPool(r, image)), []kernels.Desc{image}
	case 8:
		op := randomPool(r, image)
		op.Inside = r.IntN(2) == 0
		return op, []kernels.Desc{image}
	case 9:
		return kernels.GlobalAvgPool{}, []kernels.Desc{image}
	case 10:
		return kernels.Dropout{P: float32(r.IntN(10)) / 10}, []kernels.Desc{image}
	case 11:
		return kernels.AdaptiveAvgPool{OutH: pick(9), OutW: pick(9)}, []kernels.Desc{image}
	case 12:
		in := []kernels.Desc{image}
		for range r.IntN(3) {
			in = append(in, kernels.F32(image.Shape[0], pick(4), pick(4), pick(4)))
		}
		return kernels.Pack{}, in
	case 13:
		return randomSlice(r, image), []kernels.Desc{image}
	case 14:
		return kernels.Upsample{Factor: pick(3)}, []kernels.Desc{image}
	case 15:
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
		return randomEmbedding(r)
	case 21:
		dim, heads := 2*pick(20), pick(3)
		scaling := []kernels.RotaryScaling{{}, {Factor: 4, High: 1}, {Factor: 8, Low: 1, High: 4, Positions: 16}}[r.IntN(3)]
		return kernels.Rotary{Heads: heads, Dim: dim, Base: 500 * float64(r.IntN(2)), Turned: 2 * r.IntN(dim/2+1), Scaling: scaling}, []kernels.Desc{kernels.F32(pick(3), pick(40), heads*dim+r.IntN(9))}
	case 22:
		shared, group := pick(3), pick(3)
		return randomTerms(r, kernels.Attention{Heads: shared * group, KVHeads: shared, Bidirectional: r.IntN(2) == 0}), []kernels.Desc{kernels.F32(pick(3), pick(40), shared*(group+2)*pick(40))}
	case 23:
		return randomRearrange(r, image), []kernels.Desc{image}
	case 24:
		return kernels.Bias{Axes: pick(3)}, []kernels.Desc{image}
	case 25:
		return kernels.Scale{Axes: pick(3)}, []kernels.Desc{image}
	case 26:
		return kernels.Prepend{Rows: pick(3)}, []kernels.Desc{kernels.F32(pick(3), pick(20), pick(90))}
	case 27:
		return kernels.Gate{}, []kernels.Desc{image, kernels.F32(image.Shape[0], image.Shape[3])}
	case 28:
		rows, step, length := pick(9), r.IntN(2), pick(20)
		return kernels.AddRows{Rows: rows + step*(length-1), First: r.IntN(rows), Step: step}, []kernels.Desc{kernels.F32(pick(3), length, pick(90))}
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
		return kernels.GroupNorm{Groups: groups, Plain: r.IntN(2) == 0, Epsilon: 1e-3 * float32(r.IntN(2))}, []kernels.Desc{kernels.F32(pick(3), 1+pick(9), 1+pick(9), groups*pick(20))}
	case 34:
		return randomConvTranspose(pick)
	case 35:
		return kernels.ElementLoss{Of: kernels.MSE + kernels.Criterion(r.IntN(3))}, []kernels.Desc{image, kernels.F32(image.Shape...)}
	}
	n, t, classes := pick(40), pick(3), pick(40)
	switch r.IntN(3) {
	case 0:
		return kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(t, n, t, classes), {Shape: kernels.Shape{t, n, t}, DType: kernels.Int32}}
	case 1:
		return kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(n, t, classes), {Shape: kernels.Shape{n, t}, DType: kernels.Int32}}
	}
	return kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(n, classes), {Shape: kernels.Shape{n}, DType: kernels.Int32}}
}

func randomEmbedding(r *rand.Rand) (kernels.Op, []kernels.Desc) {
	length := 1 + r.IntN(20)
	op := kernels.Embedding{Vocabulary: 1 + r.IntN(30), Width: 1 + r.IntN(100)}
	op.Fixed = r.IntN(2) * (1 + r.IntN(op.Vocabulary))
	if r.IntN(2) == 0 {
		op.Uncounted = r.IntN(2) * (1 + r.IntN(op.Vocabulary))
		op.Positions = length + op.Uncounted + r.IntN(5)
	}
	return op, []kernels.Desc{{Shape: kernels.Shape{1 + r.IntN(4), length}, DType: kernels.Int32}}
}

// randomPad leaves at least one row and one column.
func randomPad(r *rand.Rand, x kernels.Desc) kernels.Pad {
	side := func(extent int) (int, int) { return r.IntN(extent+3) - extent/2, r.IntN(extent+3) - (extent-1)/2 }
	p := kernels.Pad{Circular: r.IntN(2) == 0}
	p.Top, p.Bottom = side(x.Shape[1])
	p.Left, p.Right = side(x.Shape[2])
	return p
}

// randomSlice takes a part of each row of an image, or of each sample.
func randomSlice(r *rand.Rand, x kernels.Desc) kernels.Slice {
	rows, length := 1, x.Shape[1]*x.Shape[2]*x.Shape[3]
	if r.IntN(2) == 0 {
		rows, length = x.Shape[1], length/x.Shape[1]
	}
	from := r.IntN(length)
	return kernels.Slice{Rows: rows, From: from, H: rows, W: 1, C: 1 + r.IntN(length-from)}
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

func randomConv(r *rand.Rand) (kernels.Op, []kernels.Desc) {
	groups := 1 + r.IntN(3)*r.IntN(2)
	depths := []int{1, 2, 3, 5, 16, 33, 70}
	depth, out := depths[r.IntN(len(depths))], depths[r.IntN(len(depths))]
	c := kernels.Conv2D{
		Out: groups * out, KernelH: 1 + r.IntN(4), KernelW: 1 + r.IntN(4), StrideH: r.IntN(4), StrideW: r.IntN(4),
		PadH: r.IntN(4), PadW: r.IntN(4), DilationH: r.IntN(4), DilationW: r.IntN(4), Groups: groups, Bias: r.IntN(2) == 0,
	}
	x := kernels.F32(1+r.IntN(3), 1+r.IntN(12), 1+r.IntN(12), groups*depth)
	for {
		if _, err := c.Infer([]kernels.Desc{x}); err == nil {
			return c, []kernels.Desc{x}
		}
		x.Shape[1]++
		x.Shape[2]++
	}
}

// randomTerms adds terms to an attention's scores, or another scale, in half of all cases.
func randomTerms(r *rand.Rand, op kernels.Attention) kernels.Attention {
	if r.IntN(2) == 0 {
		op.Table = 1 + r.IntN(9)
	}
	if r.IntN(2) == 0 {
		op.Masks, op.MaskHeads = 1+r.IntN(3), r.IntN(2) == 0
	}
	if r.IntN(2) == 0 {
		op.Scale = 0.25
	}
	return op
}

// randomCalls returns the forward and the backward calls of an op with random switches.
func randomCalls(r *rand.Rand, op kernels.Op, in []kernels.Desc) (forward kernels.Call, backward []kernels.Call) {
	flip := func() bool { return r.IntN(2) == 0 }
	forward = kernels.Call{Op: op, In: in, Train: r.IntN(4) > 0, UpdateStats: flip(), Salt: r.Uint64()}
	if _, norm := op.(kernels.BatchNorm); !norm {
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

// compare fails unless every element is within its slack, and nothing else was written.
func compare(t *testing.T, c kernels.Call, got data, want wants) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%+v: wrote %d operands, want %d", c, len(got), len(want))
	}
	for o, w := range want {
		for i, v := range w.value {
			if d := math.Abs(float64(got[o][i]) - v); !(d <= w.slack[i]) {
				t.Fatalf("%+v: %v[%d] = %v, want %v within %.2g", c, o, i, got[o][i], v, w.slack[i])
			}
		}
	}
}

// testedPaths is Paths; the race detector sees the same Go code on each, so one will do for it.
func testedPaths() []Path {
	if underRace {
		return []Path{fastest()}
	}
	return Paths()
}

func fastest() Path { return slices.Max(Paths()) }

// TestRandomCalls: every op, pass, attribute and switch against the reference, on every path. Outputs start as NaN; guards stay. One, two
// and three threads give the same bits; AVX2 and AVX-512 agree to the bit.
func TestRandomCalls(t *testing.T) {
	t.Parallel()
	rounds := 600
	if underRace || testing.Short() {
		rounds = 90
	}
	ran := map[string]int{}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(1, uint64(seed)))
		op, in := randomOp(r, seed)
		if seed/draws%3 == 0 {
			op = kernels.InTF32(op)
		}
		forward, backward := randomCalls(r, op, in)
		inputs := randomInputs(r, forward)
		var fma [][]data
		for _, path := range testedPaths() {
			all := checkCalls(t, path, forward, backward, inputs)
			if path != Plain {
				fma = append(fma, all)
			}
		}
		for i := range fma {
			for j := range fma[i] {
				sameBits(t, fmt.Sprintf("%T: one FMA path beside the other", op), fma[i][j], fma[0][j])
			}
		}
		ran[op.Kind()]++
	}
	if len(ran) != 36 {
		t.Errorf("ran only %v, want all 36 kinds", ran)
	}
}

// Where the lines of a block are copied once for all taps, rows outside the image are left out. An infinite weight for these rows makes no
// NaN, where a product with a zero would.
func TestRowsOutsideTheImageAreLeftOut(t *testing.T) {
	t.Parallel()
	call := kernels.Call{Op: kernels.Conv2D{Out: 3, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, In: []kernels.Desc{kernels.F32(2, 9, 16, 8)}, Train: true}
	for _, path := range Paths() {
		in := randomInputs(rand.New(rand.NewPCG(1, 1)), call)
		for i := range in[opW] {
			if i/(3*8)%3 == 0 { // of the row above
				in[opW][i] = float32(math.Inf(1))
			}
		}
		for i, y := range run(t, newLibrary(t, path, 1), call, in)[opY] {
			first, finite := i/(3*16)%9 == 0, !math.IsNaN(float64(y)) && !math.IsInf(float64(y), 0)
			if first != finite {
				t.Fatalf("%v: result %d is %v", path, i, y)
			}
		}
	}
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

// largeCalls reach what small shapes do not: several tasks, blocks of columns, chunks of pixels and of rows.
var largeCalls = []struct {
	op kernels.Op
	in []kernels.Desc
}{
	{kernels.Conv2D{Out: 260, KernelH: 3, KernelW: 1, PadH: 1, Bias: true}, []kernels.Desc{kernels.F32(2, 23, 23, 4)}},
	{kernels.Conv2D{Out: 24, KernelH: 5, KernelW: 5, StrideH: 2, StrideW: 2, PadH: 2, PadW: 2}, []kernels.Desc{kernels.F32(2, 50, 52, 3)}},
	{kernels.Conv2D{Out: 70, KernelH: 3, KernelW: 4, StrideH: 2, StrideW: 3, PadH: 1}, []kernels.Desc{kernels.F32(2, 23, 24, 2)}}, // merged taps
	{kernels.Conv2D{Out: 64, KernelH: 7, KernelW: 7, StrideH: 2, StrideW: 2, PadH: 3, PadW: 3}, []kernels.Desc{kernels.F32(1, 18, 20, 3)}},
	{kernels.Conv2D{Out: 36, KernelH: 3, KernelW: 3, PadH: 2, PadW: 2, DilationH: 2, DilationW: 2, Groups: 18}, []kernels.Desc{kernels.F32(2, 30, 30, 36)}},
	{kernels.Conv2D{Out: 40, KernelH: 3, KernelW: 3, PadH: 2, PadW: 1, Bias: true}, []kernels.Desc{kernels.F32(2, 10, 12, 130)}}, // blocks of depth outside the image
	{kernels.Conv2D{Out: 40, KernelH: 1, KernelW: 1}, []kernels.Desc{kernels.F32(2, 13, 14, 70)}},
	{kernels.Conv2D{Out: 34, KernelH: 1, KernelW: 1, Groups: 2, Bias: true}, []kernels.Desc{kernels.F32(1, 17, 19, 600)}},
	{kernels.Conv2D{Out: 20, KernelH: 1, KernelW: 1, StrideH: 2, StrideW: 2}, []kernels.Desc{kernels.F32(3, 19, 21, 20)}},
	{kernels.Conv2D{Out: 1100, KernelH: 1, KernelW: 1}, []kernels.Desc{kernels.F32(1, 11, 12, 20)}},
	// Panels that weight gradients pack while they multiply: of one strip, of groups, of half their width.
	{kernels.Conv2D{Out: 9, KernelH: 3, KernelW: 3, StrideH: 2, PadH: 1, PadW: 3, DilationW: 2}, []kernels.Desc{kernels.F32(2, 21, 17, 32)}},
	{kernels.Conv2D{Out: 66, KernelH: 3, KernelW: 2, StrideW: 3, PadH: 2, PadW: 1, Groups: 2}, []kernels.Desc{kernels.F32(2, 19, 20, 128)}},
	{kernels.Conv2D{Out: 30, KernelH: 1, KernelW: 1, StrideH: 2, StrideW: 2}, []kernels.Desc{kernels.F32(3, 19, 21, 48)}},
	{kernels.Linear{Out: 33, Bias: true}, []kernels.Desc{kernels.F32(300, 40)}},
	{kernels.Linear{Out: 260, Bias: true}, []kernels.Desc{kernels.F32(5, 2100)}},
	{kernels.BatchNorm{ReLU: true}, []kernels.Desc{kernels.F32(4, 30, 30, 40)}},
	{kernels.BatchNorm{Residual: true, ReLU: true}, []kernels.Desc{kernels.F32(3, 9, 9, 600), kernels.F32(3, 9, 9, 600)}},
	{kernels.BatchNorm{}, []kernels.Desc{kernels.F32(40_000, 1)}},
	{kernels.ReLU{}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.ReLU{Max: 0.75}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.Add{}, []kernels.Desc{kernels.F32(50_001), kernels.F32(50_001)}},
	{kernels.Concat{}, []kernels.Desc{kernels.F32(700, 50), kernels.F32(700, 7), kernels.F32(700, 33)}},
	{kernels.Concat{}, []kernels.Desc{kernels.F32(2, 20_000), kernels.F32(2, 20_000)}},
	{kernels.MaxPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}, []kernels.Desc{kernels.F32(2, 40, 41, 30)}},
	{kernels.AvgPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}, []kernels.Desc{kernels.F32(2, 40, 41, 30)}},
	{kernels.GlobalAvgPool{}, []kernels.Desc{kernels.F32(3, 40, 41, 300)}},
	{kernels.AdaptiveAvgPool{OutH: 7, OutW: 7}, []kernels.Desc{kernels.F32(3, 9, 10, 300)}},
	{kernels.Pack{}, []kernels.Desc{kernels.F32(2, 30, 31, 30), kernels.F32(2, 7), kernels.F32(2, 9, 4000)}},
	{kernels.Slice{From: 70, H: 9, W: 10, C: 300}, []kernels.Desc{kernels.F32(2, 50_001)}},
	{kernels.Slice{Rows: 40 * 40, From: 20, H: 40, W: 40, C: 30}, []kernels.Desc{kernels.F32(2, 40, 40, 60)}},
	{kernels.Upsample{Factor: 2}, []kernels.Desc{kernels.F32(2, 20, 21, 60)}},
	{kernels.Pad{Top: 2, Bottom: 3, Left: -4, Right: 5}, []kernels.Desc{kernels.F32(2, 20, 21, 60)}},
	{kernels.Resize{OutH: 50, OutW: 33}, []kernels.Desc{kernels.F32(2, 20, 21, 60)}},
	{kernels.Dropout{P: 0.3}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(900, 61), {Shape: kernels.Shape{900}, DType: kernels.Int32}}},
	{kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(2, 40, 41, 5), {Shape: kernels.Shape{2, 40, 41}, DType: kernels.Int32}}},
	{kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(2, 3, 5003), {Shape: kernels.Shape{2, 3}, DType: kernels.Int32}}},
	{kernels.ElementLoss{Of: kernels.BCE}, []kernels.Desc{kernels.F32(50_001), kernels.F32(50_001)}},
	{kernels.ElementLoss{Of: kernels.MSE}, []kernels.Desc{kernels.F32(50_001), kernels.F32(50_001)}},
	{kernels.ElementLoss{Of: kernels.L1}, []kernels.Desc{kernels.F32(50_001), kernels.F32(50_001)}},
	{kernels.Linear{Out: 33, Bias: true, LastAxis: true}, []kernels.Desc{kernels.F32(3, 100, 40)}},
	{kernels.Embedding{Vocabulary: 5000, Width: 70, Positions: 310}, []kernels.Desc{{Shape: kernels.Shape{2, 300}, DType: kernels.Int32}}},
	{kernels.LayerNorm{}, []kernels.Desc{kernels.F32(3, 50, 300)}},
	{kernels.RMSNorm{}, []kernels.Desc{kernels.F32(3, 5, 3001)}},
	{kernels.NewRearrange([]int{300, 50, 3}, 0, []kernels.Loop{{N: 300, Stride: 1}, {N: 50, Stride: 300}, {N: 3, Stride: 15_000}}), []kernels.Desc{kernels.F32(3, 50, 300)}},
	{kernels.Bias{Axes: 2}, []kernels.Desc{kernels.F32(3, 50, 300)}},
	{kernels.Scale{Axes: 1}, []kernels.Desc{kernels.F32(3, 50, 300)}},
	{kernels.AddRows{Rows: 300, First: 20, Step: 1}, []kernels.Desc{kernels.F32(3, 200, 100)}},
	{kernels.Prepend{Rows: 2}, []kernels.Desc{kernels.F32(3, 200, 100)}},
	{kernels.Gate{}, []kernels.Desc{kernels.F32(3, 20, 21, 100), kernels.F32(3, 100)}},
	{kernels.Pointwise{Of: kernels.Sigmoid}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.Pointwise{Of: kernels.Tanh}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.Pointwise{Of: kernels.HardSigmoid}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.Pointwise{Of: kernels.HardSwish}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.Pointwise{Of: kernels.Power, By: 1.5}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.GroupNorm{Groups: 8}, []kernels.Desc{kernels.F32(3, 40, 41, 64)}},
	{kernels.GroupNorm{Groups: 4}, []kernels.Desc{kernels.F32(2, 12, 13, 600)}},
	{kernels.ConvTranspose2D{Out: 70, KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2}, []kernels.Desc{kernels.F32(2, 17, 18, 130)}},
	{kernels.AvgPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1, Ceil: true, Inside: true}, []kernels.Desc{kernels.F32(2, 40, 41, 30)}},
	{kernels.Attention{Heads: 2, Bidirectional: true}, []kernels.Desc{kernels.F32(2, 150, 6*20)}},
	{kernels.Attention{Heads: 2, Bidirectional: true, Table: 7, Masks: 2}, []kernels.Desc{kernels.F32(4, 150, 6*20)}},
	{kernels.Attention{Heads: 2, Scale: 0.5, Table: 7, Masks: 1, MaskHeads: true}, []kernels.Desc{kernels.F32(2, 150, 6*20)}},
	{kernels.GELU{}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.GELU{Tanh: true}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.SiLU{}, []kernels.Desc{kernels.F32(50_001)}},
	{kernels.Multiply{}, []kernels.Desc{kernels.F32(50_001), kernels.F32(50_001)}},
	{kernels.Rotary{Heads: 3, Dim: 64}, []kernels.Desc{kernels.F32(2, 150, 256)}},
	{kernels.Attention{Heads: 2}, []kernels.Desc{kernels.F32(2, 150, 6*64)}},
	{kernels.Attention{Heads: 4, KVHeads: 2}, []kernels.Desc{kernels.F32(1, 300, 8*37)}},
	{kernels.Attention{Heads: 1}, []kernels.Desc{kernels.F32(1, 129, 3*130)}},
}

// TestLargeCalls: as TestRandomCalls, with several tasks each.
// Only this test finds a float32 kernel that is wrong behind its first task, block of columns or packed panel.
func TestLargeCalls(t *testing.T) {
	t.Parallel()
	for i, large := range largeCalls {
		if testing.Short() && i%3 != 0 {
			continue
		}
		r := rand.New(rand.NewPCG(14, uint64(i)))
		forward, backward := randomCalls(r, large.op, large.in)
		forward.Train = true
		for j := range backward {
			backward[j].Train = true
		}
		inputs := randomInputs(r, forward)
		for _, path := range testedPaths() {
			if tasks := mostTasks(newLibrary(t, path, 1), forward); tasks < 2 {
				t.Errorf("%+v has %d tasks, want several", large.op, tasks)
			}
			checkCalls(t, path, forward, backward, inputs)
		}
	}
}

// mostTasks returns the tasks of a call's largest job.
func mostTasks(l *Library, c kernels.Call) int {
	most := 0
	for _, j := range l.build(c, nil).jobs {
		most = max(most, int(j.tasks))
	}
	return most
}

// checkCalls runs forward and then backward on its results; it returns everything written.
func checkCalls(t *testing.T, path Path, forward kernels.Call, backward []kernels.Call, inputs data) []data {
	t.Helper()
	one := newLibrary(t, path, 1)
	in := inputs.clone()
	y := run(t, one, forward, in)
	compare(t, forward, y, reference(forward, in))
	all := []data{y}
	checkThreads(t, path, forward, in, y)
	for _, o := range []kernels.Operand{opY, opSave, operand(kernels.Save, 1)} {
		if v, ok := y[o]; ok {
			in[o] = v
		}
	}
	for _, c := range backward {
		got := run(t, one, c, in)
		compare(t, c, got, reference(c, in))
		checkThreads(t, path, c, in, got)
		all = append(all, got)
	}
	return all
}

func checkThreads(t *testing.T, path Path, c kernels.Call, in, want data) {
	t.Helper()
	for threads := 2; threads <= 3; threads++ {
		got := run(t, newLibrary(t, path, threads), c, in)
		sameBits(t, fmt.Sprintf("%v, %d threads: %+v", path, threads, c), got, want)
	}
}
