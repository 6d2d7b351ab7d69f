//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda/cudatest"
)

// The rows of a test are twice as many as the grid's blocks, so that every block takes two of them.
const (
	rowsBeyond   = 2 * maxRowBlocks
	imagesBeyond = 2 * maxImages
)

// tall is an op on twice as many rows as a grid has blocks. blocks is the grid's extent along the rows.
type tall struct {
	op     kernels.Op
	shape  []int
	blocks int
	// whole are operands that a smaller grid computes in full, skipped ones depend on rows of blocks that do not run.
	whole, skipped []kernels.Role
	barrier        bool // the block's threads share memory from one row to the next
}

var talls = []tall{
	{kernels.SoftmaxCrossEntropy{}, []int{rowsBeyond, 3}, maxRowBlocks, nil, []kernels.Role{kernels.Y}, true},
	{kernels.SoftmaxCrossEntropy{}, []int{rowsBeyond, 65}, maxRowBlocks, nil, []kernels.Role{kernels.Y}, true},
	{kernels.LayerNorm{}, []int{rowsBeyond, 3}, maxRowBlocks, []kernels.Role{kernels.DParam}, nil, true},
	{kernels.RMSNorm{}, []int{rowsBeyond, 3}, maxRowBlocks, []kernels.Role{kernels.DParam}, nil, true},
	{kernels.LayerNorm{}, []int{rowsBeyond * rowWarps, 8}, maxRowBlocks, []kernels.Role{kernels.DParam}, nil, true},
	{kernels.RMSNorm{}, []int{rowsBeyond * rowWarps, 8}, maxRowBlocks, []kernels.Role{kernels.DParam}, nil, true},
	{kernels.Rotary{Heads: 1, Dim: 2}, []int{1, rowsBeyond, 3}, maxRowBlocks, nil, nil, false},
	{kernels.MaxPool{KernelH: 1, KernelW: 1}, []int{imagesBeyond, 1, 1, 1}, maxImages, nil, nil, false},
	{kernels.MaxPool{KernelH: 1, KernelW: 1}, []int{1, imagesBeyond, 1, 1}, maxImages, nil, nil, false},
	{kernels.AvgPool{KernelH: 1, KernelW: 1}, []int{imagesBeyond, 1, 1, 1}, maxImages, nil, nil, false},
	{kernels.AvgPool{KernelH: 1, KernelW: 1}, []int{1, imagesBeyond, 1, 1}, maxImages, nil, nil, false},
	{kernels.MaxPool{KernelH: 1, KernelW: 1}, []int{imagesBeyond, 1, 1, 4}, maxImages, nil, nil, false},
	{kernels.MaxPool{KernelH: 1, KernelW: 1}, []int{1, imagesBeyond, 1, 8}, maxImages, nil, nil, false},
	{kernels.AvgPool{KernelH: 1, KernelW: 1}, []int{1, imagesBeyond, 1, 4}, maxImages, nil, nil, false},
	{kernels.AvgPool{KernelH: 1, KernelW: 1}, []int{imagesBeyond, 1, 1, 8}, maxImages, nil, nil, false},
	{kernels.GlobalAvgPool{}, []int{imagesBeyond, 1, 16, 1}, maxImages, nil, nil, true},
	{kernels.GlobalAvgPool{}, []int{1, imagesBeyond, 1, 1}, maxImages, []kernels.Role{kernels.Y}, nil, false},
	{kernels.AdaptiveAvgPool{OutH: 1, OutW: 1}, []int{imagesBeyond, 1, 1, 1}, maxImages, nil, nil, false},
	{kernels.AdaptiveAvgPool{OutH: 1, OutW: 1}, []int{1, 1, 1, imagesBeyond}, maxImages, []kernels.Role{kernels.DX}, nil, false},
	{kernels.AdaptiveAvgPool{OutH: 1, OutW: 1}, []int{1, imagesBeyond, 1, 1}, maxImages, []kernels.Role{kernels.Y}, nil, false},
	{kernels.Upsample{Factor: 1}, []int{imagesBeyond, 1, 1, 1}, maxImages, nil, nil, false},
	{kernels.Upsample{Factor: 1}, []int{1, imagesBeyond, 1, 1}, maxImages, nil, nil, false},
}

// lastBlocks is how many blocks of a launch run on the emulated driver: as many as any sum over rows has, or, where every access
// is watched, two.
func lastBlocks() int {
	if cudatest.Checked() {
		return 2
	}
	return sumBlocks
}

// inputs returns random operands of both passes, forward's outputs included.
func (c tall) inputs(t *testing.T, d kernels.DType, r *rand.Rand) (forward, backward kernels.Call, in data) {
	t.Helper()
	x := []kernels.Desc{typed(d, c.shape...)}
	if c.op.Kind() == "softmax_cross_entropy" {
		x = append(x, kernels.Desc{Shape: c.shape[:1], DType: kernels.Int32})
	}
	forward = kernels.Call{Op: c.op, In: x, Train: true}
	backward = forward
	backward.Pass = kernels.Backward
	in = randomInputs(r, forward)
	for o, v := range reference(t, forward, in) {
		in[o] = v
	}
	return forward, backward, in
}

// given returns the operands that the library's own backward reads: each library has its own indices of maxima. Here windows are one
// element.
func (c tall) given(in data) data {
	saved := operand(kernels.Save, 0)
	if c.op.Kind() != "maxpool" {
		return in
	}
	in = maps.Clone(in)
	in[saved] = slices.Clone(in[saved])
	for i := range floats(in[saved]) {
		floats(in[saved])[i] = math.Float32frombits(uint32(i / c.shape[3] % c.shape[1]))
	}
	return in
}

// TestRowsBeyondTheGrid: where rows are more than a grid has blocks, every block takes the next ones too. The emulated driver runs
// the last blocks alone.
func TestRowsBeyondTheGrid(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	cudatest.LastBlocks(t, uint64(lastBlocks()))
	compared := 0
	for i, c := range talls {
		if cudatest.Checked() && !c.barrier {
			continue // nothing to watch: each thread has rows of its own
		}
		forward, backward, in := c.inputs(t, types[i%len(types)], rand.New(rand.NewPCG(31, uint64(i))))
		for _, call := range []kernels.Call{forward, backward} {
			compared += c.compare(t, b, l, call, in)
		}
	}
	if !cudatest.Checked() && compared < 25_000 {
		t.Errorf("compared %d elements", compared)
	}
}

// compare runs a call and returns how many elements of its result it has compared.
func (c tall) compare(t *testing.T, b *bench, l *Library, call kernels.Call, in data) (compared int) {
	t.Helper()
	before, got, types := partly(t, b, l, call, c.given(in))
	for o, w := range reference(t, call, in) {
		whole := slices.Contains(c.whole, o.Role)
		if slices.Contains(c.skipped, o.Role) || whole && cudatest.Checked() || call.Op.Kind() == "maxpool" && o.Role == kernels.Save {
			continue
		}
		want := len(values(types[o], w))
		if !whole && cudatest.Emulated() {
			want = want / c.blocks * lastBlocks()
		}
		if n := sameWhereWritten(t, fmt.Sprintf("%s of %v, %v", call.Op.Kind(), call.In[0], o), types[o], before[o], got[o], w); n != want {
			t.Errorf("%s of %v, %v: %d elements of %v were written, want %d", call.Op.Kind(), call.In[0], call.Pass, n, o, want)
		}
		compared += want
	}
	return compared
}

// partly runs a call of which not all blocks may run, and returns what its outputs held before and hold then.
func partly(t *testing.T, b *bench, l *Library, c kernels.Call, in data) (before, got data, types map[kernels.Operand]kernels.DType) {
	t.Helper()
	workspace, err := l.Workspace(c)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(c, workspace, nil)
	launch, err := l.Prepare(c, r.operands)
	if err != nil {
		t.Fatal(err)
	}
	memory := r.memory(in)
	before = data{}
	for _, u := range r.uses {
		before[u.Operand] = slices.Clone(r.of(memory, u))
	}
	return before, r.outputs(t, memory, b.run(t, memory, launch)), r.types
}

// sameWhereWritten compares elements that have changed, and returns how many have.
func sameWhereWritten(t *testing.T, what string, d kernels.DType, before, got, want []byte) (written int) {
	t.Helper()
	g, w, size := values(d, got), values(d, want), int(d.Size())
	scale := 1e-3
	for _, v := range w {
		scale = max(scale, math.Abs(v))
	}
	for i := range w {
		if bytes.Equal(got[i*size:(i+1)*size], before[i*size:(i+1)*size]) {
			continue
		}
		written++
		if !(math.Abs(g[i]-w[i]) <= tolerance(nil, d)*scale) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, g[i], w[i])
		}
	}
	return written
}

// TestTokensBeyondTheGrid: rows of tokens, of the vocabulary and of positions are more than a grid has blocks for.
func TestTokensBeyondTheGrid(t *testing.T) {
	if cudatest.Checked() {
		t.Skip("minutes, for accesses that TestRandomCalls has watched")
	}
	b := newBench(t)
	l := libraries(t, b)[0]
	const width, blockRows = 17, streamThreads / 32 // a warp for each row
	tables := rowsBeyond * blockRows
	tokensOf := func(n, vocabulary int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = math.Float32frombits(uint32(vocabulary - 1 - i*i%vocabulary))
		}
		return v
	}
	for _, c := range []struct {
		pass                         kernels.Pass
		vocabulary, positions, count int
		want                         map[kernels.Operand]int // rows of each output that the last blocks write
	}{
		{kernels.Forward, 37, rowsBeyond, rowsBeyond, map[kernels.Operand]int{operand(kernels.Y, 0): 2 * sumBlocks}},
		{kernels.Backward, tables, 0, 40, map[kernels.Operand]int{operand(kernels.DParam, 0): 2 * sumBlocks * blockRows}},
		{kernels.Backward, 50, tables, 40, map[kernels.Operand]int{operand(kernels.DParam, 0): 50, operand(kernels.DParam, 1): 2 * sumBlocks * blockRows}},
	} {
		op := kernels.Embedding{Vocabulary: c.vocabulary, Width: width, Positions: c.positions, To: kernels.Float32}
		call := kernels.Call{Op: op, In: []kernels.Desc{{Shape: kernels.Shape{1, c.count}, DType: kernels.Int32}}, Train: true, Pass: c.pass}
		in := randomInputs(rand.New(rand.NewPCG(32, 1)), call)
		in[operand(kernels.X, 0)] = encode(kernels.Int32, tokensOf(c.count, c.vocabulary))
		cudatest.LastBlocks(t, sumBlocks)
		before, got, types := partly(t, b, l, call, in)
		for o, w := range reference(t, call, in) {
			want := c.want[o] * width
			if !cudatest.Emulated() {
				want = len(w) / 4
			}
			if n := sameWhereWritten(t, fmt.Sprint(o), types[o], before[o], got[o], w); n != want {
				t.Errorf("%v: %d elements of %v were written, want %d", c.pass, n, o, want)
			}
		}
	}
}
