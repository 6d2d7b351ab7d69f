package timeline

import (
	"math"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// work is one task of a stage: what simulated time gives one duration.
type work struct {
	kind  pipeline.Kind
	stage int
}

// Flat is a plan as the clock sees it: every task with its duration.
type Flat struct {
	Chain    *chain.Chain
	Platform *pipeline.Platform
	Plan     *pipeline.Plan
	Depth    int             // periods from the first task of a minibatch to its last, and one; 0 of a plan with a flush
	first    []pipeline.Span // of one period, or step
	seconds  map[work]float64
}

func newFlat(c *chain.Chain, platform *pipeline.Platform, plan *pipeline.Plan) (f *Flat, err error) {
	f = &Flat{Chain: c, Platform: platform, Plan: plan, seconds: map[work]float64{}}
	if f.first, err = pipeline.Planned(f.Chain, f.Platform, f.Plan, 1); err != nil {
		return nil, err
	}
	var last float64
	for _, s := range f.first {
		last = max(last, s.End)
		if s.Task < len(f.Plan.Tasks) {
			t := f.Plan.Tasks[s.Task]
			f.seconds[work{t.Kind, t.Stage}] = s.End - s.Start
		}
	}
	if !plan.IsFlush() {
		f.Depth = 1 + int(math.Ceil(last/plan.Period))
	}
	return f, nil
}

// Even reports whether tasks that share a duration in simulated time have the same one in the plan.
func (f *Flat) Even() bool {
	for _, s := range f.first {
		if s.Task >= len(f.Plan.Tasks) {
			continue
		}
		t := f.Plan.Tasks[s.Task]
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

// Pace is the plan's durations as the executor takes them.
func (f *Flat) Pace(kind pipeline.Kind, stage int) time.Duration {
	return schedule.Duration(f.seconds[work{kind, stage}])
}
