package bench

import (
	"fmt"

	"plimsoll/bench/report"
	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
)

// RunTimeline returns the step of a finished run.
func RunTimeline(r *train.Run, o *train.Outcome) *Timeline {
	return &Timeline{
		Chain: r.Chain, Plan: r.Plan, Static: r.Job.Planned(r.Plan).Work.StaticBytes(),
		UpdateS: executor.UpdateSeconds(r.Chain), Measured: o.Measured,
	}
}

// RunPage returns a finished run as a page: its figures, its loss and accuracy, its memory over a step. The facts are those of its
// environment that only the caller knows.
func RunPage(r *train.Run, o *train.Outcome, facts ...report.Fact) (*report.Page, error) {
	all, err := r.Job.StoreAllBytes()
	if err != nil {
		return nil, err
	}
	line := RunTimeline(r, o)
	row := report.Row{
		Strategy: o.Strategy, Name: r.Plan.Name(), Limit: o.LimitBytes, Share: share(o.LimitBytes, all), PredictedPeak: o.PredictedPeakBytes,
		MeasuredPeak: o.MeasuredPeakBytes, PredictedSeconds: o.PredictedS, MeasuredSeconds: o.MeasuredS, Plan: r.Plan.Ops.String(),
	}
	if row.Predicted, row.Measured, err = line.Curves(); err != nil {
		return nil, err
	}
	if row.Plain, err = line.storeAll(r.Job.Work.StoreAll()); err != nil {
		return nil, err
	}
	if row.Peak, err = peakOf(r.Job.Planned(r.Plan).Work, r.Chain, r.Plan, r.Limit); err != nil {
		return nil, err
	}
	page := &report.Page{
		Title:       fmt.Sprintf("%s on %s under %s", r.Job.Model, r.Job.Data, units.Bytes(r.Limit)),
		Summary:     RunSummary(r, o),
		Environment: RunEnvironment(r, o, facts),
		Figures:     Figures(&o.Summary),
		Batch:       r.Job.Config.Batch,
		Rows:        []report.Row{row},
		Charts:      HistoryCharts(&o.History),
	}
	paid, err := RunReceipt(r, o)
	if paid != nil {
		page.Sections = []report.Section{receiptSection(RunReceiptTable(paid))}
	}
	return page, err
}

// RunSummary is the sentence under a run's title.
func RunSummary(r *train.Run, o *train.Outcome) string {
	return fmt.Sprintf("%d steps of %d images; %.2f%% of %d held-out samples are recognized.", o.Steps, r.Job.Images(), 100*o.Accuracy, o.TestSamples)
}

// HistoryCharts draws loss, accuracy and learning rate over the steps of a run, on training batches and held-out samples.
func HistoryCharts(h *train.History) []report.Chart {
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
	return []report.Chart{
		stepChart("Loss", report.Plain, batches(func(r train.Record) float64 { return float64(r.Loss) }),
			heldOut(func(e train.Evaluation) float64 { return float64(e.Loss) })),
		stepChart("Accuracy", report.Share, batches(func(r train.Record) float64 { return r.Accuracy }),
			heldOut(func(e train.Evaluation) float64 { return e.Accuracy })),
		stepChart("Learning rate", report.Plain, batches(func(r train.Record) float64 { return r.Rate })),
		stepChart("Norm of the gradients", report.Plain, batches(func(r train.Record) float64 { return float64(r.Norm) })),
	}
}

func stepChart(title string, unit report.Unit, series ...report.Series) report.Chart {
	return report.Chart{Title: title, X: report.Axis{Label: "step", Tight: true}, Y: report.Axis{Unit: unit}, Series: series}
}
