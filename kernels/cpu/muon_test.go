package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
)

var muon = kernels.Muon{Momentum: 0.95, WeightDecay: 0.05, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}

// matrices are square, wide and tall, of one row and one column, and larger than a task.
var matrices = []kernels.Matrix{
	{Rows: 1, Columns: 1}, {Rows: 1, Columns: 37}, {Rows: 29, Columns: 1}, {Rows: 16, Columns: 16}, {Rows: 7, Columns: 90},
	{Rows: 65, Columns: 17}, {Rows: 33, Columns: 33}, {Rows: 100, Columns: 300}, {Rows: 520, Columns: 70},
}

// matrixRig is a matrix with gradient, momentum, scalars and workspace, each before a guard.
type matrixRig struct {
	memory arena
	o      kernels.UpdateOperands
}

func newMatrixRig(t *testing.T, l *Library, m kernels.Matrix, seed uint64) *matrixRig {
	t.Helper()
	r := &matrixRig{o: kernels.UpdateOperands{Elements: m.Rows * m.Columns, Matrix: m}}
	workspace, err := l.UpdateWorkspace(muon, m)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(0)
	place := func(bytes int64) runtime.Span {
		s := runtime.Span{Offset: end, Bytes: bytes}
		end += kernels.Align(bytes) + kernels.Alignment
		return s
	}
	size := 4 * r.o.Elements
	r.o.Param, r.o.Grad, r.o.States, r.o.Scalars, r.o.Workspace = place(size), place(size), []runtime.Span{place(size)}, place(kernels.ScalarsBytes), place(workspace)
	r.memory = newArena(end)
	for i := range r.memory {
		r.memory[i] = 0xA5
	}
	clear(r.memory[r.o.States[0].Offset:r.o.States[0].End()])
	for i := r.o.Workspace.Offset; i+4 <= r.o.Workspace.End(); i += 4 {
		copy(r.memory[i:], []byte{0xAD, 0xDE, 0xC0, 0x7F}) // NaN
	}
	random := random(rand.New(rand.NewPCG(seed, 3)), 2*r.o.Elements)
	copy(r.floats(r.o.Param), random)
	copy(r.floats(r.o.Grad), random[r.o.Elements:])
	return r
}

func (r *matrixRig) floats(s runtime.Span) []float32 { return floats(r.memory[s.Offset:s.End()]) }

// step makes an update with a library for the rig's memory.
func (r *matrixRig) step(t *testing.T, l kernels.Library, s kernels.Scalars) {
	t.Helper()
	s.Put(r.memory[r.o.Scalars.Offset:])
	launch, err := l.PrepareUpdate(muon, r.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
}

// muonTypes are the types of the iteration, with the largest difference of a weight after two steps. A sum in float32 that is rounded
// otherwise than one in float64 is another factor of the next product.
var muonTypes = map[kernels.DType]float64{kernels.Float32: 1e-4, kernels.TF32: 1e-3, kernels.BFloat16: 1e-2}

// TestMuon: steps of matrices of any shape, in any type, are the definition's; one to three threads give the same bits; guards stay.
func TestMuon(t *testing.T) {
	t.Parallel()
	steps := 0
	for i, m := range matrices {
		for dtype, tolerance := range muonTypes {
			m.DType = dtype
			for _, path := range Paths() {
				var first []float32
				for threads := 1; threads <= 3; threads++ {
					l := newLibrary(t, path, threads)
					got := newMatrixRig(t, l, m, uint64(i))
					want := &matrixRig{slices.Clone(got.memory), got.o}
					l.memory = got.memory
					for step := range 2 {
						s := kernels.Scalars{LR: 0.1, GradScale: 0.5, Update: uint64(step)}
						got.step(t, l, s)
						want.step(t, ref.New(want.memory), s)
						what := fmt.Sprintf("%v, %v, step %d", m, path, step)
						nearest(t, what, got.floats(got.o.Param), want.floats(want.o.Param), tolerance)
						nearest(t, what+", momentum", got.floats(got.o.States[0]), want.floats(want.o.States[0]), 1e-6)
						steps++
					}
					if first == nil {
						first = slices.Clone(got.floats(got.o.Param))
					}
					sameBits(t, "threads", data{opW: got.floats(got.o.Param)}, data{opW: first})
					got.checkGuards(t, want)
				}
			}
		}
	}
	if want := len(matrices) * len(muonTypes) * len(Paths()) * 3 * 2; steps != want {
		t.Errorf("made %d steps, want %d", steps, want)
	}
}

// checkGuards compares what lies behind the operands of two rigs.
func (r *matrixRig) checkGuards(t *testing.T, other *matrixRig) {
	t.Helper()
	for _, s := range []runtime.Span{r.o.Param, r.o.Grad, r.o.States[0], r.o.Scalars, r.o.Workspace} {
		if end := kernels.Align(s.End()); !bytes.Equal(r.memory[end:end+kernels.Alignment], other.memory[end:end+kernels.Alignment]) {
			t.Errorf("%v: what is behind %v has changed", r.o.Matrix, s)
		}
	}
}

// TestMuonByType: in each type the update is as far from that without roundings as the type's precision makes it, and no nearer. So the
// type's products are taken.
func TestMuonByType(t *testing.T) {
	t.Parallel()
	for i, m := range []kernels.Matrix{{Rows: 100, Columns: 300}, {Rows: 300, Columns: 100}, {Rows: 90, Columns: 90}} {
		for dtype, bounds := range map[kernels.DType][2]float64{kernels.Float32: {1e-8, 1e-5}, kernels.TF32: {5e-4, 5e-3}, kernels.BFloat16: {5e-3, 3e-2}} {
			m.DType = dtype
			l := newLibrary(t, Plain, 2)
			r := newMatrixRig(t, l, m, uint64(i))
			clear(r.floats(r.o.Param))
			exact := &matrixRig{slices.Clone(r.memory), r.o}
			exact.o.Matrix.DType = kernels.Float32 // which ref does not round to
			l.memory = r.memory
			r.step(t, l, kernels.Scalars{LR: 1, GradScale: 1})
			exact.step(t, ref.New(exact.memory), kernels.Scalars{LR: 1, GradScale: 1})
			var apart, size float64
			for k, want := range exact.floats(exact.o.Param) {
				d := float64(r.floats(r.o.Param)[k] - want)
				apart, size = apart+d*d, size+float64(want)*float64(want)
			}
			if d := math.Sqrt(apart / size); d < bounds[0] || d > bounds[1] {
				t.Errorf("%v: %.2g of the update is another, want %v", m, d, bounds)
			}
		}
	}
}

func nearest(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	for i, w := range want {
		if d := math.Abs(float64(got[i] - w)); !(d <= tolerance*(1+math.Abs(float64(w)))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], w)
		}
	}
}

// TestMuonOrthogonalizes: an update's singular values, over the learning rate and the scale, are near 1.
func TestMuonOrthogonalizes(t *testing.T) {
	t.Parallel()
	for i, m := range []kernels.Matrix{{Rows: 12, Columns: 40}, {Rows: 40, Columns: 12}, {Rows: 24, Columns: 24}, {Rows: 1, Columns: 50}} {
		for m.DType = range muonTypes {
			l := newLibrary(t, Plain, 1)
			r := newMatrixRig(t, l, m, uint64(i))
			l.memory = r.memory
			clear(r.floats(r.o.Param))
			for k := int64(0); m.Rows == m.Columns && k < m.Rows; k++ { // a square one with singular values that are not too small
				r.floats(r.o.Grad)[k*(m.Columns+1)] += 12
			}
			r.step(t, l, kernels.Scalars{LR: 1, GradScale: 1})
			for _, v := range singularValues(r.floats(r.o.Param), m) {
				if v /= m.Rate(); !(v > 0.65 && v < 1.25) {
					t.Errorf("%v: a singular value is %v", m, v)
				}
			}
		}
	}
}

// singularValues are the norms of the shorter of rows and columns when rotations have made them orthogonal (Hestenes 1958).
func singularValues(w []float32, m kernels.Matrix) (all []float64) {
	rows := make([][]float64, m.Side())
	for i, v := range w {
		k := i / int(m.Columns)
		if m.Rows > m.Columns {
			k = i % int(m.Columns)
		}
		rows[k] = append(rows[k], float64(v))
	}
	dot := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	for range 30 {
		for i, a := range rows {
			for _, b := range rows[:i] {
				angle := 0.5 * math.Atan2(2*dot(a, b), dot(a, a)-dot(b, b))
				sin, cos := math.Sincos(angle)
				for k := range a {
					a[k], b[k] = cos*a[k]+sin*b[k], cos*b[k]-sin*a[k]
				}
			}
		}
	}
	for _, a := range rows {
		all = append(all, math.Sqrt(dot(a, a)))
	}
	return all
}

// TestMuonSkips: a step that is skipped changes neither weights nor momentum; a gradient of zeros moves nothing but by decay.
func TestMuonSkips(t *testing.T) {
	t.Parallel()
	l := newLibrary(t, Plain, 1)
	r := newMatrixRig(t, l, kernels.Matrix{Rows: 9, Columns: 5}, 1)
	l.memory = r.memory
	before := slices.Clone(r.memory[:r.o.Scalars.Offset])
	r.step(t, l, kernels.Scalars{LR: 1, GradScale: 1, Skip: 1})
	if !bytes.Equal(before, r.memory[:r.o.Scalars.Offset]) {
		t.Error("a skipped step changes something")
	}
	clear(r.floats(r.o.Grad))
	want := slices.Clone(r.floats(r.o.Param))
	for i := range want {
		want[i] *= 1 - muon.WeightDecay
	}
	r.step(t, l, kernels.Scalars{LR: 1, GradScale: 1})
	nearest(t, "without gradient", r.floats(r.o.Param), want, 1e-6)
}

// TestMuonWorkspace: less than an update needs is refused.
func TestMuonWorkspace(t *testing.T) {
	t.Parallel()
	l := newLibrary(t, Plain, 1)
	r := newMatrixRig(t, l, kernels.Matrix{Rows: 9, Columns: 5}, 1)
	l.memory = r.memory
	r.o.Workspace.Bytes--
	if _, err := l.PrepareUpdate(muon, r.o); err == nil {
		t.Error("a workspace that is too small is accepted")
	}
}
