package report

import (
	"fmt"
	"html/template"
	"io"
	"strings"

	"plimsoll/internal/units"
)

// Timeline shows what runs when, in panels one above the other on one axis: planned, and below it measured.
type Timeline struct {
	Title  string  `json:"title"`
	Note   string  `json:"note,omitempty"`
	Panels []Panel `json:"panels"`
	Charts []Chart `json:"charts,omitempty"` // of the same time, below: the memory of every device
}

// Panel is one way in which the work ran or is to run.
type Panel struct {
	Name  string `json:"name"` // "planned"
	Lanes []Lane `json:"lanes"`
}

// Lane is a device or a link. Its bars do not overlap.
type Lane struct {
	Name string `json:"name"`
	Bars []Bar  `json:"bars"`
}

// Bar is a piece of work.
type Bar struct {
	Kind  Work    `json:"kind"`
	Start float64 `json:"start_s"`
	End   float64 `json:"end_s"`
	Label string  `json:"label,omitempty"` // shown where there is room
	Name  string  `json:"name"`            // told to the pointer, with the times
}

// Work is a kind of work: it has a color and a place in the legend.
type Work uint8

// The kinds of work.
const (
	Forward Work = iota
	Backward
	BackwardWeights
	SendActivation
	SendGradient
	Update
	Synchronization
	CopyWeights
	CopyState
	works
)

var workNames = [works]string{"forward", "backward", "backward, weights", "activation sent", "gradient sent", "update", "replicas added up",
	"weights copied", "optimizer state copied"}

// String returns the kind as the legend has it.
func (w Work) String() string { return workNames[w] }

// MarshalText implements encoding.TextMarshaler.
func (w Work) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Work) UnmarshalText(text []byte) error { return unmarshalNamed(w, text, workNames[:]) }

// The geometry of a timeline, in pixels of the viewBox.
const (
	laneHeight = 24
	panelHead  = 20 // the name of the panel
	panelGap   = 10
	legendRow  = 24
	axisRow    = 40
	laneLeft   = 104
	laneRight  = 1064
)

// SVG draws the timeline for a page, deterministically.
func (t *Timeline) SVG() template.HTML {
	f := frame{width: pageWidth, left: laneLeft, right: laneRight}
	return template.HTML(t.draw(f, fmt.Sprintf(`<svg viewBox="0 0 %g %d"`, f.width, t.height(f)))) //nolint:gosec // every text in it went through escape
}

// pictureFrame is where a timeline stands in a picture of its own.
var pictureFrame = frame{width: pictureWidth, left: laneLeft, right: pictureWidth - 12}

// WriteSVG writes the timeline as a picture of its own, its charts below, on the same axis of time.
func (t *Timeline) WriteSVG(w io.Writer) error {
	charts, height := t.below()
	return writePicture(w, t.Title, 12, pictureWidth, float64(t.height(pictureFrame))+height, func(begin string) string {
		return strings.TrimSuffix(t.draw(pictureFrame, begin), "</svg>") + charts + "</svg>"
	})
}

// below draws the charts below a picture of the timeline, with the same axis, and returns their height. Several are low, with their titles.
func (t *Timeline) below() (charts string, height float64) {
	d := &drawing{}
	for i := range t.Charts {
		c, y := t.Charts[i], float64(t.height(pictureFrame))+height
		c.picture, c.plotLeft = true, laneLeft
		if c.low = len(t.Charts) > 1; c.low {
			d.text(laneLeft, y+13, "start", "panel", c.Title)
			y, height = y+panelHead, height+panelHead
		}
		d.printf("%s</g>", strings.TrimSuffix(c.draw(fmt.Sprintf(`<g transform="translate(0 %g)"`, y)), "</svg>"))
		height += c.frame().height
	}
	return d.b.String(), height
}

func (t *Timeline) height(f frame) int {
	h := t.legendHeight(f) + axisRow
	for _, p := range t.Panels {
		h += panelHead + len(p.Lanes)*laneHeight + panelGap
	}
	return h
}

// end returns the length of the axis, seconds.
func (t *Timeline) end() (end float64) {
	for _, p := range t.Panels {
		for _, l := range p.Lanes {
			for _, b := range l.Bars {
				end = max(end, b.End)
			}
		}
	}
	return end
}

// draw draws the timeline into an element that the text begins.
func (t *Timeline) draw(f frame, begin string) string {
	d := &drawing{Chart: &Chart{Title: t.Title}, frame: f}
	d.x = Axis{Label: "time", Unit: Seconds}.fit(0, t.end(), f.left, f.right, 0, f.ticks())
	d.printf(`%s role="img" aria-label="%s">`, begin, escape(t.Title))
	t.legend(d)
	y := float64(t.legendHeight(f))
	for i := range t.Panels {
		y = t.Panels[i].draw(d, y)
	}
	for _, at := range d.x.ticks {
		d.printf(`<path class="axis" d="M%.1f %.1fv4"/>`, d.x.at(at), y)
		d.text(d.x.at(at), y+17, "middle", "tick", d.x.tick(at))
	}
	d.printf(`<path class="axis" d="M%.1f %.1fH%.1f"/>`, f.left, y, f.right)
	d.text((f.left+f.right)/2, y+34, "middle", "label", d.x.title())
	d.printf(`</svg>`)
	return d.b.String()
}

// legendNames returns the kinds of work by name, "" for those that the timeline does not have, and where they go.
func (t *Timeline) legendNames(f frame) (names []string, at []Point) {
	names = make([]string, works)
	for _, p := range t.Panels {
		for _, l := range p.Lanes {
			for _, b := range l.Bars {
				names[b.Kind] = workNames[b.Kind]
			}
		}
	}
	return names, places(names, f.left, f.right)
}

// legendHeight returns the height of the legend in pixels.
func (t *Timeline) legendHeight(f frame) int {
	_, at := t.legendNames(f)
	return legendRow + legendLine*int(at[len(at)-1].Y)
}

// legend names the kinds of work that the timeline has.
func (t *Timeline) legend(d *drawing) {
	names, at := t.legendNames(d.frame)
	for k, name := range names {
		if name != "" {
			x, y := at[k].X, legendLine*at[k].Y
			d.printf(`<rect class="w%d" x="%.1f" y="%g" width="14" height="12" rx="2"/>`, k, x, y+2)
			d.text(x+20, y+12, "start", "legend", name)
		}
	}
}

// draw draws the panel from y on and returns where it ends.
func (p *Panel) draw(d *drawing, y float64) float64 {
	d.text(d.left, y+13, "start", "panel", p.Name)
	y += panelHead
	for _, at := range d.x.ticks {
		d.printf(`<path class="rule" d="M%.1f %.1fv%d"/>`, d.x.at(at), y, laneHeight*len(p.Lanes))
	}
	for _, l := range p.Lanes {
		d.text(d.left-8, y+laneHeight/2+4, "end", "tick", l.Name)
		for i := range l.Bars {
			l.Bars[i].draw(d, y, l.Name)
		}
		y += laneHeight
	}
	return y + panelGap
}

func (b *Bar) draw(d *drawing, y float64, lane string) {
	from, to := d.x.at(b.Start), d.x.at(b.End)
	if !(Point{b.Start, b.End}).valid() {
		return
	}
	d.printf(`<g><title>%s</title><rect class="bar w%d" x="%.2f" y="%.1f" width="%.2f" height="%d"/>`,
		escape(fmt.Sprintf("%s on %s: %s, from %s to %s", b.Name, lane, units.Seconds(b.End-b.Start), units.Seconds(b.Start), units.Seconds(b.End))),
		b.Kind, from, y+2, max(to-from, 0.5), laneHeight-4)
	if to-from > digitWidth*float64(len(b.Label))+2 && b.Label != "" {
		d.text((from+to)/2, y+laneHeight/2+4, "middle", fmt.Sprintf("barlabel on%d", b.Kind), b.Label)
	}
	d.printf(`</g>`)
}
