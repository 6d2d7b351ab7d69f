package periodic

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// small is vectors/pipeline_small.json: optima over all contiguous partitions, and over all schedules of tiny chains.
type small struct {
	Chains []*chain.Chain `json:"chains"`
	Cases  []struct {
		Chain     string   `json:"chain"`
		Devices   int      `json:"devices"`
		Bandwidth *float64 `json:"bandwidth_bytes_per_s"`
		Least     int64    `json:"least_memory_bytes"`
		Limits    []struct {
			Memory  *int64   `json:"memory_bytes"`
			Period  *float64 `json:"period_s"`
			Optimal []struct {
				Stages [][2]int `json:"stages"`
				NCA    []int    `json:"nca"`
				Peaks  []int64  `json:"per_device_peak_bytes"`
			} `json:"optimal"`
		} `json:"limits"`
	} `json:"cases"`
	General struct {
		Cases []struct {
			Chain   *chain.Chain   `json:"chain"`
			Devices int            `json:"devices"`
			Memory  *int64         `json:"memory_bytes"`
			Period  *float64       `json:"period_s"`
			Plan    *pipeline.Plan `json:"plan"`
		} `json:"cases"`
	} `json:"general"`
}

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

func stages(ranges [][2]int) []pipeline.Stage {
	var all []pipeline.Stage
	for d, r := range ranges {
		all = append(all, pipeline.Stage{First: r[0], Last: r[1], Devices: []int{d}})
	}
	return all
}

func near(x, y float64) bool { return math.Abs(x-y) <= 1e-9*max(1, math.Abs(x), math.Abs(y)) }

// Algorithm 7 on every optimal partition of the vectors, and the list scheduler on every fourth: the period and the peaks that brute force
// found, accepted by both checkers.
func TestOptimalPartitions(t *testing.T) {
	t.Parallel()
	var v small
	read(t, &v, "pipeline_small.json")
	chains := map[string]*chain.Chain{}
	for _, c := range v.Chains {
		chains[c.Name] = c
	}
	var cases []pipelinetest.Case
	done := 0
	for _, c := range v.Cases {
		for _, limit := range c.Limits {
			for _, want := range limit.Optimal {
				r := pipeline.Request{Chain: chains[c.Chain], Platform: platform(c.Devices, c.Bandwidth, limit.Memory)}
				r.Stages = stages(want.Stages)
				for _, name := range []string{"1f1b*", "list"} {
					if name == "list" && done%4 != 0 || testing.Short() && done%32 != 0 {
						continue
					}
					plan, err := solve(name, r)
					if err != nil {
						t.Fatalf("%s: %s on %d devices: %v", name, c.Chain, c.Devices, err)
					}
					if !near(plan.Period, *limit.Period) {
						t.Errorf("%s: %s on %d devices with %v: period %v, want %v", name, c.Chain, c.Devices, limit.Memory, plan.Period, *limit.Period)
					}
					for d, peak := range want.Peaks {
						if name == "1f1b*" && plan.PerDevicePeak[d] != peak {
							t.Errorf("%s: device %d needs %d, want %d", c.Chain, d, plan.PerDevicePeak[d], peak)
						}
					}
					cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
				}
				done++
			}
		}
	}
	if done < 2100 {
		t.Fatalf("only %d optimal partitions", done)
	}
	pipelinetest.Accept(t, cases)
	t.Logf("%d partitions", done)
}

// With HiGHS, the integer programs find nothing better than Algorithm 7 on contiguous stages. On other stages they find nothing better than
// the optimum over all schedules. They are never worse than the list scheduler.
func TestMILP(t *testing.T) {
	t.Parallel()
	var v small
	read(t, &v, "pipeline_small.json")
	if !milp.Built {
		r := pipeline.Request{Chain: v.Chains[0], Platform: platform(2, nil, nil)}
		if _, err := solve("milp", r); !errors.Is(err, milp.ErrNoSolver) {
			t.Fatalf("without a solver: %v", err)
		}
		t.Skip(milp.ErrNoSolver)
	}
	var cases []pipelinetest.Case
	chains := map[string]*chain.Chain{}
	for _, c := range v.Chains {
		chains[c.Name] = c
	}
	for i := 0; i < len(v.Cases); i += 5 {
		c := v.Cases[i]
		for _, limit := range c.Limits {
			if len(limit.Optimal) == 0 {
				continue
			}
			r := pipeline.Request{Chain: chains[c.Chain], Platform: platform(c.Devices, c.Bandwidth, limit.Memory)}
			r.Stages = stages(limit.Optimal[0].Stages)
			cases = proved(t, cases, r, *limit.Period)
		}
	}
	if len(cases) < 300 {
		t.Fatalf("%d contiguous cases", len(cases))
	}
	before := len(cases)
	for _, c := range v.General.Cases {
		if c.Period == nil || neighbours(c.Plan.Stages) {
			continue
		}
		r := pipeline.Request{Chain: c.Chain, Platform: platform(c.Devices, nil, c.Memory)}
		r.Stages = c.Plan.Stages
		cases = proved(t, cases, r, *c.Period)
	}
	pipelinetest.Accept(t, cases)
	t.Logf("%d contiguous cases, %d others", before, len(cases)-before)
}

// proved solves a request whose best period is known to be want, or a little less where only whole periods were tried.
func proved(t *testing.T, cases []pipelinetest.Case, r pipeline.Request, want float64) []pipelinetest.Case {
	t.Helper()
	r.TimeLimit = 20 * time.Second
	plan, err := solve("milp", r)
	if err != nil || plan.Period > want*(1+2e-5) || plan.Period < want*(1-2e-5) {
		t.Errorf("%s: %v, %v; want %v", r.Chain.Name, plan, err, want)
		return cases
	}
	return append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
}

func neighbours(stages []pipeline.Stage) bool {
	for s := 1; s < len(stages); s++ {
		if stages[s].Devices[0] == stages[s-1].Devices[0] {
			return true
		}
	}
	return false
}

func solve(name string, r pipeline.Request) (*pipeline.Plan, error) {
	for _, s := range Strategies() {
		if s.Name == name {
			return s.Solve(context.Background(), r)
		}
	}
	panic("BUG: no strategy " + name)
}

// examples is vectors/pipeline_examples.json: the instances of thesis chapter 5.
type examples struct {
	Examples []struct {
		Name     string             `json:"name"`
		Chain    *chain.Chain       `json:"chain"`
		Platform *pipeline.Platform `json:"platform"`
		Copies   float64            `json:"weight_copies"`
		Stages   [][2]int           `json:"stages"`
		NCA      []int              `json:"nca_limits"`
		Periodic float64            `json:"best_1_periodic_s"`
		Best     map[int]string     `json:"best_j_periodic_normalized"`
		K        int                `json:"k"`
		General  float64            `json:"best_non_contiguous_s"`
		Devices  []int              `json:"non_contiguous_devices"`
	} `json:"examples"`
}

// Theorem 16: k-periodic schedules are sometimes needed; leaving out minibatches reaches the bound 2(1+1/j) for each j.
func TestTheorem16(t *testing.T) {
	t.Parallel()
	var v examples
	read(t, &v, "pipeline_examples.json")
	done := 0
	for _, e := range v.Examples {
		if e.K == 0 || e.Stages == nil {
			continue
		}
		r := pipeline.Request{Chain: e.Chain, Platform: e.Platform}
		r.Stages, r.WeightCopies = stages(e.Stages), []float64{e.Copies}
		star, err := solve("1f1b*", r)
		if err != nil || star.Period != e.Periodic {
			t.Fatalf("%s: %v, %v; want %v", e.Name, star, err, e.Periodic)
		}
		cases := []pipelinetest.Case{{Chain: r.Chain, Platform: r.Platform, Plan: star}}
		for j := range e.Best {
			r.PerPeriod = j
			plan, err := solve("k-periodic", r)
			if err != nil {
				t.Fatal(err)
			}
			if want := 2 * (1 + 1/float64(j)); !near(plan.SecondsPerMinibatch(), want) || plan.Repeats() != j {
				t.Errorf("%s: %d-periodic: %v a minibatch (%d a period), want %v", e.Name, j, plan.SecondsPerMinibatch(), plan.Repeats(), want)
			}
			cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
			done++
		}
		r.PerPeriod = 0
		best, err := solve("k-periodic", r)
		if err != nil || !near(best.SecondsPerMinibatch(), 2*(1+1/float64(e.K))) {
			t.Errorf("%s: the best k gives %v, %v", e.Name, best, err)
		}
		pipelinetest.Accept(t, cases)
	}
	if done != 15 {
		t.Fatalf("%d values of the theorem", done)
	}
}

// Section 5.3: the allocations of Theorems 17 and 18 and Lemma 10, which are not contiguous, reach the printed periods.
func TestNonContiguousExamples(t *testing.T) {
	t.Parallel()
	var v examples
	read(t, &v, "pipeline_examples.json")
	var cases []pipelinetest.Case
	for _, e := range v.Examples {
		if e.Devices == nil || testing.Short() && len(e.Devices) > 30 {
			continue
		}
		r := pipeline.Request{Chain: e.Chain, Platform: e.Platform}
		r.WeightCopies = []float64{e.Copies}
		for l, d := range e.Devices {
			r.Stages = append(r.Stages, pipeline.Stage{First: l + 1, Last: l + 1, Devices: []int{d}})
		}
		plan, err := solve("list", r)
		if err != nil || !near(plan.Period, e.General) {
			t.Errorf("%s: %v, %v; want %v", e.Name, plan, err, e.General)
			continue
		}
		cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
	}
	if len(cases) != 11 && !testing.Short() {
		t.Fatalf("%d examples", len(cases))
	}
	pipelinetest.Accept(t, cases)
}

// The optimal allocations of tiny chains, several layers on a device: the list scheduler is never faster than any schedule
// can be, and mostly as fast.
func TestListOnOptimalAllocations(t *testing.T) {
	t.Parallel()
	var v small
	read(t, &v, "pipeline_small.json")
	var cases []pipelinetest.Case
	reached := 0
	for _, c := range v.General.Cases {
		if c.Period == nil {
			continue
		}
		r := pipeline.Request{Chain: c.Chain, Platform: platform(c.Devices, nil, c.Memory)}
		r.Stages = c.Plan.Stages
		plan, err := solve("list", r)
		if err != nil {
			t.Errorf("%s: %v", c.Chain.Name, err)
			continue
		}
		if plan.Period <= *c.Period-1 {
			t.Errorf("%s: period %v, no schedule has %v", c.Chain.Name, plan.Period, *c.Period-1)
		}
		if plan.Period <= *c.Period*(1+1e-9) {
			reached++
		}
		cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
	}
	if len(cases) < 60 || reached*10 < len(cases)*9 {
		t.Fatalf("optimal in %d of %d cases", reached, len(cases))
	}
	pipelinetest.Accept(t, cases)
	t.Logf("optimal in %d of %d cases", reached, len(cases))
}
