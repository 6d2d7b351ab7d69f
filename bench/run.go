package bench

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/bench/report"
	"plimsoll/bench/timeline"
	"plimsoll/bench/trace"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
)

// Processors is the name of the fact that a run's devices share some.
const Processors = "processors"

// RunPage returns a finished run as a page: its figures, its loss and accuracy, its plan and how it ran, the memory over a step or a
// few periods. The facts are those of its environment that only the caller knows.
func RunPage(r *train.Run, o *train.Outcome, facts ...report.Fact) (*report.Page, error) {
	page := &report.Page{
		Title:       fmt.Sprintf("%s on %s%s", r.Job.Model, r.Job.Data, where(r)),
		Summary:     runSummary(r, o),
		Environment: append(append(slices.Clip(facts), Environment(r.Job)...), weights(&o.Summary)),
		Figures:     figures(&o.Summary),
		Charts:      historyCharts(&o.History),
		Tokens:      r.Job.Tokens(),
	}
	if !r.Plan.IsPipeline() {
		return page, addStep(page, r, o)
	}
	return page, addDevices(page, r, o)
}

// where says under which limit a run was on one device, or on which devices.
func where(r *train.Run) string {
	if !r.Plan.IsPipeline() {
		return " under " + units.Bytes(r.Plan.Limit)
	}
	return ", " + r.Job.Devices
}

// RunTrace returns a finished run as a trace: its device, or its devices and links, as planned and as they worked.
func RunTrace(r *train.Run, o *train.Outcome) (*trace.Trace, error) {
	if !r.Plan.IsPipeline() {
		return runStep(r, o).Trace(r.Job.Device.Name)
	}
	if r.Plan.IsCycle() {
		c, err := runCycle(r, o)
		if err != nil {
			return nil, err
		}
		return c.Trace(r.Job.Devices), nil
	}
	c, err := runPipeline(r, o)
	if err != nil {
		return nil, err
	}
	t, err := c.Trace()
	if s := o.Pipe.Shared; err == nil && s != nil {
		t.Meta[Processors] = s.String()
	}
	return t, err
}

// addStep adds to a page what a run on one device was.
func addStep(page *report.Page, r *train.Run, o *train.Outcome) error {
	page.Batch = r.Job.Config.Batch
	all, err := r.Job.StoreAllBytes()
	if err != nil {
		return err
	}
	step := runStep(r, o)
	row := report.Row{
		Strategy: o.Strategy, Name: r.Plan.Name(), Limit: o.LimitBytes, Share: share(o.LimitBytes, all), PredictedPeak: o.PredictedPeakBytes,
		MeasuredPeak: o.MeasuredPeakBytes, PredictedSeconds: o.PredictedS, MeasuredSeconds: o.MeasuredS, Plan: r.Plan.Sequence().String(),
	}
	if row.Predicted, row.Measured, err = step.Curves(); err != nil {
		return err
	}
	if row.Plain, err = step.StoreAll(r.Job.Work.StoreAll()); err != nil {
		return err
	}
	if row.Peak, err = timeline.Peak(r.Plan.Work, r.Chain, r.Plan.Plan, r.Plan.Limit); err != nil {
		return err
	}
	page.Rows = []report.Row{row}
	paid, err := step.Receipt()
	if paid != nil {
		page.Sections = []report.Section{receiptSection(RunReceiptTable(paid))}
	}
	return err
}

// addDevices adds to a page what a run on several devices was.
func addDevices(page *report.Page, r *train.Run, o *train.Outcome) error {
	page.Batch = r.Job.Images()
	if s := o.Pipe.Shared; s != nil {
		page.Notes = append(page.Notes, s.String())
		page.Environment = append(page.Environment, report.Fact{Name: Processors, Value: s.String()})
	}
	page.Sections = []report.Section{{Title: "Devices", Note: "Bytes as they are laid out; the peak is everything but holes.", Table: memoryTable(o.Pipe)}}
	if r.Plan.IsCycle() {
		c, err := runCycle(r, o)
		if err != nil {
			return err
		}
		page.Timelines = []report.Timeline{*c.Picture()}
		if paid := c.Receipt(); paid != nil {
			page.Sections = append(page.Sections, receiptSection(RunReceiptTable(paid)))
		}
		return nil
	}
	p, err := runPipeline(r, o)
	if err != nil {
		return err
	}
	picture, err := p.Picture(fmt.Sprintf("%s, %s", o.Strategy, p.Shown()), r.Plan.Limit)
	if err != nil {
		return err
	}
	page.Timelines = []report.Timeline{*picture}
	paid, err := tasksReceipt(r.Plan, o)
	if paid != nil {
		page.Sections = append(page.Sections, receiptSection(RunReceiptTable(paid)))
	}
	return err
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

// runSummary is the sentence under a run's title.
func runSummary(r *train.Run, o *train.Outcome) string {
	steps, held := fmt.Sprintf("%d steps of %s", o.Steps, r.Job.Samples(r.Job.Images())), r.Job.Held(o.TestLoss, o.Accuracy, o.MeanIoU, o.TestSamples)
	if !r.Job.Config.Loss.Predicts() {
		return fmt.Sprintf("%s; loss %.4f, %s.", steps, o.TestLoss, held)
	}
	return fmt.Sprintf("%s; %s are recognized.", steps, held)
}

// historyCharts draws loss, accuracy and learning rate over the steps of a run, on training batches and held-out samples.
func historyCharts(h *train.History) []report.Chart {
	batches := func(value func(train.Record) float64) report.Series {
		s := report.Series{Name: "batch"}
		for _, r := range h.Steps {
			s.Points = append(s.Points, report.Point{X: float64(r.Step + 1), Y: value(r)})
		}
		return s
	}
	heldOut := func(value func(train.Evaluation) float64) report.Series {
		s := report.Series{Name: "held out", Shape: report.Dots, Color: 1}
		for _, e := range h.Evals {
			s.Points = append(s.Points, report.Point{X: float64(e.Done), Y: value(e)})
		}
		return s
	}
	charts := []report.Chart{
		stepChart("Loss", report.Plain, batches(func(r train.Record) float64 { return float64(r.Loss) }),
			heldOut(func(e train.Evaluation) float64 { return float64(e.Loss) })),
	}
	if slices.ContainsFunc(h.Steps, func(r train.Record) bool { return !math.IsNaN(float64(r.Accuracy)) }) {
		charts = append(charts, stepChart("Accuracy", report.Share, batches(func(r train.Record) float64 { return float64(r.Accuracy) }),
			heldOut(func(e train.Evaluation) float64 { return float64(e.Accuracy) })))
	}
	if len(h.Evals) > 0 && h.Evals[0].MeanIoU != nil {
		charts = append(charts, stepChart("Mean IoU", report.Share, heldOut(func(e train.Evaluation) float64 { return *e.MeanIoU })))
	}
	charts = append(charts, stepChart("Learning rate", report.Plain, batches(func(r train.Record) float64 { return r.Rate })))
	if slices.ContainsFunc(h.Steps, func(r train.Record) bool { return !math.IsNaN(float64(r.Norm)) }) { // without a flush it is not known
		charts = append(charts, stepChart("Norm of the gradients", report.Plain, batches(func(r train.Record) float64 { return float64(r.Norm) })))
	}
	return charts
}

func stepChart(title string, unit report.Unit, series ...report.Series) report.Chart {
	return report.Chart{Title: title, X: report.Axis{Label: "step", Tight: true}, Y: report.Axis{Unit: unit}, Series: series}
}
