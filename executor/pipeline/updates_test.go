package pipeline

import (
	"math"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
)

// simpleModel has nothing that depends on the number of a step.
func simpleModel(t testing.TB) *models.Model {
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

var adam = kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}

// As in PyTorch's GradScaler, a step with non-finite gradients is no update. Later steps have the weights and states of a run without that
// step. With Adam, both depend on the number of updates.
func TestASkippedStepIsNoUpdate(t *testing.T) {
	t.Parallel()
	m := simpleModel(t)
	run := func(batches ...int) *Stepper {
		b := NewBatch(m)
		e := stepping(t, workloadOf(t, m, adam), Options{Feed: b})
		for i, batch := range batches {
			feedOf(m).batch(batch, b.Input, b.Target)
			if batch == 0 {
				b.Input[17] = float32(math.NaN())
			}
			res, err := e.Step(0.1)
			must(t, err)
			if res.Skipped != (batch == 0) {
				t.Fatalf("step %d: skipped is %v", i, res.Skipped)
			}
		}
		return e
	}
	got, want := run(0, 1, 2, 0, 3), run(1, 2, 3)
	if d := pipelinetest.FirstDifference(tensors(t, want.Executor), tensors(t, got.Executor)); d != "" {
		t.Error(d)
	}
	if n := slices.Repeat([]int64{3}, len(got.Layers)); !slices.Equal(got.Updates(), n) {
		t.Errorf("updates %v, want %v", got.Updates(), n)
	}
}

// If stages of another plan updated the weights of some layers more often than others, each layer has its own bias correction. With equal
// moments, update number t is lr·(1-β1)/(1-β1^t) / √((1-β2)/(1-β2^t)).
func TestLayersCountTheirUpdates(t *testing.T) {
	t.Parallel()
	earlier := []int64{0, 1, 7, 3, 0} // the loss has no weights
	e := stepping(t, workloadOf(t, simpleModel(t), adam), Options{Past: Past{Updates: earlier}})
	before := tensors(t, e.Executor)
	const lr = 0.01
	_, err := e.Step(lr)
	must(t, err)
	compared := 0
	for i, x := range tensors(t, e.Executor) {
		if x.Role != "weight" || strings.HasSuffix(x.Name, "bias") {
			continue
		}
		moved := 0.0
		for k, w := range x.Values {
			moved = max(moved, math.Abs(float64(w)-float64(before[i].Values[k])))
		}
		k, b1, b2 := float64(earlier[e.Tensors()[i].Layer-1]+1), float64(adam.Beta1), float64(adam.Beta2)
		want := lr * (1 - b1) / (1 - math.Pow(b1, k)) / math.Sqrt((1-b2)/(1-math.Pow(b2, k)))
		if math.Abs(moved-want) > 1e-3*want {
			t.Errorf("%s moved by %g, want %g", x.Name, moved, want)
		}
		compared++
	}
	if want := []int64{1, 2, 8, 4, 1}; compared != 4 || !slices.Equal(e.Updates(), want) {
		t.Errorf("%d weights, updates %v, want %v", compared, e.Updates(), want)
	}
}
