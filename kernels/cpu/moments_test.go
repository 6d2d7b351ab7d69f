package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
)

// momentsRig is the rows of a minibatch's batches, drawn by seed, and running statistics, with what these must become.
type momentsRig struct {
	memory         arena
	o              kernels.MomentsOperands
	mean, variance []float64
}

// newMomentsRig draws batches of m.Rows values, which it remembers by their statistics: rounded, as a forward leaves them.
func newMomentsRig(m kernels.Moments, seed uint64) *momentsRig {
	bytes := int64(m.Channels) * 4
	r := &momentsRig{o: kernels.MomentsOperands{
		Moments:  runtime.Span{Bytes: m.Bytes()},
		Mean:     runtime.Span{Offset: m.Bytes(), Bytes: bytes},
		Variance: runtime.Span{Offset: m.Bytes() + m.Row(), Bytes: bytes},
	}}
	r.memory = newArena(m.Bytes() + 2*m.Row())
	g := rand.New(rand.NewPCG(seed, 3))
	values := make([]float64, int(m.Rows))
	for c := range m.Channels {
		var all []float64
		center := 10 * g.NormFloat64()
		for k := range m.Batches {
			shift := g.NormFloat64()
			for i := range values {
				values[i] = center + shift + g.NormFloat64()
			}
			all = append(all, values...)
			mean, unbiased := meanAndVariance(values)
			*r.row(m, k, 0, c), *r.row(m, k, 1, c) = float32(mean), float32(unbiased)
		}
		mean, unbiased := meanAndVariance(all)
		x := float64(m.Defaults().Momentum)
		before := [2]float32{float32(g.NormFloat64()), float32(g.Float64())}
		r.at(r.o.Mean)[c], r.at(r.o.Variance)[c] = before[0], before[1]
		r.mean = append(r.mean, (1-x)*float64(before[0])+x*mean)
		r.variance = append(r.variance, (1-x)*float64(before[1])+x*unbiased)
	}
	return r
}

func (r *momentsRig) at(s runtime.Span) []float32 { return floats(r.memory[s.Offset:s.End()]) }

func (r *momentsRig) row(m kernels.Moments, batch, of, c int) *float32 {
	return &floats(r.memory)[int64(2*batch+of)*m.Row()/4+int64(c)]
}

func meanAndVariance(values []float64) (mean, unbiased float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		unbiased += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	return mean, unbiased
}

// run runs moments of a library with the rig's memory.
func (r *momentsRig) run(t *testing.T, l kernels.Library, m kernels.Moments) {
	t.Helper()
	launch, err := l.PrepareMoments(m, r.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
}

func (r *momentsRig) check(t *testing.T, what string) {
	t.Helper()
	near := func(got float32, want float64) bool { return math.Abs(float64(got)-want) <= 2e-6*math.Abs(want)+1e-6 }
	for c := range r.mean {
		if !near(r.at(r.o.Mean)[c], r.mean[c]) || !near(r.at(r.o.Variance)[c], r.variance[c]) {
			t.Fatalf("%s, channel %d: %v and %v, want %v and %v", what, c, r.at(r.o.Mean)[c], r.at(r.o.Variance)[c], r.mean[c], r.variance[c])
		}
	}
	for i, v := range r.at(r.o.Moments) {
		if v != 0 || math.Signbit(float64(v)) == r.padding(i) {
			t.Fatalf("%s: number %d of the rows is %v", what, i, v)
		}
	}
}

// padding reports whether a number of the rows belongs to no channel.
func (r *momentsRig) padding(i int) bool {
	width := int(kernels.Align(int64(len(r.mean))*4) / 4)
	return i%width >= len(r.mean)
}

// The statistics of batches make those of all their values, on every path and in the reference.
func TestMomentsAreThoseOfAllValues(t *testing.T) {
	t.Parallel()
	cases := 0
	for i, m := range []kernels.Moments{
		{Batches: 1, Rows: 2, Channels: 1}, {Batches: 2, Rows: 7, Channels: 3}, {Batches: 8, Rows: 32, Channels: 16, Momentum: 0.3},
		{Batches: 5, Rows: 3, Channels: 130, Momentum: 1},
	} {
		run := func(what string, library func(arena) kernels.Library) {
			r := newMomentsRig(m, uint64(i))
			r.run(t, library(r.memory), m)
			r.check(t, fmt.Sprintf("%s, %+v", what, m))
			cases++
		}
		run("ref", func(a arena) kernels.Library { return ref.New(a) })
		for _, path := range Paths() {
			run(path.String(), func(a arena) kernels.Library {
				l := newLibrary(t, path, 1)
				l.memory = a
				return l
			})
		}
	}
	if cases < 8 {
		t.Errorf("ran %d cases", cases)
	}
}

// A forward with Momentum 1 leaves its statistics in fresh rows; where one has not been, running statistics stay.
func TestMomentsOfForwards(t *testing.T) {
	t.Parallel()
	d := kernels.F32(2, 3, 2, 5)
	m := kernels.Moments{Batches: 2, Rows: 12, Channels: 5}
	r := newMomentsRig(m, 1)
	l := newLibrary(t, Paths()[0], 1)
	l.memory = append(r.memory, newArena(1<<14)...)
	r.memory = l.memory.(arena)
	r.run(t, l, m) // leaves the rows fresh
	before := [2]float32{r.at(r.o.Mean)[4], r.at(r.o.Variance)[4]}
	at := m.Bytes() + 2*m.Row()
	take := func(bytes int64) runtime.Span {
		s := runtime.Span{Offset: at, Bytes: bytes}
		at += kernels.Align(bytes)
		return s
	}
	call := kernels.Call{Op: kernels.BatchNorm{Momentum: 1}, In: []kernels.Desc{d}, Train: true, UpdateStats: true}
	workspace, err := l.Workspace(call)
	if err != nil {
		t.Fatal(err)
	}
	x, params, y, scratch := take(d.Bytes()), []runtime.Span{take(20), take(20)}, take(d.Bytes()), take(workspace)
	saved := []runtime.Span{take(20), take(20)}
	g := rand.New(rand.NewPCG(2, 2))
	for i, v := range r.at(x) {
		r.at(x)[i] = v + float32(g.NormFloat64())
	}
	forward := func(batch int64) {
		row := func(i int64) runtime.Span { return runtime.Span{Offset: (2*batch + i) * m.Row(), Bytes: 20} }
		launch, err := l.Prepare(call, kernels.Operands{
			X: []runtime.Span{x}, Y: y, Saved: saved, Workspace: scratch, Params: append(params[:2:2], row(0), row(1)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := launch.(interface{ Run() error }).Run(); err != nil {
			t.Fatal(err)
		}
	}
	forward(1)
	r.run(t, l, m)
	if r.at(r.o.Mean)[4] != before[0] || r.at(r.o.Variance)[4] != before[1] {
		t.Error("half a minibatch moves running statistics")
	}
	forward(0)
	forward(1)
	r.run(t, l, m)
	var all []float64
	for i := 4; i < len(r.at(x)); i += 5 {
		all = append(all, float64(r.at(x)[i]), float64(r.at(x)[i]))
	}
	mean, unbiased := meanAndVariance(all)
	if math.Abs(float64(r.at(r.o.Mean)[4])-(0.9*float64(before[0])+0.1*mean)) > 1e-6 ||
		math.Abs(float64(r.at(r.o.Variance)[4])-(0.9*float64(before[1])+0.1*unbiased)) > 1e-6 {
		t.Errorf("running statistics %v and %v of twice the same batch", r.at(r.o.Mean)[4], r.at(r.o.Variance)[4])
	}
}
