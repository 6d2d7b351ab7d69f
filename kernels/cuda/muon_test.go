//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda/cudatest"
)

var muon = kernels.Muon{Momentum: 0.95, WeightDecay: 0.05, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}

// muonTypes are the types of the iteration, with the largest difference of a weight after two steps; see package cpu's.
var muonTypes = map[kernels.DType]float64{kernels.Float32: 1e-4, kernels.TF32: 1e-3, kernels.BFloat16: 1e-2}

// TestMuon: steps of matrices of any shape, in any type, follow the reference. They have the same bits whenever they are repeated, alone or at once with
// a vector. A step that is skipped changes neither weights nor momentum. Guards behind operands stay.
func TestMuon(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	for dtype, tolerance := range muonTypes {
		for i, m := range []kernels.Matrix{{Rows: 1, Columns: 1}, {Rows: 1, Columns: 37}, {Rows: 29, Columns: 1}, {Rows: 7, Columns: 90}, {Rows: 65, Columns: 17}, {Rows: 33, Columns: 33}, {Rows: 90, Columns: 200}} {
			if m.DType = dtype; cudatest.Checked() && m.Rows*m.Columns > 4096 {
				continue // slow
			}
			checkMuon(t, b, l, m, uint64(i), tolerance)
		}
	}
}

// checkMuon takes two steps of a matrix, and one that is skipped.
func checkMuon(t *testing.T, b *bench, l *Library, m kernels.Matrix, seed uint64, tolerance float64) {
	t.Helper()
	o, vector := newMatrix(t, l, m, seed), newOptimizer(muon, 70, seed)
	vector.putGrad(random(rand.New(rand.NewPCG(7, 7)), 70))
	beside := vector.behind(int64(len(o.memory)), 0)
	beside.Scalars, beside.Workspace = o.operands.Scalars, o.operands.Workspace
	o.memory = append(o.memory, vector.memory...)
	launch := prepared(t, l, o.operands, beside)
	for step := range 2 {
		o.putGrad(random(rand.New(rand.NewPCG(6, uint64(step))), o.operands.Elements))
		o.scalars(kernels.Scalars{Update: uint64(step), LR: 0.1 / float32(step+1), GradScale: 0.5})
		want := expected(t, muon, o)
		got := b.run(t, o.memory, launch)
		if !bytes.Equal(got, b.run(t, o.memory, launch)) {
			t.Errorf("%v: repeated it has other bits", m)
		}
		alone := b.run(t, o.memory, prepared(t, l, o.operands))
		for s, tolerance := range map[runtime.Span]float64{o.operands.Param: tolerance, o.operands.States[0]: 1e-6} {
			if !bytes.Equal(got[s.Offset:s.End()], alone[s.Offset:s.End()]) {
				t.Errorf("%v: alone it has other bits", m)
			}
			within(t, fmt.Sprintf("%v, step %d", m, step), floats(got[s.Offset:s.End()]), floats(want[s.Offset:s.End()]), tolerance)
		}
		for _, s := range []runtime.Span{o.operands.Grad, o.operands.Param, o.operands.States[0], o.operands.Workspace} {
			if end := kernels.Align(s.End()); !bytes.Equal(got[end:end+kernels.Alignment], o.memory[end:end+kernels.Alignment]) {
				t.Errorf("%v: what is behind %v has changed", m, s)
			}
		}
		o.memory = got
	}
	o.scalars(kernels.Scalars{Update: 5, LR: 0.1, GradScale: 1, Skip: 1})
	rest := o.operands.Workspace.Offset
	if got := b.run(t, o.memory, launch); !bytes.Equal(got[:rest], o.memory[:rest]) {
		t.Errorf("%v: a skipped step changes something", m)
	}
}

// newMatrix places a matrix like newOptimizer, with the workspace behind all else.
func newMatrix(t *testing.T, l *Library, m kernels.Matrix, seed uint64) *optimizer {
	t.Helper()
	o := newOptimizer(kernels.SGD{Momentum: 0.9}, m.Rows*m.Columns, seed) // one state
	bytes, err := l.UpdateWorkspace(muon, m)
	if err != nil {
		t.Fatal(err)
	}
	o.operands.Matrix = m
	o.operands.Workspace = runtime.Span{Offset: int64(len(o.memory)), Bytes: bytes}
	o.memory = append(o.memory, make([]byte, kernels.Align(bytes)+kernels.Alignment)...)
	for i := range o.memory[o.operands.Workspace.Offset:] {
		o.memory[o.operands.Workspace.Offset+int64(i)] = 0xFF // NaN
	}
	return o
}

func prepared(t *testing.T, l *Library, all ...kernels.UpdateOperands) runtime.Launch {
	t.Helper()
	launch, err := l.PrepareUpdate(muon, all...)
	if err != nil {
		t.Fatal(err)
	}
	return launch
}

// within compares what a few products after each other have rounded.
func within(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	for i, w := range want {
		if d := math.Abs(float64(got[i] - w)); !(d <= tolerance*(1+math.Abs(float64(w)))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], w)
		}
	}
}

// TestMuonWorkspace: less than an update needs is refused.
func TestMuonWorkspace(t *testing.T) {
	l := libraries(t, newBench(t))[0]
	o := newMatrix(t, l, kernels.Matrix{Rows: 9, Columns: 5}, 1)
	o.operands.Workspace.Bytes--
	if _, err := l.PrepareUpdate(muon, o.operands); err == nil {
		t.Error("a workspace that is too small is accepted")
	}
}
