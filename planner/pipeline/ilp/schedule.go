package ilp

import (
	"math"
	"slices"

	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

// schedule: from a solution to a plan. The plan takes only whole numbers of a solution: the devices, the orders and by how many periods
// tasks are behind each other. Times, and the smallest period for them, follow exactly: the period is the largest ratio of seconds to
// periods around a cycle of tasks that have to follow each other.

// event is a task or a communication that takes time, in the order in which a minibatch passes them.
type event struct {
	kind     pipeline.Kind
	stage    int
	device   int
	resource [2]int  // a device twice, or the ends of a link
	seconds  float64 // its length
	behind   int     // by how many periods its start is behind that of the event before it
	index    int     // of the task; of a communication, of the task before it
	send     *send   // nil: a task
}

// edge says that event y starts at least so many seconds, less some periods, after event x.
type edge struct {
	x, y    int
	seconds float64
	periods int
}

// events reads a solution.
func (g *program) events(s *milp.Solution, devices []int) []event {
	whole := func(v sum) int { return int(math.Round(value(s, v))) }
	var all []event
	behind := 0
	for i := range g.start {
		d := devices[g.layer(i)-1]
		kind := pipeline.F
		if i >= g.layers() {
			kind = pipeline.B
		}
		all = append(all, event{
			kind: kind, stage: g.layer(i) - 1, device: d, resource: [2]int{d, d}, index: i, behind: behind,
			seconds: g.seconds(i),
		})
		if i+1 == len(g.start) {
			break
		}
		behind = whole(g.wait[i])
		if c := g.sends[i]; c != nil {
			e := devices[g.layer(i+1)-1]
			if seconds := g.Platform.Seconds(g.bytes(i), d, e); d != e && seconds > 0 {
				last := whole(of(c.shift))
				all = append(all, event{
					kind: communication(kind), stage: g.boundary(i) - 1, device: d, resource: g.link(d, e), index: i, send: c,
					behind: behind - last, seconds: seconds,
				})
				behind = last
			}
		}
	}
	return all
}

func communication(k pipeline.Kind) pipeline.Kind {
	if k == pipeline.F {
		return pipeline.CF
	}
	return pipeline.CB
}

// link returns the resource of a communication from one device to another.
func (g *program) link(from, to int) [2]int {
	if g.Platform.Duplex {
		return [2]int{from, to}
	}
	return [2]int{min(from, to), max(from, to)}
}

func value(s *milp.Solution, x sum) float64 {
	v := x.constant
	for _, t := range x.terms {
		v += t.Coef * s.Value(t.Var)
	}
	return v
}

// edges returns the precedences of events: events of a minibatch follow each other, events of a resource follow
// in their order, and each event follows itself, a period later.
func (g *program) edges(s *milp.Solution, all []event) []edge {
	var edges []edge
	for y := range all {
		edges = append(edges, edge{y, y, all[y].seconds, 1})
		if y > 0 {
			edges = append(edges, edge{y - 1, y, all[y-1].seconds, all[y].behind})
		}
		for x := range y {
			if all[x].resource != all[y].resource {
				continue
			}
			first, second := x, y
			if value(s, g.first(all[x], all[y])) < 0.5 {
				first, second = y, x
			}
			edges = append(edges, edge{first, second, all[first].seconds, 0}, edge{second, first, all[second].seconds, 1})
		}
	}
	return edges
}

// first returns 1 when event x starts before event y of the same resource in the period. x comes first in the minibatch.
func (g *program) first(x, y event) sum {
	if x.send != nil {
		return of(x.send.before[y.send])
	}
	return g.before(x.index, y.index)
}

// slack is the relative rounding that sums of times are forgiven.
const slack = 1e-12

// smallest returns the smallest period that the edges of a number of events allow, at least low, and the earliest starts with it.
// ok is false when they allow none.
func smallest(edges []edge, events int, low float64) (period float64, start []float64, ok bool) {
	for period = low; ; {
		start, cycle := earliest(edges, events, period)
		if cycle == nil {
			return period, start, true
		}
		seconds, periods := 0.0, 0
		for _, e := range cycle {
			seconds, periods = seconds+e.seconds, periods+e.periods
		}
		if periods <= 0 || seconds/float64(periods) <= period {
			return 0, nil, false
		}
		period = seconds / float64(periods)
	}
}

// earliest returns the earliest starts with a period, or edges in a cycle that needs a longer one.
func earliest(edges []edge, events int, period float64) (start []float64, cycle []edge) {
	start = make([]float64, events)
	by := make([]int, events) // the edge that set the start
	for i := range by {
		by[i] = -1
	}
	for range events + 1 {
		moved := -1
		for i, e := range edges {
			if at := start[e.x] + e.seconds - float64(e.periods)*period; at > start[e.y]+period*slack {
				start[e.y], by[e.y], moved = at, i, e.y
			}
		}
		if moved < 0 {
			return start, nil
		}
		if cycle = around(edges, by, moved); cycle != nil {
			return nil, cycle
		}
	}
	return start, nil
}

// around returns the cycle that setting edges lead back into from an event, if there is one.
func around(edges []edge, by []int, from int) (cycle []edge) {
	seen := make([]bool, len(by))
	at := from
	for !seen[at] {
		seen[at] = true
		if by[at] < 0 {
			return nil
		}
		at = edges[by[at]].x
	}
	for end := at; ; {
		e := edges[by[at]]
		cycle = append(cycle, e)
		if at = e.x; at == end {
			return cycle
		}
	}
}

// delay moves the forwards, and their communications, as late as the other starts allow: events before last. So tensors wait as
// short as they can.
func delay(edges []edge, start []float64, last int, period float64) {
	for range start {
		moved := false
		for x := last - 1; x >= 0; x-- {
			latest := math.Inf(1)
			for _, e := range edges {
				if e.x == x {
					latest = min(latest, start[e.y]-e.seconds+float64(e.periods)*period)
				}
			}
			if latest > start[x]+period*slack {
				start[x], moved = latest, true
			}
		}
		if !moved {
			return
		}
	}
}

// plan returns the plan of a solution, unchecked; nil when its orders allow no period.
func (g *program) plan(s *milp.Solution) *pipeline.Plan {
	devices := g.read(s)
	all := g.events(s, devices)
	edges := g.edges(s, all)
	period, start, ok := smallest(edges, len(all), g.fastest())
	if !ok {
		return nil
	}
	delay(edges, start, slices.IndexFunc(all, func(e event) bool { return e.kind == pipeline.B }), period)
	p := g.need.Plan(nil)
	for l := range devices {
		p.Stages = append(p.Stages, pipeline.Stage{First: l + 1, Last: l + 1, Devices: devices[l : l+1]})
	}
	p.Period = period
	f := periodic.NewFolder(p)
	turn := 0
	for i, e := range all {
		turn += e.behind
		f.Add(e.kind, e.stage, e.device, start[i]+float64(turn)*period, 0)
	}
	f.Finish()
	return p
}
