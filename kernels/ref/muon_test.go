package ref_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"plimsoll/kernels"
)

// TestMuonIsPyTorchs: three steps of matrices are those of torch.optim.Muon: in float32 to its precision, in TF32 and bfloat16, in which
// it iterates by itself, to theirs; see testdata/make_muon.py.
func TestMuonIsPyTorchs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/muon.json")
	if err != nil {
		t.Fatal(err)
	}
	var from struct {
		Rate, Decay, Beta float32
		Cases             []struct {
			Rows, Columns                    int
			Start, After, Momentum, BFloat16 []float32
			Grads                            [][]float32
		}
	}
	if err := json.Unmarshal(text, &from); err != nil {
		t.Fatal(err)
	}
	for _, c := range from.Cases {
		for dtype, want := range map[kernels.DType]struct {
			weights   []float32
			tolerance float64
		}{kernels.Float32: {c.After, 2e-5}, kernels.TF32: {c.After, 5e-4}, kernels.BFloat16: {c.BFloat16, 4e-3}} {
			m, d := newMemory(), kernels.F32(c.Rows, c.Columns)
			o := kernels.UpdateOperands{
				Elements: d.Elements(), Matrix: kernels.Matrix{Rows: int64(c.Rows), Columns: int64(c.Columns), DType: dtype},
				Param: m.alloc(d), Grad: m.alloc(d), Scalars: m.alloc(kernels.F32(kernels.ScalarsBytes / 4)),
			}
			o.States = append(o.States, m.alloc(d))
			m.put(o.Param, c.Start...)
			l, err := m.lib.PrepareUpdate(kernels.Muon{Momentum: from.Beta, WeightDecay: from.Decay}, o)
			if err != nil {
				t.Fatal(err)
			}
			for step, g := range c.Grads {
				m.put(o.Grad, g...)
				kernels.Scalars{Update: uint64(step), LR: from.Rate, GradScale: 1}.Put(m.bytes[o.Scalars.Offset:])
				if err := l.(interface{ Run() error }).Run(); err != nil {
					t.Fatal(err)
				}
			}
			within(t, "weights by "+dtype.String(), m.get(o.Param), want.weights, want.tolerance)
			within(t, "momentum", m.get(o.States[0]), c.Momentum, 1e-6)
		}
	}
	if len(from.Cases) != 5 {
		t.Errorf("compared %d matrices, want 5", len(from.Cases))
	}
}

func within(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	for i, w := range want {
		if d := math.Abs(float64(got[i] - w)); !(d <= tolerance*(1+math.Abs(float64(w)))) {
			t.Fatalf("%s of %d: element %d is %v, want %v", what, len(want), i, got[i], w)
		}
	}
}
