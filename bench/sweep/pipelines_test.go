package sweep

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/profiles"
)

// fixed is a strategy whose plan is one stage on one device, or the error.
func fixed(name string, err error) pipeline.Strategy {
	return pipeline.Strategy{Name: name, Solve: func(_ context.Context, r pipeline.Request) (*pipeline.Plan, error) {
		if err != nil {
			return nil, err
		}
		c := pipeline.NewCosts(r.Chain)
		f := c.Forward(1, r.Chain.Len())
		return &pipeline.Plan{
			Chain: r.Chain.Name, Platform: r.Platform, Versions: pipeline.Latest, Period: c.U(1, r.Chain.Len()),
			Stages: []pipeline.Stage{{First: 1, Last: r.Chain.Len(), Devices: []int{0}}},
			Tasks:  []pipeline.Task{{Kind: pipeline.F}, {Kind: pipeline.B, Start: f}},
		}, nil
	}}
}

func grid(strategies ...pipeline.Strategy) *Pipelines {
	c := &chain.Chain{Name: "two", InputBytes: 8, Layers: []chain.Layer{
		{Name: "a", ForwardS: 1, BackwardS: 2, OutputBytes: 8, SavedBytes: 8, GradientBytes: 8}, {Name: "loss", ForwardS: 1, BackwardS: 1},
	}}
	return &Pipelines{Chains: []*profiles.Source{{Chain: c}}, Devices: []int{2}, Memories: []int64{1 << 20}, Bandwidths: []float64{1e9}, Strategies: strategies}
}

// TestRun: a plan is checked and measured, a refusal is a point with its reason, and a plan that breaks a rule ends the sweep.
func TestRun(t *testing.T) {
	t.Parallel()
	small := &pipeline.InfeasibleError{Strategy: "small", Reason: "layer 1 is too large", Smallest: 77}
	points, err := grid(fixed("one", nil), fixed("small", small), fixed("late", &pipeline.UnfinishedError{Strategy: "late"}), fixed("odd", errors.New("odd"))).Run(t.Context())
	if err != nil || len(points) != 4 {
		t.Fatalf("%d points, %v", len(points), err)
	}
	if p := points[0]; !p.Fits || p.PerMinibatchS != 5 || p.Speedup != 1 || p.Bubble != 0 || p.PeakBytes <= 0 {
		t.Errorf("%+v", p)
	}
	if p := points[1]; p.Fits || !p.small || points[3].small || p.Smallest != 77 || p.Reason != "layer 1 is too large" {
		t.Errorf("%+v", p)
	}
	if points[2].Fits || points[2].Reason == "" || points[3].Reason != "odd" {
		t.Errorf("%+v", points[2:])
	}
	bad := fixed("bad", nil)
	bad.Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
		p, err := fixed("one", nil).Solve(ctx, r)
		p.Period /= 2
		return p, err
	}
	if points, err := grid(fixed("one", nil), bad).Run(t.Context()); err == nil || len(points) != 1 {
		t.Errorf("%d points, %v: want one and an error", len(points), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := grid(fixed("odd", context.Canceled)).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after a cancel", err)
	}
}

// TestOffloading: only the strategy of that name is told of the link to the host.
func TestOffloading(t *testing.T) {
	t.Parallel()
	told := map[string]float64{}
	listening := func(name string) pipeline.Strategy {
		s := fixed(name, nil)
		solve := s.Solve
		s.Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			told[name] = r.Platform.Host
			return solve(ctx, r)
		}
		return s
	}
	with := Offloading(listening("b"))
	g := grid(listening("a"), with)
	g.Host = 7
	points, err := g.Run(t.Context())
	if err != nil || len(points) != 2 || points[1].Strategy != "b+host" || told["a"] != 0 || told["b"] != 7 {
		t.Errorf("%+v, %v, told %v", points, err, told)
	}
}

// TestNodes: more devices than a node has are whole nodes, fewer a part of one, and tables say so.
func TestNodes(t *testing.T) {
	t.Parallel()
	within := map[int][]pipeline.Level{}
	s := fixed("one", nil)
	solve := s.Solve
	s.Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
		within[r.Platform.Devices] = r.Platform.Levels
		return solve(ctx, r)
	}
	g := grid(s)
	g.Devices, g.Node, g.Within = []int{1, 2, 8}, 2, 4e9
	points, err := g.Run(t.Context())
	if err != nil || len(points) != 3 || points[2].Node != 2 || points[2].Within != 4e9 {
		t.Fatalf("%+v, %v", points, err)
	}
	inside := pipeline.Level{Devices: 2, Bandwidth: 4e9}
	for n, want := range map[int][]pipeline.Level{1: nil, 2: {inside}, 8: {inside, {Devices: 4, Bandwidth: 1e9}}} {
		if got := within[n]; !slices.Equal(got, want) {
			t.Errorf("%d devices: %v, want %v", n, got, want)
		}
	}
	text := PipelineTables(points, nil)
	for _, want := range []string{"2 devices, 4.00 GB/s between them, a node:", "8 devices, 4.00 GB/s within nodes of 2 and 1.00 GB/s between nodes:"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// TestCompare: by hand.
func TestCompare(t *testing.T) {
	t.Parallel()
	at := func(memory int64, strategy string, seconds float64) PipelinePoint {
		return PipelinePoint{Chain: "c", Devices: 2, MemoryBytes: memory, Strategy: strategy, Fits: seconds > 0, PerMinibatchS: seconds}
	}
	points := []PipelinePoint{at(1, "a", 0), at(1, "b", 0), at(2, "a", 3), at(2, "b", 0), at(3, "a", 2), at(3, "b", 4), at(4, "a", 2), at(4, "b", 1), at(5, "a", 1)}
	d := Compare(points, "a", "b")
	if want := (Duel{A: "a", B: "b", Points: 4, Both: 2, OnlyA: 1, Faster: 1, Slower: 1, Ratio: d.Ratio, Best: 2}); d != want || math.Abs(d.Ratio-1) > 1e-12 {
		t.Errorf("%+v, want %+v and a ratio of 1", d, want)
	}
	points[3].small = true
	points = append(points, at(4, "c", 0)) // which has another reason
	if table := PipelineTables(points[2:4], nil); !strings.Contains(table, "| memory | a | b |\n|---|---|---|\n| 2 B | 0.00 | no fit |\n") {
		t.Error(table)
	}
	if table := PipelineTables(points[9:], []Duel{d}); !strings.Contains(table, "| 4 B | no plan |\n\n- a beside b: both fit at 2 of 4 points") {
		t.Error(table)
	}
}
