package report

import (
	"cmp"
	_ "embed" // for the page's style
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

// Point is a position in base units (seconds, bytes).
type Point struct{ X, Y float64 }

// Shape is how the points of a series are joined.
type Shape uint8

const (
	// Line joins points by straight lines.
	Line Shape = iota
	// Step holds each value until the next point.
	Step
	// Dots marks the points and joins them by lines.
	Dots
	// Marks marks the points alone, with small marks.
	Marks
)

var shapeNames = []string{"line", "step", "dots", "marks"}

// MarshalText implements encoding.TextMarshaler.
func (s Shape) MarshalText() ([]byte, error) { return []byte(shapeNames[s]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Shape) UnmarshalText(text []byte) error { return unmarshalNamed(s, text, shapeNames) }

// Series is one curve of a chart, its points in the order of X. Points that are not numbers are left out.
type Series struct {
	Name   string  `json:"name"`
	Shape  Shape   `json:"shape"`
	Color  int     `json:"color"`           // index into the palette of eight
	Broad  bool    `json:"broad,omitempty"` // a broad pale stroke, on which a thin one can lie
	Dashed bool    `json:"dashed,omitempty"`
	Points []Point `json:"points"`
}

// Mark is a horizontal line with a name, a limit.
type Mark struct {
	Name string  `json:"name"`
	Y    float64 `json:"y"`
}

// Chart is a picture of curves over one pair of axes.
type Chart struct {
	Title    string   `json:"title"`
	Subtitle string   `json:"subtitle,omitempty"`
	X        Axis     `json:"x"`
	Y        Axis     `json:"y"`
	Series   []Series `json:"series"`
	Marks    []Mark   `json:"marks,omitempty"`
	Wide     bool     `json:"wide,omitempty"`    // as wide as the page rather than a card
	Stacked  bool     `json:"stacked,omitempty"` // filled, each on the ones before; their points are at equal X
	Peak     *Peak    `json:"peak,omitempty"`    // of memory: what the highest point is made of

	plotLeft float64 // in pixels; 0: as that of all charts
	picture  bool    // drawn as a picture of its own, which is legible where a page shows it 400 pixels wide
	low      bool    // one of several below each other in a picture
}

// palette is the number of colors; the style sheet defines classes c0 to c7.
const palette = 8

// hoverColumns is how many places of a chart answer to the pointer.
const hoverColumns = 72

// Sizes of drawings, in pixels of the viewBox.
const (
	pageWidth    = 1080
	pictureWidth = 500
	digitWidth   = 6.6 // of a label's characters, about
)

//go:embed page.css
var pageCSS string

// frame is where things are, in pixels of the viewBox.
type frame struct {
	width, height            float64
	left, right, top, bottom float64 // of the plot
}

func (c *Chart) frame() frame {
	f := frame{width: 520, height: 270, left: 52, right: 508, top: 30, bottom: 226}
	switch {
	case c.low:
		f = frame{width: pictureWidth, height: 180, left: 56, right: pictureWidth - 12, top: 34, bottom: 130}
	case c.picture:
		f = frame{width: pictureWidth, height: 310, left: 56, right: pictureWidth - 12, top: 34, bottom: 260}
	case c.Wide:
		f = frame{width: pageWidth, height: 380, left: 64, right: 1064, top: 34, bottom: 330}
	}
	f.left = cmp.Or(c.plotLeft, f.left)
	if places := c.legendPlaces(f.left, f.right); len(places) > 0 { // further lines of the legend push the plot down
		more := places[len(places)-1].Y * legendLine
		f.height, f.top, f.bottom = f.height+more, f.top+more, f.bottom+more
	}
	return f
}

// ticks is about how many ticks the axis to the right has.
func (f *frame) ticks() int {
	if f.width == pictureWidth {
		return int(f.right-f.left) / 55
	}
	return int(f.right-f.left) / 80
}

// legendLine is the height of a line of the legend, in pixels.
const legendLine = 17

// legendPlaces returns where the names of the series go: X in pixels, Y in lines.
func (c *Chart) legendPlaces(left, right float64) []Point {
	var names []string
	for _, s := range c.Series {
		names = append(names, s.Name)
	}
	return places(names, left, right)
}

// places returns where the names of a legend go, each behind a mark: X in pixels, Y in lines.
func places(names []string, left, right float64) (all []Point) {
	at := Point{left, 0}
	for _, name := range names {
		width := 24 + digitWidth*float64(len([]rune(name))) + 18
		if name == "" {
			width = 0
		}
		if at.X > left && at.X+width > right+18 {
			at = Point{left, at.Y + 1}
		}
		all = append(all, at)
		at.X += width
	}
	return all
}

// SVG draws the chart for a page, deterministically. A chart without any point says so.
func (c *Chart) SVG() template.HTML {
	f := c.frame()
	return template.HTML(c.draw(fmt.Sprintf(`<svg viewBox="0 0 %g %g"`, f.width, f.height))) //nolint:gosec // every text in it went through escape
}

// WriteSVG writes the chart as a picture of its own: with its title, and the colors of a page, which are light or dark as
// the viewer's.
func (c *Chart) WriteSVG(w io.Writer) error {
	own := *c
	own.picture = true
	f := own.frame()
	return writePicture(w, c.Title, 12, f.width, f.height, own.draw)
}

// writePicture writes what draw draws, of a width and a height, with a title above it that begins at left. A page that has room shows it
// half as large again.
func writePicture(w io.Writer, title string, left, width, height float64, draw func(begin string) string) error {
	const above = 24 // room for the title
	picture := draw(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 %d %g %g"`, 1.5*width, 1.5*(height+above), -above, width, height+above))
	_, err := fmt.Fprintf(w, `%s<text x="%g" y="-4" class="title">%s</text><style>%s</style></svg>`+"\n",
		strings.TrimSuffix(picture, "</svg>"), left, escape(title), escape(strings.Replace(pageCSS, "svg{display:block;width:100%;height:auto;margin-top:8px}", "", 1)+pictureCSS))
	return err
}

// pictureCSS is the style of a picture beside the page's.
const pictureCSS = "svg{margin:0;background:var(--card);font-family:system-ui,sans-serif}.title{fill:var(--ink);font-size:14px;font-weight:600}"

// draw draws the chart into an element that the text begins.
func (c *Chart) draw(begin string) string {
	f := c.frame()
	d := &drawing{Chart: c, frame: f}
	d.printf(`%s role="img" aria-label="%s">`, begin, escape(c.Title))
	shown := c.stack()
	if lo, hi, any := shown.bounds(); any {
		d.x = c.X.fit(lo.X, hi.X, f.left, f.right, c.margin(), f.ticks())
		d.y = c.Y.fit(lo.Y, hi.Y, f.bottom, f.top, 0.08, max(3, int(f.bottom-f.top)/38))
		d.grid()
		d.marks()
		for i := range shown.Series {
			d.series(&shown.Series[i])
		}
		d.legend()
		d.hover()
	} else {
		d.text((f.left+f.right)/2, (f.top+f.bottom)/2, "middle", "tick", "no data")
	}
	d.printf(`</svg>`)
	return d.b.String()
}

// stack returns a stacked chart with sums of the values, the highest curve first, which the others are drawn over.
func (c *Chart) stack() *Chart {
	if !c.Stacked {
		return c
	}
	out := *c
	out.Series = slices.Clone(c.Series)
	for i := range out.Series {
		s := &out.Series[i]
		s.Points = slices.Clone(s.Points)
		for k := range s.Points {
			for j := range i {
				y, _ := c.Series[j].at(s.Points[k].X)
				s.Points[k].Y += y
			}
		}
	}
	slices.Reverse(out.Series)
	return &out
}

// margin is the share of the width kept free beside dots.
func (c *Chart) margin() float64 {
	for _, s := range c.Series {
		if s.marked() {
			return 0.03
		}
	}
	return 0
}

// bounds returns the smallest box around all points and marks; any is false when there are no points.
func (c *Chart) bounds() (lo, hi Point, any bool) {
	lo, hi = Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for _, s := range c.Series {
		for _, p := range s.Points {
			if p.valid() {
				any = true
				lo, hi = Point{min(lo.X, p.X), min(lo.Y, p.Y)}, Point{max(hi.X, p.X), max(hi.Y, p.Y)}
			}
		}
	}
	for _, m := range c.Marks {
		if !(Point{0, m.Y}).valid() {
			continue
		}
		lo.Y, hi.Y = min(lo.Y, m.Y), max(hi.Y, m.Y)
	}
	return lo, hi, any
}

// valid reports whether the point can be drawn: it is no NaN, no infinity and not so large that a range overflows.
func (p Point) valid() bool { return math.Abs(p.X) < 1e100 && math.Abs(p.Y) < 1e100 }

// escape makes text safe within XML and HTML; characters that XML forbids become U+FFFD.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return b.String()
}

// drawing collects the elements of one chart.
type drawing struct {
	*Chart
	frame
	x, y axis
	b    strings.Builder
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

func (d *drawing) text(x, y float64, anchor, class, text string) {
	d.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, escape(text))
}

// grid draws ticks, grid lines and axis titles.
func (d *drawing) grid() {
	d.printf(`<g class="grid">`)
	for _, t := range d.y.ticks {
		d.printf(`<path d="M%.1f %.1fH%.1f"/>`, d.left, d.y.at(t), d.right)
	}
	for _, t := range d.x.ticks {
		d.printf(`<path d="M%.1f %.1fv4"/>`, d.x.at(t), d.bottom)
	}
	d.printf(`</g><path class="axis" d="M%.1f %.1fH%.1f"/>`, d.left, d.bottom, d.right)
	for _, t := range d.y.ticks {
		d.text(d.left-7, d.y.at(t)+3.5, "end", "tick", d.y.tick(t))
	}
	for _, t := range d.x.ticks {
		d.text(d.x.at(t), d.bottom+17, "middle", "tick", d.x.tick(t))
	}
	d.text((d.left+d.right)/2, d.bottom+35, "middle", "label", d.x.title())
	d.printf(`<text transform="translate(12 %.1f) rotate(-90)" text-anchor="middle" class="label">%s</text>`,
		(d.top+d.bottom)/2, escape(d.y.title()))
}

func (d *drawing) marks() {
	for _, m := range d.Marks {
		if !(Point{0, m.Y}).valid() {
			continue
		}
		y := d.y.at(m.Y)
		d.printf(`<path class="mark" d="M%.1f %.1fH%.1f"/>`, d.left, y, d.right)
		d.text(d.right-2, y-4, "end", "marklabel", m.Name)
	}
}

func (s *Series) class() string {
	class := fmt.Sprintf("curve c%d", s.color())
	if s.Broad {
		class += " broad"
	}
	if s.Dashed {
		class += " dashed"
	}
	return class
}

func (d *drawing) series(s *Series) {
	if s.Shape == Marks {
		d.dots(s)
		return
	}
	points := d.pixels(s)
	if s.Shape != Dots {
		points = thin(points)
	}
	if len(points) == 0 {
		return
	}
	class := s.class()
	if d.Stacked {
		class = fmt.Sprintf("band r%d", s.color())
	}
	d.printf(`<path class="%s" d="`, class)
	for i, p := range points {
		switch {
		case i == 0:
			d.printf("M%.1f %.1f", p.X, p.Y)
		case s.Shape == Step:
			d.printf("H%.1fV%.1f", p.X, p.Y)
		default:
			d.printf("L%.1f %.1f", p.X, p.Y)
		}
	}
	if d.Stacked {
		d.printf("V%.1fH%.1fZ", d.bottom, points[0].X)
	}
	d.printf(`"><title>%s</title></path>`, escape(s.Name))
	if s.Shape == Dots {
		d.dots(s)
	}
}

// dots marks each point, and tells its values to the pointer.
func (d *drawing) dots(s *Series) {
	for _, p := range s.Points {
		if p.valid() {
			d.glyph(s, d.x.at(p.X), d.y.at(p.Y), s.radius(), fmt.Sprintf("%s: %s at %s", s.Name, d.y.Unit.format(p.Y), d.x.Unit.format(p.X)))
		}
	}
}

// marked reports whether the points have marks, which tell their values to the pointer.
func (s *Series) marked() bool { return s.Shape == Dots || s.Shape == Marks }

// radius is the size of a mark in pixels.
func (s *Series) radius() float64 {
	if s.Shape == Marks {
		return 2.5
	}
	return 4
}

// glyph draws a mark of a series: a circle, and where the colors begin again a square, then a diamond.
func (d *drawing) glyph(s *Series, x, y, radius float64, title string) {
	class := fmt.Sprintf("dot c%d", s.color())
	if s.Dashed {
		class += " hollow"
	}
	if title != "" {
		title = "<title>" + escape(title) + "</title>"
	}
	switch s.Color / palette % 3 {
	case 0:
		d.printf(`<circle class="%s" cx="%.1f" cy="%.1f" r="%g">%s</circle>`, class, x, y, radius, title)
	case 1:
		d.printf(`<path class="%s" d="M%.1f %.1fh7v7h-7z">%s</path>`, class, x-3.5, y-3.5, title)
	default:
		d.printf(`<path class="%s" d="M%.1f %.1fl5 5l-5 5l-5 -5z">%s</path>`, class, x, y-5, title)
	}
}

// color is the index of the color, also of a file's nonsense.
func (s *Series) color() int { return (s.Color%palette + palette) % palette }

// pixels returns the valid points of a series in pixels.
func (d *drawing) pixels(s *Series) []Point {
	var points []Point
	for _, p := range s.Points {
		if p.valid() {
			points = append(points, Point{d.x.at(p.X), d.y.at(p.Y)})
		}
	}
	return points
}

// thin keeps the first, the lowest, the highest and the last of the points in each column of one pixel. So a
// curve of many points keeps its look and gets shorter.
func thin(points []Point) []Point {
	var kept []Point
	for start := 0; start < len(points); {
		end, lo, hi := start, start, start
		for ; end < len(points) && math.Floor(points[end].X) == math.Floor(points[start].X); end++ {
			if points[end].Y < points[lo].Y {
				lo = end
			}
			if points[end].Y > points[hi].Y {
				hi = end
			}
		}
		last := -1
		for _, i := range []int{start, min(lo, hi), max(lo, hi), end - 1} {
			if i > last {
				kept, last = append(kept, points[i]), i
			}
		}
		start = end
	}
	return kept
}

// legend names the series above the plot, from the left, in as many lines as it takes.
func (d *drawing) legend() {
	places := d.legendPlaces(d.left, d.right)
	for i := range d.Series {
		s, at := &d.Series[i], places[i]
		if s.Name == "" {
			continue
		}
		y := d.top - 16 - legendLine*(places[len(places)-1].Y-at.Y)
		switch {
		case d.Stacked:
			d.printf(`<rect class="r%d" x="%.1f" y="%.1f" width="18" height="12" rx="2"/>`, s.color(), at.X, y-6)
		case s.Shape != Marks:
			d.printf(`<path class="%s" d="M%.1f %.1fh18"/>`, s.class(), at.X, y)
		}
		if s.marked() {
			d.glyph(s, at.X+9, y, 4, "")
		}
		d.text(at.X+24, y+4, "start", "legend", s.Name)
	}
}

// hover covers the plot with columns that tell the values of all curves at their middle. Charts of dots have the
// dots for that.
func (d *drawing) hover() {
	d.printf(`<g class="hover">`)
	width := (d.right - d.left) / hoverColumns
	for i := range hoverColumns {
		left := d.left + float64(i)*width
		x := d.x.value((float64(i) + 0.5) / hoverColumns)
		if text := d.valuesAt(x); text != "" {
			d.printf(`<rect x="%.1f" y="%g" width="%.1f" height="%g"><title>%s</title></rect>`,
				left, d.top, width, d.bottom-d.top, escape(text))
		}
	}
	d.printf(`</g>`)
}

func (d *drawing) valuesAt(x float64) string {
	var lines []string
	for i := range d.Series {
		s := &d.Series[i]
		if y, ok := s.at(x); ok && !s.marked() {
			lines = append(lines, s.Name+": "+d.y.Unit.format(y))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return d.x.Unit.format(x) + "\n" + strings.Join(lines, "\n")
}

// at returns the value of a curve at x, that of the last point at or before it; false outside the curve.
func (s *Series) at(x float64) (y float64, ok bool) {
	inside := false
	for _, p := range s.Points {
		if p.X <= x && p.valid() {
			y, ok = p.Y, true
		}
		inside = inside || p.X >= x
	}
	return y, ok && inside
}
