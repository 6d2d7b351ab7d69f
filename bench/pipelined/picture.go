package pipelined

import (
	"math"
	"slices"

	"plimsoll/bench"
	"plimsoll/bench/trace"
	"plimsoll/planner/pipeline"
)

// shownPeriods is how many periods a picture shows.
const shownPeriods = 4

// Planned returns the timeline of a row's plan: the step, or a few periods in the steady state.
func (r *Row) Planned() (*pipeline.Timeline, error) {
	if r.flat.depth == 0 {
		return r.timeline(r.flat.first, "planned")
	}
	spans, err := pipeline.Planned(r.flat.chain, r.flat.platform, r.flat.plan, r.flat.depth+shownPeriods)
	if err != nil {
		return nil, err
	}
	return r.timeline(r.window(spans, shownPeriods*r.pipe.Plan.Period), "planned")
}

// Run returns the timeline of a row's run: the step in the middle, or a few periods in the steady state, of the same
// minibatches as Planned.
func (r *Row) Run() (*pipeline.Timeline, error) {
	spans := r.spans()
	if r.flat.depth > 0 {
		spans = r.window(spans, r.span.pictured)
	} else {
		spans = since(spans, r.span.from)
	}
	what := "measured"
	if r.simulated {
		what = "measured in simulated time"
	}
	return r.timeline(spans, what)
}

func (r *Row) timeline(spans []pipeline.Span, what string) (*pipeline.Timeline, error) {
	t, err := pipeline.NewTimeline(r.flat.chain, r.flat.platform, r.flat.plan, spans)
	if err != nil {
		return nil, err
	}
	t.Title += " on " + r.Devices + ", " + what
	return t, nil
}

// spans returns the tasks of the run as spans of the plan's tasks. Messages that the plan leaves out, as they take no time, are
// left out too.
func (r *Row) spans() (all []pipeline.Span) {
	type key struct {
		work
		to, residue int
	}
	repeats := r.Minibatches
	index := map[key]int{}
	for i, t := range r.flat.plan.Tasks {
		index[key{work{t.Kind, t.Stage}, t.To, (t.Shift%repeats + repeats) % repeats}] = i
	}
	for _, t := range r.span.tasks {
		if i, ok := index[key{work{t.Kind, t.Stage}, t.To, t.Minibatch % repeats}]; ok {
			all = append(all, pipeline.Span{Task: i, Minibatch: t.Minibatch, Start: t.Start, End: t.End})
		}
	}
	return all
}

// window returns what runs within so many seconds from the first task of the first minibatch in the steady state.
func (r *Row) window(spans []pipeline.Span, seconds float64) []pipeline.Span {
	from := math.Inf(1)
	for _, s := range spans {
		if s.Minibatch/r.Minibatches == r.flat.depth {
			from = min(from, s.Start)
		}
	}
	eps := 1e-6 * seconds // of rounding
	spans = slices.DeleteFunc(spans, func(s pipeline.Span) bool { return s.End <= from+eps || s.Start >= from+seconds-eps })
	for i := range spans {
		spans[i].Start = max(spans[i].Start, from)
	}
	return since(spans, from)
}

// since shifts spans, so that an instant becomes 0.
func since(spans []pipeline.Span, from float64) []pipeline.Span {
	for i := range spans {
		spans[i].Start, spans[i].End = spans[i].Start-from, spans[i].End-from
	}
	return spans
}

// Trace returns a row as a trace: every device and link as planned, and below it as it was.
func (r *Row) Trace() (*trace.Trace, error) {
	planned, err := r.Planned()
	if err != nil {
		return nil, err
	}
	run, err := r.Run()
	if err != nil {
		return nil, err
	}
	out := &trace.Trace{Meta: map[string]string{"plan": run.Title, "limit": r.Limit}}
	measured := bench.PipelineTrace(run).Processes
	for i, p := range bench.PipelineTrace(planned).Processes { // both have the lanes of the plan
		q := measured[i]
		p.Name, q.Name = p.Name+" planned", q.Name+" measured"
		out.Processes = append(out.Processes, p, q)
	}
	return out, nil
}
