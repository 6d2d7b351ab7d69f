package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// guardRig is gradients of several sizes, partial sums, the norm and the scalars, one behind the other.
type guardRig struct {
	memory arena
	o      kernels.GuardOperands
}

func newGuardRig(sizes []int64) guardRig {
	var at int64
	take := func(bytes int64) runtime.Span {
		s := runtime.Span{Offset: at, Bytes: bytes}
		at += kernels.Align(bytes)
		return s
	}
	var r guardRig
	partials := int64(0)
	for _, n := range sizes {
		r.o.Grads = append(r.o.Grads, take(4*n))
		partials += kernels.GuardPartials(n)
	}
	r.o.Partials, r.o.Norm, r.o.Scalars = take(8*partials), take(4), take(kernels.ScalarsBytes)
	r.memory = newArena(at)
	return r
}

func (r guardRig) at(s runtime.Span) []byte { return r.memory[s.Offset:s.End()] }

func (r guardRig) run(t *testing.T, path Path, threads int, max float32, s kernels.Scalars) (norm float32, after kernels.Scalars) {
	t.Helper()
	s.Put(r.at(r.o.Scalars))
	l := newLibrary(t, path, threads)
	l.memory = r.memory
	launch, err := l.PrepareGuard(kernels.Guard{MaxNorm: max}, r.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
	return floats(r.at(r.o.Norm))[0], kernels.GetScalars(r.at(r.o.Scalars))
}

func TestGuardClipsAndSkips(t *testing.T) {
	r := newGuardRig([]int64{5, kernels.GuardChunk, 3*kernels.GuardChunk + 7})
	rnd := rand.New(rand.NewPCG(5, 6))
	want := 0.0
	for _, g := range r.o.Grads {
		for i := range floats(r.at(g)) {
			v := float32(rnd.NormFloat64())
			floats(r.at(g))[i] = v
			want += float64(v) * float64(v)
		}
	}
	want = math.Sqrt(want)
	scalars := kernels.Scalars{Seed: 1, Step: 2, LR: 0.5, GradScale: 1}
	for _, path := range Paths() {
		for _, threads := range []int{1, 2} {
			norm, after := r.run(t, path, threads, 0, scalars)
			if math.Abs(float64(norm)-want) > 1e-6*want || after != scalars {
				t.Errorf("%v, %d threads, no clipping: norm %v, want %v; scalars %+v", path, threads, norm, want, after)
			}
			_, after = r.run(t, path, threads, 10, scalars)
			if math.Abs(float64(after.GradScale)-10/want) > 1e-5*10/want || after.Skip != 0 {
				t.Errorf("%v: scale %v, want %v", path, after.GradScale, 10/want)
			}
			if _, after = r.run(t, path, threads, float32(2*want), scalars); after.GradScale != 1 {
				t.Errorf("%v: a norm below the limit was scaled by %v", path, after.GradScale)
			}
		}
	}
	for _, evil := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		last := floats(r.at(r.o.Grads[2]))
		last[len(last)-1] = evil
		if _, after := r.run(t, Paths()[0], 1, 10, scalars); after.Skip == 0 {
			t.Errorf("a gradient of %v was let through", evil)
		}
	}
}

// TestSkippedUpdatesChangeNothing: with Skip set, parameters and states keep their bits.
func TestSkippedUpdatesChangeNothing(t *testing.T) {
	for _, u := range updates {
		tr := newTrainer(t, Paths()[0], 1, u, 37)
		for k := range 4 {
			for i := range tr.floats(k) {
				tr.floats(k)[i] = float32(k+1) * float32(i+1)
			}
		}
		before := append(arena(nil), tr.memory...)
		kernels.Scalars{Step: 1, LR: 0.1, GradScale: 1, Skip: 1}.Put(tr.scalars())
		if err := tr.run(); err != nil {
			t.Fatal(err)
		}
		if string(before[:4*tr.size]) != string(tr.memory[:4*tr.size]) {
			t.Errorf("%+v: a skipped update changed something", u)
		}
	}
}
