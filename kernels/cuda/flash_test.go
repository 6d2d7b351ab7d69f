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

// attentionShape is one of attention: kv heads of keys and values, of dim channels.
type attentionShape struct{ samples, length, heads, kv, dim int }

// forward returns the call in a model of type d.
func (s attentionShape) forward(d kernels.DType) kernels.Call {
	in := []kernels.Desc{typed(d, s.samples, s.length, s.channels())}
	return kernels.Call{Op: as(d, kernels.Attention{Heads: s.heads, KVHeads: s.kv}), In: in, Train: true}
}

func (s attentionShape) channels() int { return (s.heads + 2*s.kv) * s.dim }

// flashTypes lists the types of models with attention on tensor cores.
var flashTypes = []kernels.DType{kernels.BFloat16, kernels.TF32}

// flashName returns the kernel that computes a forward, by the library's choice.
func flashName(t *testing.T, l *Library, c kernels.Call) string {
	t.Helper()
	b, err := l.build(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b.steps[0].function
}

// TestFlashForward: lengths of whole tiles and others, one token, heads of every kernel's width and narrower ones, and grouped heads. Each
// width has its kernel on tensor cores, and other widths have the one without, as float32 always has.
func TestFlashForward(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for i, c := range []struct {
		shape  attentionShape
		kernel int // channels of the heads of its kernel in bfloat16; 0: the one without tensor cores
		tf32   int
	}{
		{attentionShape{1, 1, 1, 1, 8}, 32, 32},
		{attentionShape{2, 17, 2, 1, 24}, 32, 32},
		{attentionShape{1, 64, 1, 1, 32}, 32, 32},
		{attentionShape{1, 129, 3, 3, 40}, 64, 64},
		{attentionShape{2, 200, 4, 2, 64}, 64, 64},
		{attentionShape{1, 300, 1, 1, 64}, 64, 64},
		{attentionShape{1, 66, 1, 1, 72}, 96, 96},
		{attentionShape{1, 130, 2, 2, 96}, 96, 96},
		{attentionShape{1, 100, 2, 1, 104}, 128, 128},
		{attentionShape{1, 191, 1, 1, 128}, 128, 128},
		{attentionShape{2, 31, 1, 1, 136}, 256, 0},
		{attentionShape{1, 97, 2, 1, 200}, 256, 0},
		{attentionShape{1, 160, 1, 1, 256}, 256, 0},
		{attentionShape{1, 70, 1, 1, 60}, 0, 64},
		{attentionShape{1, 70, 1, 1, 264}, 0, 0},
		{attentionShape{1, 70, 1, 1, 30}, 0, 0},
	} {
		if got := flashName(t, l, c.shape.forward(kernels.Float32)); got != "attention_forward_f32" {
			t.Errorf("%+v is computed in float32 by %s", c.shape, got)
		}
		for j, d := range flashTypes {
			call := c.shape.forward(d)
			want := "attention_forward" + suffix(call.In[0].DType)
			if size := []int{c.kernel, c.tf32}[j]; l.tensor && size > 0 {
				want = fmt.Sprintf("flash_forward%s_d%d", suffix(d), size)
			}
			if got := flashName(t, l, call); got != want {
				t.Errorf("%+v is computed by %s, want %s", c.shape, got, want)
			}
			in := randomInputs(rand.New(rand.NewPCG(61, uint64(i))), call)
			given, _ := check(t, b, l, call, nil, in)
			call.Train = false // and so nothing is saved
			got := compute(t, b, l, call, in, nil)
			compare(t, call, d, newRig(call, 0, nil).types, got, data{operand(kernels.Y, 0): given[operand(kernels.Y, 0)]})
		}
	}
}

// TestAttentionRounds: in TF32, results of inputs have the bits of results of rounded inputs. Weights are rounded without a bias: where they
// are cut off, a mean of ones is smaller by 2^-12.
func TestAttentionRounds(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	if !l.tensor {
		t.Skip("needs tensor cores: without them nothing is rounded")
	}
	x, dy, y := operand(kernels.X, 0), operand(kernels.DY, 0), operand(kernels.Y, 0)
	heads := flashHeads[kernels.Backward][kernels.TF32]
	if cudatest.Checked() {
		heads = heads[:2]
	}
	for i, head := range heads {
		s := attentionShape{1, 150, 2, 1, int(head)}
		forward := s.forward(kernels.TF32)
		backward := forward
		backward.Pass, backward.AddDX = kernels.Backward, []bool{false}
		in := randomInputs(rand.New(rand.NewPCG(65, uint64(i))), forward)
		maps.Copy(in, reference(t, forward, in))
		for _, o := range []kernels.Operand{x, dy} {
			in[o] = encode(kernels.Float32, random(rand.New(rand.NewPCG(66, uint64(i))), int64(len(in[o])/4)))
		}
		rounds := func(o kernels.Operand) data {
			v := slices.Clone(floats(in[o]))
			roundAll(v)
			changed := maps.Clone(in)
			changed[o] = encode(kernels.Float32, v)
			return changed
		}
		sameBits(t, "X forward", compute(t, b, l, forward, rounds(x), nil), compute(t, b, l, forward, in, nil))
		got := compute(t, b, l, backward, in, nil)
		sameBits(t, "X backward", compute(t, b, l, backward, rounds(x), nil), got)
		ofValues := func(d data) (v []float32) { // gradients that read no sum of DY*Y
			for row := range slices.Chunk(floats(d[operand(kernels.DX, 0)]), s.channels()) {
				v = append(v, row[3*s.dim:]...)
			}
			return v
		}
		if !slices.Equal(ofValues(compute(t, b, l, backward, rounds(dy), nil)), ofValues(got)) {
			t.Errorf("heads of %d: rounded gradients give others", head)
		}
		ones := floats(in[x])
		for row := range slices.Chunk(ones, s.channels()) {
			for j := range row[3*s.dim:] {
				row[3*s.dim+j] = 1
			}
		}
		in[x] = encode(kernels.Float32, ones)
		sum, n := 0.0, 0
		for _, v := range values(kernels.Float32, compute(t, b, l, forward, in, nil)[y])[s.dim*s.length:] {
			sum, n = sum+v, n+1
		}
		if off := sum/float64(n) - 1; math.Abs(off) > 0x1p-15 {
			t.Errorf("heads of %d: means of ones are off by %v", head, off)
		}
	}
}

// nonFinite are values that are put into a sample of one head, at a token, and the first channel of its query, key and value.
type nonFinite struct {
	what              string
	from, to          int // tokens
	query, key, value float32
}

// TestFlashNonFinite: NaNs and infinities reach the rows that see them as in the reference, and change no bit of any row before them.
func TestFlashNonFinite(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	if !l.tensor {
		t.Skip("needs tensor cores: without them a row's weight of 0 meets values that it does not see")
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	dims := []int{64, 200, 32, 72, 128}
	if cudatest.Checked() {
		dims = dims[:1]
	}
	for i, dim := range append(dims, dims...) {
		d := flashTypes[i/len(dims)]
		if d == kernels.TF32 && dim > 128 {
			continue // no kernel on tensor cores
		}
		s := attentionShape{1, 150, 1, 1, dim}
		call := s.forward(d)
		in := randomInputs(rand.New(rand.NewPCG(62, uint64(i))), call)
		for j := range s.length {
			in[operand(kernels.X, 0)] = with(d, in, s, j, 0, 1)
		}
		plain := compute(t, b, l, call, in, nil)
		for _, bad := range []nonFinite{
			{"a key that is NaN", 70, 71, 1, nan, 0.5},
			{"a value that is NaN", 70, 71, 1, 0.5, nan},
			{"values that are infinite", 37, 43, 1, 0.5, inf},
			{"a value that is infinite, and one that is NaN", 131, 133, 1, 0.5, -inf},
			{"a query that is NaN", 90, 91, nan, 0.5, 0.5},
			{"a score of infinity", 64, 65, 1, inf, 0.5},
			{"a score of -infinity", 100, 101, 1, -inf, 0.5},
			{"scores of -infinity, all that some rows have", 0, 70, 1, -inf, 0.5},
			{"the last token", 149, 150, 1, nan, nan},
		} {
			changed := data{operand(kernels.X, 0): bytes.Clone(in[operand(kernels.X, 0)])}
			for token := bad.from; token < bad.to; token++ {
				for part, v := range []float32{bad.query, bad.key, bad.value} {
					changed[operand(kernels.X, 0)] = with(d, changed, s, token, part, v)
				}
			}
			if bad.what == "a value that is infinite, and one that is NaN" {
				changed[operand(kernels.X, 0)] = with(d, changed, s, bad.from, 2, nan)
			}
			got := compute(t, b, l, call, changed, nil)
			what := fmt.Sprintf("%v, %d channels, %s", d, dim, bad.what)
			sameNumbers(t, what, call, got, reference(t, call, changed))
			for o, bytes := range map[kernels.Operand]int{operand(kernels.Y, 0): int(d.Size()) * dim, operand(kernels.Save, 0): 4} {
				before := bad.from * bytes
				sameBits(t, what+", rows before", data{o: got[o][:before]}, data{o: plain[o][:before]})
			}
		}
	}
}

// with returns X with the first channel of a token's query (part 0), key (1) or value (2) changed.
func with(d kernels.DType, in data, s attentionShape, token, part int, v float32) []byte {
	x := in[operand(kernels.X, 0)]
	copy(x[(token*s.channels()+part*s.dim)*int(d.Size()):], encode(d, []float32{v}))
	return x
}

// sameNumbers fails unless results are NaN and infinite where they should be, and close elsewhere.
func sameNumbers(t *testing.T, what string, c kernels.Call, got, want data) {
	t.Helper()
	types := newRig(c, 0, nil).types
	for o := range want {
		g, w := values(types[o], got[o]), values(types[o], want[o])
		for i := range w {
			same := g[i] == w[i] || math.IsNaN(g[i]) && math.IsNaN(w[i])
			if !same && !(math.Abs(g[i]-w[i]) <= tolerance(c.Op, activations(c))*max(1, math.Abs(w[i])) && !math.IsInf(w[i], 0)) {
				t.Fatalf("%s: %v[%d] = %v, want %v", what, o, i, g[i], w[i])
			}
		}
	}
}

// TestFlashLargeScores: scores whose exponentials would overflow, in rising order, so that each tile scales down the one before it, and
// in falling order.
func TestFlashLargeScores(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for i, dim := range []int{64, 136, 64, 128} {
		for _, sign := range []float32{1, -1} {
			d := flashTypes[i/2]
			s := attentionShape{1, 200, 2, 1, dim}
			call := s.forward(d)
			in := randomInputs(rand.New(rand.NewPCG(63, uint64(dim))), call)
			for token := range s.length { // scores grow by about 5 for each token
				v := []float32{float32(dim), float32(dim)}
				for head, q := range v {
					in[operand(kernels.X, 0)] = with(d, in, s, token, head, q)
				}
				in[operand(kernels.X, 0)] = with(d, in, s, token, 2, kernels.RoundTF32(sign*float32(token)*5/float32(math.Sqrt(float64(dim)))))
			}
			given, _ := check(t, b, l, call, nil, in)
			largest := 0.0
			for _, v := range values(kernels.Float32, given[operand(kernels.Save, 0)]) {
				largest = max(largest, math.Abs(v))
			}
			if sign > 0 && largest < 5*overflows {
				t.Errorf("%d channels: the largest score is about %v, want more than %v", dim, largest, 5*overflows)
			}
		}
	}
}
