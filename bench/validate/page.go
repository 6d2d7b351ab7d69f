package validate

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"plimsoll/bench/report"
	"plimsoll/internal/folder"
	"plimsoll/internal/units"
)

// Cells without a figure.
const (
	notSeen     = "not looked at" // memory, in simulated time
	notCompared = "not compared"
)

// sharedNote says what the times of devices that share processors mean.
const sharedNote = "devices share processors, which predictions count (--simulated: devices of their own)"

// Table returns the rows for people: times, idle shares, bits.
func (r *Report) Table() *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Name: "strategy"}, {Name: "devices"}, {Name: "limit", Right: true}, {Name: "draw", Right: true}, {Name: "weights"},
		{Name: "time of"}, {Name: "predicted", Right: true}, {Name: "measured", Right: true}, {Name: "ratio", Right: true},
		{Name: "predicted bubble", Right: true}, {Name: "measured bubble", Right: true}, {Name: "peaks to the byte"}, {Name: "identical"},
	}}
	for i := range r.Rows {
		row := &r.Rows[i]
		t.Rows = append(t.Rows, []string{
			row.Strategy, row.Shared.On(row.Devices), row.Limit, row.draw(), string(row.Versions), row.unit(),
			units.Seconds(row.PredictedS), units.Seconds(row.MeasuredS), fmt.Sprintf("%.3f", row.Ratio),
			percent(row.PlannedBubble), percent(row.MeasuredBubble), row.exact(), row.identical(),
		})
	}
	return t
}

// DeviceTable returns memory and idle time of every device of every row.
func (r *Report) DeviceTable() *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Name: "strategy"}, {Name: "limit", Right: true}, {Name: "draw", Right: true}, {Name: "device"},
		{Name: "predicted peak", Right: true}, {Name: "measured peak", Right: true}, {Name: "laid out", Right: true}, {Name: "written up to", Right: true},
		{Name: "predicted idle", Right: true}, {Name: "measured idle", Right: true},
	}}
	for i := range r.Rows {
		row := &r.Rows[i]
		for i, d := range row.PerDevice {
			if !row.line.Uses(i) {
				continue
			}
			peak, touched := notSeen, notSeen
			if d.MeasuredPeakBytes > 0 {
				peak = units.ExactBytes(d.MeasuredPeakBytes)
			}
			if d.TouchedBytes > 0 {
				touched = units.ExactBytes(d.TouchedBytes)
			}
			t.Rows = append(t.Rows, []string{
				row.Strategy, row.Limit, row.draw(), d.Name, units.ExactBytes(d.PredictedPeakBytes), peak, units.ExactBytes(d.ExtentBytes), touched,
				percent(d.PredictedIdle), percent(d.MeasuredIdle),
			})
		}
	}
	return t
}

// percent prints a share, of which rounding may have made less than nothing.
func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*max(share, 0)) }

func (r *Row) draw() string {
	if r.Draw == 0 {
		return "none"
	}
	return strconv.FormatUint(r.Draw, 10)
}

// unit says of what the times are.
func (r *Row) unit() string {
	switch {
	case r.pipe.IsFlush():
		return fmt.Sprintf("step of %d microbatches", r.Minibatches)
	case r.Minibatches == 1:
		return "period"
	}
	return fmt.Sprintf("period of %d", r.Minibatches)
}

func (r *Row) identical() string {
	switch {
	case r.Identical == nil:
		return notCompared
	case *r.Identical:
		return "yes"
	}
	return "no: " + r.Difference
}

// count counts the devices that could be looked at, and those that were written up to where the last tensor was predicted to
// end.
func (r *Row) count() (exact, seen int) {
	for i := range r.PerDevice {
		if d := &r.PerDevice[i]; d.TouchedBytes > 0 {
			seen++
			if d.Exact() {
				exact++
			}
		}
	}
	return exact, seen
}

func (r *Row) exact() string {
	exact, seen := r.count()
	if seen == 0 {
		return notSeen
	}
	return fmt.Sprintf("%d of %d", exact, seen)
}

// Print prints the report for people; verbose adds idle times and devices. Errors: those of writing.
func (r *Report) Print(w io.Writer, verbose bool) error {
	fmt.Fprintf(w, "%s\n%s\n\n", r.Title, r.Note)
	if err := r.brief().Terminal(w, 2); err != nil {
		return err
	}
	if verbose {
		fmt.Fprintln(w)
		if err := r.Table().Terminal(w, 3); err != nil {
			return err
		}
		fmt.Fprintln(w)
		if err := r.DeviceTable().Terminal(w, 4); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(r.conclusions(), "\n"))
	return nil
}

// brief returns the rows for a terminal: times and bits.
func (r *Report) brief() *report.Table {
	t := &report.Table{Columns: []report.Column{{Name: "strategy"}, {Name: "devices"}, {Name: "limit", Right: true}}}
	if r.drawn() {
		t.Columns = append(t.Columns, report.Column{Name: "draw", Right: true})
	}
	t.Columns = append(t.Columns, []report.Column{
		{Name: "time of"}, {Name: "predicted", Right: true}, {Name: "measured", Right: true}, {Name: "ratio", Right: true}, {Name: "identical"},
	}...)
	for i := range r.Rows {
		row := &r.Rows[i]
		cells := []string{row.Strategy, row.Shared.On(row.Devices), row.Limit}
		if r.drawn() {
			cells = append(cells, row.draw())
		}
		t.Rows = append(t.Rows, append(cells, row.kind(), units.Seconds(row.PredictedS), units.Seconds(row.MeasuredS), fmt.Sprintf("%.3f", row.Ratio), row.identical()))
	}
	return t
}

// drawn reports whether the times of a chain were drawn at random.
func (r *Report) drawn() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Draw > 0 })
}

// kind returns the name of the time in few letters.
func (r *Row) kind() string {
	if r.pipe.IsFlush() {
		return "step"
	}
	return r.unit()
}

// Markdown prints the report for a document, without its devices.
func (r *Report) Markdown(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", r.Note)
	if err := r.Table().Markdown(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n- %s\n", strings.Join(r.conclusions(), "\n- "))
	return nil
}

// conclusions are the sentences under the tables.
func (r *Report) conclusions() (all []string) {
	exact, seen, same, compared, shared := 0, 0, 0, 0, false
	for i := range r.Rows {
		row := &r.Rows[i]
		shared = shared || row.Shared != nil
		if row.Identical != nil {
			compared++
			if *row.Identical {
				same++
			}
		}
		e, n := row.count()
		exact, seen = exact+e, seen+n
	}
	all = append(all, fmt.Sprintf("%.1f%% median error of the predicted time, %.1f%% the worst, of %s", 100*r.MedianError, 100*r.WorstError, units.Count(len(r.Rows), "plan")))
	if seen > 0 {
		all = append(all, fmt.Sprintf("%d of %d devices were written up to the predicted byte", exact, seen),
			fmt.Sprintf("%d of %d steps with a flush have one device's bits", same, compared))
	}
	if shared {
		all = append(all, sharedNote)
	}
	for _, d := range r.Duels {
		all = append(all, d.String())
	}
	for _, s := range r.Skipped {
		all = append(all, fmt.Sprintf("no plan: %s on %s at %s: %s", s.Strategy, s.Devices, s.Limit, s.Reason))
	}
	return all
}

// Page returns the report as a page, with a picture of every plan and of its run. The facts are those of its environment that
// only the caller knows.
func (r *Report) Page(facts ...report.Fact) (*report.Page, error) {
	p := &report.Page{
		Title: r.Title, Summary: r.Note,
		Environment: append(slices.Clip(facts), []report.Fact{
			{Name: "model", Value: r.Model}, {Name: "batch", Value: r.SampleSize.Samples(r.Samples) + " a step"},
			{Name: "data", Value: r.Data}, {Name: "device", Value: r.Device}, {Name: "seed", Value: fmt.Sprint(r.Seed)},
		}...),
		Sections: []report.Section{
			{Title: "Predicted and measured", Table: r.Table()},
			{Title: "Devices", Note: "Written up to: the end of the highest byte that the run changed.", Table: r.DeviceTable()},
		},
		Notes: r.conclusions(),
	}
	for i := range r.Rows {
		t, err := r.Rows[i].Picture()
		if err != nil {
			return nil, err
		}
		p.Timelines = append(p.Timelines, *t)
	}
	return p, nil
}

// Picture returns the plan, and below it the run, on one axis.
func (r *Row) Picture() (*report.Timeline, error) {
	title := fmt.Sprintf("%s on %s at %s", r.Strategy, r.Shared.On(r.Devices), r.Limit)
	if r.Draw > 0 {
		title += fmt.Sprintf(", draw %d", r.Draw)
	}
	return r.line.Picture(title, r.LimitBytes)
}

// WriteFolder writes the report to a folder: its figures as validate.json, tables.md, index.html, and trace.json, the first
// row as planned and as measured. No file is ever partial.
func (r *Report) WriteFolder(at *folder.Dir, facts ...report.Fact) error {
	page, err := r.Page(facts...)
	if err != nil {
		return err
	}
	if err := page.WriteIn(at, "index.html"); err != nil {
		return err
	}
	t, err := r.Rows[0].line.Trace()
	if err != nil {
		return err
	}
	t.Meta["limit"] = r.Rows[0].Limit
	if s := r.Rows[0].Shared; s != nil {
		t.Meta["processors"] = s.String()
	}
	if err := at.Write("trace.json", t.Write); err != nil {
		return err
	}
	if err := at.Write("tables.md", r.Markdown); err != nil {
		return err
	}
	return at.WriteJSON("validate.json", r)
}
