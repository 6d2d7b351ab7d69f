package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
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
	r.launch(t, newLibrary(t, path, threads), max)
	return floats(r.at(r.o.Norm))[0], kernels.GetScalars(r.at(r.o.Scalars))
}

func TestGuardClipsAndSkips(t *testing.T) {
	t.Parallel()
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

// Gradients that are measured apart and judged together give the bits of one guard.
func TestGuardsMeasureApartAndJudgeTogether(t *testing.T) {
	t.Parallel()
	r := newGuardRig([]int64{9, 2*kernels.GuardChunk + 3, kernels.GuardChunk, 77})
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, g := range r.o.Grads {
		for i := range floats(r.at(g)) {
			floats(r.at(g))[i] = float32(rnd.NormFloat64())
		}
	}
	scalars := kernels.Scalars{LR: 0.5, GradScale: 0.25}
	want, wantScalars := r.run(t, Paths()[0], 1, 3, scalars)
	own, whole := slices.Clone(r.at(r.o.Partials)), r.o
	clear(r.at(whole.Partials))
	for from, to := range map[int]int{0: 2, 2: 4} {
		r.o = kernels.GuardOperands{Grads: whole.Grads[from:to], Partials: whole.Partials}
		r.launch(t, newLibrary(t, Paths()[0], 1), 0)
		at := 8 * (kernels.GuardOperands{Grads: whole.Grads[:from]}).Parts()
		if n := 8 * r.o.Parts(); !bytes.Equal(r.at(whole.Partials)[:n], own[at:at+n]) {
			t.Errorf("gradients %d to %d are measured otherwise apart", from, to)
		}
	}
	copy(r.at(whole.Partials), own)
	r.o = kernels.GuardOperands{Partials: whole.Partials, Norm: whole.Norm, Scalars: whole.Scalars}
	if norm, after := r.run(t, Paths()[0], 1, 3, scalars); norm != want || after != wantScalars || after.GradScale == scalars.GradScale {
		t.Errorf("judged together: norm %v, scalars %+v; want %v and %+v", norm, after, want, wantScalars)
	}
}

// launch runs the guard.
func (r guardRig) launch(t *testing.T, l *Library, max float32) {
	t.Helper()
	l.memory = r.memory
	launch, err := l.PrepareGuard(kernels.Guard{MaxNorm: max}, r.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
}

// TestSkippedUpdatesChangeNothing: with Skip set, parameters and states keep their bits.
func TestSkippedUpdatesChangeNothing(t *testing.T) {
	t.Parallel()
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
