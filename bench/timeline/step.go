// Package timeline puts the events of a plan on an axis of time, as planned and as it ran. These are the ops and the memory of a
// step on one device (Step), the tasks of a pipeline and the memory of its devices (Pipeline). It returns curves, pictures and
// traces; it measures nothing and knows no job.
package timeline

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/bench/receipt"
	"plimsoll/bench/report"
	"plimsoll/bench/trace"
	"plimsoll/executor"
	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Step is one training step along a plan, as predicted and as measured.
type Step struct {
	Planned  *chain.Chain // the costs that the plan was made with
	Chain    *chain.Chain // the costs of the prediction
	Plan     *pipeline.Plan
	Static   int64             // bytes that lie in the arena throughout
	UpdateS  float64           // predicted time of the optimizer's update, which follows the ops
	Measured executor.Measured // without ops when no step was measured
}

// NewStep returns a step of the work along a plan that was made with a chain and is predicted with another. It was measured or, without ops,
// not.
func NewStep(planned, c *chain.Chain, p *pipeline.Plan, w *executor.Workload, m executor.Measured) *Step {
	return &Step{Planned: planned, Chain: c, Plan: p, Static: w.StaticBytes(), UpdateS: executor.UpdateSeconds(c), Measured: m}
}

// Curves returns the memory of the arena over time, as predicted and as measured.
func (t *Step) Curves() (predicted, measured []report.Point, err error) {
	r, err := t.simulate()
	if err != nil {
		return nil, nil, err
	}
	for i, p := range r.Curve {
		if i+1 == len(r.Curve) || r.Curve[i+1].Time > p.Time { // of several at one instant the last one lasts
			predicted = append(predicted, report.Point{X: p.Time, Y: float64(t.Static + p.Bytes)})
		}
	}
	end := 0.0
	for _, i := range t.byStart() {
		at := t.Measured.Intervals[i]
		measured = append(measured, report.Point{X: at.Start, Y: float64(t.Measured.Live[i])})
		if end = max(end, at.Start); !t.Plan.Sequence()[i].Kind.Transfer() { // which may begin behind the last op
			end = max(end, at.End)
		}
	}
	last := func(at float64) report.Point { return report.Point{X: at, Y: predicted[len(predicted)-1].Y} }
	if len(measured) > 0 {
		measured = append(measured, last(end), last(max(end, t.Measured.Whole)))
	}
	return append(predicted, last(r.Makespan+t.UpdateS)), measured, nil
}

// Chart draws the memory over the step, and the limit.
func (t *Step) Chart() (*report.Chart, error) {
	predicted, measured, err := t.Curves()
	if err != nil {
		return nil, err
	}
	c := &report.Chart{
		Title: t.Chain.Name + ", " + t.Plan.Name(), Wide: true,
		X: report.Axis{Label: "time", Unit: report.Seconds}, Y: report.Axis{Label: "memory", Unit: report.Bytes},
		Series: []report.Series{{Name: "predicted", Shape: report.Step, Broad: len(measured) > 0, Points: predicted}},
	}
	if len(measured) > 0 {
		c.Series = append(c.Series, report.Series{Name: "measured", Shape: report.Step, Color: 1, Points: measured})
	}
	if limit := t.Plan.Limits().Memory; limit != schedule.NoLimit {
		c.Marks = []report.Mark{{Name: "limit " + units.Bytes(t.Static+limit), Y: float64(t.Static + limit)}}
	}
	return c, nil
}

// StoreAll returns the memory over the step that recomputes and moves nothing, as predicted by the same costs.
func (t *Step) StoreAll(seq schedule.Sequence) ([]report.Point, error) {
	plain := *t
	plain.Plan, plain.Measured = pipeline.NewSequence(t.Chain.Name, "", seq, schedule.Limits{Memory: schedule.NoLimit}), executor.Measured{}
	points, _, err := plain.Curves()
	return points, err
}

// Peak says what the arena holds when a plan needs most of it.
func Peak(w *executor.Workload, c *chain.Chain, p *pipeline.Plan, limit int64) (*report.Peak, error) {
	op, all, err := w.AtPeak(p.Sequence(), limit, executor.Following(c, p))
	if err != nil {
		return nil, err
	}
	name := func(layer int) string { return fmt.Sprintf("layer %d, %s", layer, c.Layer(layer).Name) }
	peak := &report.Peak{At: fmt.Sprintf("op %d, %v (%s)", op, p.Sequence()[op], c.Layer(p.Sequence()[op].Layer).Name)}
	for _, h := range all {
		part := report.Part{Role: string(h.Role), Bytes: h.Bytes}
		switch {
		case h.Layer > 0:
			part.Layer = name(h.Layer)
		case h.Role == executor.Activations || h.Role == executor.ActivationGrads:
			part.Layer = "the input"
		}
		peak.Parts = append(peak.Parts, part)
	}
	return peak, nil
}

// byStart returns the positions of the measured ops in the order of their starts.
func (t *Step) byStart() []int {
	order := make([]int, len(t.Measured.Intervals))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(t.Measured.Intervals[i].Start, t.Measured.Intervals[j].Start)
	})
	return order
}

func (t *Step) simulate() (*schedule.Result, error) {
	return schedule.Resimulate(t.Planned, t.Chain, t.Plan.Sequence(), t.Plan.Limits())
}

// Trace returns the step as a trace with a process for the prediction and one for the measurement.
func (t *Step) Trace(device string) (*trace.Trace, error) {
	r, err := t.simulate()
	if err != nil {
		return nil, err
	}
	predicted, measured, err := t.Curves()
	if err != nil {
		return nil, err
	}
	intervals := make([]executor.Interval, len(t.Plan.Sequence()))
	for i := range intervals {
		intervals[i] = executor.Interval{Start: r.Start[i], End: r.End[i]}
	}
	processes := []trace.Process{t.process(device+" predicted", intervals, t.UpdateS, r.Makespan+t.UpdateS, predicted)}
	meta := map[string]string{
		"chain": t.Chain.Name, "strategy": t.Plan.Name(), "plan": t.Plan.Sequence().String(), "predicted_s": fmt.Sprint(r.Makespan + t.UpdateS),
	}
	if len(t.Measured.Intervals) > 0 {
		processes = append(processes, t.process(device+" measured", t.Measured.Intervals, t.Measured.Update, t.Measured.Whole, measured))
		meta["measured_s"] = fmt.Sprint(t.Measured.Whole)
	}
	return &trace.Trace{Processes: processes, Meta: meta}, nil
}

func (t *Step) slice(op schedule.Op, start, end float64) trace.Slice {
	return trace.Slice{
		Name: op.String(), Category: op.Kind.String(), Start: start, End: end,
		Args: map[string]any{"layer": fmt.Sprintf("%d %s", op.Layer, t.Chain.Layer(op.Layer).Name)},
	}
}

// process makes a process of when each op ran, and the update at the end of the whole step, with a track per stream. One link
// runs transfers of both directions, so a track of each is enough for every link.
func (t *Step) process(name string, at []executor.Interval, updateS, whole float64, memory []report.Point) trace.Process {
	tracks := []trace.Track{{Name: "compute"}, {Name: "device to host"}, {Name: "host to device"}}
	end := 0.0
	for i, op := range t.Plan.Sequence() {
		track := &tracks[0]
		switch op.Kind {
		case schedule.Offload:
			track = &tracks[1]
		case schedule.Prefetch:
			track = &tracks[2]
		default:
			end = at[i].End
		}
		track.Slices = append(track.Slices, t.slice(op, at[i].Start, at[i].End))
	}
	tracks[0].Slices = append(tracks[0].Slices, trace.Slice{Name: "update", Category: "update", Start: max(end, whole-updateS), End: max(end, whole)})
	tracks = slices.DeleteFunc(tracks, func(t trace.Track) bool { return len(t.Slices) == 0 })
	counter := trace.Counter{Name: "memory", Unit: "bytes"}
	for _, p := range memory {
		counter.Samples = append(counter.Samples, trace.Sample{Time: p.X, Value: p.Y})
	}
	return trace.Process{Name: name, Tracks: tracks, Counters: []trace.Counter{counter}}
}

// Receipt attributes the gap between the predicted and the measured time of the step. It is nil when no step was measured.
// Errors: those of schedule.Simulate and receipt.New.
func (t *Step) Receipt() (*receipt.Receipt, error) {
	if len(t.Measured.Intervals) == 0 {
		return nil, nil
	}
	predicted, err := t.simulate()
	if err != nil {
		return nil, err
	}
	s := receipt.Step{
		Chain: t.Chain, Ops: t.Plan.Sequence(), Limits: t.Plan.Limits(), Predicted: predicted,
		Update: schedule.Duration(t.Measured.Update), UpdatePredicted: schedule.Duration(t.UpdateS), Whole: schedule.Duration(t.Measured.Whole),
	}
	for _, at := range t.Measured.Intervals {
		s.Spans = append(s.Spans, schedule.Span{Start: schedule.Duration(at.Start), End: schedule.Duration(at.End)})
	}
	return receipt.New(s)
}
