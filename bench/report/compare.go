package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Compare returns several pages as one: what they have in common stands side by side. The names tell the pages apart, and all are
// different.
func Compare(names []string, pages []*Page) *Page {
	c := comparison{names, pages}
	out := &Page{
		Title:   strings.Join(names, ", "),
		Summary: "Differences are to " + names[0] + ".",
		Batch:   pages[0].Batch, Tokens: pages[0].Tokens,
		Charts:   c.charts(func(p *Page) []Chart { return p.Charts }),
		Sections: []Section{{Title: "Figures", Table: c.Figures()}},
	}
	if memory := c.memory(); memory != nil {
		out.Charts = append(out.Charts, *memory)
	}
	var differ *Table
	if out.Environment, differ = c.environment(); differ != nil {
		out.Sections = append(out.Sections, Section{Title: "What differs in the environment", Table: differ, Wrap: true})
	}
	if t := c.rows(); t != nil {
		out.Sections = append(out.Sections, Section{Title: "The same strategy under the same limit", Note: "Measured times of a step.", Table: t})
	}
	for i, p := range pages {
		for _, r := range p.Rows {
			r.Name, r.Strategy = c.of(i, r.name()), c.of(i, r.Strategy)
			out.Rows = append(out.Rows, r)
		}
		if p.Batch != out.Batch {
			out.Batch = 0
		}
	}
	out.Timelines = c.timelines()
	return out
}

// comparison is pages with their names.
type comparison struct {
	names []string
	pages []*Page
}

// of names something of a page.
func (c *comparison) of(i int, name string) string { return c.names[i] + ": " + name }

// head is the first columns of a table with a column for each page, and one for the difference of each to the first.
func (c *comparison) head(first ...string) *Table {
	t := &Table{}
	for _, name := range first {
		t.Columns = append(t.Columns, Column{Name: name})
	}
	for i, name := range c.names {
		t.Columns = append(t.Columns, Column{name, true})
		if i > 0 {
			t.Columns = append(t.Columns, Column{"difference", true})
		}
	}
	return t
}

// cells are the values of all pages, NaN where there is none, with differences.
func (c *comparison) cells(unit Unit, values []float64) (row []string) {
	for i, v := range values {
		text := ""
		if !math.IsNaN(v) {
			text = unit.format(v)
		}
		row = append(row, text)
		if i > 0 {
			row = append(row, difference(unit, values[0], v))
		}
	}
	return row
}

// difference prints by how much b is above a: of shares in points of per cent, else as a part of a.
func difference(unit Unit, a, b float64) string {
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return ""
	case a == b:
		return "same"
	case unit == Share:
		return fmt.Sprintf("%+.2f points", 100*(b-a))
	case a == 0:
		return ""
	}
	return fmt.Sprintf("%+.2f %%", 100*(b/a-1))
}

// Figures puts the pages' figures side by side, in the order of the first page that has them.
func (c *comparison) Figures() *Table {
	t := c.head("figure")
	seen := map[string]bool{}
	for _, p := range c.pages {
		for _, f := range p.Figures {
			if seen[f.Name] {
				continue
			}
			seen[f.Name] = true
			var values []float64
			for _, p := range c.pages {
				values = append(values, p.figure(f.Name))
			}
			t.Rows = append(t.Rows, append([]string{f.Name}, c.cells(f.Unit, values)...))
		}
	}
	return t
}

// FigureTable is the comparison of the pages' figures alone.
func FigureTable(names []string, pages []*Page) *Table { return (&comparison{names, pages}).Figures() }

// figure returns a figure of the page, NaN when it has none of that name.
func (p *Page) figure(name string) float64 {
	for _, f := range p.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	return math.NaN()
}

// environment returns the facts that all pages share, and a table of the others; nil when there are none.
func (c *comparison) environment() (same []Fact, differ *Table) {
	t := &Table{Columns: []Column{{Name: "fact"}}}
	for _, name := range c.names {
		t.Columns = append(t.Columns, Column{Name: name})
	}
	seen := map[string]bool{}
	for _, p := range c.pages {
		for _, f := range p.Environment {
			if seen[f.Name] {
				continue
			}
			seen[f.Name] = true
			row, all := []string{f.Name}, true
			for _, p := range c.pages {
				i := slices.IndexFunc(p.Environment, func(g Fact) bool { return g.Name == f.Name })
				if i < 0 {
					row, all = append(row, ""), false
					continue
				}
				row = append(row, p.Environment[i].Value)
				all = all && p.Environment[i].Value == f.Value
			}
			if all {
				same = append(same, f)
			} else {
				t.Rows = append(t.Rows, row)
			}
		}
	}
	if len(t.Rows) == 0 {
		return same, nil
	}
	return same, t
}

// charts lays charts of one title over each other: a color for each page.
func (c *comparison) charts(of func(*Page) []Chart) (all []Chart) {
	for i, p := range c.pages {
		for _, chart := range of(p) {
			k := slices.IndexFunc(all, func(x Chart) bool { return x.Title == chart.Title })
			if k < 0 {
				k = len(all)
				all = append(all, Chart{Title: chart.Title, X: chart.X, Y: chart.Y, Wide: chart.Wide})
			}
			c.lay(&all[k], i, &chart)
		}
	}
	return all
}

// lay lays a chart of a page over another one.
func (c *comparison) lay(onto *Chart, page int, chart *Chart) {
	for _, s := range chart.Series {
		s.Color = page
		if s.Name != "" {
			s.Name = c.of(page, s.Name)
		}
		onto.Series = append(onto.Series, s)
	}
	for _, m := range chart.Marks {
		if !slices.Contains(onto.Marks, m) {
			onto.Marks = append(onto.Marks, m)
		}
	}
}

// memory lays the steps of pages of one row each over each other; nil of others.
func (c *comparison) memory() *Chart {
	x := &Chart{
		Title: comparedMemory, Wide: true,
		X: Axis{Label: "time", Unit: Seconds}, Y: Axis{Label: "memory", Unit: Bytes},
	}
	for i, p := range c.pages {
		if len(p.Rows) != 1 || len(p.Rows[0].Measured) == 0 {
			return nil
		}
		r := p.Rows[0]
		r.Predicted, r.Plain = nil, nil
		c.lay(x, i, r.chart())
	}
	return x
}

// rows compares what several pages have of one strategy under one limit; nil when they have nothing in common.
func (c *comparison) rows() *Table {
	t := c.head("strategy", "limit")
	for _, r := range c.pages[0].Rows {
		values := []float64{r.MeasuredSeconds}
		for _, p := range c.pages[1:] {
			i := slices.IndexFunc(p.Rows, func(x Row) bool { return x.Strategy == r.Strategy && x.Limit == r.Limit })
			if i < 0 || !(p.Rows[i].MeasuredSeconds > 0) {
				values = append(values, math.NaN())
				continue
			}
			values = append(values, p.Rows[i].MeasuredSeconds)
		}
		if known := slices.ContainsFunc(values[1:], func(v float64) bool { return !math.IsNaN(v) }); known && r.MeasuredSeconds > 0 {
			t.Rows = append(t.Rows, append([]string{r.Strategy, Bytes.format(float64(r.Limit))}, c.cells(Seconds, values)...))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// timelines puts the pipelines of pages with one each on one axis, and others one after the other.
func (c *comparison) timelines() (all []Timeline) {
	single := !slices.ContainsFunc(c.pages, func(p *Page) bool { return len(p.Timelines) != 1 })
	one := Timeline{Title: "Plans and runs"}
	for i, p := range c.pages {
		for _, t := range p.Timelines {
			t.Title = c.of(i, t.Title)
			all = append(all, t)
			for _, panel := range t.Panels {
				panel.Name = c.of(i, panel.Name)
				one.Panels = append(one.Panels, panel)
			}
		}
	}
	if !single {
		return all
	}
	one.Charts = c.charts(func(p *Page) []Chart { return p.Timelines[0].Charts })
	return []Timeline{one}
}

// comparedMemory is the title of the memory of several runs.
const comparedMemory = "Memory over one step, measured"

// MemoryPicture returns the writer of a picture of the memory over a step: that of MemoryChart, or else a timeline with the memory of each
// device below. It is nil without any.
func (p *Page) MemoryPicture() func(io.Writer) error {
	if c := p.MemoryChart(); c != nil {
		return c.WriteSVG
	}
	for i := range p.Timelines {
		if len(p.Timelines[i].Charts) > 0 {
			return p.Timelines[i].WriteSVG
		}
	}
	return nil
}

// MemoryChart returns the memory over a step, of the page's first row that has one or of all that are compared, as a picture of its
// own; nil without any.
func (p *Page) MemoryChart() *Chart {
	for i := range p.Charts {
		if p.Charts[i].Title == comparedMemory {
			return &p.Charts[i]
		}
	}
	for i := range p.Rows {
		if r := &p.Rows[i]; len(r.Predicted)+len(r.Measured) > 0 {
			c := r.chart()
			c.Title, c.Wide = p.Title+": "+c.Title, true
			return c
		}
	}
	return nil
}
