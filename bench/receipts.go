package bench

import (
	"fmt"

	"plimsoll/bench/receipt"
	"plimsoll/bench/report"
	"plimsoll/executor/train"
	"plimsoll/planner/pipeline"
)

// RunReceipt returns the receipt of a finished run, of the step in the middle. It is nil when no step was left to run.
func RunReceipt(r *train.Run, o *train.Outcome) (*receipt.Receipt, error) {
	switch {
	case !r.Plan.IsPipeline():
		return runStep(r, o).Receipt()
	case !r.Plan.IsCycle():
		return tasksReceipt(r.Plan, o)
	}
	c, err := runCycle(r, o)
	if err != nil {
		return nil, err
	}
	return c.Receipt(), nil
}

// tasksReceipt returns the receipt of a run along a plan of tasks. Steps without a flush run on into each other: their updates, too, lie beside
// tasks of other devices, and are part of what they wait for.
func tasksReceipt(p *train.JobPlan, o *train.Outcome) (*receipt.Receipt, error) {
	if len(o.Tasks) == 0 || p.RunsSequence() {
		return nil, nil
	}
	t := receipt.Tasks{
		Chain: p.Costs.Chain, Platform: p.Costs.Platform, Plan: p.Plan, Took: p.MeasureTasks(o.Tasks), Predicted: o.PredictedS, Measured: o.MeasuredS,
	}
	if p.IsFlush() {
		last := 0.0
		for _, x := range o.Tasks {
			if x.Kind != pipeline.Update {
				last = max(last, x.End)
			}
		}
		t.Updates = max(o.MeasuredS-last, 0)
	}
	return receipt.NewTasks(t)
}

// RunReceiptTable returns the receipt of a run as a table.
func RunReceiptTable(r *receipt.Receipt) *report.Table {
	return receipt.Table([]string{"step"}, []*receipt.Receipt{r}, func(int) []string { return []string{"in the middle"} })
}

// RunCauses returns the receipt of a run as a table with a line for each cause.
func RunCauses(r *receipt.Receipt) *report.Table {
	return receipt.Causes([]*receipt.Receipt{r}, func(int) string { return "time" })
}

// addReceipts makes the receipts of all rows; the prediction is by the costs measured in turns with them.
func (g *Grid) addReceipts(r *Report) (err error) {
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Receipt, err = g.step(row).Receipt(); err != nil {
			return fmt.Errorf("receipt of %s at %s: %w", row.Strategy, row.Limit, err)
		}
	}
	return nil
}

// Receipts returns the receipts of all rows as a table.
func (r *Report) Receipts() *report.Table {
	return receipt.Table([]string{"strategy", "limit"}, r.receipts(), func(i int) []string { return []string{r.Rows[i].Plan.Name(), r.Rows[i].Limit} })
}

// Causes returns the receipts of all rows as a table with a line for each cause.
func (r *Report) Causes() *report.Table {
	return receipt.Causes(r.receipts(), func(i int) string { return r.Rows[i].Plan.Name() + " " + r.Rows[i].Limit })
}

// receipts returns the receipt of each row.
func (r *Report) receipts() (all []*receipt.Receipt) {
	for i := range r.Rows {
		all = append(all, r.Rows[i].Receipt)
	}
	return all
}

// receiptSection is the table of receipts on a page.
func receiptSection(t *report.Table) report.Section {
	return report.Section{
		Title: "Where the gap comes from",
		Note: "Measured less predicted time of one step, the one whose time is in the middle, attributed: the causes add up to the gap. Above zero is slower than predicted. " +
			"What an op waited for is told by replaying the measured times against the rules of the simulation.",
		Table: t,
	}
}
