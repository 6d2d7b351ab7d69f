package timeline

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/bench/report"
	"plimsoll/bench/trace"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/pipeline"
)

// ShownPeriods is how many periods a picture shows.
const ShownPeriods = 4

// Pipeline is a plan for several devices and how it ran: the step in the middle, or a few periods in the steady state.
type Pipeline struct {
	Flat      *Flat
	Plan      *pipeline.Plan
	Needs     []pipe.Memory                 // of each device
	Holds     func() ([][]pipe.Hold, error) // what minibatches and tasks hold of each device
	Names     []string                      // of the devices, as far as they are known
	Ran       Stretch                       // without tasks before the run
	Simulated bool                          // the run was in simulated time
}

// NewPipeline returns a plan that has not run yet. Errors: those of pipeline.Planned.
func NewPipeline(costs pipe.Costs, plan *pipeline.Plan, needs []pipe.Memory, holds func() ([][]pipe.Hold, error)) (*Pipeline, error) {
	f, err := newFlat(costs.Chain, costs.Platform, plan)
	return &Pipeline{Flat: f, Plan: plan, Needs: needs, Holds: holds}, err
}

// cut reports whether a few periods in the steady state are shown, and not everything: a step, or a run that was too short.
func (c *Pipeline) cut() bool {
	return c.Flat.Depth > 0 && (len(c.Ran.Tasks) == 0 || c.periods() >= 2*c.Flat.Depth+ShownPeriods)
}

// repeats is the minibatches of a period, or microbatches of a step.
func (c *Pipeline) repeats() int { return c.Plan.Repeats() }

// view is the visible part of a list of tasks: seconds from an instant on; 0 seconds: everything after it.
type view struct{ from, seconds float64 }

// clip cuts an interval off where the view ends, and counts from its beginning; false: nothing of it is seen.
func (v view) clip(start, end float64) (from, to float64, seen bool) {
	if v.seconds == 0 {
		return start - v.from, end - v.from, true
	}
	eps := 1e-6 * v.seconds // of rounding
	if end <= v.from+eps || start >= v.from+v.seconds-eps {
		return 0, 0, false
	}
	return max(start, v.from) - v.from, end - v.from, true
}

// window is the view of so many seconds from the first task of the first minibatch in the steady state.
func (c *Pipeline) window(tasks []pipe.Timing, seconds float64) view {
	v := view{math.Inf(1), seconds}
	for _, t := range tasks {
		if t.Kind != pipeline.Update && t.Minibatch/c.repeats() == c.Flat.Depth {
			v.from = min(v.from, t.Start)
		}
	}
	return v
}

// planned returns the tasks, and the messages between replicas, as they are planned, and what is shown of them.
func (c *Pipeline) planned() (tasks []pipe.Timing, shown view, err error) {
	spans := c.Flat.first
	if c.Flat.Depth > 0 {
		periods := c.Flat.Depth + ShownPeriods
		if !c.cut() {
			periods = c.periods()
		}
		if spans, err = pipeline.Planned(c.Flat.Chain, c.Flat.Platform, c.Flat.Plan, periods); err != nil {
			return nil, view{}, err
		}
	}
	for _, s := range spans {
		t := c.timing(s.Task)
		t.Minibatch, t.Start, t.End = s.Minibatch, s.Start, s.End
		tasks = append(tasks, t)
	}
	if !c.cut() {
		return tasks, view{}, nil
	}
	return tasks, c.window(tasks, ShownPeriods*c.Plan.Period), nil
}

// timing returns a task, or a message between replicas behind all tasks, as the executor times it.
func (c *Pipeline) timing(i int) pipe.Timing {
	plan := c.Flat.Plan
	if n := len(plan.Tasks); i >= n {
		m := plan.Synchronization[i-n]
		kind := pipeline.Reducing
		if m.Kind == pipeline.Gather {
			kind = pipeline.Gathering
		}
		return pipe.Timing{Device: m.From, Kind: kind, Stage: m.Stage, Layer: m.First, Peer: m.To, Minibatch: m.Shift}
	}
	t := plan.Tasks[i]
	return pipe.Timing{Device: t.Device, Kind: t.Kind, Stage: t.Stage, To: t.To, Minibatch: t.Shift}
}

// measured returns the tasks as they ran, and their visible part. For a run without a flush these are its last periods, numbered as
// if it had begun with them. They fill the pipeline, run some periods in the steady state, and drain it.
func (c *Pipeline) measured() ([]pipe.Timing, view) {
	if !c.cut() {
		return c.Ran.Tasks, view{from: c.Ran.From}
	}
	base := (c.periods() - 2*c.Flat.Depth - ShownPeriods) * c.repeats()
	var tasks []pipe.Timing
	for _, t := range c.Ran.Tasks {
		if t.Minibatch -= base; t.Minibatch >= 0 {
			tasks = append(tasks, t)
		}
	}
	instants := Ends(tasks, c.repeats(), c.Flat.Depth+ShownPeriods)[c.Flat.Depth-1:]
	return tasks, c.window(tasks, instants[ShownPeriods]-instants[0])
}

// Shown says what the picture of a run shows.
func (c *Pipeline) Shown() string {
	switch {
	case c.cut():
		return fmt.Sprintf("%d periods in the steady state", ShownPeriods)
	case c.Flat.Depth > 0:
		return fmt.Sprintf("%d periods, with those that fill and drain the pipeline", c.periods())
	}
	return fmt.Sprintf("a step of %d microbatches", c.repeats())
}

// periods returns how many the run had.
func (c *Pipeline) periods() int {
	last := -1
	for _, t := range c.Ran.Tasks {
		last = max(last, t.Minibatch)
	}
	return (last + c.repeats()) / c.repeats()
}

// timeline puts the tasks that are seen on the plan's devices and links, and messages between replicas. Messages that the plan leaves
// out, as they take no time, are left out too.
func (c *Pipeline) timeline(tasks []pipe.Timing, v view, what string) (*pipeline.Timeline, error) {
	k, index := c.repeats(), map[pipe.Timing]int{}
	key := func(t pipe.Timing) pipe.Timing { // a task has one device, whoever names it
		if t.Layer == 0 {
			t.Device = 0
		}
		t.Minibatch, t.Start, t.End = (t.Minibatch%k+k)%k, 0, 0
		return t
	}
	for i := range len(c.Flat.Plan.Tasks) + len(c.Flat.Plan.Synchronization) {
		index[key(c.timing(i))] = i
	}
	var spans []pipeline.Span
	for _, t := range tasks {
		i, ok := index[key(t)]
		if from, to, seen := v.clip(t.Start, t.End); ok && seen {
			spans = append(spans, pipeline.Span{Task: i, Minibatch: t.Minibatch, Start: from, End: to})
		}
	}
	t, err := pipeline.NewTimeline(c.Flat.Chain, c.Flat.Platform, c.Flat.Plan, spans)
	if err != nil {
		return nil, err
	}
	t.Title += ", " + what
	return t, nil
}

// Planned returns the timeline of the plan: the step, or a few periods in the steady state.
func (c *Pipeline) Planned() (*pipeline.Timeline, error) {
	tasks, v, err := c.planned()
	if err != nil {
		return nil, err
	}
	return c.timeline(tasks, v, "planned")
}

// Run returns the timeline of the run: the step in the middle, or a few periods in the steady state.
func (c *Pipeline) Run() (*pipeline.Timeline, error) {
	tasks, v := c.measured()
	return c.timeline(tasks, v, c.what())
}

// what says what kind of times those of the run are.
func (c *Pipeline) what() string {
	if c.Simulated {
		return "measured in simulated time"
	}
	return "measured"
}

// Trace returns the plan and the run as a trace: every device and link as planned, and below it as it was.
func (c *Pipeline) Trace() (*trace.Trace, error) {
	planned, err := c.Planned()
	if err != nil {
		return nil, err
	}
	out := &trace.Trace{Meta: map[string]string{"plan": planned.Title}}
	out.Processes = Trace(planned).Processes
	if len(c.Ran.Tasks) == 0 {
		return out, nil
	}
	run, err := c.Run()
	if err != nil {
		return nil, err
	}
	measured := Trace(run).Processes
	tasks, v := c.measured()
	both := make([]trace.Process, 0, 2*len(measured))
	for i, p := range out.Processes { // both have the lanes of the plan
		q := measured[i]
		p.Name, q.Name = p.Name+" planned", q.Name+" measured"
		if updates := c.updates(tasks, v, run.Lanes[i]); len(updates.Slices) > 0 {
			q.Tracks = append(q.Tracks, updates)
		}
		both = append(both, p, q)
	}
	out.Processes = both
	out.Meta["plan"] = run.Title
	return out, nil
}

// updates returns the updates that are seen on a device as a track.
func (c *Pipeline) updates(tasks []pipe.Timing, v view, on pipeline.Lane) trace.Track {
	track := trace.Track{Name: "updates"}
	for _, t := range c.updatesOn(tasks, v, on) {
		track.Slices = append(track.Slices, trace.Slice{Name: updateName(t), Category: "update", Start: t.Start, End: t.End})
	}
	return track
}

func (c *Pipeline) updatesOn(tasks []pipe.Timing, v view, on pipeline.Lane) (all []pipe.Timing) {
	for _, t := range tasks {
		if from, to, seen := v.clip(t.Start, t.End); t.Kind == pipeline.Update && !on.Link && on.Device == t.Device && seen {
			t.Start, t.End = from, to
			all = append(all, t)
		}
	}
	return all
}

func updateName(t pipe.Timing) string { return fmt.Sprintf("update of stage %d", t.Stage) }

// Picture returns the plan, and below it the run, on one axis, and the memory of every device over the same time.
func (c *Pipeline) Picture(title string, limit int64) (*report.Timeline, error) {
	planned, err := c.Planned()
	if err != nil {
		return nil, err
	}
	out := &report.Timeline{Title: title, Panels: []report.Panel{Panel("planned", planned)}}
	if len(c.Ran.Tasks) > 0 {
		run, err := c.Run()
		if err != nil {
			return nil, err
		}
		out.Panels = append(out.Panels, c.panel(run))
	}
	out.Charts, err = c.memories(limit)
	return out, err
}

// panel is the run with its updates.
func (c *Pipeline) panel(run *pipeline.Timeline) report.Panel {
	p := Panel(c.what(), run)
	tasks, v := c.measured()
	for i, lane := range run.Lanes {
		for _, t := range c.updatesOn(tasks, v, lane) {
			p.Lanes[i].Bars = append(p.Lanes[i].Bars, report.Bar{Kind: report.Update, Start: t.Start, End: t.End, Name: updateName(t)})
		}
	}
	return p
}

// Uses reports whether a device has a stage.
func (c *Pipeline) Uses(device int) bool {
	for _, st := range c.Plan.Stages {
		if slices.Contains(st.Devices, device) {
			return true
		}
	}
	return false
}
