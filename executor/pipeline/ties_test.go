package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

var (
	tiedGPT = sample{"gpt2-3-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50}}
	// noneOfEmbed trains a small parameter in the layer that reads the embedding, which a chain does not count.
	noneOfEmbed = sample{"gpt2-3-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50, Freeze: "transformer.wte,transformer.wpe"}}
	tiedLlama   = sample{"llama-3-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50}}
)

// oneByOne is a plan with a flush in which one microbatch follows the other. The devices of a stage take turns.
func oneByOne(c Costs, microbatches int, stages ...pipeline.Stage) *pipeline.Plan {
	const apart = 100 // seconds, more than any task takes
	plan := &pipeline.Plan{Chain: c.Chain.Name, Strategy: "in turn", Platform: c.Platform, Versions: pipeline.Flush, Microbatches: microbatches, Stages: stages}
	for m := range microbatches {
		device := func(s int) int { return stages[s].Devices[m%len(stages[s].Devices)] }
		add := func(kind pipeline.Kind, s, device int) {
			plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: kind, Stage: s, Device: device, Shift: m, Start: float64(apart * len(plan.Tasks))})
		}
		for s := range stages {
			if add(pipeline.F, s, device(s)); s+1 < len(stages) && device(s) != device(s+1) {
				add(pipeline.CF, s, pipeline.NoDevice)
			}
		}
		for s := range slices.Backward(stages) {
			if add(pipeline.B, s, device(s)); s > 0 && device(s) != device(s-1) {
				add(pipeline.CB, s-1, pipeline.NoDevice)
			}
		}
	}
	return plan
}

// tiedPlans are plans whose stages share the weights of the first and the last layers but one.
func tiedPlans(t *testing.T, w *Workload) (all []tiedPlan) {
	t.Helper()
	n := len(w.Layers)
	for i, x := range flushing {
		if testing.Short() && i%2 == 1 && x.name != "chimera" {
			continue
		}
		c := costs(w, x.devices, 1)
		all = append(all, tiedPlan{fmt.Sprintf("%s/%d", x.name, x.devices), c, planFor(t, x.name, c, pipeline.Options{Microbatches: 4}), x.reversed})
	}
	for _, x := range []struct {
		name    string
		devices [][]int
	}{
		{"owner has replicas", [][]int{{0, 1}, {2}}}, {"reader has replicas", [][]int{{0}, {1}, {2, 3}}}, {"both have", [][]int{{0, 1}, {2, 3, 4}}},
		{"one device has both", [][]int{{0, 1}, {2}, {1, 3}}}, {"one stage", [][]int{{0, 1}}},
	} {
		c, most := costs(w, 5, 1), 0
		var stages []pipeline.Stage
		for s, on := range x.devices {
			stages = append(stages, pipeline.Stage{First: 1 + s*n/len(x.devices), Last: (s + 1) * n / len(x.devices), Devices: on})
			most = max(most, slices.Max(on)+1)
		}
		c.Platform = pipeline.NewPlatform(most, testMemory, 5e6)
		plan := oneByOne(c, 6, stages...)
		all = append(all, tiedPlan{x.name, c, plan, false}, tiedPlan{x.name + ", planned", c, summing(t, c, plan, 2), false})
	}
	return all
}

type tiedPlan struct {
	name     string
	costs    Costs
	plan     *pipeline.Plan
	reversed bool
}

// Stages that share weights train, and clip, with the bits of gradient accumulation on one device, at the planned peak. All copies of the
// weights agree, before the first step and behind each run.
func TestStagesShareWeights(t *testing.T) {
	t.Parallel()
	const steps = 3
	zoo := []sample{tiedGPT, noneOfEmbed, frozenGPT, tiedLlama}
	if testing.Short() {
		zoo = zoo[:2]
	}
	for _, z := range zoo {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w, copied := workload(t, m), 0
		for i, x := range tiedPlans(t, w) {
			t.Run(z.name+"/"+x.name, func(t *testing.T) {
				opt := Options{Audit: true}
				if i%2 == 1 {
					opt.MaxNorm = 0.5
				}
				e, out := guarded(t, targets(t, x.costs.Platform.Devices, host.Config{Chaos: uint64(i)}), w, x.costs, x.plan, steps, opt)
				replicasAgree(t, e)
				for _, x := range e.ties {
					copied += len(x.renewals)
				}
				must(t, e.Run(t.Context(), 2*x.plan.Repeats()))
				must(t, e.Run(t.Context(), x.plan.Repeats()))
				out.Tensors = tensors(t, e)
				if opt.MaxNorm == 0 {
					out.Norms = nil
				}
				replicasAgree(t, e)
				p := pipelinetest.Flush(x.plan.Repeats())
				p.Reversed, p.Replica = x.reversed, replicas(e, x.plan)
				on := targets(t, 1, host.Config{})[0]
				same(t, referenceWith(t, pipelinetest.Config{Model: m, Device: on.Device, Library: on.Library, LR: p.Rate(rate), MaxNorm: opt.MaxNorm}, x.plan, p, steps*x.plan.Repeats()), out.Outcome)
				for _, a := range e.Audited() {
					if a.PeakBytes != e.memory[a.Device].Peak {
						t.Errorf("audited %+v, planned %+v", a, e.memory[a.Device])
					}
				}
			})
		}
		if trains := z.config.Freeze == ""; trains && copied < 8 {
			t.Errorf("%s: new weights go to %d copies", z.name, copied)
		}
	}
}

// Processes share weights as devices of one process do.
func TestProcessesShareWeights(t *testing.T) {
	t.Parallel()
	m, err := models.New(tiedGPT.name, tiedGPT.config)
	must(t, err)
	w := workload(t, m)
	r := rand.New(rand.NewPCG(5, 6))
	for _, name := range []string{"1f1b-flush", "zb-v", "chimera"} {
		c := costs(w, 4, 2)
		plan := planFor(t, name, c, pipeline.Options{Microbatches: 4})
		n := 2 * plan.Repeats()
		want := newWorld(t, w, c, plan, make([]int, 4), cpus(t, host.Config{}), Options{}).trained(n)
		for i, process := range divisions(4, r) {
			t.Run(fmt.Sprint(name, process), func(t *testing.T) {
				same(t, want, newWorld(t, w, c, plan, process, cpus(t, host.Config{Chaos: uint64(i)}), Options{}).trained(n))
			})
		}
	}
}

// A plan without a flush is refused if its stages share weights.
func TestSharedWeightsAreRefused(t *testing.T) {
	t.Parallel()
	m, err := models.New(tiedGPT.name, tiedGPT.config)
	must(t, err)
	w := workload(t, m)
	c := costs(w, 2, 1)
	const reason = "stages 0 and 1 update them at different times, as the plan has no flush: give one with a flush"
	if _, err = Needs(w, c, planFor(t, "1f1b", c, pipeline.Options{}), Options{}); !errors.Is(err, ErrTied) || !strings.Contains(err.Error(), reason) {
		t.Errorf("%v, want %q", err, reason)
	}
}

// Where a step is not finite, nothing is updated, and all copies of shared weights stay what they were.
func TestSkippedStepsKeepCopies(t *testing.T) {
	t.Parallel()
	m, err := models.New(tiedGPT.name, tiedGPT.config)
	must(t, err)
	w := workload(t, m)
	c := costs(w, 3, 1)
	plan := planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 4})
	e, out := guarded(t, spoil(targets(t, 3, host.Config{}), 2), w, c, plan, 4, Options{MaxNorm: 0.5})
	must(t, e.Run(t.Context(), 4*plan.Repeats()))
	if !slices.Equal(out.skipped, []bool{false, true, true, false}) || replicasAgree(t, e) == 0 {
		t.Errorf("skipped %v", out.skipped)
	}
}
