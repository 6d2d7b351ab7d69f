package pipeline

import (
	"fmt"
	"math"
	"slices"

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
	Device int     // of a device
	Slices []Slice // in the order of their start
}

// Slice is a task, or a message between replicas, that runs.
type Slice struct {
	Span
	Kind  Kind // of a task
	Stage int
	To    int              // as in Task
	Sync  *Synchronization // the message between replicas that it is; nil for a task
}

// Name names the task for its minibatch: "F2(5)".
func (s Slice) Name() string {
	if s.Sync != nil {
		return s.Sync.of(s.Minibatch).String()
	}
	return Task{Kind: s.Kind, Stage: s.Stage, To: s.To, Shift: s.Minibatch}.String()
}

// Work names the kind of task, or of message: "F", "reduce".
func (s Slice) Work() string {
	if s.Sync != nil {
		return s.Sync.Kind.String()
	}
	return s.Kind.String()
}

// Planned returns a plan's own times as spans, messages between replicas among them: of all its microbatches, or of so many periods of a
// periodic plan. Times count from the start of the first task. Errors: those of Check up to RuleBoundary.
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
		start, length, early := l.seconds(j.start), l.seconds(j.length), l.seconds(j.early)
		for i := range periods {
			from := start + float64(i)*plan.Period
			origin = min(origin, from)
			spans = append(spans, Span{j.task, j.residue + i*l.repeats, from, from + length, early})
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
		t.Lanes = append(t.Lanes, Lane{Name: r.String(), Link: r.link() > 0, Device: r.x})
	}
	on := make([]*job, len(plan.Tasks)+len(plan.Synchronization))
	for _, j := range l.jobs {
		on[j.task] = j
	}
	for _, s := range slices.SortedStableFunc(slices.Values(spans), byTime) {
		j := on[s.Task]
		at := &t.Lanes[lane[l.resource(j)]]
		at.Slices = append(at.Slices, Slice{s, j.kind, j.stage, j.far, j.bucket})
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
