package bench

import (
	"fmt"

	"plimsoll/bench/report"
	"plimsoll/bench/trace"
	"plimsoll/executor/train"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Timeline is one training step along a plan, as predicted and as measured.
type Timeline struct {
	Chain    *chain.Chain
	Plan     *schedule.Plan
	Static   int64          // bytes that lie in the arena throughout
	UpdateS  float64        // predicted time of the optimizer's update, which follows the ops
	Measured train.Measured // without ops when no step was measured
}

// Curves returns the memory of the arena over time, as predicted and as measured.
func (t *Timeline) Curves() (predicted, measured []report.Point, err error) {
	r, err := t.simulate()
	if err != nil {
		return nil, nil, err
	}
	for i, p := range r.Curve {
		if i+1 == len(r.Curve) || r.Curve[i+1].Time > p.Time { // of several at one instant the last one lasts
			predicted = append(predicted, report.Point{X: p.Time, Y: float64(t.Static + p.Bytes)})
		}
	}
	now := 0.0
	for i, s := range t.Measured.Ops {
		measured = append(measured, report.Point{X: now, Y: float64(t.Measured.Live[i])})
		now += s
	}
	last := func(at float64) report.Point { return report.Point{X: at, Y: predicted[len(predicted)-1].Y} }
	if len(measured) > 0 {
		measured = append(measured, last(now), last(now+t.Measured.Update))
	}
	return append(predicted, last(r.Makespan+t.UpdateS)), measured, nil
}

func (t *Timeline) simulate() (*schedule.Result, error) {
	return schedule.Simulate(t.Chain, t.Plan.Ops, t.Plan.Limits)
}

// Trace returns the step as a trace with a process for the prediction and one for the measurement.
func (t *Timeline) Trace(device string) (*trace.Trace, error) {
	r, err := t.simulate()
	if err != nil {
		return nil, err
	}
	predicted, measured, err := t.Curves()
	if err != nil {
		return nil, err
	}
	var a, b []trace.Slice
	for i, op := range t.Plan.Ops {
		a = append(a, t.slice(op, r.Start[i], r.End[i]))
	}
	now := 0.0
	for i, s := range t.Measured.Ops {
		b = append(b, t.slice(t.Plan.Ops[i], now, now+s))
		now += s
	}
	processes := []trace.Process{process(device+" predicted", append(a, update(r.Makespan, r.Makespan+t.UpdateS)), predicted)}
	if len(b) > 0 {
		processes = append(processes, process(device+" measured", append(b, update(now, now+t.Measured.Update)), measured))
	}
	return &trace.Trace{
		Processes: processes,
		Meta:      map[string]string{"chain": t.Chain.Name, "strategy": t.Plan.Strategy, "plan": t.Plan.Ops.String()},
	}, nil
}

func (t *Timeline) slice(op schedule.Op, start, end float64) trace.Slice {
	return trace.Slice{
		Name: op.String(), Category: op.Kind.String(), Start: start, End: end,
		Args: map[string]any{"layer": fmt.Sprintf("%d %s", op.Layer, t.Chain.Layer(op.Layer).Name)},
	}
}

func update(start, end float64) trace.Slice {
	return trace.Slice{Name: "update", Category: "update", Start: start, End: end}
}

func process(name string, slices []trace.Slice, memory []report.Point) trace.Process {
	counter := trace.Counter{Name: "memory", Unit: "bytes"}
	for _, p := range memory {
		counter.Samples = append(counter.Samples, trace.Sample{Time: p.X, Value: p.Y})
	}
	return trace.Process{Name: name, Tracks: []trace.Track{{Name: "compute", Slices: slices}}, Counters: []trace.Counter{counter}}
}
