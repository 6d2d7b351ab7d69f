package pipeline

import (
	"bufio"
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
)

// Timeline is when every device and link works on what: data for whoever draws it.
type Timeline struct {
	Title string
	End   float64 // seconds
	Lanes []Lane  // devices in order, then links; those without a task are left out
}

// Lane is a device or a link.
type Lane struct {
	Name   string // "device 0", "link 0-1"
	Link   bool
	Slices []Slice // in the order of their start
}

// Slice is a task that runs.
type Slice struct {
	Span
	Kind  Kind
	Stage int
	To    int // as in Task
}

// Name names the task for its minibatch: "F2(5)".
func (s Slice) Name() string {
	return Task{Kind: s.Kind, Stage: s.Stage, To: s.To, Shift: s.Minibatch}.String()
}

// Planned returns a plan's own times as spans: of all its microbatches or, for a periodic plan, of so many periods of the
// pattern, from the start of the first task of the first. Errors: those of Check up to RuleBoundary.
func Planned(c *chain.Chain, p *Platform, plan *Plan, periods int) ([]Span, error) {
	l, err := arrange(c, p, plan)
	if err != nil {
		return nil, err
	}
	if l.period == nil {
		periods = 1
	}
	var spans []Span
	origin := math.Inf(1)
	for _, j := range l.jobs {
		start, length := l.seconds(j.start), l.seconds(j.length)
		for i := range periods {
			from := start + float64(i)*plan.Period
			origin = min(origin, from)
			spans = append(spans, Span{j.task, j.residue + i*l.repeats, from, from + length})
		}
	}
	for i := range spans {
		if l.period != nil {
			spans[i].Start, spans[i].End = spans[i].Start-origin, spans[i].End-origin
		}
	}
	slices.SortStableFunc(spans, byTime)
	return spans, nil
}

func byTime(a, b Span) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) }

// NewTimeline puts spans of a plan, planned or simulated, on the devices and links where they run. Errors: those of Check
// up to RuleBoundary.
func NewTimeline(c *chain.Chain, p *Platform, plan *Plan, spans []Span) (*Timeline, error) {
	l, err := arrange(c, p, plan)
	if err != nil {
		return nil, err
	}
	t := &Timeline{Title: fmt.Sprintf("%s, %s", plan.Chain, plan.Strategy)}
	order, _ := l.turns()
	slices.SortStableFunc(order, func(a, b resource) int { return a.link() - b.link() })
	lane := map[resource]int{}
	for i, r := range order {
		lane[r] = i
		t.Lanes = append(t.Lanes, Lane{Name: r.String(), Link: r.link() > 0})
	}
	on := make([]*job, len(plan.Tasks))
	for _, j := range l.jobs {
		on[j.task] = j
	}
	for _, s := range slices.SortedStableFunc(slices.Values(spans), byTime) {
		j := on[s.Task]
		at := &t.Lanes[lane[l.resource(j)]]
		at.Slices = append(at.Slices, Slice{s, j.kind, j.stage, j.far})
		t.End = max(t.End, s.End)
	}
	return t, nil
}

// link is 1 for a link and 0 for a device.
func (r resource) link() int {
	if r.x != r.y {
		return 1
	}
	return 0
}

// The geometry of a drawn timeline, in pixels.
const (
	svgWidth  = 1200
	svgLeft   = 90 // names of the lanes
	svgTop    = 30 // title
	svgLane   = 26
	svgBottom = 30 // axis
	svgTicks  = 10
)

var colours = [...]string{F: "#4c78a8", B: "#f58518", W: "#54a24b", CF: "#9ecae9", CB: "#ffbf79"}

// SVG draws the timeline: a row for each lane, a box for each task with its minibatch, its name and times as its title.
func (t *Timeline) SVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	height := svgTop + svgLane*len(t.Lanes) + svgBottom
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", svgWidth, height)
	fmt.Fprintf(b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n"+`<text x="%d" y="18" font-size="13">%s</text>`+"\n", svgLeft, html.EscapeString(t.Title))
	for i, lane := range t.Lanes {
		y := svgTop + svgLane*i
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", svgLeft-6, y+svgLane/2+3, html.EscapeString(lane.Name))
		for _, s := range lane.Slices {
			t.box(b, s, y)
		}
	}
	t.axis(b, height-svgBottom)
	fmt.Fprintln(b, "</svg>")
	return b.Flush()
}

// x returns where an instant is drawn.
func (t *Timeline) x(at float64) float64 {
	if t.End == 0 {
		return svgLeft
	}
	return svgLeft + (svgWidth-svgLeft-10)*at/t.End
}

func (t *Timeline) box(w io.Writer, s Slice, y int) {
	from, to := t.x(s.Start), t.x(s.End)
	fmt.Fprintf(w, `<g><title>%s: %s to %s</title><rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="white" stroke-width="0.5"/>`,
		s.Name(), units.Seconds(s.Start), units.Seconds(s.End), from, y+2, max(to-from, 0.5), svgLane-4, colours[s.Kind])
	const digit = 7
	if number := fmt.Sprint(s.Minibatch); to-from > float64(digit*len(number)) {
		fmt.Fprintf(w, `<text x="%.2f" y="%d" text-anchor="middle" fill="white">%s</text>`, (from+to)/2, y+svgLane/2+4, number)
	}
	fmt.Fprintln(w, "</g>")
}

func (t *Timeline) axis(w io.Writer, y int) {
	fmt.Fprintf(w, `<path d="M%d %dH%d" stroke="black"/>`+"\n", svgLeft, y, svgWidth-10)
	for i := range svgTicks + 1 {
		at := t.End * float64(i) / svgTicks
		fmt.Fprintf(w, `<text x="%.2f" y="%d" text-anchor="middle">%s</text>`+"\n", t.x(at), y+16, units.Seconds(at))
	}
}
