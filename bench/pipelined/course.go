package pipelined

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"plimsoll/bench"
	"plimsoll/bench/report"
	"plimsoll/bench/trace"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// shownPeriods is how many periods a picture shows.
const shownPeriods = 4

// course is a plan and how it ran: the step in the middle, or a few periods in the steady state.
type course struct {
	pipe      *train.Pipe
	flat      *flat
	span      stretch
	simulated bool
	names     []string // of the devices
}

// cut reports whether a few periods in the steady state are shown, and not everything: a step, or a run that was too short.
func (c *course) cut() bool {
	return c.flat.depth > 0 && (len(c.span.tasks) == 0 || c.periods() >= 2*c.flat.depth+shownPeriods)
}

// repeats is the minibatches of a period, or microbatches of a step.
func (c *course) repeats() int { return c.pipe.Plan.Repeats() }

// view is what is shown of a list of tasks: seconds from an instant on; 0 seconds: everything behind it.
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
func (c *course) window(tasks []pipe.Timing, seconds float64) view {
	v := view{math.Inf(1), seconds}
	for _, t := range tasks {
		if t.Kind != pipe.Updating && t.Minibatch/c.repeats() == c.flat.depth {
			v.from = min(v.from, t.Start)
		}
	}
	return v
}

// planned returns the tasks as they are planned, and what is shown of them.
func (c *course) planned() ([]pipe.Timing, view, error) {
	spans := c.flat.first
	if c.flat.depth > 0 {
		periods := c.flat.depth + shownPeriods
		if !c.cut() {
			periods = c.periods()
		}
		var err error
		if spans, err = pipeline.Planned(c.flat.chain, c.flat.platform, c.flat.plan, periods); err != nil {
			return nil, view{}, err
		}
	}
	var tasks []pipe.Timing
	for _, s := range spans {
		t := c.flat.plan.Tasks[s.Task]
		tasks = append(tasks, pipe.Timing{Device: t.Device, Kind: t.Kind, Stage: t.Stage, To: t.To, Minibatch: s.Minibatch, Start: s.Start, End: s.End})
	}
	if !c.cut() {
		return tasks, view{}, nil
	}
	return tasks, c.window(tasks, shownPeriods*c.pipe.Plan.Period), nil
}

// measured returns the tasks as they ran, and what is shown of them. Of a run without a flush that are its last periods, numbered as
// if it had begun with them: those that fill the pipeline, some in the steady state, those that drain it.
func (c *course) measured() ([]pipe.Timing, view) {
	if !c.cut() {
		return c.span.tasks, view{from: c.span.from}
	}
	base := (c.periods() - 2*c.flat.depth - shownPeriods) * c.repeats()
	var tasks []pipe.Timing
	for _, t := range c.span.tasks {
		if t.Minibatch -= base; t.Minibatch >= 0 {
			tasks = append(tasks, t)
		}
	}
	instants := ends(tasks, c.repeats(), c.flat.depth+shownPeriods)[c.flat.depth-1:]
	return tasks, c.window(tasks, instants[shownPeriods]-instants[0])
}

// periods returns how many the run had.
func (c *course) periods() int {
	last := -1
	for _, t := range c.span.tasks {
		last = max(last, t.Minibatch)
	}
	return (last + c.repeats()) / c.repeats()
}

// timeline puts the tasks that are seen on the plan's devices and links. Messages that the plan leaves out, as they take no time,
// are left out too.
func (c *course) timeline(tasks []pipe.Timing, v view, what string) (*pipeline.Timeline, error) {
	type key struct {
		work
		to, residue int
	}
	k, index := c.repeats(), map[key]int{}
	for i, t := range c.flat.plan.Tasks {
		index[key{work{t.Kind, t.Stage}, t.To, (t.Shift%k + k) % k}] = i
	}
	var spans []pipeline.Span
	for _, t := range tasks {
		i, ok := index[key{work{t.Kind, t.Stage}, t.To, t.Minibatch % k}]
		if from, to, seen := v.clip(t.Start, t.End); ok && seen {
			spans = append(spans, pipeline.Span{Task: i, Minibatch: t.Minibatch, Start: from, End: to})
		}
	}
	t, err := pipeline.NewTimeline(c.flat.chain, c.flat.platform, c.flat.plan, spans)
	if err != nil {
		return nil, err
	}
	t.Title += ", " + what
	return t, nil
}

// Planned returns the timeline of the plan: the step, or a few periods in the steady state.
func (c *course) Planned() (*pipeline.Timeline, error) {
	tasks, v, err := c.planned()
	if err != nil {
		return nil, err
	}
	return c.timeline(tasks, v, "planned")
}

// Run returns the timeline of the run: the step in the middle, or a few periods in the steady state.
func (c *course) Run() (*pipeline.Timeline, error) {
	tasks, v := c.measured()
	return c.timeline(tasks, v, c.what())
}

// what says what kind of times those of the run are.
func (c *course) what() string {
	if c.simulated {
		return "measured in simulated time"
	}
	return "measured"
}

// Trace returns the plan and the run as a trace: every device and link as planned, and below it as it was.
func (c *course) Trace() (*trace.Trace, error) {
	planned, err := c.Planned()
	if err != nil {
		return nil, err
	}
	out := &trace.Trace{Meta: map[string]string{"plan": planned.Title}}
	out.Processes = bench.PipelineTrace(planned).Processes
	if len(c.span.tasks) == 0 {
		return out, nil
	}
	run, err := c.Run()
	if err != nil {
		return nil, err
	}
	measured := bench.PipelineTrace(run).Processes
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
func (c *course) updates(tasks []pipe.Timing, v view, on pipeline.Lane) trace.Track {
	track := trace.Track{Name: "updates"}
	for _, t := range c.updatesOn(tasks, v, on) {
		track.Slices = append(track.Slices, trace.Slice{Name: updateName(t), Category: "update", Start: t.Start, End: t.End})
	}
	return track
}

func (c *course) updatesOn(tasks []pipe.Timing, v view, on pipeline.Lane) (all []pipe.Timing) {
	for _, t := range tasks {
		if from, to, seen := v.clip(t.Start, t.End); t.Kind == pipe.Updating && !on.Link && on.Device == t.Device && seen {
			t.Start, t.End = from, to
			all = append(all, t)
		}
	}
	return all
}

func updateName(t pipe.Timing) string { return fmt.Sprintf("update of stage %d", t.Stage) }

// Picture returns the plan, and below it the run, on one axis, and the memory of every device over the same time.
func (c *course) Picture(title string, limit int64) (*report.Timeline, error) {
	planned, err := c.Planned()
	if err != nil {
		return nil, err
	}
	out := &report.Timeline{Title: title, Panels: []report.Panel{bench.PipelinePanel("planned", planned)}}
	if len(c.span.tasks) > 0 {
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
func (c *course) panel(run *pipeline.Timeline) report.Panel {
	p := bench.PipelinePanel(c.what(), run)
	tasks, v := c.measured()
	for i, lane := range run.Lanes {
		for _, t := range c.updatesOn(tasks, v, lane) {
			p.Lanes[i].Bars = append(p.Lanes[i].Bars, report.Bar{Kind: report.Update, Start: t.Start, End: t.End, Name: updateName(t)})
		}
	}
	return p
}

// memories draws the memory of every device that has a stage.
func (c *course) memories(limit int64) (all []report.Chart, err error) {
	planned, before, err := c.planned()
	if err != nil {
		return nil, err
	}
	ran, v := c.measured()
	holds, err := c.pipe.Holds()
	if err != nil {
		return nil, err
	}
	for d, m := range c.pipe.Needs {
		if !c.holds(d) {
			continue
		}
		name := fmt.Sprintf("device %d", d)
		if d < len(c.names) && c.names[d] != "" {
			name += ", " + c.names[d]
		}
		chart := report.Chart{
			Title:    "memory of " + name,
			Subtitle: fmt.Sprintf("peak %s, laid out in %s; weights, gradients and optimizer %s, messages %s", units.Bytes(m.Peak), units.Bytes(m.Extent), units.Bytes(m.Static), units.Bytes(m.Messages)),
			X:        report.Axis{Label: "time", Unit: report.Seconds}, Y: report.Axis{Label: "memory", Unit: report.Bytes},
			Series: []report.Series{{Name: "planned", Shape: report.Step, Broad: true, Points: c.memory(d, holds[d], planned, before)}},
			Peak:   c.peak(d, holds[d], planned),
		}
		if len(ran) > 0 {
			chart.Series = append(chart.Series, report.Series{Name: "as it ran", Shape: report.Step, Color: 1, Points: c.memory(d, holds[d], ran, v)})
		}
		if limit > 0 {
			chart.Marks = []report.Mark{{Name: "limit " + units.Bytes(limit), Y: float64(limit)}}
		}
		all = append(all, chart)
	}
	return all, nil
}

// memory returns what a device holds over the time that is seen when tasks run like that: static memory and messages throughout, what
// minibatches keep from their forward on, and what tasks work in. Tasks of a device run one after another, so their order says what
// comes before what, whatever was rounded.
func (c *course) memory(device int, holds []pipe.Hold, tasks []pipe.Timing, v view) []report.Point {
	m, end := c.pipe.Needs[device], v.seconds
	for _, t := range tasks {
		if v.seconds == 0 {
			end = max(end, t.End-v.from)
		}
	}
	if len(holds) == 0 { // a stage with transfers has all of it throughout
		return []report.Point{{X: 0, Y: float64(m.Peak)}, {X: end, Y: float64(m.Peak)}}
	}
	own, pieces := c.pieces(device, holds, tasks)
	change := make([]int64, 2*len(own)) // at the start of each task, and at its end
	for _, p := range pieces {
		change[2*p.from] += p.Bytes
		if p.until < len(own) {
			change[2*p.until+1] -= p.Bytes
		}
	}
	return curve(m.Static+m.Messages, own, change, v, end)
}

// piece is a hold of one minibatch, from the start of one of the device's tasks to the end of one; behind the last it stays.
type piece struct {
	pipe.Hold
	minibatch, from, until int
}

// pieces returns the computing tasks of a device in their order, and what is held while they run.
func (c *course) pieces(device int, holds []pipe.Hold, tasks []pipe.Timing) (own []pipe.Timing, all []piece) {
	own, at := c.ownTasks(device, tasks)
	for _, h := range holds {
		for n := h.Minibatch; ; n += c.repeats() {
			from, begun := at[task{work{cmp.Or(h.Task, pipeline.F), h.Stage}, n}]
			if !begun {
				break
			}
			until, ends := at[task{work{h.Until, h.UntilStage}, n}]
			if !ends {
				until = len(own)
			}
			all = append(all, piece{h, n, from, until})
		}
	}
	return own, all
}

// peak says what a device holds when it holds most; nil of a stage with transfers, which has all of it throughout.
func (c *course) peak(device int, holds []pipe.Hold, tasks []pipe.Timing) *report.Peak {
	own, pieces := c.pieces(device, holds, tasks)
	if len(pieces) == 0 {
		return nil
	}
	most, at := int64(-1), 0
	for i := range own {
		sum := int64(0)
		for _, p := range pieces {
			if p.from <= i && i <= p.until {
				sum += p.Bytes
			}
		}
		if sum > most {
			most, at = sum, i
		}
	}
	m := c.pipe.Needs[device]
	peak := &report.Peak{
		At:    fmt.Sprintf("%v%d of minibatch %d", own[at].Kind, own[at].Stage, own[at].Minibatch),
		Parts: []report.Part{{Role: "weights, gradients, optimizer", Bytes: m.Static}, {Role: "messages", Bytes: m.Messages}},
	}
	for _, p := range pieces {
		if p.from > at || p.until < at {
			continue
		}
		part := report.Part{Role: "minibatch in flight", Layer: fmt.Sprintf("stage %d, minibatch %d", p.Stage, p.minibatch), Bytes: p.Bytes}
		if p.Task != 0 {
			part.Role = "work of the task"
		}
		peak.Parts = append(peak.Parts, part)
	}
	return peak
}

// task is a task of a minibatch.
type task struct {
	work
	minibatch int
}

// ownTasks returns the computing tasks of a device in their order, and where each is.
func (c *course) ownTasks(device int, tasks []pipe.Timing) (own []pipe.Timing, at map[task]int) {
	for _, t := range tasks {
		if t.Device == device && !t.Kind.Communication() && t.Kind != pipe.Updating {
			own = append(own, t)
		}
	}
	slices.SortStableFunc(own, func(a, b pipe.Timing) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) })
	at = map[task]int{}
	for i, t := range own {
		at[task{work{t.Kind, t.Stage}, t.Minibatch}] = i
	}
	return own, at
}

// curve adds the changes up that are seen. Of several at one instant the last one lasts.
func curve(bytes int64, own []pipe.Timing, change []int64, v view, end float64) []report.Point {
	points := []report.Point{{X: 0, Y: float64(bytes)}}
	for i, by := range change {
		when := own[i/2].Start
		if i%2 == 1 {
			when = own[i/2].End
		}
		at := max(0, when-v.from)
		if v.seconds > 0 && at >= end-1e-6*v.seconds {
			break
		}
		bytes += by
		if last := &points[len(points)-1]; at-last.X <= 1e-9*end {
			last.Y = float64(bytes)
			continue
		}
		points = append(points, report.Point{X: at, Y: float64(bytes)})
	}
	return append(points, report.Point{X: end, Y: points[len(points)-1].Y})
}

// holds reports whether a device has a stage.
func (c *course) holds(device int) bool {
	for _, st := range c.pipe.Plan.Stages {
		if slices.Contains(st.Devices, device) {
			return true
		}
	}
	return false
}
