package receipt

import (
	"fmt"
	"slices"
	"time"

	"plimsoll/bench/report"
)

// Table returns receipts side by side, a row each: what was predicted and measured, the gap, and what it comes from. name
// gives the first cells of a row.
func Table(heads []string, receipts []*Receipt, name func(i int) []string) *report.Table {
	t := &report.Table{}
	for _, h := range heads {
		t.Columns = append(t.Columns, report.Column{Name: h})
	}
	for _, h := range []string{"predicted", "measured", "gap"} {
		t.Columns = append(t.Columns, report.Column{Name: h, Right: true})
	}
	shown := func(c Cause) bool { return slices.ContainsFunc(receipts, func(r *Receipt) bool { return r.Has(c) }) }
	for c := range causes {
		if shown(c) {
			t.Columns = append(t.Columns, report.Column{Name: c.String(), Right: true})
		}
	}
	for i, r := range receipts {
		row := append(name(i), millis(r.Predicted), millis(r.Measured), signed(r.Gap()))
		for c, d := range r.By {
			if shown(Cause(c)) {
				row = append(row, signed(d))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Causes returns receipts as a table with a line for the predicted and the measured time, the gap, and each cause. name gives the head of
// a receipt's column.
func Causes(receipts []*Receipt, name func(i int) string) *report.Table {
	t := Table(nil, receipts, func(int) []string { return nil })
	lines := make([][]string, len(t.Columns))
	for i, c := range t.Columns {
		lines[i] = []string{c.Name}
		for _, row := range t.Rows {
			lines[i] = append(lines[i], row[i])
		}
	}
	out := &report.Table{Columns: []report.Column{{Name: "cause"}}, Rows: lines}
	for i := range receipts {
		out.Columns = append(out.Columns, report.Column{Name: name(i), Right: true})
	}
	return out
}

// millis prints milliseconds: one unit in all cells of a table, so that they can be added up.
func millis(d time.Duration) string { return fmt.Sprintf("%.3f ms", d.Seconds()*1e3) }

func signed(d time.Duration) string { return fmt.Sprintf("%+.3f ms", d.Seconds()*1e3) }
