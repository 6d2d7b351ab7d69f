package pipeline

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// joins are models whose branches meet: twins, which share their weights, and three unequal branches, of which two layers read one end.
func joins(t testing.TB) map[string]*models.Model {
	t.Helper()
	twins, err := models.New("siamese", models.Config{Batch: 4, Image: 8, Classes: 2})
	must(t, err)
	b := models.NewBuilder("cross", kernels.F32(4, 8, 8, 3), 5)
	for k, length := range []int{2, 5, 3} {
		if k > 0 {
			b.Branch()
		}
		for i := range length {
			name := string(rune('a'+k)) + string(rune('1'+i))
			b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
				y := g.BNReLU("bn1", g.Conv("conv1", x, 8, 3, 1))
				if i == 1 {
					y = g.Dropout("drop", y, 0.3)
				}
				if g.Channels(x) != 8 {
					return y
				}
				return g.BNAddReLU("bn2", g.Conv("conv2", y, 8, 3, 1), x)
			})
		}
	}
	b.Join("join", "join", func(g *models.Graph, ends []models.Value) models.Value {
		x := g.ReLU("relu", g.Conv("conv", g.Concat("concat", ends...), 8, 1, 1))
		return g.Concat("again", x, ends[1])
	})
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
	})
	cross, err := b.Model()
	must(t, err)
	return map[string]*models.Model{"siamese": twins, "cross": cross}
}

// joinPlans returns store-all, plans of every strategy for joins, and random ones, each with the limit of its arena.
func joinPlans(t testing.TB, w *Workload, c *chain.Chain) (plans []*pipeline.Plan) {
	t.Helper()
	given := func(name string, seq schedule.Sequence) {
		p, err := pipeline.PlanSequence(c, name, seq, schedule.Limits{Memory: schedule.NoLimit})
		must(t, err)
		p.Platform.Memory[0], err = w.Extent(seq)
		must(t, err)
		plans = append(plans, p)
	}
	given("store-all", w.StoreAll())
	full := plans[0].Platform.Memory[0] - w.StaticBytes()
	percents := []int64{40, 70, 100, 55, 85}
	if testing.Short() {
		percents = percents[:2]
	}
	for _, s := range planner.Joins() {
		for _, percent := range percents {
			limit := w.StaticBytes() + full*percent/100
			p, err := executor.Plan(t.Context(), w, c, s, limit, strategy.Options{})
			if small, ok := errors.AsType[*executor.TooSmallError](err); ok {
				limit = small.Smallest
				p, err = executor.Plan(t.Context(), w, c, s, limit, strategy.Options{})
			}
			must(t, err)
			p.Platform.Memory[0] = limit
			plans = append(plans, p)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		given("random", randomJoin(rng, c))
	}
	return plans
}

// randomJoin runs forwards at random, and each backward at some time when the rules allow it.
func randomJoin(rng *rand.Rand, c *chain.Chain) (seq schedule.Sequence) {
	try := func(kind schedule.Kind, l int) (done bool) {
		longer := append(slices.Clone(seq), schedule.Op{Kind: kind, Layer: l})
		err := schedule.Verify(c, longer)
		if rule, ok := errors.AsType[*schedule.RuleError](err); err == nil || ok && rule.Index == len(longer) {
			seq = longer
		}
		return err == nil
	}
	kinds := []schedule.Kind{schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard}
	for {
		for l := c.Len(); l >= 1; l-- {
			if rng.IntN(3) > 0 && try(schedule.Backward, l) {
				return seq
			}
		}
		l, kind := 1+rng.IntN(c.Len()), kinds[rng.IntN(len(kinds))]
		if kind != schedule.ForwardDiscard || !c.Wiring().Begins(l) {
			try(kind, l)
		}
	}
}

// The table of a sequence of branches that meet holds the bytes that are planned, trains the weights of the sequential reference, and predicts
// what that does.
// Only this test finds a branch that reads another one's images, or leaves its gradient where no backward looks for it.
func TestJoinsTrainAsTheReference(t *testing.T) {
	t.Parallel()
	const steps, batches = 3, 3
	ran, recomputed := 0, 0
	for name, m := range joins(t) {
		w := workload(t, m)
		c := counted(w, 1).Chain
		want := accumulated(t, w, feedOf(m), steps, 1, 0, noStep)
		for k, plan := range joinPlans(t, w, c) {
			limit, on := plan.Limits().Memory, Costs{c, plan.Platform}
			at, err := w.Layout(plan.Sequence(), limit, executor.Sim{})
			must(t, err)
			needs, err := Needs(w, on, plan, Options{Limits: []int64{limit}})
			must(t, err)
			same := func(peak int64) bool { // a random sequence may leave something behind that no op reads
				return peak == at.Peak || peak < at.Peak && plan.Strategy == "random"
			}
			if got := needs[0]; !same(got.Peak) || got.Extent > limit {
				t.Errorf("%s, %s: peak %d, extent %d in %d; planned %+v", name, plan.Strategy, got.Peak, got.Extent, limit, at)
			}
			e, out := trainedWith(t, w, on, plan, steps, host.Config{Chaos: uint64(k + 1)}, Options{Limits: []int64{limit}, Audit: true})
			out.Tensors = tensors(t, e)
			for _, a := range e.Audited() {
				if !same(a.PeakBytes) || a.ExtentBytes > limit {
					t.Errorf("%s, %s: audited peak %d, extent %d in %d; planned %d", name, plan.Strategy, a.PeakBytes, a.ExtentBytes, limit, at.Peak)
				}
			}
			if d := want.FirstDifference(out); d != "" {
				t.Errorf("%s, %s: %s (%v)", name, plan.Strategy, d, plan.Sequence())
			}
			if k%4 == 0 {
				want := predictions(t, e, batches)
				must(t, e.Evaluate(t.Context(), feedOf(m), batches, func(batch int, logits []float32) error {
					if !slices.Equal(logits, want[batch]) {
						t.Errorf("%s, %s: other predictions of batch %d", name, plan.Strategy, batch)
					}
					return nil
				}))
			}
			if ran++; len(plan.Sequence()) > 2*len(w.Layers) {
				recomputed++
			}
		}
	}
	t.Logf("%d plans ran, %d of them recompute", ran, recomputed)
	if ran < 22 || recomputed < 16 {
		t.Errorf("only %d plans ran, %d of them with recomputation", ran, recomputed)
	}
}

// Along the gradient of all weights the loss of a join rises by the gradient's norm.
func TestJoinsDescendAlongTheirGradient(t *testing.T) {
	t.Parallel()
	for name, m := range joins(t) {
		w := workload(t, m)
		at := func(weights []pipelinetest.Tensor) (*Stepper, *Step) {
			e := stepping(t, w, Options{}) // each time the first step: the same dropout
			for i, x := range e.Tensors() {
				if weights != nil {
					must(t, e.Write(x, weights[i].Values))
				}
			}
			step, err := e.Step(0)
			must(t, err)
			return e, step
		}
		e, first := at(nil)
		gradients := map[string][]float32{}
		for _, x := range e.Gradients() {
			gradients[x.Name] = make([]float32, x.Desc.Elements())
			must(t, e.Read(x, gradients[x.Name]))
		}
		const reach = 2e-3
		along := func(distance float64) float64 {
			moved := tensors(t, stepping(t, w, Options{}).Executor)
			for _, x := range moved {
				for i := range x.Values {
					if x.Role == "weight" {
						x.Values[i] += float32(distance / first.Norm * float64(gradients[x.Name][i]))
					}
				}
			}
			_, step := at(moved)
			return step.Loss
		}
		if slope := (along(reach) - along(-reach)) / (2 * reach); !(math.Abs(slope/first.Norm-1) < 0.03) {
			t.Errorf("%s: the loss rises by %v, the gradient's norm is %v", name, slope, first.Norm)
		}
	}
}
