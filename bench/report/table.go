package report

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Column is a heading; Right aligns its cells to the right, as numbers want.
type Column struct {
	Name  string `json:"name"`
	Right bool   `json:"right,omitempty"`
}

// Table is text in columns. A row may be shorter than the header.
type Table struct {
	Columns []Column   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Text writes the table for a terminal: columns two spaces apart, a rule under the header.
func (t *Table) Text(w io.Writer) error {
	a := t.align(strings.NewReplacer("\n", " "), 0)
	rule := make([]string, len(a.widths))
	for i, n := range a.widths {
		rule[i] = strings.Repeat("─", n)
	}
	return a.write(w, rule, "", "  ", "")
}

// TerminalColumns is the width that tables for people keep to.
const TerminalColumns = 100

// Terminal writes the table for people. A table wider than TerminalColumns is written as several, one below the other, each of which
// begins with the first keys columns.
func (t *Table) Terminal(w io.Writer, keys int) error {
	for i, part := range t.parts(keys) {
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		if err := part.Text(w); err != nil {
			return err
		}
	}
	return nil
}

// parts divides the columns after the keys among tables that are as wide as TerminalColumns allows.
func (t *Table) parts(keys int) (all []*Table) {
	widths := t.align(strings.NewReplacer("\n", " "), 0).widths
	width := func(from, to int) (sum int) {
		for _, w := range widths[from:to] {
			sum += w + 2
		}
		return sum
	}
	first := keys
	for i := keys + 1; i <= len(widths); i++ {
		if i == len(widths) || width(0, keys)+width(first, i+1)-2 > TerminalColumns {
			all = append(all, t.columns(keys, first, i))
			first = i
		}
	}
	return all
}

// columns returns the table with the keys and the columns from first up to last alone.
func (t *Table) columns(keys, first, last int) *Table {
	part := &Table{Columns: slices.Concat(t.Columns[:keys], t.Columns[first:last])}
	for _, row := range t.Rows {
		from, to := min(first, len(row)), min(last, len(row))
		part.Rows = append(part.Rows, slices.Concat(row[:min(keys, len(row))], row[from:to]))
	}
	return part
}

// Markdown writes the table for a document, aligned in the source as well.
func (t *Table) Markdown(w io.Writer) error {
	a := t.align(strings.NewReplacer("\n", " ", "|", `\|`), 3)
	rule := make([]string, len(a.widths))
	for i, n := range a.widths {
		rule[i] = strings.Repeat("-", n)
		if t.Columns[i].Right {
			rule[i] = rule[i][1:] + ":"
		}
	}
	for i, row := range a.rows {
		a.rows[i] = append(row, make([]string, len(a.widths)-len(row))...)
	}
	return a.write(w, rule, "| ", " | ", " |")
}

// aligned is a table ready to write: the header is its first row, cells are escaped and measured.
type aligned struct {
	columns []Column
	rows    [][]string
	widths  []int
}

func (t *Table) align(escape *strings.Replacer, narrowest int) *aligned {
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		header[i] = c.Name
	}
	a := &aligned{columns: t.Columns, widths: make([]int, len(t.Columns))}
	for _, row := range append([][]string{header}, t.Rows...) {
		cells := make([]string, len(row))
		for i, text := range row {
			cells[i] = escape.Replace(text)
			a.widths[i] = max(a.widths[i], narrowest, utf8.RuneCountInString(cells[i]))
		}
		a.rows = append(a.rows, cells)
	}
	return a
}

// write writes the header, the rule and the rows.
func (a *aligned) write(w io.Writer, rule []string, left, between, right string) error {
	var b strings.Builder
	for i, row := range a.rows {
		a.line(&b, row, left, between, right)
		if i == 0 {
			a.line(&b, rule, left, between, right)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line writes one line, without spaces at its end.
func (a *aligned) line(b *strings.Builder, cells []string, left, between, right string) {
	padded := make([]string, len(cells))
	for i, cell := range cells {
		gap := strings.Repeat(" ", a.widths[i]-utf8.RuneCountInString(cell))
		if a.columns[i].Right {
			padded[i] = gap + cell
		} else {
			padded[i] = cell + gap
		}
	}
	b.WriteString(strings.TrimRight(left+strings.Join(padded, between)+right, " ") + "\n")
}
