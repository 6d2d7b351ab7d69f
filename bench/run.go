package bench

import (
	"fmt"
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
		Summary:     runSummary(r, o),
		Environment: append(append(slices.Clip(facts), Environment(r.Job)...), weights(&o.Summary)),
		Figures:     figures(&o.Summary),
		Charts:      historyCharts(&o.History),
		Tokens:      r.Job.Tokens(),
	}
	if r.Pipe != nil {
		if s := o.Pipe.Shared; s != nil {
			page.Notes = append(page.Notes, s.String())
			page.Environment = append(page.Environment, report.Fact{Name: Processors, Value: s.String()})
		}
		return page, addPipeline(page, r, o)
	}
	return page, addStep(page, r, o)
}

// RunTrace returns a finished run as a trace: its device, or its devices and links, as planned and as they worked.
func RunTrace(r *train.Run, o *train.Outcome) (*trace.Trace, error) {
	if r.Pipe == nil {
		return runStep(r, o).Trace(r.Job.Device.Name)
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

// runStep is the step of a finished run.
func runStep(r *train.Run, o *train.Outcome) *timeline.Step {
	return timeline.NewStep(r.Chain, r.Plan, r.Job.Planned(r.Plan).Work, o.Measured)
}

// addStep adds to a page what a run on one device was.
func addStep(page *report.Page, r *train.Run, o *train.Outcome) error {
	page.Title, page.Batch = fmt.Sprintf("%s on %s under %s", r.Job.Model, r.Job.Data, units.Bytes(r.Limit)), r.Job.Config.Batch
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
	if row.Peak, err = timeline.Peak(r.Job.Planned(r.Plan).Work, r.Chain, r.Plan, r.Limit); err != nil {
		return err
	}
	page.Rows = []report.Row{row}
	paid, err := step.Receipt()
	if paid != nil {
		page.Sections = []report.Section{receiptSection(RunReceiptTable(paid))}
	}
	return err
}

// runSummary is the sentence under a run's title.
func runSummary(r *train.Run, o *train.Outcome) string {
	return fmt.Sprintf("%d steps of %s; %s are recognized.", o.Steps, r.Job.Samples(r.Job.Images()), r.Job.Held(float64(o.TestLoss), o.Accuracy, o.MeanIoU, o.TestSamples))
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
		stepChart("Accuracy", report.Share, batches(func(r train.Record) float64 { return r.Accuracy }),
			heldOut(func(e train.Evaluation) float64 { return e.Accuracy })),
	}
	if len(h.Evals) > 0 && h.Evals[0].MeanIoU != nil {
		charts = append(charts, stepChart("Mean IoU", report.Share, heldOut(func(e train.Evaluation) float64 { return *e.MeanIoU })))
	}
	return append(charts,
		stepChart("Learning rate", report.Plain, batches(func(r train.Record) float64 { return r.Rate })),
		stepChart("Norm of the gradients", report.Plain, batches(func(r train.Record) float64 { return float64(r.Norm) })))
}

func stepChart(title string, unit report.Unit, series ...report.Series) report.Chart {
	return report.Chart{Title: title, X: report.Axis{Label: "step", Tight: true}, Y: report.Axis{Unit: unit}, Series: series}
}
