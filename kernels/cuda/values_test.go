//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda/cudatest"
)

// overflows is where expf is infinite.
const overflows = 88.73

// TestLargeValues: functions whose exponentials would overflow give what the reference gives, forward and backward.
func TestLargeValues(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for i, c := range []struct {
		op     kernels.Op
		shape  []int
		factor float32
	}{
		{kernels.Attention{Heads: 2}, []int{1, 80, 6 * 64}, 12},
		{kernels.SoftmaxCrossEntropy{}, []int{50, 7}, 300},
		{kernels.SoftmaxCrossEntropy{}, []int{9, 1003}, 300},
		{kernels.GELU{}, []int{1000}, 200},
		{kernels.GELU{Tanh: true}, []int{1000}, 200},
		{kernels.SiLU{}, []int{1000}, 200},
	} {
		for _, d := range types {
			x := []kernels.Desc{typed(d, c.shape...)}
			if c.op.Kind() == "softmax_cross_entropy" {
				x = append(x, kernels.Desc{Shape: c.shape[:1], DType: kernels.Int32})
			}
			forward := kernels.Call{Op: c.op, In: x, Train: true}
			backward := forward
			backward.Pass = kernels.Backward
			in := randomInputs(rand.New(rand.NewPCG(33, uint64(i))), forward)
			larger := values(d, in[operand(kernels.X, 0)])
			scaled := make([]float32, len(larger))
			for j, v := range larger {
				scaled[j] = float32(v) * c.factor
			}
			in[operand(kernels.X, 0)] = encode(d, scaled)
			given, _ := check(t, b, l, forward, []kernels.Call{backward}, in)
			most := slices.Max(larger) * float64(c.factor)
			if saved := given[operand(kernels.Save, 0)]; c.op.Kind() == "attention" {
				most = slices.Max(values(kernels.Float32, saved)) // log(sum(exp)) of the scores
			}
			if most < overflows {
				t.Errorf("%s in %v: the largest value is %v, want more than %v", c.op.Kind(), d, most, overflows)
			}
		}
	}
}

// TestMaximaOfUnusualValues: a window of a max pool gives its first maximum, also where all its values are -infinity, equal or NaN. Both
// kernels do so: for one channel at a time, and for vectors of channels.
func TestMaximaOfUnusualValues(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	kinds := []func(at int) float32{
		func(int) float32 { return -inf },
		func(int) float32 { return 0.5 },
		func(at int) float32 { return []float32{nan, 1, -inf}[at%3] },
		func(at int) float32 { return []float32{-inf, inf, inf}[at%3] },
		func(at int) float32 { return -float32(at) },
	}
	for i, channels := range []int{5, 16} {
		for j, d := range types {
			op := kernels.MaxPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}
			forward := kernels.Call{Op: op, In: []kernels.Desc{typed(d, 2, 9, 11, channels)}, Train: true}
			backward := forward
			backward.Pass = kernels.Backward
			in := randomInputs(rand.New(rand.NewPCG(47, uint64(2*i+j))), forward)
			x := make([]float32, forward.In[0].Elements())
			for k := range x {
				x[k] = kinds[k%channels%len(kinds)](k / channels)
			}
			in[operand(kernels.X, 0)] = encode(d, x)
			got := compute(t, b, l, forward, in, nil)
			want := reference(t, forward, in)
			y := operand(kernels.Y, 0)
			w := values(d, want[y])
			for k, v := range values(d, got[y]) {
				if v != w[k] && !(math.IsNaN(v) && math.IsNaN(w[k])) {
					t.Fatalf("%d channels in %v: maximum %d is %v, want %v", channels, d, k, v, w[k])
				}
			}
			saved, dx := operand(kernels.Save, 0), operand(kernels.DX, 0)
			own, other := maps.Clone(in), maps.Clone(in) // each library has its own indices
			own[saved], other[saved] = got[saved], want[saved]
			compare(t, backward, d, newRig(backward, 0, nil).types, data{dx: compute(t, b, l, backward, own, nil)[dx]}, data{dx: reference(t, backward, other)[dx]})
		}
	}
}

// TestUnknownTokens: a token below 0 or behind the vocabulary has no embedding, NaN, and no gradient, whatever lies beside the table.
func TestUnknownTokens(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	const vocabulary, width = 5, 8
	var tokens []float32
	for i, token := range []int32{-1, vocabulary, -3, vocabulary + 2} {
		tokens = append(tokens, math.Float32frombits(uint32(token)), math.Float32frombits(uint32(i)))
	}
	op := kernels.Embedding{Vocabulary: vocabulary, Width: width, To: kernels.Float32}
	for _, pass := range []kernels.Pass{kernels.Forward, kernels.Backward} {
		call := kernels.Call{Op: op, In: []kernels.Desc{{Shape: kernels.Shape{1, len(tokens)}, DType: kernels.Int32}}, Train: true, Pass: pass}
		in := randomInputs(rand.New(rand.NewPCG(34, 1)), call)
		in[operand(kernels.X, 0)] = encode(kernels.Int32, tokens)
		workspace, err := l.Workspace(call)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(call, workspace, nil)
		launch, err := l.Prepare(call, r.operands)
		if err != nil {
			t.Fatal(err)
		}
		memory := r.memory(in)
		for _, u := range r.uses { // numbers beside all operands: a NaN would be taken for the right one
			for _, beside := range [][]byte{memory[u.Span.Offset-kernels.Alignment : u.Span.Offset], memory[kernels.Align(u.Span.End()):][:kernels.Alignment]} {
				spread(beside, math.Float32bits(1))
			}
		}
		got := r.outputs(t, memory, b.run(t, memory, launch))
		compare(t, call, kernels.Float32, r.types, got, reference(t, call, in))
	}
}

// TestUnusualLogits: rows that begin anywhere beside a vector, equal logits, infinite ones and NaNs, and labels that do not count or are no
// class, give what the reference gives.
func TestUnusualLogits(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	r := rand.New(rand.NewPCG(39, 1))
	inf := float32(math.Inf(1))
	kinds := map[string]func(x []float32, row, classes int){
		"plain":         func([]float32, int, int) {},
		"equal":         func(x []float32, row, _ int) { spreadFloats(x, float32(row)) },
		"equal largest": func(x []float32, _, classes int) { x[classes/2], x[classes-1], x[classes/3] = 5, 5, 5 },
		"masked":        func(x []float32, row, classes int) { spreadFloats(x[:min(300*row+1, classes-1)], -inf) },
		"all masked":    func(x []float32, _, _ int) { spreadFloats(x, -inf) },
		"infinite":      func(x []float32, row, classes int) { x[row*7%classes] = inf },
		"NaN":           func(x []float32, row, classes int) { x[row*5%classes], x[classes-1] = float32(math.NaN()), inf },
	}
	const rows = 9
	for i, classes := range []int{1, 7, 9, 50, 129, 1003, 8192, 9229} {
		for j, kind := range slices.Sorted(maps.Keys(kinds)) {
			d := types[(i+j)%2]
			in := []kernels.Desc{typed(d, rows, classes), {Shape: kernels.Shape{rows}, DType: kernels.Int32}}
			forward := kernels.Call{Op: kernels.SoftmaxCrossEntropy{}, In: in, Train: true}
			backward := forward
			backward.Pass, backward.AddDX = kernels.Backward, []bool{j%2 == 0, false}
			inputs := randomInputs(r, forward)
			x, labels := values(d, inputs[operand(kernels.X, 0)]), floats(inputs[operand(kernels.X, 1)])
			logits := make([]float32, len(x))
			for k, v := range x {
				logits[k] = float32(v)
			}
			for row := range rows {
				kinds[kind](logits[row*classes:][:classes], row, classes)
			}
			inputs[operand(kernels.X, 0)] = encode(d, logits)
			labels[1] = math.Float32frombits(0)
			labels[2] = math.Float32frombits(uint32(classes / 3))
			labels[3] = ignored
			given, _ := check(t, b, l, forward, []kernels.Call{backward}, inputs)
			if kind != "plain" {
				continue
			}
			dx := operand(kernels.DX, 0)
			want := values(d, compute(t, b, l, backward, given, nil)[dx])
			labels[4], labels[5] = math.Float32frombits(uint32(classes)), math.Float32frombits(0xfffffffe)
			for k, v := range values(d, compute(t, b, l, backward, given, nil)[dx]) {
				if row := k / classes; math.IsNaN(v) != (row == 4 || row == 5) || row != 4 && row != 5 && v != want[k] {
					t.Fatalf("%d classes: the gradient of row %d, whose label is %d, has %v", classes, row, int32(math.Float32bits(labels[row])), v)
				}
			}
		}
	}
}

func spreadFloats(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// TestGradientsOfTokens: the gradients of tokens are sums over their rows, whatever tokens there are: one, few, all different, unknown
// ones, of small and large vocabularies.
func TestGradientsOfTokens(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	r := rand.New(rand.NewPCG(38, 1))
	draws := map[string]func(i, vocabulary int) int{
		"one":       func(_, vocabulary int) int { return vocabulary - 1 },
		"different": func(i, vocabulary int) int { return i * 11 % vocabulary },
		"skewed":    func(_, vocabulary int) int { return int(float64(vocabulary) * math.Pow(r.Float64(), 8)) },
		"unknown":   func(_, vocabulary int) int { return r.IntN(3*vocabulary) - vocabulary },
		"runs":      func(i, vocabulary int) int { return i / (2 * tokenPiece) % vocabulary },
	}
	for _, vocabulary := range []int{1, 255, 256, 70_000} {
		for i, name := range slices.Sorted(maps.Keys(draws)) {
			d, width, samples := types[i%2], []int{24, 5, 40}[i%3], 3
			op := kernels.Embedding{Vocabulary: vocabulary, Width: width, Positions: 500, To: d}
			call := kernels.Call{Op: op, In: []kernels.Desc{{Shape: kernels.Shape{samples, 487}, DType: kernels.Int32}}, Train: true, Pass: kernels.Backward}
			call.AddParams = vocabulary%2 == i%2
			in := randomInputs(r, call)
			tokens := make([]float32, samples*487)
			for j := range tokens {
				tokens[j] = math.Float32frombits(uint32(int32(draws[name](j, vocabulary))))
			}
			in[operand(kernels.X, 0)] = encode(kernels.Int32, tokens)
			got := compute(t, b, l, call, in, nil)
			compare(t, call, d, newRig(call, 0, nil).types, got, reference(t, call, in))
			sameBits(t, name, compute(t, b, l, call, in, nil), got)
		}
	}
}

// TestNaNsLeaveRunningStatistics: a channel whose batch has a NaN, or an infinity, keeps its running statistics; the others move.
func TestNaNsLeaveRunningStatistics(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	const channels = 5
	for _, d := range types {
		call := kernels.Call{Op: kernels.BatchNorm{}, In: []kernels.Desc{typed(d, 40, channels)}, Train: true, UpdateStats: true}
		in := randomInputs(rand.New(rand.NewPCG(35, 1)), call)
		x := in[operand(kernels.X, 0)]
		bad := map[int]float32{1: float32(math.NaN()), 3: float32(math.Inf(1))}
		for c, v := range bad {
			at := (7*channels + c) * int(d.Size())
			copy(x[at:], encode(d, []float32{v}))
		}
		got := compute(t, b, l, call, in, nil)
		for _, o := range []kernels.Operand{operand(kernels.ParamRole, 2), operand(kernels.ParamRole, 3)} {
			want := reference(t, call, in)[o]
			for c, before := range floats(in[o]) {
				_, kept := bad[c]
				if now := floats(got[o])[c]; kept != (now == before) || math.Abs(float64(now-floats(want)[c])) > 1e-4 {
					t.Errorf("%v, channel %d: %v was %v and is %v, want %v", d, c, o, before, now, floats(want)[c])
				}
			}
		}
	}
}

// TestMomentsFarFromZero: means and deviations keep their digits where values lie far from zero, where the first row lies far from all
// others, and where a channel is constant. A channel with an infinity has no finite deviation.
func TestMomentsFarFromZero(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	const rows = 2 * 48 * 40
	for _, channels := range []int{5, 8} {
		call := kernels.Call{Op: kernels.BatchNorm{}, In: []kernels.Desc{typed(kernels.Float32, 2, 48, 40, channels)}, Train: true}
		in := randomInputs(rand.New(rand.NewPCG(38, 1)), call)
		x := floats(in[operand(kernels.X, 0)])
		for r := range rows {
			row := x[r*channels:]
			row[0], row[1], row[2] = 1000+row[0]/128, -3e6+1000*row[1], 7.25
			if r < 64 { // the first rows of threads
				row[3] += 1e5
			}
			if c := channels - 1; c > 4 { // squares of sums are beyond float32, sums of squares are not
				if row[c] = 8e17; r < 64 {
					row[c] = 0
				}
			}
		}
		x[17*channels+4] = float32(math.Inf(1))
		got := compute(t, b, l, call, in, nil)
		for c := range channels {
			mean, squares := 0.0, 0.0
			for r := range rows {
				mean += float64(x[r*channels+c]) / rows
			}
			for r := range rows {
				off := float64(x[r*channels+c]) - mean
				squares += off * off
			}
			inverse := 1 / math.Sqrt(squares/rows+float64(kernels.BatchNorm{}.Defaults().Epsilon))
			is, std := float64(floats(got[operand(kernels.Save, 0)])[c]), float64(floats(got[operand(kernels.Save, 1)])[c])
			if c == 4 {
				if !math.IsNaN(std) {
					t.Errorf("%d channels, one with an infinity: mean %v, 1/deviation %v", channels, is, std)
				}
			} else if math.Abs(is-mean) > 1e-6*math.Abs(mean)+1e-4/inverse || math.Abs(std/inverse-1) > 1e-4 {
				t.Errorf("%d channels, channel %d: mean %v, 1/deviation %v, want %v and %v", channels, c, is, std, mean, inverse)
			}
		}
	}
}

// TestMuonOfNothing: a gradient of zeros, without momentum, moves a matrix by its decay alone.
func TestMuonOfNothing(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	o := newMatrix(t, l, kernels.Matrix{Rows: 6, Columns: 9}, 1)
	o.scalars(kernels.Scalars{LR: 0.1, GradScale: 1})
	want := expected(t, muon, o)
	got := b.run(t, o.memory, prepared(t, l, o.operands))
	for _, s := range []struct{ offset, bytes int64 }{{o.operands.Param.Offset, o.operands.Param.Bytes}, {o.operands.States[0].Offset, o.operands.States[0].Bytes}} {
		within(t, "zeros", floats(got[s.offset:s.offset+s.bytes]), floats(want[s.offset:s.offset+s.bytes]), 1e-4)
	}
	if param := o.operands.Param; bytes.Equal(got[param.Offset:param.End()], o.memory[param.Offset:param.End()]) {
		t.Error("the decay does not move the weights")
	}
}

// TestManySlabs: weights of more slabs than the grid of pack has blocks are packed in full.
func TestManySlabs(t *testing.T) {
	if cudatest.Checked() {
		t.Skip("half a minute, for accesses that TestRandomCalls has watched")
	}
	b := newBench(t)
	l := libraries(t, b)[0]
	slab := int(registers.slab)
	call := kernels.Call{Op: kernels.Linear{Out: 2}, In: []kernels.Desc{typed(kernels.Float32, 1, slab*(maxSlabsAtOnce+1))}, Train: true}
	in := randomInputs(rand.New(rand.NewPCG(36, 1)), call)
	x := floats(in[operand(kernels.X, 0)])
	clear(x[:len(x)-slab]) // so that the products of the last slab do not vanish beside the others'
	compare(t, call, kernels.Float32, newRig(call, 0, nil).types, compute(t, b, l, call, in, nil), reference(t, call, in))
}

// TestGridsWithinTheLimits: an image of 65,536 rows, and as many images, are one launch whose grid CUDA allows; what would need a
// larger one is refused.
func TestGridsWithinTheLimits(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	cudatest.LastBlocks(t, 1)
	for _, shape := range [][]int{{1, 1 << 16, 1, 1}, {1 << 16, 1, 1, 1}} {
		call := kernels.Call{Op: kernels.MaxPool{KernelH: 1, KernelW: 1}, In: []kernels.Desc{typed(kernels.Float32, shape...)}, Train: true}
		in := randomInputs(rand.New(rand.NewPCG(37, 1)), call)
		before, got, _ := partly(t, b, l, call, in)
		y := operand(kernels.Y, 0)
		if n := sameWhereWritten(t, "maxpool", kernels.Float32, before[y], got[y], reference(t, call, in)[y]); n != 1 && cudatest.Emulated() {
			t.Errorf("%v: one block wrote %d elements", shape, n)
		}
	}
	for _, grid := range []dim{{1, 1 << 16, 1}, {1, 1, 1 << 16}, {1 << 31, 1, 1}, {0, 1, 1}} {
		if _, err := built(l, func(b *builder) error {
			b.call.Op = kernels.ReLU{}
			addStep(b, "map", "sum_f32", grid, rowBlock, 0, 0)
			return b.err
		}); err == nil {
			t.Errorf("a grid of %v blocks is launched", grid)
		}
	}
}
