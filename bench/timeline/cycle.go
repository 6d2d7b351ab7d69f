package timeline

import (
	"fmt"
	"slices"

	"plimsoll/bench/receipt"
	"plimsoll/bench/report"
	"plimsoll/bench/trace"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Cycle is steps of the steady state of a cyclic plan, as predicted and as they ran.
type Cycle struct {
	Chain    *chain.Chain
	Plan     *pipeline.Plan
	Platform *pipeline.Platform
	Ran      []pipe.Timing // none before the run
	Window   cycle.Window  // of Ran: the steps that were measured

	sim         *cycle.Simulator
	result      *cycle.Result
	held        []cycle.Hold
	peak        pipeline.CyclePeak
	from, until float64 // what is shown of the simulated run, seconds
}

// NewCycle plays a cyclic plan. Errors: those of pipeline.Plan.PlayCycle.
func NewCycle(c *chain.Chain, plan *pipeline.Plan, on *pipeline.Platform) (*Cycle, error) {
	s, r, err := plan.PlayCycle(c, on)
	if err != nil {
		return nil, err
	}
	out := &Cycle{Chain: c, Plan: plan, Platform: on, sim: s, result: r, held: s.Holds()}
	out.peak.Op, out.peak.Parts = s.AtPeak()
	first := slices.IndexFunc(r.Starts, func(x cycle.Start) bool { return x.Step == r.WarmUp && out.lane(x.Position) == cycle.Compute })
	out.from = r.Starts[first].Start
	out.until = out.from + r.Period*float64(r.Repeats)
	return out, nil
}

func (c *Cycle) lane(position int) cycle.Stream {
	s, _ := cycle.StreamOf(c.Plan.Cycle[position].Kind)
	return s
}

// laneNames are the names of the streams.
var laneNames = [...]string{cycle.Compute: "compute", cycle.ToDevice: "host to device", cycle.ToHost: "device to host", cycle.Host: "host updates"}

// ran is an op, by its position, between two instants.
type ran struct {
	position, step int
	start, end     float64
}

// clipped returns the part of ops that is seen between two instants, from the first of them on, in the order of their starts.
func clipped(all []ran, from, until float64) (seen []ran) {
	for _, x := range all {
		x.start, x.end = max(x.start, from)-from, min(x.end, until)-from
		if x.end > x.start {
			seen = append(seen, x)
		}
	}
	slices.SortStableFunc(seen, func(a, b ran) int {
		switch {
		case a.start < b.start:
			return -1
		case a.start > b.start:
			return 1
		}
		return 0
	})
	return seen
}

// predicted returns the ops of the steps that are shown.
func (c *Cycle) predicted() (all []ran) {
	for _, x := range c.result.Starts {
		all = append(all, ran{x.Position, x.Step, x.Start, x.End})
	}
	return clipped(all, c.from, c.until)
}

// measured returns the ops of the steps that were measured; none: too few ran.
func (c *Cycle) measured() (all []ran) {
	if c.Window.Steps == 0 {
		return nil
	}
	for _, x := range pipe.CycleSpans(c.Plan, c.Ran) {
		all = append(all, ran{x.Position, x.Step, x.Start.Seconds(), x.End.Seconds()})
	}
	return clipped(all, c.Window.From.Seconds(), c.Window.Until.Seconds())
}

// Receipt attributes the gap between the predicted and the measured time of the steps. It is nil when none were measured.
func (c *Cycle) Receipt() *receipt.Receipt {
	if c.Window.Steps == 0 {
		return nil
	}
	return receipt.NewCycle(receipt.Cycle{Chain: c.Chain, Sim: c.sim, Result: c.result, Spans: pipe.CycleSpans(c.Plan, c.Ran), Window: c.Window})
}

// workOfKind returns the class of an op in pictures.
func workOfKind(k schedule.Kind) report.Work {
	switch k {
	case schedule.Backward:
		return report.Backward
	case schedule.Update, schedule.HostUpdate:
		return report.Update
	case schedule.FetchWeights, schedule.WriteWeights:
		return report.CopyWeights
	case schedule.FetchState, schedule.WriteState:
		return report.CopyState
	case schedule.FetchGradient, schedule.OffloadGradient:
		return report.SendGradient
	case schedule.Offload, schedule.Prefetch:
		return report.SendActivation
	}
	return report.Forward
}

// lanes returns the streams that have ops, as the lanes of a panel and as the tracks of a trace.
func (c *Cycle) lanes(all []ran) (lanes []report.Lane, tracks []trace.Track) {
	for s, name := range laneNames {
		if !slices.ContainsFunc(c.Plan.Cycle, func(op cycle.Op) bool { on, runs := cycle.StreamOf(op.Kind); return runs && on == cycle.Stream(s) }) {
			continue
		}
		lane, track := report.Lane{Name: name}, trace.Track{Name: name}
		for _, x := range all {
			if c.lane(x.position) != cycle.Stream(s) {
				continue
			}
			op := c.Plan.Cycle[x.position]
			layer := fmt.Sprintf("%d %s", op.Layer, c.Chain.Layer(op.Layer).Name)
			lane.Bars = append(lane.Bars, report.Bar{
				Kind: workOfKind(op.Kind), Start: x.start, End: x.end, Label: op.String(), Name: op.String() + " of layer " + layer,
			})
			track.Slices = append(track.Slices, trace.Slice{
				Name: op.String(), Category: op.Kind.String(), Start: x.start, End: x.end, Args: map[string]any{"layer": layer, "step": x.step},
			})
		}
		lanes, tracks = append(lanes, lane), append(tracks, track)
	}
	return lanes, tracks
}

// bands returns the memory over the time that is shown, by what it is for: at equal instants for all.
func (c *Cycle) bands() (bands [cycle.Items][]report.Point) {
	instants := []float64{c.from, c.until}
	for _, h := range c.held {
		for _, at := range []float64{h.From, h.Until} {
			if at > c.from && at < c.until {
				instants = append(instants, at)
			}
		}
	}
	slices.Sort(instants)
	instants = slices.Compact(instants)
	var change [cycle.Items][]int64
	for i := range change {
		change[i] = make([]int64, len(instants)+1)
	}
	for _, h := range c.held {
		from, _ := slices.BinarySearch(instants, max(h.From, c.from))
		until, _ := slices.BinarySearch(instants, h.Until)
		if h.Until > c.from && from < until {
			change[h.Item][from] += h.Bytes
			change[h.Item][until] -= h.Bytes
		}
	}
	for i := range bands {
		sum := int64(0)
		for k, at := range instants[:len(instants)-1] {
			sum += change[i][k]
			bands[i] = append(bands[i], report.Point{X: at - c.from, Y: float64(sum)})
		}
		bands[i] = append(bands[i], report.Point{X: c.until - c.from, Y: float64(sum)})
	}
	return bands
}

// chart draws the memory in bands, and the limit.
func (c *Cycle) chart() report.Chart {
	out := report.Chart{
		Title: "memory of " + c.Chain.Name, Wide: true, Stacked: true,
		Subtitle: "as the plan counts it, by the sizes of the chain: peak " + units.Bytes(max(c.result.Peak, c.result.InOrderPeak)),
		X:        report.Axis{Label: "time", Unit: report.Seconds}, Y: report.Axis{Label: "memory", Unit: report.Bytes},
		Peak: c.Peak(),
	}
	bands := c.bands()
	for i, points := range bands {
		if slices.ContainsFunc(points, func(p report.Point) bool { return p.Y > 0 }) {
			out.Series = append(out.Series, report.Series{Name: cycle.Item(i).String(), Shape: report.Step, Color: i, Points: points})
		}
	}
	if _, limits := c.Platform.CycleLimits(); limits.Memory < pipeline.NoLimit {
		out.Marks = []report.Mark{{Name: "limit " + units.Bytes(limits.Memory), Y: float64(limits.Memory)}}
	}
	return out
}

// Peak says what the device holds when it holds most.
func (c *Cycle) Peak() *report.Peak {
	at := "between two steps"
	if c.peak.Op >= 0 {
		op := c.Plan.Cycle[c.peak.Op]
		at = fmt.Sprintf("op %d, %v (%s)", c.peak.Op, op, c.Chain.Layer(op.Layer).Name)
	}
	peak := &report.Peak{At: at}
	parts := slices.Clone(c.peak.Parts)
	slices.SortStableFunc(parts, func(a, b cycle.Hold) int { return int(a.Item) - int(b.Item) })
	for _, h := range parts {
		of := "the input"
		if h.Layer > 0 {
			of = fmt.Sprintf("layer %d, %s", h.Layer, c.Chain.Layer(h.Layer).Name)
		}
		if h.Microbatch > 0 && c.Plan.Microbatches > 1 {
			of += fmt.Sprintf(", microbatch %d", h.Microbatch)
		}
		peak.Parts = append(peak.Parts, report.Part{Role: h.Item.String(), Layer: of, Bytes: h.Bytes})
	}
	return peak
}

// Picture returns the streams, as predicted and as they ran, and the memory over the same time.
func (c *Cycle) Picture() *report.Timeline {
	steps := units.Count(c.result.Repeats, "step")
	out := &report.Timeline{Title: fmt.Sprintf("%s, %s: %s of the steady state", c.Chain.Name, c.Plan.Name(), steps), Charts: []report.Chart{c.chart()}}
	lanes, _ := c.lanes(c.predicted())
	out.Panels = []report.Panel{{Name: "predicted", Lanes: lanes}}
	if all := c.measured(); len(all) > 0 {
		lanes, _ := c.lanes(all)
		out.Panels = append(out.Panels, report.Panel{Name: "measured", Lanes: lanes})
	}
	return out
}

// Trace returns the streams as a trace with a process for the prediction, with its memory, and one for the measurement.
func (c *Cycle) Trace(device string) *trace.Trace {
	_, tracks := c.lanes(c.predicted())
	predicted := trace.Process{Name: device + " predicted", Tracks: tracks}
	for i, points := range c.bands() {
		counter := trace.Counter{Name: cycle.Item(i).String(), Unit: "bytes"}
		for _, p := range points {
			counter.Samples = append(counter.Samples, trace.Sample{Time: p.X, Value: p.Y})
		}
		predicted.Counters = append(predicted.Counters, counter)
	}
	out := &trace.Trace{Processes: []trace.Process{predicted}, Meta: map[string]string{
		"chain": c.Chain.Name, "strategy": c.Plan.Name(), "plan": c.Plan.Cycle.String(), "predicted_s": fmt.Sprint(c.result.Period),
	}}
	if all := c.measured(); len(all) > 0 {
		_, tracks := c.lanes(all)
		out.Processes = append(out.Processes, trace.Process{Name: device + " measured", Tracks: tracks})
	}
	return out
}
