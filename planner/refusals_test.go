package planner

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// limited is a strategy with a random problem, whose memory is left open.
type limited struct {
	memory int64                     // that is asked for first
	solve  func(memory int64) error  // plans in so much
	named  func(error) (int64, bool) // what a refusal names, and whether a smaller limit may work; 0: none works
}

// judge plans, and where that is refused looks whether the limit that is named works, and smaller ones do not unless that is said.
func (l *limited) judge(t *testing.T, rng *rand.Rand, name string) (refused bool) {
	t.Helper()
	err := l.solve(l.memory)
	if !doesNotFit(err) {
		return false
	}
	if !strings.HasPrefix(err.Error(), name+": ") {
		t.Errorf("%s: a refusal by another name: %v", name, err)
	}
	smallest, found := l.named(err)
	if smallest == 0 {
		return false
	}
	if failure := l.solve(smallest); failure != nil || smallest <= l.memory {
		t.Errorf("%s: %v; with %d: %v", name, err, smallest, failure)
	}
	for _, less := range []int64{smallest - 1, l.memory + rng.Int64N(smallest-l.memory), l.memory + rng.Int64N(smallest-l.memory)} {
		if !found && l.solve(less) == nil {
			t.Errorf("%s: %v; but it has a plan with %d", name, err, less)
		}
	}
	return true
}

func doesNotFit(err error) bool {
	return errors.As(err, new(*pipeline.InfeasibleError))
}

// judgeMany judges so many random problems.
func judgeMany(t *testing.T, name string, problems, least int, next func(rng *rand.Rand) *limited) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		rng, refused := rand.New(rand.NewPCG(28, 7)), 0
		for range problems {
			if next(rng).judge(t, rng, name) {
				refused++
			}
		}
		if refused < least {
			t.Errorf("only %d of %d are refused", refused, problems)
		}
	})
}

// TestRefusalsName: the limit that a refusal names works, and no smaller one does where it says so, of every strategy.
func TestRefusalsName(t *testing.T) {
	t.Parallel()
	searches := []string{"ilp", "milp", "checkmate"} // take seconds, or a build with a solver
	for _, s := range Sequences() {
		if !slices.Contains(searches, s.Name) {
			judgeMany(t, s.Name, 60, 6, func(rng *rand.Rand) *limited { return single(t, rng, s) })
		}
	}
	for _, s := range Pipelines() {
		if !slices.Contains(searches, s.Name) {
			judgeMany(t, s.Name, 60, 10, func(rng *rand.Rand) *limited { return several(t, rng, s) })
		}
	}
}

func single(t *testing.T, rng *rand.Rand, s pipeline.Strategy) *limited {
	c, unit := plantest.Chain(rng, 2+rng.IntN(8)), 1+rng.Int64N(1000)
	c.InputBytes *= unit
	for i := range c.Layers {
		l := &c.Layers[i]
		l.OutputBytes, l.SavedBytes, l.GradientBytes = l.OutputBytes*unit, l.SavedBytes*unit+rng.Int64N(unit), l.GradientBytes*unit
		l.ForwardOverheadBytes, l.BackwardOverheadBytes = l.ForwardOverheadBytes*unit, l.BackwardOverheadBytes*unit
	}
	p := strategy.Problem{Chain: c, Link: schedule.Link{Bandwidth: 1 + 20*rng.Float64(), Duplex: rng.IntN(2) == 0}}
	if !NeedsLink(s.Name) && rng.IntN(2) == 0 {
		p.Link = schedule.Link{}
	}
	return &limited{
		memory: rng.Int64N(80 * unit),
		solve: func(memory int64) error {
			p.Memory = memory
			_, err := s.Solve(t.Context(), p.Request())
			return err
		},
		named: func(err error) (int64, bool) {
			small, _ := errors.AsType[*pipeline.InfeasibleError](err)
			return small.Smallest, small.Found
		},
	}
}

func several(t *testing.T, rng *rand.Rand, s pipeline.Strategy) *limited {
	c := pipelinetest.Chain(rng, 1+rng.IntN(9), rng.IntN(2) == 0)
	most := savesMore(rng, c)
	r := pipeline.Request{Chain: c}
	r.Accounting = []pipeline.Accounting{"", pipeline.Saved}[rng.IntN(2)]
	if s.Type == pipeline.Flushing {
		r.Microbatches, r.Zero = []int{0, 0, 1, 4}[rng.IntN(4)], pipeline.Zero(rng.IntN(2))
	} else {
		r.Versions = []pipeline.Versions{"", pipeline.Stash, pipeline.Latest}[rng.IntN(3)]
	}
	platform := pipelinetest.Platform(rng, 1+rng.IntN(4))
	return &limited{
		memory: rng.Int64N(most),
		solve: func(memory int64) error {
			r.Platform = platform.WithMemory(memory)
			_, err := s.Solve(t.Context(), r)
			return err
		},
		named: func(err error) (int64, bool) {
			small, _ := errors.AsType[*pipeline.InfeasibleError](err)
			return small.Smallest, small.Found
		},
	}
}

// savesMore makes saved sets so large that it is worth while to recompute, and returns about what the chain needs.
func savesMore(rng *rand.Rand, c *chain.Chain) (most int64) {
	for i := range c.Layers {
		l := &c.Layers[i]
		l.SavedBytes += rng.Int64N(40)
		if rng.IntN(3) == 0 {
			seconds, bytes := l.ForwardS/2, rng.Int64N(5)
			l.DiscardForwardS, l.DiscardOverheadBytes = &seconds, &bytes
		}
		most += c.Activation(i) + c.Saved(i+1) + c.Gradient(i+1) + l.WeightBytes
	}
	return most + 1
}

// TestRefusalsOfSearches: strategies of which a smaller limit is known to work in other problems name the smallest that was found, and it
// works. Parts of weights that four replicas divide are rounded up to whole bytes.
func TestRefusalsOfSearches(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "one", InputBytes: 3, Layers: []chain.Layer{{
		Name: "loss", ForwardS: 1, BackwardS: 2, OutputBytes: 6, SavedBytes: 36, GradientBytes: 2, WeightBytes: 5,
	}}}
	for _, name := range []string{"pipedream", "loadline", "joint", "joint-flush"} {
		s, err := LookupPipeline(name)
		if err != nil {
			t.Fatal(err)
		}
		r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(4, 1, 2)}
		r.Accounting = pipeline.Saved
		if s.Type == pipeline.Flushing {
			r.Zero = pipeline.ZeroShards
		}
		_, err = s.Solve(t.Context(), r)
		small, ok := errors.AsType[*pipeline.InfeasibleError](err)
		if !ok || !small.Found || !strings.Contains(err.Error(), "the smallest memory of each device that was found is") {
			t.Fatalf("%s: %v", name, err)
		}
		r.Platform = r.Platform.WithMemory(small.Smallest)
		if _, err := s.Solve(t.Context(), r); err != nil {
			t.Errorf("%s with %d bytes: %v", name, small.Smallest, err)
		}
	}
}

// TestRefusalsOfOptions: what a strategy does not take is refused by its own name, not by that of another one that it asks.
func TestRefusalsOfOptions(t *testing.T) {
	t.Parallel()
	c := pipelinetest.Chain(rand.New(rand.NewPCG(28, 9)), 6, false)
	refused := 0
	for _, s := range Pipelines() {
		for _, o := range []pipeline.Options{{Microbatches: -1}, {Versions: pipeline.Stash}, {Stages: []pipeline.Stage{{First: 2, Last: 6}}}, {WeightCopies: []float64{1, 2}}} {
			_, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(3, 1<<20, 1), Options: o})
			if err == nil {
				continue
			}
			refused++
			for _, other := range Pipelines() {
				if other.Name != s.Name && strings.HasPrefix(err.Error(), other.Name+": ") {
					t.Errorf("%s: %v", s.Name, err)
				}
			}
		}
	}
	if refused < 20 {
		t.Errorf("%d refusals", refused)
	}
}
