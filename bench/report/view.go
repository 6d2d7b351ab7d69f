package report

import (
	"cmp"
	_ "embed" // for the page's template
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/units"
)

// view is the data of the page's template.
type view struct {
	*Page
	Tiles  []tile
	Table  *Table
	Body   []line
	Wide   []*picture // charts over the whole width, then cards
	Cards  []*picture
	Curves []*picture
	Drawn  []drawn
	Style  template.CSS
}

// drawn is a timeline with the charts below it.
type drawn struct {
	*Timeline
	Pictures []*picture
}

// tile is one figure at the top of the page.
type tile struct {
	Value, Label string
	Good         bool
}

// line is a row of the table in the page.
type line struct {
	Cells   []cell
	Refused string
	Span    int  // of the columns that the reason takes
	First   bool // of the rows with one limit
}

type cell struct {
	Text, Title string
	Right       bool
	Class       string
}

// picture is a chart with its caption and, folded away, the plan that it shows and what its peak is made of.
type picture struct {
	*Chart
	Plan string
}

func (p *Page) view() *view {
	v := &view{Page: p, Tiles: p.tiles(), Table: p.Table(), Style: template.CSS(pageCSS)} //nolint:gosec // a constant
	for i := range p.Rows {
		v.Body = append(v.Body, p.line(i, v.Table))
		if r := &p.Rows[i]; len(r.Predicted)+len(r.Measured) > 0 {
			v.Curves = append(v.Curves, &picture{r.chart(), r.Plan})
		}
	}
	if len(v.Curves) == 1 {
		v.Curves[0].Wide = true
	}
	for i := range p.Charts {
		v.add(&p.Charts[i])
	}
	for i := range p.Timelines {
		t := drawn{Timeline: &p.Timelines[i]}
		for k := range t.Charts {
			t.Pictures = append(t.Pictures, &picture{Chart: &t.Charts[k]})
		}
		v.Drawn = append(v.Drawn, t)
	}
	if c := p.throughput(); c != nil {
		v.add(c)
	}
	return v
}

// WriteFile writes the page to a file that is complete or not there.
func (p *Page) WriteFile(path string) error {
	return atomicfile.WriteFile(path, p.Write)
}

// Write writes the page as HTML.
func (p *Page) Write(w io.Writer) error {
	return pageTemplate.Execute(w, p.view())
}

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// Text is the figure for people.
func (f Figure) Text() string { return f.Unit.format(f.Value) }

// Narrow is the chart for a narrow screen.
func (p *picture) Narrow() template.HTML {
	c := *p.Chart
	c.Wide = false
	return c.SVG()
}

func (v *view) add(c *Chart) {
	if c.Wide {
		v.Wide = append(v.Wide, &picture{Chart: c})
	} else {
		v.Cards = append(v.Cards, &picture{Chart: c})
	}
}

// tiles sums the rows up: what ran, whether peaks are exact, how far times are off, whether results are identical.
func (p *Page) tiles() []tile {
	var ran, exact, within, compared, identical int
	for i := range p.Rows {
		r := &p.Rows[i]
		if !(r.MeasuredSeconds > 0) {
			continue
		}
		ran++
		exact += count(r.PredictedPeak == r.MeasuredPeak)
		within += count(r.MeasuredPeak <= r.Limit)
		if r.Identical != nil {
			compared++
			identical += count(*r.Identical)
		}
	}
	if ran == 0 {
		return nil
	}
	tiles := []tile{
		{of(exact, ran), "peaks as predicted, to the byte", exact == ran},
		{of(within, ran), "runs within their limit", within == ran},
	}
	if e := p.MedianTimeError(); !math.IsNaN(e) {
		tiles = append(tiles, tile{strconv.FormatFloat(e*100, 'f', 1, 64) + " %", "median error of the predicted time", e <= 0.1})
	}
	if compared > 0 {
		tiles = append(tiles, tile{of(identical, compared), "results bit-identical to the reference", identical == compared})
	}
	return tiles
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func of(n, total int) string { return fmt.Sprintf("%d of %d", n, total) }

// Columns of the table.
const (
	colStrategy = iota
	colShare
	colLimit
	colPredictedPeak
	colMeasuredPeak
	colPredictedTime
	colMeasuredTime
	colError
	colRate
	colIdentical
)

// Table returns the rows for a terminal or a document; refused ones follow with their reason.
func (p *Page) Table() *Table {
	t := &Table{Columns: []Column{
		{"strategy", false}, {"share", true}, {"limit", true}, {"predicted peak", true}, {"measured peak", true},
		{"predicted time", true}, {"measured time", true}, {"error", true}, {p.rateUnit() + "/s", true}, {"identical", false},
	}}
	for i := range p.Rows {
		t.Rows = append(t.Rows, p.cells(&p.Rows[i]))
	}
	return t
}

func (p *Page) cells(r *Row) []string {
	share, limit := "", units.Bytes(r.Limit)
	if r.Share > 0 {
		share = percent(r.Share)
	}
	if r.Device > 0 {
		share = "device"
	}
	if r.Refused != "" {
		return []string{r.name(), share, limit, "does not fit"}
	}
	return []string{
		r.name(), share, limit, size(r.PredictedPeak), size(r.MeasuredPeak),
		duration(r.PredictedSeconds), duration(r.MeasuredSeconds), signedPercent(r.TimeError()),
		rate(p.perStep(), r.MeasuredSeconds), verdict(r.Identical),
	}
}

// Brief returns the rows for a terminal. A peak that was predicted exactly is printed once.
func (p *Page) Brief() *Table {
	t := &Table{Columns: []Column{
		{"strategy", false}, {"share", true}, {"limit", true}, {"peak", true}, {"predicted", true}, {"measured", true}, {"error", true},
		{p.rateUnit() + "/s", true}, {"bits", false},
	}}
	for i := range p.Rows {
		c := p.cells(&p.Rows[i])
		if p.Rows[i].Refused == "" {
			peak := c[colMeasuredPeak]
			if p.Rows[i].MeasuredPeak != p.Rows[i].PredictedPeak {
				peak += ", predicted " + c[colPredictedPeak]
			}
			c = append(c[:colPredictedPeak], peak, c[colPredictedTime], c[colMeasuredTime], c[colError], c[colRate], bits(p.Rows[i].Identical))
		}
		t.Rows = append(t.Rows, c)
	}
	return t
}

// bits compares a row's weights with store-all's.
func bits(identical *bool) string {
	switch {
	case identical == nil:
		return "not compared"
	case *identical:
		return "same"
	}
	return "DIFFER"
}

func (r *Row) name() string { return cmp.Or(r.Name, r.Strategy) }

// notRun stands for figures that were not measured. A plan that does not fit has words of its own.
const notRun = "not run"

// size and duration print a figure, where there is one.
func size(n int64) string {
	if n == 0 {
		return notRun
	}
	return units.Bytes(n)
}

func duration(s float64) string {
	if s == 0 {
		return notRun
	}
	return units.Seconds(s)
}

func (p *Page) rateUnit() string {
	if p.Batch == 0 {
		return "steps"
	}
	if p.Tokens > 0 {
		return "tokens"
	}
	return "images"
}

// perStep is how many of the rate's unit one step does.
func (p *Page) perStep() float64 { return float64(max(1, p.Batch) * max(1, p.Tokens)) }

func rate(n, seconds float64) string {
	if !(seconds > 0) {
		return notRun
	}
	if n /= seconds; n < 10 {
		return strconv.FormatFloat(n, 'f', 3, 64)
	}
	return strconv.FormatFloat(n, 'f', 1, 64)
}

func signedPercent(x float64) string {
	if math.IsNaN(x) {
		return notRun
	}
	return fmt.Sprintf("%+.1f %%", x*100)
}

func verdict(identical *bool) string {
	switch {
	case identical == nil:
		return "not compared"
	case *identical:
		return "yes"
	}
	return "NO"
}

// line is row i of the table with the marks that a page can show: exact figures on hover, colors for verdicts.
func (p *Page) line(i int, t *Table) line {
	r := &p.Rows[i]
	l := line{Refused: r.Refused, First: i > 0 && r.Limit != p.Rows[i-1].Limit}
	for k, text := range t.Rows[i] {
		l.Cells = append(l.Cells, cell{Text: text, Right: t.Columns[k].Right})
	}
	if r.Refused != "" {
		l.Cells, l.Span = l.Cells[:colPredictedPeak], len(t.Columns)-colPredictedPeak
		return l
	}
	l.Cells[colLimit].Title = units.ExactBytes(r.Limit)
	l.Cells[colPredictedPeak].Title = units.ExactBytes(r.PredictedPeak)
	if r.MeasuredPeak > 0 {
		l.Cells[colMeasuredPeak].Title = units.ExactBytes(r.MeasuredPeak)
		l.Cells[colMeasuredPeak].Class = good(r.PredictedPeak == r.MeasuredPeak && r.MeasuredPeak <= r.Limit)
	}
	if r.Identical != nil {
		l.Cells[colIdentical].Class = good(*r.Identical)
	}
	return l
}

func good(ok bool) string {
	if ok {
		return "good"
	}
	return "bad"
}

// chart draws the memory curves of a row, the measured one over the predicted one.
func (r *Row) chart() *Chart {
	title := r.name() + " in " + units.Bytes(r.Limit)
	if r.Share > 0 {
		title = r.name() + " at " + percent(r.Share)
	}
	c := &Chart{
		Title: title,
		Subtitle: fmt.Sprintf("peak %s, predicted %s; step %s, predicted %s", size(r.MeasuredPeak), size(r.PredictedPeak),
			duration(r.MeasuredSeconds), duration(r.PredictedSeconds)),
		X: Axis{Label: "time", Unit: Seconds}, Y: Axis{Label: "memory", Unit: Bytes}, Peak: r.Peak,
	}
	if r.Limit > 0 {
		c.Marks = []Mark{{"limit " + units.Bytes(r.Limit), float64(r.Limit)}}
	}
	if len(r.Plain) > 0 {
		c.Series = append(c.Series, Series{Name: "store-all, predicted: " + units.Bytes(top(r.Plain)), Shape: Step, Color: 7, Dashed: true, Points: r.Plain})
	}
	if len(r.Predicted) > 0 {
		c.Series = append(c.Series, Series{Name: "predicted", Shape: Step, Color: 0, Broad: true, Points: until(r.Predicted, r.PredictedSeconds)})
	}
	if len(r.Measured) > 0 {
		c.Series = append(c.Series, Series{Name: "measured", Shape: Step, Color: 1, Points: until(r.Measured, r.MeasuredSeconds)})
	}
	return c
}

// top returns the highest value of a curve of bytes.
func top(curve []Point) (bytes int64) {
	for _, p := range curve {
		if p.valid() {
			bytes = max(bytes, int64(p.Y))
		}
	}
	return bytes
}

// until holds the last value of a curve to the end of the step.
func until(curve []Point, end float64) []Point {
	last := curve[len(curve)-1]
	if !(end > last.X) {
		return curve
	}
	return append(slices.Clip(curve), Point{end, last.Y})
}

// throughput draws images per second over the limit, a color for each strategy; nil when no strategy has two limits to draw it
// over.
func (p *Page) throughput() *Chart {
	c := &Chart{
		Title:    "Throughput under a memory limit",
		Subtitle: "Full dots: measured. Hollow dots: predicted. Where a strategy has no dot, it does not fit.",
		X:        Axis{Label: "memory limit", Unit: Bytes, Tight: true}, Y: Axis{Label: p.rateUnit() + " per second", Tight: true}, Wide: true,
	}
	for i, name := range p.strategies() {
		c.Series = append(c.Series,
			Series{Shape: Dots, Color: i, Dashed: true, Points: p.rates(name, func(r *Row) float64 { return r.PredictedSeconds })},
			Series{Name: name, Shape: Dots, Color: i, Points: p.rates(name, func(r *Row) float64 { return r.MeasuredSeconds })})
	}
	if !slices.ContainsFunc(c.Series, func(s Series) bool { return len(s.Points) > 1 && s.Points[0].X < s.Points[len(s.Points)-1].X }) {
		return nil
	}
	return c
}

// strategies returns the strategies in the order in which they first appear.
func (p *Page) strategies() (names []string) {
	for _, r := range p.Rows {
		if !slices.Contains(names, r.Strategy) {
			names = append(names, r.Strategy)
		}
	}
	return names
}

// rates returns the throughput of a strategy over the limit, where the time of a step is known.
func (p *Page) rates(strategy string, seconds func(*Row) float64) (points []Point) {
	for i := range p.Rows {
		if r := &p.Rows[i]; r.Strategy == strategy && r.Device == 0 && seconds(r) > 0 {
			points = append(points, Point{float64(r.Limit), p.perStep() / seconds(r)})
		}
	}
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	return points
}
