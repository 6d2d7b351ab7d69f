package pipelined

import (
	"math"
	"time"

	"plimsoll/executor/train"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/staged"
	"plimsoll/planner/schedule"
)

// work is one task of a stage: what simulated time gives one duration.
type work struct {
	kind  pipeline.Kind
	stage int
}

// flat is a plan as the clock sees it: every task with its duration, stages without ops of their own.
type flat struct {
	chain    *chain.Chain
	platform *pipeline.Platform
	plan     *pipeline.Plan
	first    []pipeline.Span // of one period, or step
	seconds  map[work]float64
	depth    int // periods from the first task of a minibatch to its last, and one; 0 of a plan with a flush
}

func newFlat(p *train.Pipe) (f *flat, err error) {
	f = &flat{platform: p.Costs.Platform, seconds: map[work]float64{}}
	if f.chain, f.plan, err = staged.Flatten(p.Costs.Chain, p.Plan); err != nil {
		return nil, err
	}
	if f.first, err = pipeline.Planned(f.chain, f.platform, f.plan, 1); err != nil {
		return nil, err
	}
	var last float64
	for _, s := range f.first {
		t := f.plan.Tasks[s.Task]
		f.seconds[work{t.Kind, t.Stage}] = s.End - s.Start
		last = max(last, s.End)
	}
	if !p.Plan.IsFlush() {
		f.depth = 1 + int(math.Ceil(last/p.Plan.Period))
	}
	return f, nil
}

// even reports whether tasks that share a duration in simulated time have the same one in the plan.
func (f *flat) even() bool {
	for _, s := range f.first {
		t := f.plan.Tasks[s.Task]
		if t.Kind.Communication() {
			continue
		}
		want := f.seconds[work{t.Kind, t.Stage}]
		if math.Abs(s.End-s.Start-want) > 1e-6*want {
			return false
		}
	}
	return true
}

// pace is the plan's durations as the executor takes them.
func (f *flat) pace(kind pipeline.Kind, stage int) time.Duration {
	return schedule.Duration(f.seconds[work{kind, stage}])
}
