//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda/cudatest"
)

// attentionGradients are the two calls of attention's backward: gradients written, and added to what is there.
func attentionGradients(d kernels.DType, op kernels.Attention, samples, length, channels int) (forward kernels.Call, backward []kernels.Call) {
	x := typed(d, samples, length, (op.Heads+2*op.Defaults().KVHeads)*channels)
	forward = kernels.Call{Op: as(d, op), In: []kernels.Desc{x}, Train: true}
	for _, add := range []bool{false, true} {
		c := forward
		c.Pass, c.AddDX = kernels.Backward, []bool{add}
		backward = append(backward, c)
	}
	return forward, backward
}

// flashNames returns the kernels of src/flash*backward.cu that a call launches.
func flashNames(t *testing.T, l *Library, c kernels.Call) (names []string) {
	t.Helper()
	b, err := l.build(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range b.steps {
		if strings.HasSuffix(s.module, "backward") {
			names = append(names, s.function)
		}
	}
	return names
}

var flashShapes = []struct {
	heads, kv, samples, length, channels int
	factor                               float32 // of all inputs
	kernel                               int64   // in bfloat16; 0: those without tensor cores
}{
	{2, 2, 2, 150, 64, 1, 64},
	{4, 2, 1, 129, 64, 1, 64},
	{3, 1, 2, 65, 32, 1, 32},
	{2, 1, 1, 200, 128, 1, 128},
	{1, 1, 2, 97, 96, 1, 96},
	{2, 2, 1, 64, 8, 1, 32},
	{2, 2, 1, 63, 40, 1, 64},
	{4, 1, 1, 33, 72, 1, 96},
	{2, 1, 1, 70, 104, 1, 128},
	{1, 1, 3, 1, 64, 1, 64},
	{2, 1, 2, 17, 24, 1, 32},
	{2, 1, 1, 31, 128, 1, 128},
	{2, 2, 1, 100, 64, 12, 64}, // scores whose exponentials would overflow
	{2, 1, 1, 90, 136, 1, 256},
	{2, 1, 1, 90, 60, 1, 0},
	{1, 1, 1, 71, 256, 1, 256},
	{1, 1, 1, 40, 264, 1, 0},
	{2, 1, 1, 300, 64, 1, 64},
	{1, 1, 1, 260, 32, 1, 32},
}

// kernelOf returns the size of the heads of the kernels for a shape: pieces of 16 bytes are 4 channels in TF32, which has no heads of 256.
func kernelOf(d kernels.DType, channels int, kernel int64) int64 {
	switch {
	case d == kernels.TF32 && channels == 60:
		return 64
	case d == kernels.TF32 && kernel == 256:
		return 0
	}
	return kernel
}

// backwardNames lists the kernels that compute gradients of attention, none for those without tensor cores.
func backwardNames(d kernels.DType, op kernels.Attention, size int64) string {
	if size == 0 {
		return ""
	}
	kind := suffix(d)
	if op.Bidirectional || !op.Plain() || op.Scale < 0 {
		kind = "_any" + kind
	}
	names := fmt.Sprintf("flash_queries%s_d%d flash_keys%s_d%d", kind, size, kind, size)
	if size == 256 {
		names += fmt.Sprintf(" flash_values%s_d256", kind)
	}
	if op.Table > 0 {
		names += fmt.Sprintf(" flash_terms%s_d%d", suffix(d), size)
	}
	return names
}

// TestAttentionGradients: on tensor cores, heads of any multiple of 8 channels up to 256, groups of heads, lengths that are no whole
// tiles or less than one, and large scores.
func TestAttentionGradients(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for i, s := range append(flashShapes, flashShapes...) {
		d := flashTypes[i/len(flashShapes)]
		if cudatest.Checked() && (s.length > 100 || s.channels == 136) {
			continue // slow
		}
		forward, backward := attentionGradients(d, kernels.Attention{Heads: s.heads, KVHeads: s.kv}, s.samples, s.length, s.channels)
		want := backwardNames(d, kernels.Attention{}, kernelOf(d, s.channels, s.kernel))
		if got := strings.Join(flashNames(t, l, backward[0]), " "); l.tensor && got != want {
			t.Errorf("%+v launches %q, want %q", s, got, want)
		}
		in := randomInputs(rand.New(rand.NewPCG(71, uint64(i))), forward)
		x := values(d.Stored(), in[operand(kernels.X, 0)])
		larger := make([]float32, len(x))
		for j := range x {
			larger[j] = float32(x[j]) * s.factor
		}
		roundAll(larger) // in bfloat16 encode cuts off more
		in[operand(kernels.X, 0)] = encode(d, larger)
		given, _ := check(t, b, l, forward, backward, in)
		if s.factor > 1 {
			most := 0.0
			for _, v := range values(kernels.Float32, given[operand(kernels.Save, 0)]) {
				most = max(most, v)
			}
			if most < overflows {
				t.Errorf("the largest log of a sum is %v, want more than %v", most, overflows)
			}
		}
	}
}

// anyAttention lists attention that is not only causal, and the kernels' size of heads in bfloat16.
var anyAttention = []struct {
	op                        kernels.Attention
	samples, length, channels int
	kernel                    int64
}{
	{kernels.Attention{Heads: 2, Bidirectional: true}, 1, 197, 64, 64},                                      // ViT
	{kernels.Attention{Heads: 1, Bidirectional: true}, 2, 64, 64, 64},                                       // whole tiles
	{kernels.Attention{Heads: 2, Bidirectional: true}, 1, 1, 32, 32},                                        // one position
	{kernels.Attention{Heads: 4, KVHeads: 2, Bidirectional: true, Scale: -0.2}, 1, 150, 24, 32},             // a negative scale
	{kernels.Attention{Heads: 3, Bidirectional: true, Table: 169, Masks: 2}, 4, 49, 32, 32},                 // Swin's shifted windows
	{kernels.Attention{Heads: 2, Bidirectional: true, Table: 5}, 1, 65, 72, 96},                             // BEiT
	{kernels.Attention{Heads: 2, KVHeads: 1, Masks: 1, MaskHeads: true}, 2, 130, 104, 128},                  // ALiBi
	{kernels.Attention{Heads: 2, Table: 9}, 1, 97, 64, 64},                                                  // T5's decoder
	{kernels.Attention{Heads: 4, KVHeads: 2, Bidirectional: true, Masks: 3, MaskHeads: true}, 3, 70, 8, 32}, // masks of heads and samples
	{kernels.Attention{Heads: 24, Bidirectional: true, Table: 3}, 40, 20, 8, 32},                            // several samples of each part of the sums
	{kernels.Attention{Heads: 1, Bidirectional: true}, 1, 90, 128, 128},
	{kernels.Attention{Heads: 1, Bidirectional: true, Masks: 1, Table: 4}, 1, 70, 256, 256},
}

// TestAnyAttention: positions that see all others, and terms of scores, forward and backward.
func TestAnyAttention(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for i, s := range append(anyAttention, anyAttention...) {
		d := flashTypes[i/len(anyAttention)]
		if cudatest.Checked() && (s.length > 50 || s.samples > 4) {
			continue // slow
		}
		forward, backward := attentionGradients(d, s.op, s.samples, s.length, s.channels)
		want := backwardNames(d, s.op, kernelOf(d, s.channels, s.kernel))
		if got := strings.Join(flashNames(t, l, backward[0]), " "); l.tensor && got != want {
			t.Errorf("%+v launches %q, want %q", s, got, want)
		}
		in := randomInputs(rand.New(rand.NewPCG(75, uint64(i))), forward)
		hideSome(rand.New(rand.NewPCG(76, uint64(i))), s.op, s.length, in)
		check(t, b, l, forward, backward, in)
	}
}

// TestScoresFarBelowZero: positions behind the end of a sample, whose scores are zeros, have no part where the others' are so low that their
// exponentials vanish.
func TestScoresFarBelowZero(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	const length, channels = 70, 32
	for i, d := range flashTypes {
		forward, backward := attentionGradients(d, kernels.Attention{Heads: 1, Bidirectional: true}, 1, length, channels)
		in := randomInputs(rand.New(rand.NewPCG(78, uint64(i))), forward)
		x := values(d.Stored(), in[operand(kernels.X, 0)])
		lower := make([]float32, len(x))
		for j, v := range x {
			lower[j] = float32(v)
			if part := j / channels % 3; part < 2 {
				lower[j] = float32(1-2*part) * 4.5
			}
		}
		in[operand(kernels.X, 0)] = encode(d, lower)
		given, _ := check(t, b, l, forward, backward, in)
		for _, v := range values(kernels.Float32, given[operand(kernels.Save, 0)]) {
			if v > -overflows {
				t.Fatalf("the log of a sum is %v, want less than %v", v, -overflows)
			}
		}
	}
}

// hideSome hides about a third of the positions by a mask, and never a query from itself.
func hideSome(r *rand.Rand, op kernels.Attention, length int, in data) {
	if op.Masks == 0 {
		return
	}
	o := operand(kernels.ParamRole, 0)
	if op.Table > 0 {
		o = operand(kernels.ParamRole, 2)
	}
	mask := floats(in[o])
	for i := range mask {
		if query, key := i/length%length, i%length; query != key && r.IntN(3) == 0 {
			mask[i] = kernels.Hidden
		}
	}
	in[o] = encode(kernels.Float32, mask)
}

// TestHiddenPositionsAreAbsent: keys that a mask hides from all queries are as if they were not there, in results and gradients, also where
// their scores alone would overflow.
func TestHiddenPositionsAreAbsent(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	const length, seen, channels = 100, 70, 64 // padding of an encoder's batch
	for i, d := range flashTypes {
		if cudatest.Checked() && i > 0 {
			continue // slow
		}
		forward, backward := attentionGradients(d, kernels.Attention{Heads: 1, Bidirectional: true, Masks: 1}, 1, length, channels)
		in := randomInputs(rand.New(rand.NewPCG(77, uint64(i))), forward)
		mask := floats(in[operand(kernels.ParamRole, 0)])
		for j := range mask {
			if mask[j] = 0; j%length >= seen {
				mask[j] = kernels.Hidden
			}
		}
		in[operand(kernels.ParamRole, 0)] = encode(kernels.Float32, mask)
		x := in[operand(kernels.X, 0)]
		for position := seen; position < length; position++ {
			copy(x[int(d.Size())*(position*3+1)*channels:], encode(d, []float32{100, 100, 100}))
		}
		given, _ := check(t, b, l, forward, backward, in)
		for o, w := range reference(t, forward, in) {
			in[o] = w
		}
		got := values(d.Stored(), compute(t, b, l, backward[0], in, nil)[operand(kernels.DX, 0)])
		for position := seen; position < length; position++ {
			for _, v := range got[(position*3+1)*channels : (position+1)*3*channels] {
				if v != 0 {
					t.Fatalf("%v: the key or value of hidden position %d has a gradient of %v", d, position, v)
				}
			}
		}
		short, _ := attentionGradients(d, kernels.Attention{Heads: 1, Bidirectional: true}, 1, seen, channels)
		few := data{operand(kernels.X, 0): x[:seen*3*channels*int(d.Size())]}
		closeTo(t, "results of seen positions", values(d.Stored(), given[operand(kernels.Y, 0)])[:seen*channels],
			values(d.Stored(), reference(t, short, few)[operand(kernels.Y, 0)]))
	}
}

// TestAttentionGradientsOfNaNs: a NaN or an infinity reaches every gradient that the definition has it reach, and no other head or
// sample, nor positions further away than a slice of scores.
func TestAttentionGradientsOfNaNs(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	const samples, heads, length, channels = 2, 2, 100, 64
	bad := 0
	for i, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for turn := range 2 * 4 {
			d, part := flashTypes[turn/4], turn%4 // queries, keys, values, gradients
			forward, backward := attentionGradients(d, kernels.Attention{Heads: heads}, samples, length, channels)
			in := randomInputs(rand.New(rand.NewPCG(72, uint64(i))), forward)
			const t0, head = 70, 1
			to, at := in[operand(kernels.X, 0)], (t0*3*heads+part*heads+head)*channels+5
			if part == 3 {
				to, at = in[operand(kernels.DY, 0)], (t0*heads+head)*channels+5
			}
			copy(to[int(d.Size())*at:], encode(d, []float32{float32(v)}))
			for o, w := range reference(t, forward, in) {
				in[o] = w
			}
			dx := operand(kernels.DX, 0)
			got := values(d.Stored(), compute(t, b, l, backward[0], in, nil)[dx])
			for j, w := range values(d.Stored(), reference(t, backward[0], in)[dx]) {
				odd := math.IsNaN(w) || math.IsInf(w, 0)
				position := j / (3 * heads * channels)
				other := position >= length || j/channels%heads != head || !odd && max(position-t0, t0-position) > 31
				if finite := !math.IsNaN(got[j]) && !math.IsInf(got[j], 0); odd && finite || other && !finite {
					t.Fatalf("%v: %v in part %d: gradient %d is %v, want %v", d, v, part, j, got[j], w)
				}
				if odd {
					bad++
				}
			}
		}
	}
	if bad == 0 {
		t.Error("no gradient is to be NaN")
	}
}

// TestAttentionGradientsOfIgnoredKeys: a key of -Inf that all queries score -Inf has finite gradients, although the rows of zeros behind
// the last query would score it NaN.
func TestAttentionGradientsOfIgnoredKeys(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for _, d := range flashTypes {
		ignoredKeys(t, b, l, d)
	}
}

func ignoredKeys(t *testing.T, b *bench, l *Library, d kernels.DType) {
	const length, channels, key = 100, 64, 70
	forward, backward := attentionGradients(d, kernels.Attention{Heads: 1}, 1, length, channels)
	in := randomInputs(rand.New(rand.NewPCG(74, 1)), forward)
	x := in[operand(kernels.X, 0)]
	put := func(position, part int, v float32) {
		copy(x[int(d.Size())*(position*3+part)*channels:], encode(d, []float32{v}))
	}
	put(key, 1, float32(math.Inf(-1)))
	for q := range length {
		put(q, 0, 0.5)
	}
	for o, w := range reference(t, forward, in) {
		in[o] = w
	}
	dx := operand(kernels.DX, 0)
	got, want := values(d.Stored(), compute(t, b, l, backward[0], in, nil)[dx]), values(d.Stored(), reference(t, backward[0], in)[dx])
	from, to := (key*3+1)*channels, (key+1)*3*channels
	closeTo(t, "the gradient of the key and its value", got[from:to], want[from:to])
}

// TestAttentionGradientsBeyond32Bits: the last sample's gradients are those of that sample alone.
func TestAttentionGradientsBeyond32Bits(t *testing.T) {
	const samples, length, channels, blocks = 43_100, 130, 128, 5 // the last blocks make all of the last sample's rows
	for _, op := range []kernels.Attention{{Heads: 1}, {Heads: 1, Bidirectional: true}} {
		_, one := attentionGradients(kernels.BFloat16, op, 1, length, channels)
		_, all := attentionGradients(kernels.BFloat16, op, samples, length, channels)
		if all[0].In[0].Elements() <= math.MaxInt32 {
			t.Fatal("the input is too small")
		}
		forward := one[0]
		forward.Pass = kernels.Forward
		in := randomInputs(rand.New(rand.NewPCG(73, 1)), forward)
		for o, v := range reference(t, forward, in) {
			in[o] = v
		}
		runFarBlocks(t, all[0], in, nil, blocks, func(t *testing.T, f *far) {
			dx := operand(kernels.DX, 0)
			want := values(kernels.BFloat16, reference(t, one[0], in)[dx])
			closeTo(t, "the gradient", f.tail(t, dx, int64(len(want))), want)
		})
	}
}
