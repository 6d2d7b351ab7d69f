package pipelined

import (
	"fmt"

	"plimsoll/bench"
	"plimsoll/bench/report"
	"plimsoll/bench/trace"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
)

// trained is how a finished run went along its plan.
func trained(r *train.Run, o *train.Outcome) (*course, error) {
	f, err := newFlat(r.Pipe)
	if err != nil {
		return nil, err
	}
	c := &course{pipe: r.Pipe, flat: f}
	for _, d := range o.Pipe.Devices {
		c.names = append(c.names, d.Name)
	}
	c.span.tasks = o.Tasks // of a step from its beginning on: its time is the measured one
	return c, nil
}

// RunPage returns a finished run as a page: its figures, its loss and accuracy, its plan and how it ran, the memory of its devices.
// The facts are those of its environment that only the caller knows.
func RunPage(r *train.Run, o *train.Outcome, facts ...report.Fact) (*report.Page, error) {
	c, err := trained(r, o)
	if err != nil {
		return nil, err
	}
	picture, err := c.Picture(fmt.Sprintf("%s, %s", o.Strategy, c.unit(r)), r.Limit)
	if err != nil {
		return nil, err
	}
	return &report.Page{
		Title:       fmt.Sprintf("%s on %s, %s", r.Job.Model, r.Job.Data, r.Job.Devices),
		Summary:     bench.RunSummary(r, o),
		Environment: bench.RunEnvironment(r, o, facts),
		Figures:     bench.Figures(&o.Summary),
		Batch:       r.Job.Images(),
		Charts:      bench.HistoryCharts(&o.History)[:3], // without the norm, which is not known
		Timelines:   []report.Timeline{*picture},
		Sections:    []report.Section{{Title: "Devices", Note: "Bytes as they are laid out; the peak is everything but holes.", Table: memoryTable(o.Pipe)}},
	}, nil
}

// unit says what the picture of a run shows.
func (c *course) unit(r *train.Run) string {
	switch {
	case c.cut():
		return fmt.Sprintf("%d periods in the steady state", shownPeriods)
	case c.flat.depth > 0:
		return fmt.Sprintf("%d periods, with those that fill and drain the pipeline", c.periods())
	}
	return fmt.Sprintf("a step of %d microbatches", r.Job.Microbatches)
}

// memoryTable lists what the devices of a run hold.
func memoryTable(p *train.PipeSummary) *report.Table {
	t := &report.Table{Columns: []report.Column{{Name: "device"}, {Name: "stages"}}}
	for _, name := range []string{"peak", "laid out", "weights, gradients, state", "messages", "minibatches in flight", "tasks", "host memory"} {
		t.Columns = append(t.Columns, report.Column{Name: name, Right: true})
	}
	for _, d := range p.Devices {
		row := []string{d.Name, fmt.Sprint(d.Stages)}
		for _, bytes := range []int64{d.PeakBytes, d.ExtentBytes, d.StaticBytes, d.MessagesBytes, d.InFlightBytes, d.WorkingBytes, d.OffloadedBytes + d.SnapshotBytes} {
			row = append(row, units.Bytes(bytes))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// RunTrace returns a finished run as a trace: its devices and links as planned, and below as they worked.
func RunTrace(r *train.Run, o *train.Outcome) (*trace.Trace, error) {
	c, err := trained(r, o)
	if err != nil {
		return nil, err
	}
	return c.Trace()
}
