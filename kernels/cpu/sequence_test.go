package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
)

// TestActivationsFarOut: activation functions and their slopes keep their precision where they are next to nothing, and overflow
// nowhere.
func TestActivationsFarOut(t *testing.T) {
	t.Parallel()
	xs := []float32{0, 1e-30, -1e-30, 1e15, -1e15, 3e38, -3e38}
	for x := float32(-20); x <= 20; x += 0.0137 {
		xs = append(xs, x)
	}
	for _, op := range []kernels.Op{kernels.GELU{}, kernels.GELU{Tanh: true}, kernels.SiLU{}} {
		forward := kernels.Call{Op: op, In: []kernels.Desc{kernels.F32(len(xs))}, Train: true}
		backward := forward
		backward.Pass = kernels.Backward
		in := randomInputs(rand.New(rand.NewPCG(5, 5)), forward)
		in[opX] = xs
		for _, path := range testedPaths() {
			y := run(t, newLibrary(t, path, 1), forward, in)[opY]
			for i, want := range reference(forward, in)[opY].value {
				// to 1e-5 of the value, or of 1e-5, 100 roundings of what is subtracted in an exponent of some hundreds
				if d := math.Abs(float64(y[i]) - want); !(d <= 1e-5*(math.Abs(want)+1e-5)) {
					t.Errorf("%v: %+v of %v is %v, want %v", path, op, xs[i], y[i], want)
				}
			}
			compare(t, backward, run(t, newLibrary(t, path, 1), backward, in), reference(backward, clamped(in)))
		}
	}
}

// clamped keeps the reference's own cubes finite: slopes are constant far out.
func clamped(in data) data {
	in = in.clone()
	for i, x := range in[opX] {
		in[opX][i] = max(min(x, 30), -30)
	}
	return in
}

// TestUnknownTokens: a token outside the vocabulary makes its own row NaN, and gets no gradient.
func TestUnknownTokens(t *testing.T) {
	t.Parallel()
	c := kernels.Call{Op: kernels.Embedding{Vocabulary: 3, Width: 5, Positions: 2}, In: []kernels.Desc{{Shape: kernels.Shape{2, 2}, DType: kernels.Int32}}}
	in := randomInputs(rand.New(rand.NewPCG(6, 6)), c)
	for i, token := range []int32{1, -1, 3, 1} {
		in[opX][i] = math.Float32frombits(uint32(token))
	}
	l := newLibrary(t, fastest(), 1)
	for i, v := range run(t, l, c, in)[opY] {
		if unknown := i/5 == 1 || i/5 == 2; (v != v) != unknown {
			t.Errorf("element %d is %v", i, v)
		}
	}
	c.Pass = kernels.Backward
	got := run(t, l, c, in)
	for i, v := range got[opDW] {
		want := float32(0)
		if i/5 == 1 {
			want = in[opDY][i%5] + in[opDY][15+i%5]
		}
		if v != want {
			t.Errorf("gradient %d is %v, want %v", i, v, want)
		}
	}
}

// TestAttentionSeesNothingAhead: later tokens, were they infinite, change no bit of earlier rows; and rows whose scores would
// overflow an exponential are finite.
func TestAttentionSeesNothingAhead(t *testing.T) {
	t.Parallel()
	const length, seen, row = 300, 201, 3 * 16
	c := kernels.Call{Op: kernels.Attention{Heads: 1}, In: []kernels.Desc{kernels.F32(1, length, row)}, Train: true}
	in := randomInputs(rand.New(rand.NewPCG(7, 7)), c)
	for i := range in[opX] {
		in[opX][i] *= 30 // scores of some thousands
	}
	for _, path := range testedPaths() {
		l := newLibrary(t, path, 2)
		want := run(t, l, c, in)
		changed := in.clone()
		for i := seen * row; i < length*row; i++ {
			changed[opX][i] = float32(i)
		}
		got := run(t, l, c, changed)
		for o, per := range map[kernels.Operand]int{opY: 16, opSave: 1} {
			sameBits(t, "rows before a change", data{o: got[o][:seen*per]}, data{o: want[o][:seen*per]})
			for i, v := range want[o] {
				if v-v != 0 {
					t.Fatalf("%v[%d] is %v", o, i, v)
				}
			}
		}
	}
}

// TestAttentionWithoutHidden: scores that a mask makes very low or minus infinity have weights of exactly 0, forward and backward.
func TestAttentionWithoutHidden(t *testing.T) {
	t.Parallel()
	const length = 150
	mask := operand(kernels.ParamRole, 0)
	c := kernels.Call{Op: kernels.Attention{Heads: 2, Masks: 1}, In: []kernels.Desc{kernels.F32(1, length, 6*20)}, Train: true}
	for _, c.Pass = range []kernels.Pass{kernels.Forward, kernels.Backward} {
		in := randomInputs(rand.New(rand.NewPCG(8, 8)), c)
		hide := func(as float32) data {
			hidden := in.clone()
			for i := range hidden[mask] {
				if i%3 == 1 && i%(length+1) != 0 { // each row sees itself
					hidden[mask][i] = as
				}
			}
			return hidden
		}
		for _, path := range testedPaths() {
			l := newLibrary(t, path, 2)
			want := run(t, l, c, hide(-1000))
			for _, as := range []float32{-1e9, -math.MaxFloat32, float32(math.Inf(-1))} {
				sameBits(t, fmt.Sprintf("%v, scores of %g", path, as), run(t, l, c, hide(as)), want)
			}
			for o, values := range want {
				for i, v := range values {
					if v-v != 0 {
						t.Fatalf("%v: %v[%d] is %v", path, o, i, v)
					}
				}
			}
		}
	}
}

// TestAttentionWorkspace: what attention takes beside its operands does not depend on the length of sequences.
func TestAttentionWorkspace(t *testing.T) {
	t.Parallel()
	sizes := map[int64]bool{}
	for _, length := range []int{200, 4000, 100_000} {
		for _, pass := range []kernels.Pass{kernels.Forward, kernels.Backward} {
			c := kernels.Call{Op: kernels.Attention{Heads: 12}, In: []kernels.Desc{kernels.F32(1, length, 3*768)}, Train: true, Pass: pass}
			bytes, err := newLibrary(t, fastest(), 2).Workspace(c)
			if err != nil {
				t.Fatal(err)
			}
			sizes[bytes] = true
		}
	}
	if len(sizes) != 2 {
		t.Errorf("%d sizes of workspace %v, want one for each pass", len(sizes), sizes)
	}
}

// lossExponentials returns e^x of each x as loss.h computes it, one by one. They are gradients of logits in a row whose saved largest logit
// is 0 and whose saved sum is 1.
func lossExponentials(t *testing.T, l *Library, x []float32) []float32 {
	t.Helper()
	c := kernels.Call{
		Op: kernels.SoftmaxCrossEntropy{}, Train: true, Pass: kernels.Backward,
		In: []kernels.Desc{kernels.F32(1, len(x)+1), {Shape: kernels.Shape{1}, DType: kernels.Int32}},
	}
	labelled := append([]float32{0}, x...) // the label is class 0
	return run(t, l, c, data{opX: labelled, opX1: {0}, opY: {0, 0, 1}, opSave: {0, 1, 0}})[opDX][1:]
}

// attentionExponentials returns e^x of each x, at most side*side, as attention.h computes them, side by side. Queries and keys are zeros, so
// the mask alone makes the scores. The gradient of y is the identity, so that of values is the transposed weights.
func attentionExponentials(t *testing.T, l *Library, side int, x []float32) []float32 {
	t.Helper()
	c := kernels.Call{
		Op: kernels.Attention{Heads: 1, Bidirectional: true, Masks: 1}, Train: true, Pass: kernels.Backward,
		In: []kernels.Desc{kernels.F32(1, side, 3*side)},
	}
	mask, identity := make([]float32, side*side), make([]float32, side*side)
	copy(mask, x)
	for i := range side {
		identity[i*side+i] = 1
	}
	dx := run(t, l, c, data{
		opX: make([]float32, 3*side*side), opW: mask, opY: make([]float32, side*side), opSave: make([]float32, side), opDY: identity,
	})[opDX]
	weights := make([]float32, len(x))
	for i := range weights {
		weights[i] = dx[i%side*3*side+2*side+i/side]
	}
	return weights
}

// TestAttentionExponentials: the exponentials of attention have the bits of those of the losses.
func TestAttentionExponentials(t *testing.T) {
	t.Parallel()
	const side, stride = 256, 8209
	var x []float32
	for bits := uint32(1 << 31); bits < 0xff800000; bits += stride { // from -0 to -infinity
		x = append(x, math.Float32frombits(bits))
	}
	sets := [][]float32{{ // the first row of a mask, as a NaN spoils its column
		0, 1, 88, -87, -88, -103, -104, -1e9, -1e30, -math.MaxFloat32, float32(math.Inf(-1)), float32(math.NaN()),
		math.Nextafter32(-87, 0), math.Nextafter32(-87, -88), math.Nextafter32(-88, 0), math.Nextafter32(-88, -89),
		-math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat32, -0x1p-126, -0x1p-24, -0x1p-25, -math.Ln2 / 2, -math.Ln2,
	}}
	sets = slices.AppendSeq(sets, slices.Chunk(x, side*side))
	compared := 0
	for _, path := range testedPaths() {
		l := newLibrary(t, path, 1)
		for _, set := range sets {
			want, got := lossExponentials(t, l, set), attentionExponentials(t, l, side, set)
			if i := differ(got, want); i >= 0 {
				t.Errorf("%v: e^%g is %x beside others and %x alone", path, set[i], got[i], want[i])
			}
			compared += len(got)
		}
	}
	if want := (23 + 260_580) * len(testedPaths()); compared != want {
		t.Errorf("compared %d exponentials, want %d", compared, want)
	}
}
