package flush

import (
	"context"
	"fmt"
	"math"

	"plimsoll/planner/pipeline"
)

// asynchronous is a pipeline that never empties and keeps one version of the weights.
//
// AMPNet: every device works on what has arrived and updates its weights at once; forward and backward of a minibatch see
// different weights. Here as a pattern: period T, each task as early as its data and its device or link, once every T,
// allow. T is the load of the busiest resource. If Options.Active bounds the minibatches in flight (AMPNet's
// max_active_keys), T is the least time, by bisection, at which a minibatch leaves within Active periods.
type asynchronous struct {
	name, summary, paper, section string
	copies                        []float64 // of the weights, where they are not those of the versions
}

func ampnet() asynchronous {
	return asynchronous{
		name: "ampnet", summary: "asynchronous: never empties, one version of the weights, gradients are stale",
		paper: "AMPNet (Gaunt et al. 2017)", section: "section 3",
	}
}

// pipemare is ampnet with PipeMare's correction of the discrepancy between the weights of forward and backward, which
// keeps a moving average of the weights' changes. That is one more copy of the weights. Its time is ampnet's.
func pipemare() asynchronous {
	a := ampnet()
	a.name, a.summary = "pipemare", "ampnet whose weights are corrected for their delay: one more copy of them"
	a.paper, a.section = "PipeMare (Yang et al. 2021)", "section 3.2"
	a.copies = []float64{3}
	return a
}

func (a asynchronous) strategy() pipeline.Strategy {
	return pipeline.Strategy{Name: a.name, Type: pipeline.Periodic, Summary: a.summary, Paper: a.paper, Section: a.section, Solve: a.solve}
}

func (a asynchronous) solve(ctx context.Context, q pipeline.Request) (*pipeline.Plan, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := a.place(q)
	if err != nil {
		return nil, err
	}
	if len(q.WeightCopies) == 0 {
		q.WeightCopies = a.copies
	}
	s := newStream(p)
	t := s.period(q.Active)
	if _, end := s.starts(t); t == 0 || math.IsInf(end, 0) || math.IsNaN(end) {
		return nil, fmt.Errorf("%s: %w: its period is %g s and a minibatch takes %g s, want times above 0 that a number can say", a.name, ErrOptions, t, end)
	}
	return finish(a.name, q, s.plan(q, t))
}

// place lays the stages out, one on each device.
func (a asynchronous) place(q pipeline.Request) (*placement, error) {
	switch {
	case q.Active < 0:
		return nil, fmt.Errorf("%s: %w: active is %d, want at least 1, or 0 for no bound", a.name, ErrOptions, q.Active)
	case q.Versions != "" && q.Versions != pipeline.Latest:
		return nil, fmt.Errorf("%s: %w: weight versions are %q, this schedule has only %q", a.name, ErrOptions, q.Versions, pipeline.Latest)
	}
	q.Versions = pipeline.Flush // the only ones that validate knows
	if err := validate(q); err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	r := &recipe{name: a.name, chunks: 1, shape: loop}
	p, err := r.place(q)
	if err != nil {
		return nil, err
	}
	if err := r.usable(q, p); err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	return p, nil
}

// simultaneous is how far apart, relative to a period, two times are the same: rounding of sums.
const simultaneous = 1e-12

// stream is the way of a minibatch through the stages and back.
type stream struct {
	placement *placement
	tasks     []pipeline.Task
	lengths   []float64
	load      []float64 // of the resource of each task, in a period
	first     []int     // the earlier task on the same resource; -1: none
}

func newStream(p *placement) *stream {
	s, c, last := &stream{placement: p}, p.costs(false), len(p.stages)-1
	for i := range last {
		s.add(pipeline.F, i, c.compute[pipeline.F][i])
		s.add(pipeline.CF, i, p.message(pipeline.CF, i, i, i+1))
	}
	s.add(pipeline.F, last, c.compute[pipeline.F][last])
	s.add(pipeline.B, last, c.compute[pipeline.B][last])
	for i := last - 1; i >= 0; i-- {
		s.add(pipeline.CB, i, p.message(pipeline.CB, i, i+1, i))
		s.add(pipeline.B, i, c.compute[pipeline.B][i])
	}
	return s
}

// add appends a task, unless it is a message that takes no time. A resource has two tasks at most: F and B of its stage,
// or CF and CB of its boundary.
func (s *stream) add(kind pipeline.Kind, stage int, length float64) {
	if kind.Communication() && length == 0 {
		return
	}
	first, load := -1, length
	for i, t := range s.tasks {
		if t.Stage == stage && (kind == pipeline.B && t.Kind == pipeline.F || kind == pipeline.CB && t.Kind == pipeline.CF && !s.placement.links.Duplex) {
			first, load = i, length+s.lengths[i]
		}
	}
	device := s.placement.ranks[stage]
	if kind == pipeline.CB {
		device = s.placement.ranks[stage+1]
	}
	s.tasks = append(s.tasks, pipeline.Task{Kind: kind, Stage: stage, Device: device})
	s.lengths, s.load, s.first = append(s.lengths, length), append(s.load, load), append(s.first, first)
}

// period returns the shortest period at which at most so many minibatches are in flight; 0: any number.
func (s *stream) period(active int) float64 {
	low, high := 0.0, 0.0
	for i, length := range s.lengths {
		low, high = max(low, s.load[i]), high+length
	}
	if _, end := s.starts(low); active == 0 || end <= float64(active)*low*(1+simultaneous) {
		return low
	}
	for range 64 { // at the period high one minibatch follows the other
		mid := low + (high-low)/2
		if _, end := s.starts(mid); end <= float64(active)*mid*(1+simultaneous) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// starts returns when the tasks of the minibatch that enters at 0 start, and when it leaves.
func (s *stream) starts(period float64) (starts []float64, end float64) {
	for i, length := range s.lengths {
		if j := s.first[i]; j >= 0 {
			end = after(starts[j], s.lengths[j], end, length, period)
		}
		starts = append(starts, end)
		end += length
	}
	return starts, end
}

// after returns the earliest start, not before ready, of a task on a resource that another one takes from an instant on,
// once every period. A task of no duration may touch the other one.
func after(other, taken, ready, length, period float64) float64 {
	slack := period * simultaneous
	phase := math.Mod(ready-other, period)
	switch {
	case phase > slack && phase < taken-slack || phase <= slack && taken > slack && length > slack:
		return ready + taken - phase
	case phase+length > period+slack:
		return ready + period - phase + taken
	}
	return ready
}

// plan folds the way of a minibatch into one period.
func (s *stream) plan(q pipeline.Request, period float64) *pipeline.Plan {
	plan := &pipeline.Plan{
		Stages: s.placement.stages, Versions: pipeline.Latest, Period: period, MinibatchesPerPeriod: 1,
		Copies: pipeline.Copies{WeightCopies: q.WeightCopies, Accounting: q.Accounting},
	}
	starts, _ := s.starts(period)
	back := math.Floor(starts[len(starts)-1] / period) // the thesis: the last backward has the shift 0
	for i, t := range s.tasks {
		j := math.Floor(starts[i] / period)
		if t.Start = max(starts[i]-j*period, 0); t.Start >= period {
			t.Start, j = 0, j+1
		}
		t.Shift = int(back - j)
		plan.Tasks = append(plan.Tasks, t)
	}
	return plan
}
