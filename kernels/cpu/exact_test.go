package cpu

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// exact makes updates of single elements by the operations that all libraries share, each rounded to float32. Powers are those of numbers
// of 300 bits.
type exact struct {
	rule kernels.Update
	s    kernels.Scalars
}

// update returns the weight and the states after an update.
func (e exact) update(w, g float32, state [2]float32) (float32, [2]float32) {
	switch r := e.rule.(type) {
	case kernels.SGD:
		return e.sgd(r, w, g, state)
	case kernels.Adam:
		return e.adam(r, w, float32(g*e.s.GradScale)+float32(w*r.WeightDecay), 1, state)
	case kernels.AdamW:
		return e.decoupled(r, w, g, state)
	case kernels.Muon:
		return e.decoupled(r.AdamW(), w, g, state)
	}
	panic(e.rule)
}

func (e exact) sgd(r kernels.SGD, w, g float32, state [2]float32) (float32, [2]float32) {
	g = float32(g*e.s.GradScale) + float32(r.WeightDecay*w)
	if r.Momentum == 0 {
		return w - float32(e.s.LR*g), state
	}
	v := g
	if e.s.Update > 0 {
		v = float32(r.Momentum*state[0]) + float32(fresh(r.Dampening)*g)
	}
	if state[0] = v; r.Nesterov {
		v = g + float32(r.Momentum*v)
	}
	return w - float32(e.s.LR*v), state
}

func (e exact) decoupled(r kernels.AdamW, w, g float32, state [2]float32) (float32, [2]float32) {
	shrink := float32(1 - float64(e.s.LR)*float64(decimal(r.WeightDecay)))
	return e.adam(kernels.Adam(r), w, float32(g*e.s.GradScale)+float32(w*0), shrink, state)
}

func (e exact) adam(r kernels.Adam, w, g, shrink float32, state [2]float32) (float32, [2]float32) {
	first, second := state[0]+float32(float32(g-state[0])*fresh(r.Beta1)), float32(state[1]*r.Beta2)+float32(float32(g*g)*fresh(r.Beta2))
	size := float32(float64(e.s.LR) / (1 - power(r.Beta1, e.s.Update+1)))
	correction := float32(math.Sqrt(1 - power(r.Beta2, e.s.Update+1)))
	step := float32(first/(float32(float32(math.Sqrt(float64(second)))/correction)+r.Epsilon)) * size
	return float32(w*shrink) - float32(step), [2]float32{first, second}
}

// fresh is the weight of what is new in a moving average.
func fresh(old float32) float32 { return float32(1 - float64(decimal(old))) }

// power returns the decimal of b to the power of t.
func power(b float32, t uint64) float64 {
	whole, square := big.NewFloat(1).SetPrec(300), new(big.Float).SetPrec(300).SetFloat64(float64(decimal(b)))
	for ; t > 0; t >>= 1 {
		if t&1 > 0 {
			whole.Mul(whole, square)
		}
		square.Mul(square, square)
	}
	f, _ := whole.Float64()
	return f
}

// hardFloats returns values of every kind: of all magnitudes, subnormal ones, zeros, infinities, NaN.
func hardFloats(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		switch r.IntN(4) {
		case 0: // any bits
			v[i] = math.Float32frombits(r.Uint32())
		case 1: // subnormal, either sign
			v[i] = math.Float32frombits(r.Uint32() & 0x807fffff)
		case 2:
			v[i] = []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-19, 1e19, 1}[r.IntN(8)]
		default:
			v[i] = r.Float32()*2 - 1
		}
	}
	return v
}

// differ returns the first element whose bits differ; one NaN is as good as another. -1: none.
func differ(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return i
		}
	}
	return -1
}

// counts are updates of the past: the first, a few, and many.
var counts = []uint64{0, 1, 2, 9, 999, 123_456, 1 << 40}

// TestHostUpdatesAreExact: with subnormal numbers kept, every path and any number of threads give every element of weights and states the
// bits of the operations one by one.
func TestHostUpdatesAreExact(t *testing.T) {
	t.Parallel()
	compared := 0
	for i, u := range updates {
		for k, n := range []int{1, 5, 16, 33, 4_001} {
			for _, path := range Paths() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(k)))
				tr := newTrainer(t, path, 1+k%2, u, n)
				tr.library.pool = keeping(t, 1+k%2)
				tr.prepare(0)
				s := kernels.Scalars{Update: counts[(i+k)%len(counts)], LR: 0.01, GradScale: 0.5}
				compared += compareExactly(t, tr, exact{u, s}, r)
			}
		}
	}
	if want := len(updates) * 4056 * len(Paths()); compared != want {
		t.Errorf("compared %d elements, want %d", compared, want)
	}
}

// keeping returns workers that compute with subnormal numbers.
func keeping(t testing.TB, threads int) *pool {
	t.Helper()
	l, err := New(nil, Options{Threads: threads, Apart: true, Subnormals: true})
	if err != nil {
		t.Fatal(err)
	}
	return l.pool
}

func compareExactly(t *testing.T, tr *trainer, e exact, r *rand.Rand) int {
	t.Helper()
	var before [4][]float32
	for i := range before {
		before[i] = hardFloats(r, tr.n)
		copy(tr.floats(i), before[i])
	}
	e.s.Put(tr.scalars())
	if err := tr.run(); err != nil {
		t.Fatal(err)
	}
	want := [4][]float32{before[0], before[1], before[2], before[3]}
	for i := range tr.n {
		w, states := e.update(before[0][i], before[1][i], [2]float32{before[2][i], before[3][i]})
		want[0][i], want[2][i], want[3][i] = w, states[0], states[1]
	}
	for i := range want {
		if at := differ(tr.floats(i), want[i]); at >= 0 {
			t.Fatalf("%+v, path %v, update %d: element %d of %d of tensor %d is %x, want %x", e.rule, tr.library.path, e.s.Update, at, tr.n, i,
				math.Float32bits(tr.floats(i)[at]), math.Float32bits(want[i][at]))
		}
	}
	return tr.n
}

// TestPathsUpdateAlike: with zeros in place of subnormal numbers all paths give the same bits, of values of every kind.
func TestPathsUpdateAlike(t *testing.T) {
	t.Parallel()
	for i, u := range updates {
		for _, n := range []int{1, 15, 4_001} {
			var first [4][]float32
			for p, path := range Paths() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(n)))
				tr := newTrainer(t, path, 2, u, n)
				for k := range first {
					copy(tr.floats(k), hardFloats(r, n))
				}
				kernels.Scalars{Update: 3, LR: 0.01, GradScale: 0.5}.Put(tr.scalars())
				if err := tr.run(); err != nil {
					t.Fatal(err)
				}
				for k := range first {
					if p == 0 {
						first[k] = tr.floats(k)
					}
					if at := differ(tr.floats(k), first[k]); at >= 0 {
						t.Fatalf("%+v: path %v gives element %d of %d of tensor %d the value %g, the first path %g", u, path, at, n, k, tr.floats(k)[at], first[k][at])
					}
				}
			}
		}
	}
}

// TestPowers: the correction of Adam's bias is the rounded quotient of the exact power, whatever the number of updates. With a gradient and
// a first moment of 1, and a second that is the gradient's square, the weight becomes minus that quotient.
func TestPowers(t *testing.T) {
	t.Parallel()
	for _, beta := range []float32{0, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.999999, math.Nextafter32(1, 0)} {
		tr := newTrainer(t, fastest(), 1, kernels.Adam{Beta1: beta}, 1)
		for count := uint64(0); count < 1<<62; count += 1 + count/3 {
			copy(tr.floats(0), []float32{0})
			copy(tr.floats(1), []float32{1})
			copy(tr.floats(2), []float32{1})
			kernels.Scalars{Update: count, LR: 0.1, GradScale: 1}.Put(tr.scalars())
			if err := tr.run(); err != nil {
				t.Fatal(err)
			}
			want := -float32(float64(float32(0.1)) / (1 - power(beta, count+1)))
			if got := tr.floats(0)[0]; got != want {
				t.Fatalf("%v to the power of %d: the step is %v, want %v", beta, count+1, got, want)
			}
		}
	}
}

// TestHostSpace: an update's operands may all lie in host memory; one in another space is refused.
func TestHostSpace(t *testing.T) {
	t.Parallel()
	l := newLibrary(t, fastest(), 1)
	l.memory = newArena(1024)
	span := func(i int64, space runtime.Space) runtime.Span {
		return runtime.Span{Space: space, Offset: 64 * i, Bytes: 64}
	}
	for apart := range 4 {
		o := kernels.UpdateOperands{Elements: 16, Param: span(0, runtime.Host), Grad: span(1, runtime.Host), Scalars: span(2, runtime.Host)}
		if apart > 0 {
			[]*runtime.Span{&o.Param, &o.Grad, &o.Scalars}[apart-1].Space = runtime.Arena
		}
		if _, err := l.PrepareUpdate(kernels.SGD{}, o); (err == nil) != (apart == 0) {
			t.Errorf("operand %d apart: %v", apart, err)
		}
	}
}

// BenchmarkPool: what a launch of two workers costs that has next to nothing to do, with workers that spin and with those of updates on the
// host, which do not.
func BenchmarkPool(b *testing.B) {
	for _, apart := range []bool{false, true} {
		b.Run(fmt.Sprintf("apart=%v", apart), func(b *testing.B) {
			memory := newArena(1 << 20)
			l, err := New(memory, Options{Threads: 2, Apart: apart})
			if err != nil {
				b.Fatal(err)
			}
			span := func(i int64) runtime.Span { return runtime.Span{Offset: i << 18, Bytes: 1 << 18} }
			launch, err := l.PrepareUpdate(kernels.SGD{}, kernels.UpdateOperands{Elements: 2 * grain, Param: span(0), Grad: span(1), Scalars: span(2)})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				_ = launch.(interface{ Run() error }).Run()
			}
		})
	}
}
