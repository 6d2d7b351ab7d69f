package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
)

// holder is a way to train a giant: a strategy and the versions of its weights.
type holder struct {
	title    string
	strategy string
	versions pipeline.Versions
	small    bool // stages are chosen for the least memory, not for equal times
}

// holders returns the holders of the memory tables. Strategy loadline runs without flushes: double buffered it keeps the
// weights twice, with latest once, as strategies with a flush do.
func holders() []holder {
	return []holder{
		{"gpipe", "gpipe", pipeline.Flush, true},
		{"gpipe-checkpoint", "gpipe-checkpoint", pipeline.Flush, true},
		{"loadline, 2 weights", "loadline", pipeline.DoubleBuffered, false},
		{"loadline, 1 weight", "loadline", pipeline.Latest, false},
	}
}

// need is the memory of a strategy for a model on some devices.
type need struct {
	Fits    bool
	Largest int64  // bytes of the fullest device; 0 where no plan was found
	Total   int64  // of all devices
	Planned int64  // bytes of the fullest device as the planner counts them
	none    string // in a table, where no plan was found: whether none fits
}

// notRun is a cell of what was not tried.
const notRun = "not run"

// giantPoint is one way to train one model on some devices.
type giantPoint struct {
	family  string
	size    size
	setting string
	devices int
	holder  string
	need
	reason string
}

// dimensions are how large a model is.
type dimensions struct {
	parameters int64
	layer      int64 // bytes of weights, gradients and optimizer of its largest layer
}

func measure(w *pipe.Workload, state int) dimensions {
	d := dimensions{parameters: w.Model.ParamCount()}
	for _, l := range w.Chain().Layers {
		d.layer = max(d.layer, int64(2+state)*l.WeightBytes)
	}
	return d
}

// giants tries every model of a collection under every setting with every holder.
func (c *collection) giants(ctx context.Context, limit int64) (points []giantPoint, models map[size]dimensions, err error) {
	models = map[size]dimensions{}
	for _, model := range c.rows {
		for _, micro := range []int{1, c.batch} { // images of a microbatch
			w, err := compiled(wanted{modelName(c.family, model.size), c.image, micro, c.classes, c.state})
			if err != nil {
				return nil, nil, err
			}
			models[model.size] = measure(w, c.state)
			for _, at := range c.rows {
				if micro*at.micros != c.batch {
					continue
				}
				p := &problem{work: w, costs: pipeline.NewCosts(counted(w)), state: c.state, devices: at.devices, micros: at.micros}
				for _, h := range at.holders() {
					a, err := p.solve(ctx, h, limit)
					if err != nil {
						return nil, nil, err
					}
					points = append(points, giantPoint{c.family, model.size, at.setting, at.devices, h.title, a.need, a.reason})
				}
			}
		}
	}
	return points, models, nil
}

// holders returns the ways to train that are tried in a setting: without a pipeline, the one that keeps everything.
func (g *giant) holders() []holder {
	if g.micros == 1 {
		return holders()[:1]
	}
	return holders()
}

// problem is a model that is to be trained.
type problem struct {
	work    *pipe.Workload
	costs   *pipeline.Costs
	state   int // copies of the weights that the optimizer keeps
	devices int
	micros  int
}

// answer is a plan and what it takes; without a plan it says why.
type answer struct {
	plan *pipeline.Plan
	need
	reason string
}

// solve plans for a holder. Its memory is the arenas that the executor would reserve (pipeline.Needs).
func (p *problem) solve(ctx context.Context, h holder, limit int64) (answer, error) {
	s, err := planner.LookupPipeline(h.strategy)
	if err != nil {
		return answer{}, err
	}
	if h.versions == pipeline.Flush {
		var stages []pipeline.Stage
		if h.small {
			stages = p.leastStages(h.strategy == "gpipe-checkpoint")
		}
		return p.ask(ctx, s, pipeline.Options{Stages: stages, Microbatches: p.micros, WeightCopies: []float64{float64(2 + p.state)}}, pipeline.NoLimit, limit)
	}
	copies, _ := h.versions.Copies(0)
	opt := pipeline.Options{Versions: h.versions, WeightCopies: []float64{copies + float64(p.state)}}
	told, out := limit, answer{}
	for range 8 { // as arenas hold more than the planner counts, it is told of less memory until they fit
		if out, err = p.ask(ctx, s, opt, told, limit); err != nil || out.plan == nil || out.Fits {
			break
		}
		told -= out.Largest - limit
	}
	return out, err
}

// ask returns a strategy's plan for devices of a memory. A request that it does not take is an answer without a plan.
func (p *problem) ask(ctx context.Context, s pipeline.Strategy, opt pipeline.Options, memory, limit int64) (answer, error) {
	opt.Accounting = pipeline.Saved
	platform := pipeline.NewPlatform(p.devices, memory, paperBandwidth)
	plan, err := s.Solve(ctx, pipeline.Request{Chain: p.costs.Chain, Platform: platform, Options: opt})
	if late := (*pipeline.UnfinishedError)(nil); errors.As(err, &late) && late.Best != nil {
		plan, err = late.Best, nil
	}
	switch {
	case errors.Is(err, pipeline.ErrInfeasible):
		return answer{reason: err.Error(), need: need{none: "no fit"}}, nil
	case errors.Is(err, flush.ErrOptions):
		return answer{reason: err.Error(), need: need{none: "no plan"}}, nil
	}
	if err != nil {
		return answer{}, err
	}
	plan.WeightCopies = nil // the executor counts them itself
	n, err := p.arenas(platform, plan, limit)
	return answer{plan: plan, need: n}, err
}

// arenas returns the memory that the executor reserves for a plan.
func (p *problem) arenas(platform *pipeline.Platform, plan *pipeline.Plan, limit int64) (need, error) {
	all, err := pipe.Needs(p.work, pipe.Costs{Chain: p.costs.Chain, Platform: platform}, plan, pipe.Options{})
	if err != nil {
		return need{}, fmt.Errorf("%s, %s on %d devices: %w", p.costs.Chain.Name, plan.Strategy, p.devices, err)
	}
	var n need
	for _, m := range all {
		n.Largest, n.Total = max(n.Largest, m.Extent), n.Total+m.Extent
	}
	n.Fits, n.Planned = n.Largest <= limit, slices.Max(plan.PerDevicePeak)
	return n, nil
}

// leastStages returns the contiguous stages, one on each device, whose fullest device holds the least, as nearly as sums of
// sizes say: the exact need comes from the plan.
func (p *problem) leastStages(checkpoint bool) []pipeline.Stage {
	ends := least(p.costs.Len(), p.devices, func(first, last int) int64 { return p.stageBytes(first, last, checkpoint) })
	var stages []pipeline.Stage
	first := 1
	for d, last := range ends {
		stages = append(stages, pipeline.Stage{First: first, Last: last, Devices: []int{d}})
		first = last + 1
	}
	return stages
}

// stageBytes estimates a stage in gpipe: weights, their gradients and the optimizer's state, what all microbatches keep, what
// the backward of a layer works with, and buffers. With checkpoint all but one microbatch keep only the stage's input.
func (p *problem) stageBytes(first, last int, checkpoint bool) int64 {
	c := p.costs.Chain
	kept, input := p.costs.Held(first, last, pipeline.Saved), c.Activation(first-1)
	held := int64(p.micros) * kept
	if checkpoint {
		held = kept + int64(p.micros-1)*input
	}
	working := int64(0)
	for l := first; l <= last; l++ {
		working = max(working, c.Layer(l).BackwardOverheadBytes+c.Gradient(l)+c.Gradient(l-1))
	}
	return int64(2+p.state)*p.costs.Weights(first, last) + held + working + p.costs.Buffers(first, last)
}

// least divides n layers into k ranges such that the largest cost of a range is as small as possible, and returns their last
// layers. Time: O(k n²) costs.
func least(n, k int, cost func(first, last int) int64) []int {
	best, from := make([][]int64, k+1), make([][]int, k+1)
	for r := range best {
		best[r], from[r] = slices.Repeat([]int64{math.MaxInt64}, n+1), make([]int, n+1)
	}
	best[0][0] = 0
	for r := 1; r <= k; r++ {
		for last := r; last <= n; last++ {
			for before := r - 1; before < last; before++ {
				if best[r-1][before] == math.MaxInt64 {
					continue
				}
				if top := max(best[r-1][before], cost(before+1, last)); top < best[r][last] {
					best[r][last], from[r][last] = top, before
				}
			}
		}
	}
	ends := make([]int, k)
	for r, last := k, n; r > 0; r, last = r-1, from[r][last] {
		ends[r-1] = last
	}
	return ends
}
