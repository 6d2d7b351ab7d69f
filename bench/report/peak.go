package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"

	"plimsoll/internal/units"
)

// Peak lists the contents of memory at its fullest.
type Peak struct {
	At    string `json:"at"` // the op that runs then
	Parts []Part `json:"parts"`
}

// Part is a tensor, or a block of them.
type Part struct {
	Role  string `json:"role"` // "saved set"
	Layer string `json:"of"`   // whose it is: "layer 5, conv"; "" of none
	Bytes int64  `json:"bytes"`
}

// mostParts is how many parts of a peak a page lists.
const mostParts = 25

// Bytes returns the sum of all parts.
func (p *Peak) Bytes() (sum int64) {
	for _, x := range p.Parts {
		sum += x.Bytes
	}
	return sum
}

// Roles returns the parts by role, summed up, in the order in which the roles come.
func (p *Peak) Roles() (all []Part) {
	for _, x := range p.Parts {
		i := slices.IndexFunc(all, func(r Part) bool { return r.Role == x.Role })
		if i < 0 {
			i = len(all)
			all = append(all, Part{Role: x.Role})
		}
		all[i].Bytes += x.Bytes
	}
	return all
}

// Legend names the roles with their colors and shares.
func (p *Peak) Legend() (all []LegendEntry) {
	for i, r := range p.Roles() {
		all = append(all, LegendEntry{fmt.Sprintf("r%d", i%palette), fmt.Sprintf("%s %s", r.Role, units.Bytes(r.Bytes))})
	}
	return all
}

// LegendEntry is a color, as a class of the style sheet, and what it stands for.
type LegendEntry struct{ Class, Text string }

// Table lists the largest parts, and how much the others are together.
func (p *Peak) Table() *Table {
	t := &Table{Columns: []Column{{"what", false}, {"whose", false}, {"size", true}, {"of the peak", true}}}
	sorted, all := slices.Clone(p.Parts), p.Bytes()
	slices.SortStableFunc(sorted, func(a, b Part) int { return cmp.Compare(b.Bytes, a.Bytes) })
	row := func(what, layer string, bytes int64) {
		t.Rows = append(t.Rows, []string{what, layer, units.Bytes(bytes), percent(float64(bytes) / float64(all))})
	}
	for _, x := range sorted[:min(mostParts, len(sorted))] {
		row(x.Role, x.Layer, x.Bytes)
	}
	if rest := sorted[min(mostParts, len(sorted)):]; len(rest) > 0 {
		row(fmt.Sprintf("%d smaller ones", len(rest)), "", (&Peak{Parts: rest}).Bytes())
	}
	return t
}

// SVG draws the parts side by side, by role, each as wide as it is large, and told to the pointer.
func (p *Peak) SVG() template.HTML {
	const height = 22
	d := &drawing{}
	d.printf(`<svg class="parts" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, pageWidth, height,
		escape("what the peak is made of: "+p.summary()))
	all, before := float64(p.Bytes()), int64(0)
	for i, role := range p.Roles() {
		for _, x := range p.Parts {
			if x.Role != role.Role {
				continue
			}
			d.printf(`<rect class="r%d" x="%.2f" y="0" width="%.2f" height="%d"><title>%s</title></rect>`, i%palette,
				pageWidth*float64(before)/all, pageWidth*float64(x.Bytes)/all, height, escape(x.text(all)))
			before += x.Bytes
		}
	}
	d.printf(`</svg>`)
	return template.HTML(d.b.String()) //nolint:gosec // every text in it went through escape
}

// text is the part in words, with its share of all bytes.
func (x *Part) text(all float64) string {
	text := x.Role
	if x.Layer != "" {
		text += " of " + x.Layer
	}
	return fmt.Sprintf("%s: %s, %s", text, units.Bytes(x.Bytes), percent(float64(x.Bytes)/all))
}

func (p *Peak) summary() string {
	var text string
	for i, e := range p.Legend() {
		if i > 0 {
			text += ", "
		}
		text += e.Text
	}
	return text
}
