package timeline

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/bench/report"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// memories draws the memory of every device that has a stage.
func (c *Pipeline) memories(limit int64) (all []report.Chart, err error) {
	planned, before, err := c.planned()
	if err != nil {
		return nil, err
	}
	ran, v := c.measured()
	holds, err := c.Holds()
	if err != nil {
		return nil, err
	}
	for d, m := range c.Needs {
		if !c.Uses(d) {
			continue
		}
		name := fmt.Sprintf("device %d", d)
		if d < len(c.Names) && c.Names[d] != "" {
			name += ", " + c.Names[d]
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

// memory returns the memory of a device over the visible time, for the given run of tasks. It has static memory and messages
// throughout, the memory of minibatches from their forward on, and the working memory of tasks. Tasks of a device run one after
// another, so their order holds, whatever was rounded.
func (c *Pipeline) memory(device int, holds []pipe.Hold, tasks []pipe.Timing, v view) []report.Point {
	m, end := c.Needs[device], v.seconds
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
func (c *Pipeline) pieces(device int, holds []pipe.Hold, tasks []pipe.Timing) (own []pipe.Timing, all []piece) {
	own, at := c.ownTasks(device, tasks)
	for _, h := range holds {
		for n := h.Minibatch; ; n += c.repeats() {
			from, begun := at[task{work{cmp.Or(h.Task, h.Behind, pipeline.F), h.Stage}, n}]
			if !begun {
				break
			}
			if h.Behind != 0 {
				from++
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
func (c *Pipeline) peak(device int, holds []pipe.Hold, tasks []pipe.Timing) *report.Peak {
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
	m := c.Needs[device]
	peak := &report.Peak{
		At:    fmt.Sprintf("%v%d of minibatch %d", own[at].Kind, own[at].Stage, own[at].Minibatch),
		Parts: []report.Part{{Role: "weights, gradients, optimizer", Bytes: m.Static}, {Role: "messages", Bytes: m.Messages}},
	}
	for _, p := range pieces {
		if p.from > at || p.until < at || p.Bytes == 0 {
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
func (c *Pipeline) ownTasks(device int, tasks []pipe.Timing) (own []pipe.Timing, at map[task]int) {
	for _, t := range tasks {
		if t.Device == device && t.Computes() {
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
