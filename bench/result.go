package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"plimsoll/bench/report"
	"plimsoll/internal/folder"
	"plimsoll/internal/units"
)

// Result is a measured grid with its page. It may have rows of the same job on a smaller device, the result of a language model, and runs of
// one whose weights move.
type Result struct {
	*Report
	grid *Grid
	name string // of the file of its figures
	page *report.Page
	text *Result // of the language model; nil without one
}

// Measure is Run with a page of what it found, for a file of figures of that name. Errors: those of Run, *NothingFitsError.
func (g *Grid) Measure(ctx context.Context, name string) (*Result, error) {
	r, err := g.Run(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.Rows) == 0 {
		return nil, nothingFits(r)
	}
	page, err := g.Page(r)
	return &Result{Report: r, grid: g, name: name, page: page}, err
}

// NothingFitsError is returned for a grid of which no plan fits: the one that comes closest.
type NothingFitsError struct{ Skip }

func nothingFits(r *Report) error {
	least := func(s Skip) uint64 { return uint64(s.SmallestBytes) - 1 } // of what memory does not help, the most
	return &NothingFitsError{slices.MinFunc(r.Skipped, func(a, b Skip) int { return cmp.Compare(least(a), least(b)) })}
}

func (e *NothingFitsError) Error() string {
	return fmt.Sprintf("no strategy fits in any of the limits: the smallest found is %s, of %s, needed by %s", units.Bytes(e.SmallestBytes), e.Strategy, e.NeededBy)
}

// AddSmall adds the rows of a grid of the same job on a smaller device, to the report and to its page.
func (r *Result) AddSmall(small *Result) {
	r.page.Append(small.page, small.DeviceBytes)
	for _, row := range small.Rows {
		row.DeviceBytes = small.DeviceBytes
		r.Rows = append(r.Rows, row)
	}
	for _, s := range small.Skipped {
		s.DeviceBytes = small.DeviceBytes
		r.Skipped = append(r.Skipped, s)
	}
	r.sumUp()
	r.page.Sections[0] = receiptSection(r.Receipts())
}

// AddText adds the result of a language model.
func (r *Result) AddText(text *Result) { r.text, r.Text = text, text.Report }

// AddMoved adds the runs of a model whose weights move.
func (r *Result) AddMoved(m *Moved) { r.Moved = m }

// Size returns how many rows were measured.
func (r *Result) Size() int {
	n := len(r.Rows)
	if r.text != nil {
		n += r.text.Size()
	}
	if r.Moved != nil {
		n += len(r.Moved.Rows)
	}
	return n
}

// Failures names the rows that broke a promise about bits or bytes; empty when all kept them.
func (r *Result) Failures() []string {
	all := r.Report.Failures()
	if r.text != nil {
		all = append(all, r.text.Failures()...)
	}
	if r.Moved != nil {
		all = append(all, r.Moved.failures()...)
	}
	return all
}

// WriteFolder writes the result to a folder, and that of the language model to a folder in it, with facts of its environment that only
// the caller knows. Files: its figures, its page, and trace.json, the step of the row with the most forwards. No file is ever partial.
func (r *Result) WriteFolder(at *folder.Dir, facts ...report.Fact) error {
	if r.text != nil {
		if err := r.text.WriteFolder(at.Sub("text"), facts...); err != nil {
			return err
		}
	}
	page := *r.page
	page.Environment = slices.Concat(facts, page.Environment)
	if err := page.WriteIn(at, "index.html"); err != nil {
		return err
	}
	if err := r.grid.writeTrace(at, r.Report); err != nil {
		return err
	}
	return at.WriteJSON(r.name+".json", r.Report)
}

// Print prints the result for people; verbose adds statistics and the cause of each row's error. Errors: those of writing.
func (r *Result) Print(w io.Writer, verbose bool) error {
	if err := r.page.Brief().Terminal(w, 2); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", r.medianError())
	fmt.Fprintf(w, "%.1f%% worst error\n", 100*r.WorstError)
	r.printSmall(w)
	fmt.Fprintf(w, "%s is 100%%, of which %s weights, gradients and optimizer\n", units.Bytes(r.StoreAllBytes), units.Bytes(r.StaticBytes))
	if verbose {
		if err := r.printStatistics(w); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for _, s := range r.Skipped {
		switch {
		case seen[s.Strategy]:
		case s.SmallestBytes == 0:
			fmt.Fprintf(w, "%s: %s\n", s.Strategy, s.Reason)
		default:
			fmt.Fprintf(w, "%s needs at least %s\n", s.Strategy, units.Bytes(s.SmallestBytes))
		}
		seen[s.Strategy] = true
	}
	if err := r.printText(w); err != nil || r.Moved == nil {
		return err
	}
	return r.Moved.print(w)
}

// printText prints the table of the language model, if there is one.
func (r *Result) printText(w io.Writer) error {
	text := r.text
	if text == nil {
		return nil
	}
	fmt.Fprintf(w, "\n%s on %s, %s:\n\n", text.Model, text.Data, text.Samples(text.Batch))
	if err := text.page.Brief().Terminal(w, 2); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", text.medianError())
	return nil
}

// medianError returns the line with the error in the middle.
func (r *Report) medianError() string {
	return fmt.Sprintf("%.1f%% median error of the predicted time, of %s", 100*r.MedianError, units.Count(len(r.Rows), "plan"))
}

// printStatistics prints the statistics of the errors, and the cause of each row's.
func (r *Report) printStatistics(w io.Writer) error {
	fmt.Fprintf(w, "%.1f%% to %.1f%% median error as steps vary\n", 100*r.MedianInterval[0], 100*r.MedianInterval[1])
	fmt.Fprintf(w, "%.1f%% median error by the costs measured before planning\n", 100*r.MedianPlannedError)
	fmt.Fprintf(w, "%.1f%% median error if copies and ops did not slow each other down\n", 100*r.MedianAsAloneError)
	fmt.Fprintf(w, "%.3f times the costs measured before planning are the costs measured beside the rows\n", r.Drift)
	fmt.Fprint(w, "\nthe gap between the predicted and the measured time of the step in the middle, by cause:\n")
	err := r.Causes().Terminal(w, 1)
	fmt.Fprintln(w)
	return err
}

// printSmall prints the price of each row on a smaller device, against store-all's time among the rows above.
func (r *Report) printSmall(w io.Writer) {
	said := false
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.DeviceBytes == 0 || !(r.Rows[0].StoreAllS > 0) {
			continue
		}
		if !said {
			fmt.Fprintf(w, "the small device has %s; store-all needs %.1f times as much\n", units.Bytes(row.DeviceBytes), float64(r.StoreAllBytes)/float64(row.DeviceBytes))
		}
		said = true
		fmt.Fprintf(w, "a step there takes %s with %s\n", longer(row.MeasuredS/r.Rows[0].StoreAllS), row.Plan.Name())
	}
}

// longer says how much more time something takes.
func longer(times float64) string {
	if times < 1 {
		return fmt.Sprintf("%.1f%% less time", 100*(1-times))
	}
	return fmt.Sprintf("%.1f%% longer", 100*(times-1))
}
