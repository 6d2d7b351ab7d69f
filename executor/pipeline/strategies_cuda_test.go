//go:build cuda && linux && amd64

package pipeline

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	cuda "plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/host"
)

// plannedBy plans a workload with the strategy that a name begins with, at 60 % of the memory of store-all's activations or the smallest
// limit above it that works.
func plannedBy(t *testing.T, w *Workload, name string) (Costs, *pipeline.Plan) {
	t.Helper()
	s, err := planner.Lookup(strings.Fields(name)[0])
	must(t, err)
	c := w.Chain()
	for i := range c.Layers {
		c.Layers[i].ForwardS, c.Layers[i].BackwardS = 1, 2
	}
	all, err := schedule.Simulate(c, w.StoreAll(), schedule.Limits{Memory: schedule.NoLimit})
	must(t, err)
	problem := strategy.Problem{Chain: c, Memory: all.Peak * 3 / 5, Link: schedule.Link{Bandwidth: float64(all.Peak), Duplex: true}}
	p, err := s.Solve(t.Context(), problem.Request())
	if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		problem.Memory = small.Smallest
		p, err = s.Solve(t.Context(), problem.Request())
	}
	must(t, err)
	return Costs{c, p.Platform}, p
}

// A GPU trains as the CPU does: the losses of both are equal to 1e-4. Every plan trains as store-all does on that GPU: the same bits in
// every weight, buffer and optimizer state, with the predicted peak. A step may be graphs or many calls, and batches may wait as bytes.
// Images are so large that every BatchNorm has values enough to be well-conditioned.
func TestGPUTrainsEveryPlanAsTheCPU(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	plans, moved := 0, 0
	for _, x := range []struct {
		name   string
		config models.Config
		plans  []string
	}{
		{"resnet18", models.Config{Batch: 2, Image: 64, Classes: 5}, []string{"rotor audited", "offload-greedy"}},
		{"resnet20", models.Config{Batch: 2, Image: 16, Classes: 5}, []string{
			"offload-dynprog", "pofo", "autocapper", "auto", "auto without graphs", "rotor staged", "rotor staged without graphs", "offload-greedy staged",
		}},
		{"siamese", models.Config{Batch: 8, Image: 16, Classes: 2}, []string{"multi-empty", "multi-empty staged"}},
		{"densenet121", models.Config{Batch: 2, Image: 64, Classes: 5}, []string{"rotor"}},
		{"unet-1-4", models.Config{Batch: 2, Image: 64, Classes: 5}, []string{"rotor", "offload-greedy"}},
	} {
		if (x.name == "densenet121" || testing.Short() && x.name != "resnet20") && cuda.Symbol("plimsollEmulatorCount") != nil {
			continue // minutes on an emulated GPU
		}
		m, err := models.New(x.name, x.config)
		must(t, err)
		w, err := Compile(m, gpus(t, 1)[0].Library, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
		must(t, err)
		costs, all := Unmeasured(w, w.StoreAll())
		want := twoSteps(t, gpus(t, 1), w, costs, all, Options{})
		slow := workloadOf(t, m, w.Optimizer)
		costs, all = Unmeasured(slow, slow.StoreAll())
		cpu := twoSteps(t, targets(t, 1, host.Config{}), slow, costs, all, Options{})
		for i, loss := range cpu.Losses {
			if !(math.Abs(want.Losses[i]-loss) <= 1e-4*math.Abs(loss)) {
				t.Errorf("%s, step %d: loss %v, on the CPU %v", x.name, i, want.Losses[i], loss)
			}
		}
		for _, name := range x.plans {
			now := w
			if strings.Contains(name, "staged") {
				now = w.Stage(testPalette())
			}
			costs, plan := plannedBy(t, now, name)
			got := twoSteps(t, gpus(t, 1), now, costs, plan, Options{Audit: strings.Contains(name, "audited"), NoGraph: strings.Contains(name, "without graphs")})
			if d := want.FirstDifference(got); d != "" {
				t.Errorf("%s, %s: %s", x.name, name, d)
			}
			if plans++; slices.ContainsFunc(plan.Sequence(), func(op schedule.Op) bool { return op.Kind.Transfer() }) {
				moved++
			}
		}
	}
	t.Logf("%d plans ran, %d with transfers", plans, moved)
	if plans < 8 || moved < 5 {
		t.Errorf("only %d plans ran, %d with transfers", plans, moved)
	}
}

// small is a rate so small that what rounding changes in the weights stays below what is compared.
func small(int) float32 { return 1e-3 }

// twoSteps trains two steps on batches of a palette, and expects the planned peak of an audit.
func twoSteps(t *testing.T, on []executor.Target, w *Workload, c Costs, plan *pipeline.Plan, opt Options) *pipelinetest.Outcome {
	t.Helper()
	out := &pipelinetest.Outcome{}
	opt.Feed, opt.Seed, opt.Rate = pixels{feedOf(w.Model)}, 7, small
	opt.Done = func(r Result) { out.Losses, out.Correct = append(out.Losses, r.Loss), append(out.Correct, r.Correct) }
	e, err := New(w, on, c, plan, opt)
	must(t, err)
	for range 2 {
		must(t, e.Run(t.Context(), 1))
	}
	for _, a := range e.Audited() {
		if predicted := w.StaticBytes() + plan.Peak(); a.PeakBytes != predicted {
			t.Errorf("audited peak %d, predicted %d", a.PeakBytes, predicted)
		}
	}
	out.Tensors = tensors(t, e)
	return out
}
