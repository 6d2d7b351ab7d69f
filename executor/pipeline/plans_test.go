package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/internal/table"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// unequal gives a chain without measurements times that make choices of recomputation interesting.
func unequal(c *chain.Chain) *chain.Chain {
	for i := range c.Layers {
		c.Layers[i].ForwardS, c.Layers[i].BackwardS = float64(1+i%3), float64(2+i%2)
	}
	return c
}

// Invariants 2 and 3: every strategy at every limit trains the weights of the sequential reference, at exactly the predicted peak.
func TestPlansOfEveryStrategyTrainAsTheReference(t *testing.T) {
	t.Parallel()
	everyPlan(t, testModel(t))
}

// The same of transformers, whose input is tokens and each of whose tokens has a label.
// Only this test finds a strategy that recomputes dropout of a GPT or grouped heads of a tied Llama to other bits.
func TestPlansOfTransformersTrainAsTheReference(t *testing.T) {
	t.Parallel()
	m, err := models.GPT2("gpt2", models.Language{
		Batch: 2, Length: 20, Vocabulary: 30, Positions: 24, Width: 32, Heads: 4, Blocks: 4, Dropout: 0.1,
	})
	must(t, err)
	everyPlan(t, m)
	m, err = models.Llama("llama", models.Language{
		Batch: 2, Length: 20, Vocabulary: 30, Width: 32, Heads: 4, KVHeads: 2, Hidden: 48, Blocks: 4, Tied: true,
	})
	must(t, err)
	everyPlan(t, m)
}

func everyPlan(t *testing.T, m *models.Model) {
	t.Helper()
	const steps = 3
	w := workload(t, m)
	want := accumulated(t, w, feedOf(m), steps, 1, 0, noStep)
	all, err := w.PeakBytes(w.StoreAll())
	must(t, err)
	ran, recomputed, offloaded := 0, 0, 0
	percents := []int64{100, 90, 80, 70, 60, 50}
	if testing.Short() {
		percents = []int64{90, 60}
	}
	c := unequal(w.Chain())
	c.Bandwidth = float64(c.Saved(2)) / 2 // two forwards' time or so for most activations
	for _, s := range planner.Sequences() {
		for _, percent := range percents {
			limit := w.StaticBytes() + (all-w.StaticBytes())*percent/100
			plan, err := executor.Plan(t.Context(), w, c, s, limit, strategy.Options{})
			if small, ok := errors.AsType[*executor.TooSmallError](err); ok {
				if small.Smallest <= limit {
					t.Errorf("%s at %d: refused, although %d bytes work", s.Name, limit, small.Smallest)
				}
				continue
			}
			must(t, err)
			expectReference(t, fmt.Sprintf("%s at %d %%", s.Name, percent), w, c, plan, limit, want, host.Config{Chaos: uint64(ran)})
			ran++
			switch {
			case plan.Offloads():
				offloaded++
			case len(plan.Sequence()) > 2*len(w.Layers):
				recomputed++
			}
		}
	}
	t.Logf("%d plans ran, %d with recomputation alone, %d with transfers", ran, recomputed, offloaded)
	if least := 3 * len(percents); ran < least || recomputed < 4 || offloaded < 3 {
		t.Errorf("only %d plans ran, %d with recomputation alone, %d with transfers", ran, recomputed, offloaded)
	}
}

// expectReference trains along a plan within a limit, and expects the weights of the reference and the predicted peak.
func expectReference(
	t *testing.T, what string, w *Workload, c *chain.Chain, plan *pipeline.Plan, limit int64, want *pipelinetest.Outcome, config host.Config,
) {
	t.Helper()
	e, out := trainedWith(t, w, Costs{c, plan.Platform}, plan, len(want.Losses), config, Options{Limits: []int64{limit}, Audit: true})
	out.Tensors = tensors(t, e)
	if d := want.FirstDifference(out); d != "" {
		t.Errorf("%s: %s (%v)", what, d, plan.Sequence())
	}
	a := e.Audited()[0]
	// The table does not keep a result that a random sequence computes and no op reads.
	predicted := w.StaticBytes() + plan.Peak()
	if a.PeakBytes != predicted && (plan.Strategy != "random" || a.PeakBytes > predicted) || a.ExtentBytes > limit {
		t.Errorf("%s: measured peak %d, predicted %d; wrote up to byte %d of %d (%v)", what, a.PeakBytes, predicted, a.ExtentBytes, limit, plan.Sequence())
	}
}

// Invariant 3 for sequences that no strategy makes: redundant forwards, checkpoints in odd places.
func TestRandomSequencesTrainAsTheReference(t *testing.T) {
	t.Parallel()
	const cases = 40
	m := testModel(t)
	w := workload(t, m)
	want := accumulated(t, w, feedOf(m), 2, 1, 0, noStep)
	rnd := rand.New(rand.NewPCG(11, 12))
	for k := range cases {
		c := unequal(w.Chain())
		plan, err := pipeline.PlanSequence(c, "random", randomSequence(rnd, len(w.Layers)), schedule.Limits{Memory: schedule.NoLimit})
		must(t, err)
		limit, err := w.Extent(plan.Sequence())
		must(t, err)
		expectReference(t, fmt.Sprintf("case %d", k), w, c, plan, limit, want, host.Config{})
	}
}

// randomSequence makes a valid sequence: before each backward it recomputes what is missing, saving and discarding
// at random.
func randomSequence(r *rand.Rand, n int) schedule.Sequence {
	var seq schedule.Sequence
	plain, saved := make([]bool, n+1), make([]bool, n+1)
	plain[0] = true
	emit := func(k schedule.Kind, l int) { seq = append(seq, schedule.Op{Kind: k, Layer: l}) }
	for l := n; l >= 1; l-- {
		for !saved[l] {
			from := l - 1
			for !plain[from] && !saved[from] {
				from--
			}
			if from > 0 && r.IntN(6) == 0 { // a redundant forward
				for from--; !plain[from] && !saved[from]; {
					from--
				}
			}
			for i := from + 1; i <= l; i++ {
				// a_0 and what an earlier layer needs must survive: discard only from above the lowest start.
				switch k := r.IntN(3); {
				case i == l || k == 0:
					emit(schedule.ForwardAll, i)
					saved[i], plain[i] = true, false
				case k == 1 && plain[i-1] && i-1 > 0:
					emit(schedule.ForwardDiscard, i)
					plain[i-1] = false
					plain[i] = plain[i] || !saved[i]
				default:
					emit(schedule.ForwardCheckpoint, i)
					plain[i] = plain[i] || !saved[i]
				}
			}
		}
		if !plain[l-1] && !saved[l-1] {
			// The input was dropped: make it again, then go on.
			from := l - 2
			for !plain[from] && !saved[from] {
				from--
			}
			for i := from + 1; i < l; i++ {
				emit(schedule.ForwardCheckpoint, i)
				plain[i] = plain[i] || !saved[i]
			}
		}
		emit(schedule.Backward, l)
		saved[l], plain[l-1] = false, false
	}
	return seq
}

// sprinkle inserts offloads and prefetches, single ones and pairs, at random places of a sequence, as long as it keeps
// the rules.
func sprinkle(r *rand.Rand, c *chain.Chain, seq schedule.Sequence, tries int) schedule.Sequence {
	for range tries {
		l := 1 + r.IntN(c.Len())
		i := r.IntN(len(seq) + 1)
		j := i + r.IntN(len(seq)+1-i)
		next := append(slices.Clone(seq[:i]), schedule.Op{Kind: schedule.Offload, Layer: l})
		next = append(next, seq[i:j]...)
		if r.IntN(8) > 0 {
			next = append(next, schedule.Op{Kind: schedule.Prefetch, Layer: l})
		}
		next = append(next, seq[j:]...)
		if schedule.Verify(c, next) == nil {
			seq = next
		}
	}
	return seq
}

// randomTransfers plans a random sequence with transfers, in the least memory at which it runs, or more.
func randomTransfers(t testing.TB, r *rand.Rand, w *Workload, c *chain.Chain) *pipeline.Plan {
	t.Helper()
	for {
		base := w.StoreAll()
		if r.IntN(2) == 0 {
			base = randomSequence(r, c.Len())
		}
		seq := sprinkle(r, c, base, 60)
		if !slices.ContainsFunc(seq, func(op schedule.Op) bool { return op.Kind.Transfer() }) {
			continue
		}
		// A link that moves the largest activation in 1/4 to 8 times a forward.
		link := schedule.Link{Bandwidth: float64(c.Saved(2)) * []float64{0.125, 0.5, 2, 1e6}[r.IntN(4)], Duplex: r.IntN(2) == 0}
		limits := schedule.Limits{Memory: schedule.NoLimit, Link: link}
		res, err := schedule.Simulate(c, seq, limits)
		must(t, err)
		if r.IntN(4) > 0 {
			limits.Memory = res.Peak
			for {
				tight := limits
				tight.Memory -= max(1, res.Peak/50)
				if _, err := schedule.Simulate(c, seq, tight); err != nil {
					break
				}
				limits = tight
			}
		}
		plan, err := pipeline.PlanSequence(c, "random", seq, limits)
		must(t, err)
		return plan
	}
}

// Invariants 2 to 4 with transfers: the weights of the sequential reference, at the peak of the simulation, in an arena that ends with the
// layout, whatever the streams do.
func TestRandomTransfersTrainAsTheReference(t *testing.T) {
	t.Parallel()
	cases := 100
	if testing.Short() {
		cases = 25
	}
	m := testModel(t)
	w := workload(t, m)
	want := accumulated(t, w, feedOf(m), 2, 1, 0, noStep)
	rnd := rand.New(rand.NewPCG(21, 22))
	ran, moved, duplex := 0, 0, 0
	for k := range cases {
		c := unequal(w.Chain())
		plan := randomTransfers(t, rnd, w, c)
		at, err := w.Layout(plan.Sequence(), schedule.NoLimit, executor.Following(c, plan))
		if errors.As(err, new(*executor.UnusedPrefetchError)) {
			continue
		}
		must(t, err)
		expectReference(t, fmt.Sprintf("case %d", k), w, c, plan, at.Extent, want, host.Config{Chaos: uint64(k)})
		for _, op := range plan.Sequence() {
			if op.Kind.Transfer() {
				moved++
			}
		}
		if ran++; plan.Platform.Duplex {
			duplex++
		}
	}
	t.Logf("%d cases ran, %d of them duplex, with %d transfers", ran, duplex, moved)
	if ran < cases*9/10 || duplex < cases/4 || moved < 10*ran {
		t.Errorf("only %d of %d cases ran, %d of them duplex, with %d transfers", ran, cases, duplex, moved)
	}
}

// Without a wait of a sequence with transfers its table is not proved, unless the wait is for a rule alone: a transfer follows the compute ops
// before it.
func TestWaitsOfTransfersAreNeeded(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	rnd := rand.New(rand.NewPCG(31, 32))
	found, waits := 0, 0
	for range 8 {
		c := unequal(w.Chain())
		plan := randomTransfers(t, rnd, w, c)
		e, err := New(w, targets(t, 1, host.Config{}), Costs{c, plan.Platform}, plan, Options{Feed: feedOf(w.Model), Rate: rate})
		if errors.As(err, new(*executor.UnusedPrefetchError)) {
			continue
		}
		must(t, err)
		for _, x := range slices.Collect(e.drivers[0].table.Commands()) {
			if x.Verb != table.DoWait {
				continue
			}
			was := *x
			x.Verb, x.Event = table.DoBegin, nil
			if e.prove() != nil {
				found++
			}
			*x = was
			waits++
		}
		must(t, e.prove())
	}
	t.Logf("%d of %d waits were missed", found, waits)
	if found < 80 || found < waits*6/10 {
		t.Errorf("%d of %d waits were missed", found, waits)
	}
}

// Sequences that break a rule, or move what nothing can move, are refused before a device gives memory.
func TestBrokenSequencesAreRefused(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	on := targets(t, 1, host.Config{})[0]
	seq := w.StoreAll()
	n := len(w.Layers)
	moved := slices.Concat(seq[:2], schedule.Sequence{{Kind: schedule.Offload, Layer: 2}}, seq[2:n], schedule.Sequence{{Kind: schedule.Prefetch, Layer: 2}}, seq[n:])
	rule := func(err error) bool { return errors.As(err, new(*schedule.RuleError)) }
	for _, x := range []struct {
		name    string
		seq     schedule.Sequence
		refused func(error) bool
	}{
		{"a missing op", seq[1:], rule}, {"no backward", seq[:n], rule},
		{"a transfer without a link", moved, func(err error) bool { return errors.Is(err, schedule.ErrNoLink) }},
	} {
		if _, err := NewAlone(w, on, x.seq, Options{Feed: feedOf(w.Model)}); !x.refused(err) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	_, err := NewAlone(w, on, seq, Options{Feed: feedOf(w.Model)})
	must(t, err)
}

// Plans that recompute and plans that transfer, on networks as they are used.
// Only this test finds wrong bits of packed outputs, or of layers of many branches, that are recomputed or moved.
func TestPlansOfRealModelsTrainAsTheReference(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("24 million parameters: TestSequencesTrainAsTheReference has small models")
	}
	moved := 0
	for _, x := range []sample{
		{"densenet121", models.Config{Batch: 2, Image: 32, Classes: 5}}, {"unet-1-4", models.Config{Batch: 2, Image: 32, Classes: 5}},
		{"amoebanet-3-8", models.Config{Batch: 2, Image: 32, Classes: 5}}, {"inception_v3", models.Config{Batch: 4, Image: 75, Classes: 5}},
	} {
		m, err := models.New(x.name, x.config)
		must(t, err)
		w := workload(t, m)
		want := accumulated(t, w, feedOf(m), 1, 1, 0, noStep)
		c := unequal(w.Chain())
		c.Bandwidth = float64(c.Saved(2))
		all, err := w.Extent(w.StoreAll())
		must(t, err)
		for _, name := range []string{"rotor", "offload-greedy"} {
			s, err := planner.Lookup(name)
			must(t, err)
			limit := w.StaticBytes() + (all-w.StaticBytes())*85/100
			plan, err := executor.Plan(t.Context(), w, c, s, limit, strategy.Options{})
			must(t, err)
			expectReference(t, x.name+", "+name, w, c, plan, limit, want, host.Config{})
			if plan.Offloads() {
				moved++
			}
		}
	}
	if moved < 3 {
		t.Errorf("%d plans with transfers", moved)
	}
}
