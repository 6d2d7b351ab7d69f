package partition

// pipedream: the stages and replicas of PipeDream's optimizer.
//
// PipeDream, section 3.1, as the authors' program computes it (see hierarchy). The platform's levels are the topology; a
// platform without is one level at its slowest link. All devices are used. Like the program without
// --use_memory_constraint, it ignores the memory first; only when that partition does not fit is the program's estimate of
// the memory, which is crude, switched on. The schedule is 1F1B* with replicas in turn, or 1F1B where NOAM is given.
// The gradients of its replicas are added up as in all plans (pipeline.Synchronize). The optimizer's own figure, which counts that in its
// way, is the plan's "pipedream_s", and PipeDream's NOAM its "noam".
// Time: O(n³ M²) for each level but the last, O(n² M²) for that.

import (
	"context"
	"encoding/json"
	"errors"
	"math"

	"plimsoll/internal/fields"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

func solvePipeDream(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	plan, err := PipeDreamPlan(ctx, r)
	var small *pipeline.InfeasibleError
	if !errors.As(err, &small) {
		return plan, err
	}
	small.Smallest, err = leastMemory(ctx, r, pipeline.NewCosts(r.Chain), r.Platform.Smallest(), small.Smallest)
	small.Found = true // its optimizer does not keep what it finds in less memory
	if err != nil {
		return nil, err
	}
	return nil, small
}

// PipeDreamPlan is the strategy, but for the smallest memory that it names where nothing fits, which takes long to find: that of the
// partition that ignores the memory.
func PipeDreamPlan(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	costs, err := newCosts(ctx, r)
	if err != nil {
		return nil, err
	}
	plan, err := scheduled(ctx, r, newHierarchy(costs, r.Platform, math.Inf(1)))
	if !errors.As(err, new(*pipeline.InfeasibleError)) {
		return plan, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if tight, err := scheduled(ctx, r, newHierarchy(costs, r.Platform, float64(r.Platform.Smallest()))); err == nil {
		return tight, nil
	}
	return nil, err
}

// leastMemory returns a memory at which the strategy has a plan, and has none with one byte less, between one too small
// and one that is enough.
func leastMemory(ctx context.Context, r pipeline.Request, costs *pipeline.Costs, small, enough int64) (int64, error) {
	for enough-small > 1 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		middle := small + (enough-small)/2
		with := r
		with.Platform = r.Platform.WithMemory(middle)
		if _, err := scheduled(ctx, with, newHierarchy(costs, with.Platform, float64(middle))); err == nil {
			enough = middle
		} else {
			small = middle
		}
	}
	return enough, nil
}

// newHierarchy is the optimizer's view of a chain: layers are states.
func newHierarchy(costs *pipeline.Costs, p *pipeline.Platform, memory float64) *hierarchy {
	h := &hierarchy{transfers: true, memory: memory}
	activations := 0.0
	for l := 1; l <= costs.Len(); l++ {
		out := float64(costs.Chain.Activation(l))
		activations += out
		h.compute = append(h.compute, costs.U(1, l))
		h.activations = append(h.activations, activations)
		h.parameters = append(h.parameters, float64(costs.OwnWeights(1, l)))
		h.output = append(h.output, out)
	}
	h.levels = levels(p)
	return h
}

// levels returns a platform's topology; one level at its slowest link where it has none.
func levels(p *pipeline.Platform) (all []machines) {
	for _, l := range p.Levels {
		all = append(all, machines{l.Devices, l.Bandwidth})
	}
	if len(all) == 0 {
		all = []machines{{p.Devices, slowest(p)}}
	}
	return all
}

// slowest returns the least bandwidth between two devices that have a link.
func slowest(p *pipeline.Platform) float64 {
	least := math.Inf(1)
	for d := range p.Devices {
		for e := d + 1; e < p.Devices; e++ {
			if b := p.Beta(d, e); b > 0 {
				least = min(least, b)
			}
		}
	}
	return least
}

// scheduled solves a hierarchy and schedules its stages.
func scheduled(ctx context.Context, r pipeline.Request, h *hierarchy) (*pipeline.Plan, error) {
	h.ended = func() bool { return ctx.Err() != nil }
	seconds := h.solve()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if math.IsInf(seconds, 1) {
		return nil, &pipeline.InfeasibleError{Strategy: PipeDream, Reason: "its optimizer has no partition for this memory"}
	}
	r.Stages = h.stages()
	var plan *pipeline.Plan
	var err error
	if r.Active > 0 {
		plan, err = periodic.OneFOneB(ctx, PipeDream, r)
	} else {
		plan, err = periodic.Star(ctx, PipeDream, r)
	}
	if err != nil {
		return nil, err
	}
	plan.Extra = map[string]json.RawMessage{}
	for name, value := range map[string]any{"pipedream_s": seconds, "noam": noam(r.Stages)} {
		if plan.Extra[name], err = fields.Marshal(value); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// noam returns NUM_OPT_ACTIVE_MINIBATCHES of the paper: workers over replicas of the input stage, rounded up.
func noam(stages []pipeline.Stage) int {
	workers := 0
	for _, s := range stages {
		workers += len(s.Devices)
	}
	return int(ceilDivide(workers, len(stages[0].Devices)))
}

// stages returns the stages of a solved hierarchy on devices: a component of a level is consecutive devices.
func (h *hierarchy) stages() []pipeline.Stage {
	return h.place(len(h.levels), 0, len(h.compute)-1, []int{0})
}

// place returns the stages of a range of states on whole components, given by their first devices, which take minibatches
// in turn. Inside, the replicas of a stage take those of their component in turn.
func (h *hierarchy) place(level, first, last int, bases []int) []pipeline.Stage {
	if level == 0 {
		return []pipeline.Stage{{First: first + 1, Last: last + 1, Devices: bases}}
	}
	size := 1
	for _, l := range h.levels[:level-1] {
		size *= l.count
	}
	var all []pipeline.Stage
	used := 0
	for _, p := range h.parts(level, first, last) {
		var inside []int
		for x := range p.replicas {
			for _, base := range bases {
				inside = append(inside, base+(used+x)*size)
			}
		}
		used += p.replicas
		all = append(all, h.place(level-1, p.first, p.last, inside)...)
	}
	return all
}
