package cpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

var updates = []kernels.Update{
	kernels.SGD{},
	kernels.SGD{WeightDecay: 0.1},
	kernels.SGD{Momentum: 0.9},
	kernels.SGD{Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01},
	kernels.SGD{Momentum: 0.9, WeightDecay: 0.01, Nesterov: true},
	kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
	kernels.Adam{Beta1: 0.8, Beta2: 0.99, Epsilon: 1e-3, WeightDecay: 0.1},
	kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.05},
	kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.05}, // of what is no matrix
}

// trainer runs an update again and again on memory of its own: parameter, gradient, two states, scalars, and the rounded copy.
type trainer struct {
	memory arena
	n      int
	size   int64 // bytes from one to the next
	// prepare binds the update to a parameter that was updated before.
	prepare func(earlier uint64)
	run     func() error
	library *Library
}

func newTrainer(t *testing.T, path Path, threads int, u kernels.Update, n int) *trainer {
	t.Helper()
	size := kernels.Align(int64(n)*4) + kernels.Alignment // a guard behind each
	span := func(i int) runtime.Span { return runtime.Span{Offset: int64(i) * size, Bytes: int64(n) * 4} }
	o := kernels.UpdateOperands{Elements: int64(n), Param: span(0), Grad: span(1), Scalars: runtime.Span{Offset: 4 * size, Bytes: kernels.ScalarsBytes}}
	for i := range u.States() {
		o.States = append(o.States, span(2+i))
	}
	o.Rounded = runtime.Span{Offset: 5 * size, Bytes: int64(n) * 2}
	tr := &trainer{memory: newArena(6*size + kernels.Alignment), n: n, size: size}
	l := newLibrary(t, path, threads)
	l.memory, tr.library = tr.memory, l
	tr.prepare = func(earlier uint64) {
		o.Earlier = earlier
		launch, err := l.PrepareUpdate(u, o)
		if err != nil {
			t.Fatal(err)
		}
		tr.run = launch.(interface{ Run() error }).Run
	}
	tr.prepare(0)
	return tr
}

func (tr *trainer) floats(i int) []float32 {
	return floats(tr.memory[int64(i)*tr.size:][:int64(tr.n)*4])
}

func (tr *trainer) scalars() []byte { return tr.memory[4*tr.size:] }

// TestUpdates: five updates of each rule follow PyTorch's documented algorithm in float64 within 1e-5, on every path and for any step
// numbers. This also holds when a run begins with the fourth update. One and two threads give the same bits, and so do all paths.
func TestUpdates(t *testing.T) {
	t.Parallel()
	steps := 0
	for i, u := range updates {
		for _, n := range []int{1, 5, 16, 33, 17_000} {
			var first []float32
			for _, path := range Paths() {
				for threads := 1; threads <= 2; threads++ {
					got := train(t, newTrainer(t, path, threads, u, n), u, uint64(i))
					if first == nil {
						first = got
					}
					sameBits(t, u.Kind(), data{opW: got}, data{opW: first})
					steps++
				}
			}
		}
	}
	if want := len(updates) * 5 * len(Paths()) * 2; steps != want {
		t.Errorf("ran %d trainings, want %d", steps, want)
	}
}

func train(t *testing.T, tr *trainer, u kernels.Update, seed uint64) []float32 {
	t.Helper()
	r := rand.New(rand.NewPCG(5, seed))
	copy(tr.floats(0), random(r, int64(tr.n)))
	want := newModel(tr.floats(0))
	for step := range 5 {
		g := random(r, int64(tr.n))
		copy(tr.floats(1), g)
		s := kernels.Scalars{Step: 7 - uint64(step), Update: uint64(step), LR: 0.1 / float32(step+1), GradScale: 0.5}
		counted := s
		if step >= 3 {
			tr.prepare(3)
			counted.Update -= 3
		}
		counted.Put(tr.scalars())
		if err := tr.run(); err != nil {
			t.Fatal(err)
		}
		for k, w := range tr.floats(0) {
			if got, want := binary.LittleEndian.Uint16(tr.memory[5*tr.size+int64(2*k):]), kernels.ToBFloat16(w); got != want {
				t.Fatalf("%T step %d: w[%d] = %v is %04x as bfloat16, want %04x", u, step, k, w, got, want)
			}
		}
		want.step(u, g, s)
		for k, w := range want.w {
			if d := math.Abs(float64(tr.floats(0)[k]) - w); !(d <= 1e-5*(1+math.Abs(w))) {
				t.Fatalf("%T step %d: w[%d] = %v, want %v", u, step, k, tr.floats(0)[k], w)
			}
		}
	}
	return tr.floats(0)
}

// model is a parameter and its states in float64.
type model struct{ w, a, b []float64 }

func newModel(w []float32) *model {
	m := &model{make([]float64, len(w)), make([]float64, len(w)), make([]float64, len(w))}
	for i, v := range w {
		m.w[i] = float64(v)
	}
	return m
}

// step is the pseudocode of torch.optim.SGD, Adam and AdamW.
func (m *model) step(u kernels.Update, grad []float32, s kernels.Scalars) {
	lr, t := float64(s.LR), float64(s.Update+1)
	for i := range m.w {
		g := float64(grad[i]) * float64(s.GradScale)
		switch o := u.(type) {
		case kernels.SGD:
			g += float64(o.WeightDecay) * m.w[i]
			if o.Momentum != 0 {
				if s.Update == 0 {
					m.a[i] = g
				} else {
					m.a[i] = float64(o.Momentum)*m.a[i] + (1-float64(o.Dampening))*g
				}
				if o.Nesterov {
					g += float64(o.Momentum) * m.a[i]
				} else {
					g = m.a[i]
				}
			}
			m.w[i] -= lr * g
		case kernels.Adam:
			m.adam(i, o, g+float64(o.WeightDecay)*m.w[i], lr, t)
		case kernels.AdamW:
			m.w[i] -= lr * float64(o.WeightDecay) * m.w[i]
			m.adam(i, kernels.Adam(o), g, lr, t)
		case kernels.Muon:
			m.w[i] -= lr * float64(o.WeightDecay) * m.w[i]
			m.adam(i, kernels.Adam(o.AdamW()), g, lr, t)
		}
	}
}

func (m *model) adam(i int, o kernels.Adam, g, lr, t float64) {
	b1, b2 := float64(o.Beta1), float64(o.Beta2)
	m.a[i] = b1*m.a[i] + (1-b1)*g
	m.b[i] = b2*m.b[i] + (1-b2)*g*g
	mhat, vhat := m.a[i]/(1-math.Pow(b1, t)), m.b[i]/(1-math.Pow(b2, t))
	m.w[i] -= lr * mhat / (math.Sqrt(vhat) + float64(o.Epsilon))
}

// TestFirstStepIgnoresState: the first step of SGD does not read the velocity, whatever it holds.
func TestFirstStepIgnoresState(t *testing.T) {
	t.Parallel()
	tr := newTrainer(t, Plain, 1, kernels.SGD{Momentum: 0.9, Dampening: 0.5}, 3)
	copy(tr.floats(2), []float32{float32(math.NaN()), float32(math.Inf(1)), 9})
	copy(tr.floats(1), []float32{1, 2, 3})
	kernels.Scalars{LR: 1, GradScale: 1}.Put(tr.scalars())
	if err := tr.run(); err != nil {
		t.Fatal(err)
	}
	sameBits(t, "velocity and parameter", data{opX: tr.floats(2), opY: tr.floats(0)}, data{opX: {1, 2, 3}, opY: {-1, -2, -3}})
}

// TestVectorsDoNotDecay checks that one launch of a rule with MatricesOnly updates a matrix with weight decay, and a vector by the bits of
// the rule without it.
func TestVectorsDoNotDecay(t *testing.T) {
	t.Parallel()
	const n, size = 33, 192
	span := func(i int) runtime.Span { return runtime.Span{Offset: int64(i) * size, Bytes: 4 * n} }
	run := func(u kernels.Update, vectors ...bool) []byte {
		memory := newArena(9*size + kernels.ScalarsBytes)
		values := random(rand.New(rand.NewPCG(7, 1)), n)
		scalars := runtime.Span{Offset: 9 * size, Bytes: kernels.ScalarsBytes}
		kernels.Scalars{LR: 0.1, GradScale: 1}.Put(memory[scalars.Offset:])
		var all []kernels.UpdateOperands
		for i, vector := range vectors {
			o := kernels.UpdateOperands{Elements: n, Vector: vector, Param: span(4 * i), Grad: span(4*i + 1), Scalars: scalars}
			for k := range u.States() {
				o.States = append(o.States, span(4*i+2+k))
			}
			copy(floats(memory[o.Param.Offset:][:4*n]), values)
			copy(floats(memory[o.Grad.Offset:][:4*n]), values[1:])
			all = append(all, o)
		}
		l := newLibrary(t, Paths()[0], 1)
		l.memory = memory
		launch, err := l.PrepareUpdate(u, all...)
		if err != nil {
			t.Fatal(err)
		}
		if err := launch.(interface{ Run() error }).Run(); err != nil {
			t.Fatal(err)
		}
		return memory[: 8*size : 8*size]
	}
	for _, u := range []kernels.Update{
		kernels.SGD{Momentum: 0.9, WeightDecay: 0.1, MatricesOnly: true}, kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1, MatricesOnly: true},
		kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1, MatricesOnly: true},
		kernels.Muon{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1, MatricesOnly: true},
	} {
		both, plain := run(u, false, true), run(kernels.UpdateOperands{Vector: true}.Rule(u), false, false)
		if string(both[4*size:]) != string(plain[4*size:]) {
			t.Errorf("%+v: a vector decays", u)
		}
		if string(both[:4*size]) == string(plain[:4*size]) {
			t.Errorf("%+v: a matrix does not decay", u)
		}
	}
}

// TestNarrowGradients: an update, and a norm, by a gradient in bfloat16 has the same bits as with the same numbers in float32. This holds
// on every path, for every rule, for whole registers and the rest.
func TestNarrowGradients(t *testing.T) {
	t.Parallel()
	for seed, n := range []int64{1, 37, 20_000} {
		for _, u := range append(updates, kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}) {
			for _, path := range Paths() {
				wide, narrow := narrowGradient(t, path, u, n, kernels.Float32, uint64(seed)), narrowGradient(t, path, u, n, kernels.BFloat16, uint64(seed))
				sameBits(t, u.Kind(), data{opW: narrow}, data{opW: wide})
			}
		}
	}
}

// narrowGradient returns the values that two updates and a norm, by a gradient of a type, leave. Muon updates a matrix of one column.
func narrowGradient(t *testing.T, path Path, u kernels.Update, n int64, of kernels.DType, seed uint64) []float32 {
	t.Helper()
	l, at := newLibrary(t, path, 2), int64(0)
	place := func(bytes int64) runtime.Span {
		s := runtime.Span{Offset: at, Bytes: bytes}
		at += kernels.Align(bytes)
		return s
	}
	o := kernels.UpdateOperands{Elements: n, Param: place(4 * n), Scalars: place(kernels.ScalarsBytes), Rounded: place(2 * n), GradType: of}
	if _, ok := u.(kernels.Muon); ok {
		o.Matrix = kernels.Matrix{Rows: n, Columns: 1}
	}
	for range kernels.StatesOf(u, o.Matrix) {
		o.States = append(o.States, place(4*n))
	}
	norm, partials := place(4), place(8*kernels.GuardPartials(n))
	end := at
	o.Grad = place(n * of.Size())
	need, err := l.UpdateWorkspace(u, o.Matrix)
	if err != nil {
		t.Fatal(err)
	}
	o.Workspace = place(need)
	memory := newArena(at)
	l.memory = memory
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	for i := range n {
		w := kernels.ToBFloat16(float32(rng.NormFloat64()))
		if of == kernels.BFloat16 {
			binary.LittleEndian.PutUint16(memory[o.Grad.Offset+2*i:], w)
		} else {
			binary.LittleEndian.PutUint32(memory[o.Grad.Offset+4*i:], math.Float32bits(kernels.FromBFloat16(w)))
		}
	}
	update, err := l.PrepareUpdate(u, o)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := l.PrepareGuard(kernels.Guard{MaxNorm: 1}, kernels.GuardOperands{
		Grads: []runtime.Span{o.Grad}, Types: []kernels.DType{of}, Partials: partials, Norm: norm, Scalars: o.Scalars,
	})
	if err != nil {
		t.Fatal(err)
	}
	for step := range uint64(2) {
		kernels.Scalars{LR: 0.1, GradScale: 0.5, Update: step}.Put(memory[o.Scalars.Offset:])
		for _, launch := range []runtime.Launch{guard, update} {
			if err := launch.(interface{ Run() error }).Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return floats(memory[:end])
}
