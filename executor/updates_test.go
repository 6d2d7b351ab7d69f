package executor

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime/host"
)

// plainModel has nothing that depends on the number of a step.
func plainModel(t testing.TB) *models.Model {
	b := models.NewBuilder("plain", kernels.F32(4, 8, 8, 3), 5)
	for _, name := range []string{"one", "two", "three"} {
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value { return g.ReLU("relu", g.Conv("conv", x, 8, 3, 1)) })
	}
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
	})
	m, err := b.Model()
	must(t, err)
	return m
}

// A step whose gradients are not finite is no update, as PyTorch's GradScaler has it: what follows has the weights and states of a
// run without it, of which Adam's depend on the number of updates.
func TestASkippedStepIsNoUpdate(t *testing.T) {
	t.Parallel()
	for _, mode := range []Offloading{OffloadNothing, OffloadOptimizer} {
		run := func(steps ...uint64) *Executor {
			e := offloaded(t, plainModel(t), host.Config{}, adam, mode).storeAll(t)
			for i, batch := range steps {
				fillBatch(t, e, batch)
				if batch == 0 {
					images, err := e.Images()
					must(t, err)
					images[17] = float32(math.NaN())
				}
				res, err := e.Step(uint64(i), 0.1)
				must(t, err)
				if res.Skipped != (batch == 0) {
					t.Fatalf("step %d: skipped is %v", i, res.Skipped)
				}
			}
			return e
		}
		got, want := run(0, 1, 2, 0, 3), run(1, 2, 3)
		after := kept(t, got)
		for name, v := range kept(t, want) {
			if !bytes.Equal(asBytes(v), asBytes(after[name])) {
				t.Errorf("%v offloaded: %s has other bits", mode, name)
			}
		}
		if n := slices.Repeat([]int64{3}, len(got.Layers)); !slices.Equal(got.Updates(), n) {
			t.Errorf("%v offloaded: updates %v, want %v", mode, got.Updates(), n)
		}
	}
}

// kept reads the tensors of an executor but for gradients, by role and name.
func kept(t testing.TB, e *Executor) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, x := range e.Tensors() {
		if x.Role != "gradient" {
			v := make([]float32, x.Desc.Elements())
			must(t, e.Read(x, v))
			all[x.Role+" of "+x.Name] = v
		}
	}
	return all
}

// Layers whose weights were updated more or less often, by stages of another plan, have bias corrections of their own: of equal
// moments the update of number t is lr·(1-β1)/(1-β1^t) / √((1-β2)/(1-β2^t)), wherever the state lives.
func TestLayersCountTheirUpdates(t *testing.T) {
	t.Parallel()
	earlier := []int64{0, 1, 7, 3, 0} // the loss has no weights
	for _, mode := range []Offloading{OffloadNothing, OffloadOptimizer, OffloadWeights} {
		r := offloaded(t, plainModel(t), host.Config{}, adam, mode)
		e := r.executor(t, r.StoreAll(), Options{Seed: 7, Updates: earlier})
		before := kept(t, e)
		fillBatch(t, e, 1)
		const lr = 0.01
		_, err := e.Step(0, lr)
		must(t, err)
		after, compared := kept(t, e), 0
		for _, x := range e.Tensors() {
			name, moved := "weight of "+x.Name, 0.0
			if x.Role != "weight" || strings.HasSuffix(name, "bias") {
				continue
			}
			for i, w := range after[name] {
				moved = max(moved, math.Abs(float64(w)-float64(before[name][i])))
			}
			k, b1, b2 := float64(earlier[x.Layer-1]+1), float64(adam.Beta1), float64(adam.Beta2)
			want := lr * (1 - b1) / (1 - math.Pow(b1, k)) / math.Sqrt((1-b2)/(1-math.Pow(b2, k)))
			if math.Abs(moved-want) > 1e-3*want {
				t.Errorf("%v offloaded: %s moved by %g, want %g", mode, name, moved, want)
			}
			compared++
		}
		if want := []int64{1, 2, 8, 4, 1}; compared != 4 || !slices.Equal(e.Updates(), want) {
			t.Errorf("%v offloaded: %d weights, updates %v, want %v", mode, compared, e.Updates(), want)
		}
	}
}
