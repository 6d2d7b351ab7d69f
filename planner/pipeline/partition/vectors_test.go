package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/profiles"
)

func read(t testing.TB, into any, name string) {
	t.Helper()
	data, err := os.ReadFile(shared.Path(t, "vectors", name))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func solve(name string, r pipeline.Request) (*pipeline.Plan, error) {
	for _, s := range Strategies() {
		if s.Name == name {
			return s.Solve(context.Background(), r)
		}
	}
	panic("BUG: no strategy " + name)
}

func platform(devices int, bandwidth *float64, memory *int64) *pipeline.Platform {
	p := pipeline.NewPlatform(devices, pipeline.NoLimit, pipeline.Free())
	if memory != nil {
		p = p.WithMemory(*memory)
	}
	if bandwidth != nil {
		p.Bandwidth = *bandwidth
	}
	return p
}

func near(x, y float64) bool { return math.Abs(x-y) <= 1e-9*max(1, math.Abs(x), math.Abs(y)) }

// small is vectors/pipeline_small.json.
type small struct {
	Chains []*chain.Chain `json:"chains"`
	Cases  []struct {
		Chain     string   `json:"chain"`
		Devices   int      `json:"devices"`
		Bandwidth *float64 `json:"bandwidth_bytes_per_s"`
		Least     int64    `json:"least_memory_bytes"`
		Limits    []struct {
			Memory *int64   `json:"memory_bytes"`
			Period *float64 `json:"period_s"`
		} `json:"limits"`
	} `json:"cases"`
	General struct {
		Cases []struct {
			Chain      *chain.Chain `json:"chain"`
			Devices    int          `json:"devices"`
			Memory     *int64       `json:"memory_bytes"`
			Period     *float64     `json:"period_s"`
			Contiguous *float64     `json:"contiguous_s"`
		} `json:"cases"`
	} `json:"general"`
}

// contiguous reaches the optimum over all partitions, on all platforms and at all limits, and names the smallest memory;
// madpipe is never worse.
func TestContiguousOptima(t *testing.T) {
	t.Parallel()
	var v small
	read(t, &v, "pipeline_small.json")
	chains := map[string]*chain.Chain{}
	for _, c := range v.Chains {
		chains[c.Name] = c
	}
	var cases []pipelinetest.Case
	limits, refused, better := 0, 0, 0
	for i, c := range v.Cases {
		if testing.Short() && i%5 != 0 {
			continue
		}
		for _, limit := range c.Limits {
			r := pipeline.Request{Chain: chains[c.Chain], Platform: platform(c.Devices, c.Bandwidth, limit.Memory)}
			plan, err := solve("contiguous", r)
			limits++
			if limit.Period == nil {
				var e *pipeline.InfeasibleError
				if !errors.As(err, &e) || e.Smallest != c.Least {
					t.Errorf("%s on %d devices with %d bytes: %v, want the smallest memory %d", c.Chain, c.Devices, *limit.Memory, err, c.Least)
				}
				refused++
				continue
			}
			if err != nil || !near(plan.Period, *limit.Period) {
				t.Errorf("%s on %d devices with %v: %v, %v; want %v", c.Chain, c.Devices, limit.Memory, plan, err, *limit.Period)
				continue
			}
			cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
			if i%5 != 0 || testing.Short() && i%20 != 0 {
				continue
			}
			mad, err := solve("madpipe", r)
			if err != nil || mad.Period > plan.Period {
				t.Errorf("%s on %d devices with %v: madpipe %v, %v; contiguous %v", c.Chain, c.Devices, limit.Memory, mad, err, plan.Period)
				continue
			}
			if mad.Period < plan.Period*(1-1e-9) {
				better++
			}
			cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: mad})
		}
	}
	if !testing.Short() && (limits != 2177 || refused != 300) {
		t.Fatalf("%d limits, %d refused", limits, refused)
	}
	pipelinetest.Accept(t, cases)
	t.Logf("%d limits; madpipe faster in %d", limits, better)
}

// madpipe on tiny chains whose optimum over all allocations and schedules is known.
func TestMadPipeOnGeneralOptima(t *testing.T) {
	t.Parallel()
	var v small
	read(t, &v, "pipeline_small.json")
	var cases []pipelinetest.Case
	optimal, beyond := 0, 0
	for _, c := range v.General.Cases {
		r := pipeline.Request{Chain: c.Chain, Platform: platform(c.Devices, nil, c.Memory)}
		plan, err := solve("madpipe", r)
		if c.Period == nil || c.Contiguous == nil && errors.Is(err, pipeline.ErrInfeasible) {
			if !errors.Is(err, pipeline.ErrInfeasible) {
				t.Errorf("%s: %v, %v; nothing fits", c.Chain.Name, plan, err)
			}
			continue
		}
		switch {
		case err != nil, plan.Period <= *c.Period-1, c.Contiguous != nil && plan.Period > *c.Contiguous*(1+1e-9):
			t.Errorf("%s: %v, %v; optimum %v, contiguous %v", c.Chain.Name, plan, err, *c.Period, c.Contiguous)
			continue
		case plan.Period <= *c.Period*(1+1e-9):
			optimal++
		}
		if c.Contiguous == nil || *c.Period < *c.Contiguous {
			beyond++
		}
		cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
	}
	if len(cases) < 60 || optimal*10 < len(cases)*9 || beyond == 0 {
		t.Fatalf("optimal in %d of %d, %d of them beyond contiguous", optimal, len(cases), beyond)
	}
	pipelinetest.Accept(t, cases)
	t.Logf("optimal in %d of %d, contiguous is not in %d", optimal, len(cases), beyond)
}

// Section 5.3 of the thesis: what contiguous allocations lose.
func TestSection53(t *testing.T) {
	t.Parallel()
	var v struct {
		Examples []struct {
			Name       string             `json:"name"`
			Chain      *chain.Chain       `json:"chain"`
			Platform   *pipeline.Platform `json:"platform"`
			Copies     float64            `json:"weight_copies"`
			Contiguous *float64           `json:"best_contiguous_s"`
			AnyStages  *float64           `json:"best_contiguous_any_stages"`
			Least      int64              `json:"least_memory_contiguous_bytes"`
			General    float64            `json:"best_non_contiguous_s"`
		} `json:"examples"`
	}
	read(t, &v, "pipeline_examples.json")
	done := 0
	var cases []pipelinetest.Case
	for _, e := range v.Examples {
		r := pipeline.Request{Chain: e.Chain, Platform: e.Platform}
		r.WeightCopies = []float64{e.Copies}
		plan, err := solve("contiguous", r)
		want := e.Contiguous
		if want == nil {
			want = e.AnyStages
		}
		if e.Least > 0 {
			var small *pipeline.InfeasibleError
			if !errors.As(err, &small) || small.Smallest != e.Least {
				t.Errorf("%s: %v, %v; want the smallest memory %d", e.Name, plan, err, e.Least)
			}
		} else if err != nil || !near(plan.Period, *want) {
			t.Errorf("%s: %v, %v; want %v", e.Name, plan, err, *want)
		}
		done++
		if e.Name != "section5.3.1" && e.Name != "lemma10" {
			continue
		}
		if plan, err = solve("madpipe", r); err != nil || !near(plan.Period, e.General) {
			t.Errorf("%s: madpipe %v, %v; want %v", e.Name, plan, err, e.General)
			continue
		}
		cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
	}
	if done != 16 || len(cases) != 2 {
		t.Fatalf("%d examples, %d by madpipe", done, len(cases))
	}
	pipelinetest.Accept(t, cases)
}

// pipedreams is vectors/pipedream_partitions.json: what the authors' program answers.
type pipedreams struct {
	Profiles []struct {
		Profile   string            `json:"profile"`
		States    [][4]float64      `json:"state_table"`
		RawDirect []json.RawMessage `json:"direct_predecessors"`
		Results   []struct {
			Name   string `json:"name"`
			Config struct {
				Machines  []int     `json:"machines"`
				Bandwidth []float64 `json:"bandwidth_bytes_per_s"`
				Ratio     *float64  `json:"activation_compression_ratio"`
				Straight  bool      `json:"straight_pipeline"`
				Memory    *float64  `json:"memory_bytes"`
			} `json:"config"`
			Time float64 `json:"time_per_minibatch_s"`
		} `json:"results"`
	} `json:"profiles"`
	Small []struct {
		Compute   []float64 `json:"compute_s"`
		Weights   []float64 `json:"weight_bytes"`
		Output    []float64 `json:"output_bytes"`
		Machines  []int     `json:"machines"`
		Bandwidth []float64 `json:"bandwidth_bytes_per_s"`
		Program   float64   `json:"program_s"`
	} `json:"small"`
}

// The objective of the authors' own program on their profiles, chains and graphs, in all configurations.
func TestPipeDreamProfiles(t *testing.T) {
	t.Parallel()
	var v pipedreams
	read(t, &v, "pipedream_partitions.json")
	done := 0
	for _, p := range v.Profiles {
		h := &hierarchy{}
		for _, s := range p.States {
			h.compute, h.activations = append(h.compute, s[0]), append(h.activations, s[1])
			h.parameters, h.output = append(h.parameters, s[2]), append(h.output, s[3])
		}
		if len(p.RawDirect) > 0 {
			h.precedes = ancestors(t, len(p.States), p.RawDirect)
		}
		for _, r := range p.Results {
			h.levels, h.straight, h.transfers, h.memory = nil, r.Config.Straight, r.Config.Ratio != nil, math.Inf(1)
			if r.Config.Memory != nil {
				h.memory = *r.Config.Memory
			}
			for x, m := range r.Config.Machines {
				h.levels = append(h.levels, machines{m, r.Config.Bandwidth[x]})
			}
			if testing.Short() && len(p.States) > 100 && (len(h.levels) > 1 || len(p.States) > 300) {
				continue
			}
			if got := h.solve(); !near(got, r.Time) {
				t.Errorf("%s, %s: %v, the authors' program says %v", p.Profile, r.Name, got, r.Time)
			}
			done++
		}
	}
	if done < 40 {
		t.Fatalf("%d results", done)
	}
	t.Logf("%d results of the authors' program", done)
}

// ancestors returns the order of a graph from the direct predecessors of states, which are [state-1] where not given.
func ancestors(t *testing.T, n int, direct []json.RawMessage) func(k, j int) bool {
	before := make([][]int, n)
	for s := 1; s < n; s++ {
		before[s] = []int{s - 1}
	}
	for _, raw := range direct {
		var pair [2]json.RawMessage
		var state int
		if err := errors.Join(json.Unmarshal(raw, &pair), json.Unmarshal(pair[0], &state)); err != nil {
			t.Fatal(err)
		}
		before[state] = nil
		if err := json.Unmarshal(pair[1], &before[state]); err != nil {
			t.Fatal(err)
		}
	}
	reach := make([]map[int]bool, n)
	for s := range n {
		reach[s] = map[int]bool{}
		for _, b := range before[s] {
			reach[s][b] = true
			for x := range reach[b] {
				reach[s][x] = true
			}
		}
	}
	return func(k, j int) bool { return reach[j][k] }
}

// pipedream on the chain that is made of a graph takes no longer than the authors' program says of the graph, whose states are
// among ours.
func TestPipeDreamChain(t *testing.T) {
	t.Parallel()
	var v pipedreams
	read(t, &v, "pipedream_partitions.json")
	done := 0
	for _, p := range v.Profiles {
		file := filepath.Join("..", "..", "profiles", "testdata", "pipedream", p.Profile+".graph.txt")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		g, err := profiles.ParseGraph(file, data)
		if err != nil {
			t.Fatal(err)
		}
		ours := map[string]bool{}
		for _, s := range g.States(mostStates) {
			ours[fmt.Sprintf("%.6f %d", s.Compute, s.Weights)] = true
		}
		for i, s := range p.States {
			if !ours[fmt.Sprintf("%.6f %.0f", s[0], s[2])] {
				t.Errorf("%s: state %d, %v, is none of ours", p.Profile, i, s)
			}
		}
		for _, r := range p.Results {
			flat := len(r.Config.Machines) == 1
			if r.Config.Straight || r.Config.Ratio == nil || r.Config.Memory != nil || !flat && len(p.States) > 100 {
				continue
			}
			var topology []pipeline.Level
			for x, m := range r.Config.Machines {
				topology = append(topology, pipeline.Level{Devices: m, Bandwidth: r.Config.Bandwidth[x]})
			}
			on := pipelinetest.WithLevels(pipeline.NoLimit, topology...)
			c, err := PipeDreamChain(g, on)
			if err != nil {
				t.Fatalf("%s, %s: %v", p.Profile, r.Name, err)
			}
			if got := newHierarchy(pipeline.NewCosts(c), on, math.Inf(1)).solve(); got > r.Time*(1+1e-9) {
				t.Errorf("%s, %s: %v, the authors' program says %v", p.Profile, r.Name, got, r.Time)
			}
			done++
		}
	}
	if done != 24 {
		t.Errorf("%d results", done)
	}
}

// Small random chains on one and two levels, against exhaustive search of the program's objective.
func TestPipeDreamSmall(t *testing.T) {
	t.Parallel()
	var v pipedreams
	read(t, &v, "pipedream_partitions.json")
	for i, s := range v.Small {
		h := &hierarchy{output: s.Output, transfers: true, memory: math.Inf(1)}
		var c, w float64
		for x := range s.Compute {
			c, w = c+s.Compute[x], w+s.Weights[x]
			h.compute, h.parameters, h.activations = append(h.compute, c), append(h.parameters, w), append(h.activations, 0)
		}
		for x, m := range s.Machines {
			h.levels = append(h.levels, machines{m, s.Bandwidth[x]})
		}
		got := h.solve()
		if !near(got, s.Program) {
			t.Errorf("chain %d: %v, want %v", i, got, s.Program)
		}
		covers(t, h)
	}
	if len(v.Small) != 100 {
		t.Fatalf("%d chains", len(v.Small))
	}
}

// covers checks that the stages of a solved hierarchy use every device once and all layers in order.
func covers(t *testing.T, h *hierarchy) {
	t.Helper()
	all, next := map[int]bool{}, 1
	for _, s := range h.stages() {
		if s.First != next {
			t.Errorf("stage %+v, expected layer %d", s, next)
		}
		next = s.Last + 1
		for _, d := range s.Devices {
			all[d] = true
		}
	}
	devices := 1
	for _, l := range h.levels {
		devices *= l.count
	}
	if len(all) != devices || next != len(h.compute)+1 {
		t.Errorf("%d of %d devices, layers up to %d of %d", len(all), devices, next-1, len(h.compute))
	}
}
