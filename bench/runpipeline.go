package bench

import (
	"fmt"

	"plimsoll/bench/report"
	"plimsoll/bench/timeline"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
)

// runPipeline is how a finished run went along its plan.
func runPipeline(r *train.Run, o *train.Outcome) (*timeline.Pipeline, error) {
	p, err := timeline.NewPipeline(r.Pipe.Costs, r.Pipe.Plan, r.Pipe.Needs, r.Pipe.Holds)
	if err != nil {
		return nil, err
	}
	for _, d := range o.Pipe.Devices {
		p.Names = append(p.Names, d.Name)
	}
	p.Ran.Tasks = o.Tasks // of a step from its beginning on: its time is the measured one
	return p, nil
}

// addPipeline adds to a page what a run along a pipeline plan was.
func addPipeline(page *report.Page, r *train.Run, o *train.Outcome) error {
	page.Title, page.Batch = fmt.Sprintf("%s on %s, %s", r.Job.Model, r.Job.Data, r.Job.Devices), r.Job.Images()
	page.Charts = page.Charts[:3] // without the norm, which is not known
	page.Sections = []report.Section{{Title: "Devices", Note: "Bytes as they are laid out; the peak is everything but holes.", Table: memoryTable(o.Pipe)}}
	p, err := runPipeline(r, o)
	if err != nil {
		return err
	}
	picture, err := p.Picture(fmt.Sprintf("%s, %s", o.Strategy, p.Shown()), r.Limit)
	if err != nil {
		return err
	}
	page.Timelines = []report.Timeline{*picture}
	return nil
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
