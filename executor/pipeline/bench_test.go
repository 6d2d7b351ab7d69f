package pipeline

import (
	"context"
	"fmt"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// emptyLibrary prepares launches that do nothing: what is left is what a driver does.
type emptyLibrary struct{ kernels.Library }

func (l emptyLibrary) Prepare(kernels.Call, kernels.Operands) (runtime.Launch, error) {
	return host.Pause("nothing", 0), nil
}

func (l emptyLibrary) PrepareUpdate(kernels.Update, ...kernels.UpdateOperands) (runtime.Launch, error) {
	return host.Pause("nothing", 0), nil
}

// deepModel is a model of n layers of two ops.
func deepModel(b *testing.B, n int) *models.Model {
	b.Helper()
	g := models.NewBuilder("deep", kernels.F32(2, 4, 4, 4), 5)
	for i := range n - 2 {
		name := fmt.Sprintf("block%d", i)
		g.Layer(name, name, func(g *models.Graph, x models.Value) models.Value { return g.ReLU("relu", g.Conv("conv", x, 4, 3, 1)) })
	}
	g.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
	})
	m, err := g.Model()
	must(b, err)
	return m
}

// benchmarks calls do for a plan with a flush and one without, for 110 layers on 8 devices, 32 microbatches a step or as many
// minibatches a run.
func benchmarks(b *testing.B, do func(*testing.B, func() *Executor)) {
	w := workload(b, deepModel(b, 110))
	for _, x := range []struct {
		name string
		o    pipeline.Options
	}{{"1f1b-flush", pipeline.Options{Microbatches: 32}}, {"1f1b*", pipeline.Options{Versions: pipeline.Stash, WeightCopies: []float64{9}}}} {
		c := costs(w, 8, 1)
		plan := planFor(b, x.name, c, x.o)
		b.Run(x.name, func(b *testing.B) {
			do(b, func() *Executor {
				on := targets(b, 8, host.Config{})
				for i := range on {
					on[i] = executor.Target{Device: on[i].Device, Library: emptyLibrary{on[i].Library}}
				}
				e, err := New(w, on, c, plan, Options{Feed: still{}, Rate: rate})
				must(b, err)
				return e
			})
		})
	}
}

// BenchmarkNew measures the cost to compile a plan and to prove it.
func BenchmarkNew(b *testing.B) {
	benchmarks(b, func(b *testing.B, bind func() *Executor) {
		for b.Loop() {
			bind()
		}
	})
}

// BenchmarkRun measures the cost to issue 32 minibatches, or microbatches, and to run nothing.
func BenchmarkRun(b *testing.B) {
	benchmarks(b, func(b *testing.B, bind func() *Executor) {
		e := bind()
		b.ReportAllocs()
		for b.Loop() {
			must(b, e.Run(context.Background(), 32))
		}
	})
}
