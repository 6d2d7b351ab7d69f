//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda/cudatest"
)

// far is a call whose tensors have more elements than 32 bits count. Only the last rows hold anything but zeros; the emulated driver
// runs the last blocks alone, and has memory for the pages that they touch.
type far struct {
	*bench
	call   kernels.Call
	launch runtime.Launch
	spans  map[kernels.Operand]runtime.Span
}

// newFar places the operands that a call uses. One that is a key of alias lies on its value.
func newFar(t *testing.T, c kernels.Call, alias map[kernels.Operand]kernels.Operand) *far {
	t.Helper()
	if cudatest.Checked() {
		t.Skip("the checked driver remembers every byte")
	}
	workspace, err := unproven(t, newBench(t)).Workspace(c)
	if err != nil {
		t.Fatal(err)
	}
	f, end := &far{call: c, spans: map[kernels.Operand]runtime.Span{}}, kernels.Align(workspace)
	for _, u := range newRig(c, 0, nil).uses {
		if _, ok := alias[u.Operand]; !ok {
			f.spans[u.Operand] = runtime.Span{Offset: end, Bytes: u.Bytes}
			end += kernels.Align(u.Bytes)
		}
	}
	for o, on := range alias {
		f.spans[o] = f.spans[on]
	}
	operands := spansOf(c, func(o kernels.Operand, _ kernels.Desc) runtime.Span { return f.spans[o] })
	operands.Workspace = runtime.Span{Bytes: workspace}
	f.bench = openVast(t, end, 1<<20)
	if f.launch, err = unproven(t, f.bench).Prepare(c, operands); err != nil {
		t.Fatal(err)
	}
	return f
}

// unproven returns a library that takes our kernels without a proof, which would compute a whole call.
func unproven(t *testing.T, b *bench) *Library {
	l := libraries(t, b)[0]
	l.choose = func(kernels.Call, convolution) (algorithm, error) { return ours, nil }
	return l
}

// put writes the ends of operands that the call reads.
func (f *far) put(t *testing.T, in data) {
	t.Helper()
	for _, u := range newRig(f.call, 0, nil).uses {
		if u.Read {
			copy(f.host, in[u.Operand])
			f.move(t, u.Operand, int64(len(in[u.Operand])), false)
		}
	}
}

// tail reads the last elements of an operand.
func (f *far) tail(t *testing.T, o kernels.Operand, elements int64) []float64 {
	t.Helper()
	types := newRig(f.call, 0, nil).types
	bytes := elements * types[o].Size()
	f.move(t, o, bytes, true)
	return values(types[o], f.host[:bytes])
}

// move copies the last bytes of an operand from the host's space, or to it.
func (f *far) move(t *testing.T, o kernels.Operand, bytes int64, out bool) {
	t.Helper()
	to, from := runtime.Span{Offset: f.spans[o].End() - bytes, Bytes: bytes}, runtime.Span{Space: runtime.Host, Bytes: bytes}
	if out {
		to, from = from, to
	}
	if err := errors.Join(f.stream.Copy(to, from), f.stream.Synchronize()); err != nil {
		t.Fatal(err)
	}
}

// runFar runs the last block of each kernel of a call whose operands end with these, and has the results judged.
func runFar(t *testing.T, c kernels.Call, in data, alias map[kernels.Operand]kernels.Operand, judge func(*testing.T, *far)) {
	t.Helper()
	runFarBlocks(t, c, in, alias, 1, judge)
}

// runFarBlocks is runFar with the last blocks of each kernel.
func runFarBlocks(t *testing.T, c kernels.Call, in data, alias map[kernels.Operand]kernels.Operand, blocks uint64, judge func(*testing.T, *far)) {
	t.Helper()
	t.Run(c.Pass.String(), func(t *testing.T) { // whose memory is free at its end
		f := newFar(t, c, alias)
		f.put(t, in)
		cudatest.LastBlocks(t, blocks)
		if err := errors.Join(f.stream.Launch(f.launch), f.stream.Synchronize()); err != nil {
			t.Fatal(err)
		}
		judge(t, f)
	})
}

// closeTo fails where results in bfloat16 are not the expected ones.
func closeTo(t *testing.T, what string, got, want []float64) {
	t.Helper()
	scale := 1e-9
	for _, v := range want {
		scale = max(scale, math.Abs(v))
	}
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= tolerance(nil, kernels.BFloat16)*scale) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], w)
		}
	}
}

// TestLossBeyond32Bits: the last row's loss and gradient are those of that row alone.
func TestLossBeyond32Bits(t *testing.T) {
	const classes = 65_600
	call := func(rows int, p kernels.Pass) kernels.Call {
		in := []kernels.Desc{typed(kernels.BFloat16, rows, classes), {Shape: kernels.Shape{rows}, DType: kernels.Int32}}
		return kernels.Call{Op: kernels.SoftmaxCrossEntropy{}, Pass: p, In: in, Train: true}
	}
	x, saved, dx := operand(kernels.X, 0), operand(kernels.Save, 0), operand(kernels.DX, 0)
	in := randomInputs(rand.New(rand.NewPCG(41, 1)), call(1, kernels.Forward))
	in[saved] = reference(t, call(1, kernels.Forward), in)[saved]
	runFar(t, call(rowsBeyond, kernels.Forward), in, nil, func(t *testing.T, f *far) {
		closeTo(t, "the largest logit and the sum", f.tail(t, saved, 3), values(kernels.Float32, in[saved]))
	})
	runFar(t, call(rowsBeyond, kernels.Backward), in, map[kernels.Operand]kernels.Operand{dx: x}, func(t *testing.T, f *far) {
		closeTo(t, "the gradient", f.tail(t, dx, classes), values(kernels.BFloat16, reference(t, call(1, kernels.Backward), in)[dx]))
	})
}

const (
	attentionLength = 66 // and so a tile of 64 positions and one of 2
	attentionDim    = 512
)

// attentionCall has one head of keys.
func attentionCall(p kernels.Pass, samples, heads int) kernels.Call {
	in := []kernels.Desc{typed(kernels.BFloat16, samples, attentionLength, (heads+2)*attentionDim)}
	return kernels.Call{Op: kernels.Attention{Heads: heads, KVHeads: 1}, Pass: p, In: in, Train: true}
}

// lastTile returns the part of one head that the last block computes: the last channels at the positions of the last tile.
func lastTile(v []float64, head, heads int) (part []float64) {
	for t := attentionTile; t < attentionLength; t++ {
		end := (t*heads + head + 1) * attentionDim
		part = append(part, v[end-attentionTile:end]...)
	}
	return part
}

// TestAttentionBeyond32Bits: the last sample's result and gradients are those of that sample alone. Forward, offsets of the result
// are beyond 32 bits too.
func TestAttentionBeyond32Bits(t *testing.T) {
	const heads = 8
	in := randomInputs(rand.New(rand.NewPCG(42, 1)), attentionCall(kernels.Forward, 1, heads))
	runFar(t, attentionCall(kernels.Forward, 8000, heads), in, nil, func(t *testing.T, f *far) {
		y := operand(kernels.Y, 0)
		want := values(kernels.BFloat16, reference(t, attentionCall(kernels.Forward, 1, heads), in)[y])
		closeTo(t, "the result", lastTile(f.tail(t, y, int64(len(want))), heads-1, heads), lastTile(want, heads-1, heads))
	})
	in = randomInputs(rand.New(rand.NewPCG(42, 2)), attentionCall(kernels.Forward, 1, 1))
	for o, v := range reference(t, attentionCall(kernels.Forward, 1, 1), in) {
		in[o] = v
	}
	runFar(t, attentionCall(kernels.Backward, 21_500, 1), in, nil, func(t *testing.T, f *far) {
		dx := operand(kernels.DX, 0)
		want := values(kernels.BFloat16, reference(t, attentionCall(kernels.Backward, 1, 1), in)[dx])
		got := f.tail(t, dx, int64(len(want)))
		for i, what := range []string{"queries", "keys", "values"} {
			closeTo(t, "the gradient of "+what, lastTile(got, i, 3), lastTile(want, i, 3))
		}
	})
}

// TestEmbeddingBeyond32Bits: the gradients of a vocabulary's last tokens, of keys of 25 bits, are sums over their rows.
func TestEmbeddingBeyond32Bits(t *testing.T) {
	const vocabulary, width, count, some = 1<<24 + 1<<17, 136, 130, 3 // the last blocks make the last tokens
	call := func(vocabulary int) kernels.Call {
		op := kernels.Embedding{Vocabulary: vocabulary, Width: width, To: kernels.BFloat16}
		return kernels.Call{Op: op, In: []kernels.Desc{{Shape: kernels.Shape{1, count}, DType: kernels.Int32}}, Train: true, Pass: kernels.Backward}
	}
	in := randomInputs(rand.New(rand.NewPCG(45, 1)), call(some))
	tokensFrom := func(first int) []byte { // every fifth is unknown
		tokens := make([]float32, count)
		for i := range tokens {
			tokens[i] = math.Float32frombits(uint32(first + (i*i+i/7)%some + i%5/4*some))
		}
		return encode(kernels.Int32, tokens)
	}
	in[operand(kernels.X, 0)] = tokensFrom(0)
	table := operand(kernels.DParam, 0)
	want := values(kernels.Float32, reference(t, call(some), in)[table])
	in[operand(kernels.X, 0)] = tokensFrom(vocabulary - some)
	runFarBlocks(t, call(vocabulary), in, nil, 2, func(t *testing.T, f *far) {
		closeTo(t, "the gradient", f.tail(t, table, int64(len(want))), want)
	})
}

// TestAttentionOfManyHeads: heads of samples may be more than a grid has blocks along y, in all kernels: the last sample's results are
// those of that sample alone.
func TestAttentionOfManyHeads(t *testing.T) {
	const samples, length = 66_000, 2
	for _, s := range []attentionShape{{1, length, 2, 1, 8}, {1, length, 1, 1, 4}} { // with and without tensor cores
		many := s
		many.samples = samples
		in := randomInputs(rand.New(rand.NewPCG(46, 1)), s.forward(kernels.BFloat16))
		y, dx := operand(kernels.Y, 0), operand(kernels.DX, 0)
		one := reference(t, s.forward(kernels.BFloat16), in)
		runFarBlocks(t, many.forward(kernels.BFloat16), in, nil, 2, func(t *testing.T, f *far) {
			want := values(kernels.BFloat16, one[y])
			closeTo(t, "the result", f.tail(t, y, int64(len(want))), want)
		})
		for o, v := range one {
			in[o] = v
		}
		backward := func(s attentionShape) kernels.Call {
			c := s.forward(kernels.BFloat16)
			c.Pass, c.AddDX = kernels.Backward, []bool{false}
			return c
		}
		in[operand(kernels.DY, 0)] = randomInputs(rand.New(rand.NewPCG(46, 2)), backward(s))[operand(kernels.DY, 0)]
		runFarBlocks(t, backward(many), in, nil, 2, func(t *testing.T, f *far) {
			want := values(kernels.BFloat16, reference(t, backward(s), in)[dx])
			closeTo(t, "the gradient", f.tail(t, dx, int64(len(want))), want)
		})
	}
}

// TestFlashBeyond32Bits: on tensor cores, the last sample's rows of its last head, which the last two blocks compute, are those of that
// sample alone.
func TestFlashBeyond32Bits(t *testing.T) {
	for _, c := range []struct {
		d       kernels.DType
		few     attentionShape
		samples int
		all     bool // positions are seen
	}{
		{kernels.BFloat16, attentionShape{samples: 1, length: 66, heads: 8, kv: 1, dim: 64}, 64_000, false},
		{kernels.TF32, attentionShape{samples: 1, length: 129, heads: 1, kv: 1, dim: 64}, 87_000, false},
		{kernels.BFloat16, attentionShape{samples: 1, length: 66, heads: 8, kv: 1, dim: 64}, 64_000, true},
	} {
		forward := func(s attentionShape) kernels.Call {
			call := s.forward(c.d)
			call.Op = as(c.d, kernels.Attention{Heads: s.heads, KVHeads: s.kv, Bidirectional: c.all})
			return call
		}
		few, many := c.few, c.few
		many.samples = c.samples
		if forward(many).In[0].Elements() <= math.MaxInt32 {
			t.Fatal("the input is too small")
		}
		in := randomInputs(rand.New(rand.NewPCG(44, 1)), forward(few))
		runFarBlocks(t, forward(many), in, nil, 2, func(t *testing.T, f *far) {
			for o, channels := range map[kernels.Operand]int{operand(kernels.Y, 0): few.dim, operand(kernels.Save, 0): 1} {
				types := newRig(f.call, 0, nil).types
				want := values(types[o], reference(t, forward(few), in)[o])
				got := f.tail(t, o, int64(len(want)))
				for row := range few.length {
					at := (row*few.heads + few.heads - 1) * channels // Y; rows of a head follow one another in what is saved
					if channels == 1 {
						at = (few.heads-1)*few.length + row
					}
					closeTo(t, o.String(), got[at:at+channels], want[at:at+channels])
				}
			}
		})
	}
}

// TestNormBeyond32Bits: statistics of all rows normalize the last rows and form their gradient. All other rows are zeros, so chunks that do
// not run have nothing to add.
func TestNormBeyond32Bits(t *testing.T) {
	const rows, channels, some = 68_000_000, 32, 128 // the last chunk begins beyond, too
	call := func(rows int, p kernels.Pass) kernels.Call {
		return kernels.Call{Op: kernels.BatchNorm{}, Pass: p, In: []kernels.Desc{typed(kernels.BFloat16, rows, channels)}, Train: true}
	}
	in := randomInputs(rand.New(rand.NewPCG(43, 1)), call(some, kernels.Forward))
	want := normalized(in, rows)
	runFar(t, call(rows, kernels.Forward), in, nil, func(t *testing.T, f *far) {
		closeTo(t, "the result", f.tail(t, operand(kernels.Y, 0), some*channels), want.y)
		for i, v := range want.saved {
			o := operand(kernels.Save, i)
			closeTo(t, o.String(), f.tail(t, o, channels), v)
			in[o] = bytes.Clone(f.host[:4*channels])
		}
	})
	dx := operand(kernels.DX, 0)
	runFar(t, call(rows, kernels.Backward), in, map[kernels.Operand]kernels.Operand{dx: operand(kernels.X, 0)}, func(t *testing.T, f *far) {
		closeTo(t, "the gradient", f.tail(t, dx, some*channels), want.dx)
		closeTo(t, "the weight's gradient", f.tail(t, operand(kernels.DParam, 0), channels), want.weight)
		closeTo(t, "the bias's gradient", f.tail(t, operand(kernels.DParam, 1), channels), want.bias)
	})
}

// norms are the results of a BatchNorm by its definition.
type norms struct {
	y, dx, weight, bias []float64
	saved               [2][]float64 // means and 1/std
}

// normalized computes them for the last of so many rows, of which all others are zeros.
func normalized(in data, rows float64) (n norms) {
	x, dy := values(kernels.BFloat16, in[operand(kernels.X, 0)]), values(kernels.BFloat16, in[operand(kernels.DY, 0)])
	weight, bias := values(kernels.Float32, in[operand(kernels.ParamRole, 0)]), values(kernels.Float32, in[operand(kernels.ParamRole, 1)])
	channels := len(weight)
	for _, v := range []*[]float64{&n.weight, &n.bias, &n.saved[0], &n.saved[1]} {
		*v = make([]float64, channels)
	}
	n.y, n.dx = make([]float64, len(x)), make([]float64, len(x))
	for c := range channels {
		var sum, squares float64
		for i := c; i < len(x); i += channels {
			sum, squares = sum+x[i], squares+x[i]*x[i]
		}
		mean := sum / rows
		inverse := 1 / math.Sqrt(squares/rows-mean*mean+float64(kernels.BatchNorm{}.Defaults().Epsilon))
		n.saved[0][c], n.saved[1][c] = mean, inverse
		for i := c; i < len(x); i += channels {
			h := (x[i] - mean) * inverse
			n.y[i] = h*weight[c] + bias[c]
			n.bias[c], n.weight[c] = n.bias[c]+dy[i], n.weight[c]+dy[i]*h
		}
		for i := c; i < len(x); i += channels {
			n.dx[i] = inverse * weight[c] * (dy[i] - n.bias[c]/rows - (x[i]-mean)*inverse*n.weight[c]/rows)
		}
	}
	return n
}

// TestRowNormBeyond32Bits: the last rows of 768 channels, more rows than a grid has blocks, are normalized, and have gradients, as alone.
func TestRowNormBeyond32Bits(t *testing.T) {
	const channels, some, rows = 768, 2 * rowWarps, 22 * maxRowBlocks * rowWarps // the last blocks have the last rows
	for _, op := range []kernels.Op{kernels.LayerNorm{}, kernels.RMSNorm{}} {
		call := func(rows int, p kernels.Pass) kernels.Call {
			return kernels.Call{Op: op, Pass: p, In: []kernels.Desc{typed(kernels.BFloat16, rows, channels)}, Train: true}
		}
		if call(rows, kernels.Forward).In[0].Elements() <= math.MaxInt32 {
			t.Fatal("the input is too small")
		}
		in := randomInputs(rand.New(rand.NewPCG(48, 1)), call(some, kernels.Forward))
		y, dx := operand(kernels.Y, 0), operand(kernels.DX, 0)
		want := reference(t, call(some, kernels.Forward), in)
		runFarBlocks(t, call(rows, kernels.Forward), in, nil, 2, func(t *testing.T, f *far) {
			closeTo(t, op.Kind(), f.tail(t, y, some*channels), values(kernels.BFloat16, want[y]))
		})
		maps.Copy(in, want)
		runFarBlocks(t, call(rows, kernels.Backward), in, map[kernels.Operand]kernels.Operand{dx: operand(kernels.X, 0)}, 2, func(t *testing.T, f *far) {
			closeTo(t, "the gradient of "+op.Kind(), f.tail(t, dx, some*channels), values(kernels.BFloat16, reference(t, call(some, kernels.Backward), in)[dx]))
		})
	}
}

// TestPoolsBeyond32Bits: the last image of more than a grid has blocks, in vectors of channels, is pooled as alone.
func TestPoolsBeyond32Bits(t *testing.T) {
	const size, channels, images = 8, 64, 9 * maxImages // the last block of images has the last one
	for _, op := range []kernels.Op{
		kernels.MaxPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1},
		kernels.AvgPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1, Inside: true},
	} {
		call := func(images int, p kernels.Pass) kernels.Call {
			return kernels.Call{Op: op, Pass: p, In: []kernels.Desc{typed(kernels.BFloat16, images, size, size, channels)}, Train: true}
		}
		if call(images, kernels.Forward).In[0].Elements() <= math.MaxInt32 {
			t.Fatal("the input is too small")
		}
		in := randomInputs(rand.New(rand.NewPCG(49, 1)), call(1, kernels.Forward))
		b := newBench(t)
		y, dx := operand(kernels.Y, 0), operand(kernels.DX, 0)
		want := reference(t, call(1, kernels.Forward), in)
		runFarBlocks(t, call(images, kernels.Forward), in, nil, size/2, func(t *testing.T, f *far) {
			closeTo(t, op.Kind(), f.tail(t, y, size*size/4*channels), values(kernels.BFloat16, want[y]))
		})
		backward := maps.Clone(in)
		maps.Copy(in, compute(t, b, libraries(t, b)[0], call(1, kernels.Forward), in, nil)) // each library has its own indices
		maps.Copy(backward, want)
		runFarBlocks(t, call(images, kernels.Backward), in, nil, size, func(t *testing.T, f *far) {
			wanted := values(kernels.BFloat16, reference(t, call(1, kernels.Backward), backward)[dx])
			closeTo(t, "the gradient of "+op.Kind(), f.tail(t, dx, int64(len(wanted))), wanted)
		})
	}
}

// TestFoldedBeyond32Bits: the last image of a first convolution is folded and multiplied as alone, where folded images have more elements than
// 31 and 32 bits count.
func TestFoldedBeyond32Bits(t *testing.T) {
	const size, out, rows = 32, 2, 2 // of the last image, the rows that are judged
	op := kernels.Conv2D{Out: out, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}
	call := func(images int) kernels.Call {
		return kernels.Call{Op: op, In: []kernels.Desc{typed(kernels.BFloat16, images, size, size, 3)}, Train: true}
	}
	folded, _ := newConvolution(op.Defaults(), call(1).In[0]).folded()
	each := folded.h.in * folded.w.in * folded.channels
	in := randomInputs(rand.New(rand.NewPCG(50, 1)), call(1))
	y := operand(kernels.Y, 0)
	want := values(kernels.BFloat16, reference(t, call(1), in)[y])
	for _, elements := range []int64{math.MaxInt32, math.MaxUint32} {
		runFarBlocks(t, call(int(elements/each)+2), in, nil, 64, func(t *testing.T, f *far) {
			if imagesFolded(t, unproven(t, f.bench), f.call) != 1 {
				t.Error("no image is folded")
			}
			last := int64(rows * size * out)
			closeTo(t, "the last rows", f.tail(t, y, last), want[int64(len(want))-last:])
		})
	}
}
