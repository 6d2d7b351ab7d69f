package report

import (
	"io"
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
