package bench

import (
	"fmt"
	"strings"

	"plimsoll/bench/report"
	"plimsoll/bench/timeline"
	"plimsoll/internal/folder"
	"plimsoll/internal/units"
)

// Page returns the report as a page with a table and the memory curves of every row.
func (g *Grid) Page(r *Report) (*report.Page, error) {
	p := &report.Page{
		Title: fmt.Sprintf("%s on %s: predicted and measured", r.Model, r.Data),
		Summary: fmt.Sprintf("Every row trains %d steps of the same job along another plan, in turns with store-all. Limits are shares of "+
			"store-all's peak, %s, weights and optimizer included.", r.Steps, units.Bytes(r.StoreAllBytes)),
		Environment: Environment(g.Job),
		Batch:       r.Batch, Tokens: g.Job.Tokens(),
		Notes: []string{
			"A peak is measured in a step that checks every byte of the arena after every op; a time is the median of whole steps.",
			"Identical: the loss after every step, and every weight, buffer, gradient and optimizer state after the last one, equal store-all's byte for byte.",
		},
	}
	p.Sections = []report.Section{receiptSection(r.Receipts())}
	for _, limit := range g.Limits {
		for i := range r.Rows {
			if r.Rows[i].LimitBytes != limit.Bytes {
				continue
			}
			row, err := g.row(r, &r.Rows[i])
			if err != nil {
				return nil, err
			}
			p.Rows = append(p.Rows, row)
		}
		for _, s := range r.Skipped {
			if s.LimitBytes == limit.Bytes {
				p.Rows = append(p.Rows, report.Row{
					Strategy: s.Strategy, Limit: s.LimitBytes, Share: share(s.LimitBytes, r.StoreAllBytes),
					Refused: s.refused(),
				})
			}
		}
	}
	return p, nil
}

// refused says for people what a row would need.
func (s *Skip) refused() string {
	if s.SmallestBytes == 0 {
		return "does not fit: " + s.Reason
	}
	return fmt.Sprintf("does not fit (smallest: %s)", units.Bytes(s.SmallestBytes))
}

func share(part, whole int64) float64 { return float64(part) / float64(whole) }

func (g *Grid) row(r *Report, row *Row) (report.Row, error) {
	out := report.Row{
		Strategy: row.Strategy, Name: row.Plan.Name(), Limit: row.LimitBytes, Share: share(row.LimitBytes, r.StoreAllBytes),
		PredictedPeak: row.PredictedPeakBytes, MeasuredPeak: row.MeasuredPeakBytes,
		PredictedSeconds: row.PredictedS, MeasuredSeconds: row.MeasuredS,
		Identical: &row.Identical, Plan: row.Plan.Sequence().String(),
	}
	var err error
	if out.Predicted, out.Measured, err = g.step(row).Curves(); err != nil {
		return out, err
	}
	out.Peak, err = timeline.Peak(g.Job.Work, g.Chain, row.Plan, row.LimitBytes)
	return out, err
}

// writeTrace writes the step of the row with the most forwards.
func (g *Grid) writeTrace(at *folder.Dir, r *Report) error {
	if len(r.Rows) == 0 {
		return nil
	}
	best := &r.Rows[0]
	for i := range r.Rows {
		if r.Rows[i].Forwards > best.Forwards {
			best = &r.Rows[i]
		}
	}
	t, err := g.step(best).Trace(g.Job.Device.Name)
	if err != nil {
		return err
	}
	t.Meta["limit"] = best.Limit
	t.Meta["model"] = g.Job.Model
	return at.Write("trace.json", t.Write)
}

// Failures names the rows that broke a promise about bits or bytes; empty when all kept them.
func (r *Report) Failures() []string {
	var all []string
	for i := range r.Rows {
		row := &r.Rows[i]
		var broken []string
		if !row.Identical {
			broken = append(broken, "differs from store-all: "+row.Difference)
		}
		if row.MeasuredPeakBytes != row.PredictedPeakBytes {
			broken = append(broken, fmt.Sprintf("measured peak %s, predicted %s", units.Precise(row.MeasuredPeakBytes), units.Precise(row.PredictedPeakBytes)))
		}
		if max(row.MeasuredPeakBytes, row.ExtentBytes) > row.LimitBytes {
			broken = append(broken, fmt.Sprintf("used %s of a limit of %s", units.Precise(max(row.MeasuredPeakBytes, row.ExtentBytes)), units.Precise(row.LimitBytes)))
		}
		if len(broken) > 0 {
			all = append(all, fmt.Sprintf("%s at %s: %s", row.Strategy, row.Limit, strings.Join(broken, ", ")))
		}
	}
	return all
}
