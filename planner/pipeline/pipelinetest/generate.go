// Package pipelinetest holds what tests of pipeline planners share: random chains, platforms and plans, and the independent
// checker as a judge.
package pipelinetest

import (
	"math"
	"math/rand/v2"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Chain returns a random chain of n layers, the loss included. Sizes are small whole numbers and so are times, unless
// decimals asks for times such as 0.3. Every backward has its two halves.
func Chain(rnd *rand.Rand, n int, decimals bool) *chain.Chain {
	unit := 1.0
	if decimals {
		unit = []float64{0.1, 0.001, 1.0 / 3, math.Pi}[rnd.IntN(4)]
	}
	c := &chain.Chain{Name: "random", InputBytes: rnd.Int64N(9)}
	for range n {
		input, weight := unit*float64(rnd.IntN(5)), unit*float64(rnd.IntN(4))
		out := rnd.Int64N(9)
		c.Layers = append(c.Layers, chain.Layer{
			Name: "layer", ForwardS: unit * float64(rnd.IntN(5)), BackwardS: input + weight,
			OutputBytes: out, SavedBytes: out + rnd.Int64N(7), GradientBytes: rnd.Int64N(9), WeightBytes: rnd.Int64N(12),
			BackwardInputS: &input, BackwardWeightS: &weight,
		})
	}
	c.Layers[0].ForwardS += unit // something takes time
	return c
}

// Platform returns a random platform without memory limits.
func Platform(rnd *rand.Rand, devices int) *pipeline.Platform {
	p := pipeline.NewPlatform(devices, pipeline.NoLimit, []float64{pipeline.Free(), 1, 2, 3.7, 10}[rnd.IntN(5)])
	p.Duplex, p.NoBuffers = rnd.IntN(3) == 0, rnd.IntN(3) == 0
	if devices > 1 && rnd.IntN(3) == 0 {
		x := rnd.IntN(devices - 1)
		p.Pairs = map[[2]int]float64{{x, x + 1 + rnd.IntN(devices-1-x)}: []float64{pipeline.Free(), 0.7, 5}[rnd.IntN(3)]}
	}
	return p
}

// Plan returns a random plan that keeps all rules: random stages, replicas and versions. Tasks are placed one minibatch
// after the other, each at the first instant at which its resource is free, or a little later.
func Plan(rnd *rand.Rand, c *chain.Chain, p *pipeline.Platform) *pipeline.Plan {
	g := &generator{rnd: rnd, chain: c, platform: p, costs: pipeline.NewCosts(c), plan: &pipeline.Plan{Chain: c.Name, Strategy: "random"}}
	g.stages()
	g.versions()
	if rnd.IntN(4) == 0 {
		g.split = rnd.IntN(len(g.plan.Stages) + 1)
	}
	g.repeats = 1 + rnd.IntN(4)
	if g.plan.Versions == pipeline.Flush {
		g.plan.Microbatches, g.period = g.repeats, math.Inf(1)
		g.place()
		return g.plan
	}
	g.plan.MinibatchesPerPeriod = g.repeats
	for g.period = max(g.load(), 0.5); !g.place(); g.period *= 1.1 {
		g.plan.Tasks = nil
	}
	g.plan.Period = g.period
	return g.plan
}

// InTurns returns a random plan with a flush that keeps all rules and whose replicas take turns. Each stage has some devices that work, and so
// many microbatches in a row are one for each of them.
func InTurns(rnd *rand.Rand, c *chain.Chain, p *pipeline.Platform) *pipeline.Plan {
	g := &generator{rnd: rnd, chain: c, platform: p, costs: pipeline.NewCosts(c), plan: &pipeline.Plan{Chain: c.Name, Strategy: "random"}}
	g.stages()
	g.versions()
	g.plan.Versions, g.period, g.repeats = pipeline.Flush, math.Inf(1), 1+rnd.IntN(4)
	if rnd.IntN(4) == 0 {
		g.split = rnd.IntN(len(g.plan.Stages) + 1)
	}
	for _, st := range g.plan.Stages {
		n := 1 + rnd.IntN(len(st.Devices))
		g.working = append(g.working, n)
		for most := g.repeats; g.repeats%n > 0; {
			g.repeats += most
		}
	}
	g.plan.Microbatches = g.repeats
	g.place()
	return g.plan
}

type generator struct {
	rnd      *rand.Rand
	chain    *chain.Chain
	platform *pipeline.Platform
	costs    *pipeline.Costs
	plan     *pipeline.Plan
	split    int // so many stages at the front split their backward
	repeats  int
	working  []int   // by stage: so many of its devices take turns; nil: all work as it comes
	period   float64 // +Inf for a flush plan
	used     map[[2]int][]interval
}

type interval struct{ from, to float64 }

func (g *generator) stages() {
	n, at := g.chain.Len(), 1
	for at <= n {
		last := min(n, at+g.rnd.IntN(3))
		devices := g.rnd.Perm(g.platform.Devices)
		if g.rnd.IntN(4) > 0 {
			devices = devices[:1]
		}
		g.plan.Stages = append(g.plan.Stages, pipeline.Stage{First: at, Last: last, Devices: devices})
		at = last + 1
	}
}

func (g *generator) versions() {
	all := pipeline.AllVersions()
	g.plan.Versions = all[g.rnd.IntN(len(all))]
	if g.rnd.IntN(2) == 0 {
		g.plan.Versions = pipeline.Flush
	}
	switch {
	case g.rnd.IntN(4) == 0:
		for range g.plan.Stages {
			g.plan.WeightCopies = append(g.plan.WeightCopies, float64(g.rnd.IntN(9))/2)
		}
	case g.plan.Versions == pipeline.VerticalSync || g.rnd.IntN(4) == 0:
		g.plan.WeightCopies = []float64{float64(g.rnd.IntN(5))}
	}
	g.plan.Accounting = []pipeline.Accounting{"", pipeline.Inputs, pipeline.Saved}[g.rnd.IntN(3)]
}

// load is the largest that one resource can be asked to do in a period.
func (g *generator) load() float64 {
	sum := make([]float64, g.platform.Devices)
	for _, st := range g.plan.Stages {
		for _, d := range st.Devices {
			sum[d] += float64(g.repeats) * g.costs.U(st.First, st.Last) / float64(len(st.Devices))
		}
	}
	return slices.Max(sum)
}

// step is a task of every minibatch.
type step struct {
	kind  pipeline.Kind
	stage int
}

// steps returns the steps of a minibatch, in order.
func (g *generator) steps() (steps []step) {
	for s := range g.plan.Stages {
		steps = append(steps, step{pipeline.F, s}, step{pipeline.CF, s})
	}
	for s := range slices.Backward(g.plan.Stages) {
		steps = append(steps, step{pipeline.CB, s}, step{pipeline.B, s})
	}
	for s := range g.split {
		steps = append(steps, step{pipeline.W, s})
	}
	return steps
}

// place gives every task a time; false when the period is too short.
func (g *generator) place() bool {
	g.used = map[[2]int][]interval{}
	clock := make([]float64, g.repeats)
	on, inside, steps := g.devices(), g.repeats, g.steps()
	if g.working != nil && g.rnd.IntN(2) == 0 {
		inside = 1 // one microbatch after the other, with all its steps
	}
	for from := 0; from < g.repeats; from += inside {
		for _, st := range steps {
			for r := from; r < from+inside; r++ {
				if !g.task(st.kind, st.stage, r, on[r], &clock[r]) {
					return false
				}
			}
		}
	}
	g.rnd.Shuffle(len(g.plan.Tasks), func(i, j int) { t := g.plan.Tasks; t[i], t[j] = t[j], t[i] })
	return true
}

// devices returns the devices of the stages, for every minibatch.
func (g *generator) devices() [][]int {
	on := make([][]int, g.repeats)
	for r := range on {
		on[r] = make([]int, len(g.plan.Stages))
	}
	for r := range on {
		for s, st := range g.plan.Stages {
			if g.working == nil {
				on[r][s] = st.Devices[(r+g.rnd.IntN(2))%len(st.Devices)]
			} else if n := g.working[s]; r%n == 0 {
				for i, at := range g.rnd.Perm(n) {
					on[r+i][s] = st.Devices[at]
				}
			}
		}
	}
	return on
}

// task places one task of a minibatch at its clock or later, and moves the clock to its end.
func (g *generator) task(kind pipeline.Kind, s, r int, on []int, clock *float64) bool {
	if kind.Communication() {
		return g.message(kind, s, r, on, clock)
	}
	return g.add(kind, s, on[s], r, [2]int{on[s], on[s]}, g.length(kind, s), clock)
}

// length returns how long a device works on a task.
func (g *generator) length(kind pipeline.Kind, s int) float64 {
	st := g.plan.Stages[s]
	switch {
	case kind == pipeline.F:
		return g.costs.Forward(st.First, st.Last)
	case kind == pipeline.W:
		return g.costs.BackwardWeight(st.First, st.Last)
	case s < g.split:
		return g.costs.BackwardInput(st.First, st.Last)
	}
	return g.costs.Backward(st.First, st.Last)
}

// message places a communication where one is needed.
func (g *generator) message(kind pipeline.Kind, s, r int, on []int, clock *float64) bool {
	if s+1 == len(on) || on[s] == on[s+1] {
		return true
	}
	x, y, bytes := on[s], on[s+1], g.chain.Activation(g.plan.Stages[s].Last)
	if kind == pipeline.CB {
		x, y, bytes = y, x, g.chain.Gradient(g.plan.Stages[s].Last)
	}
	length := g.platform.Seconds(bytes, x, y)
	if length == 0 && g.rnd.IntN(2) == 0 {
		return true
	}
	device := x
	if g.rnd.IntN(3) == 0 {
		device = pipeline.NoDevice
	}
	where := [2]int{x, y}
	if !g.platform.Duplex {
		where = [2]int{min(x, y), max(x, y)}
	}
	return g.add(kind, s, device, r, where, length, clock)
}

func (g *generator) add(kind pipeline.Kind, s, device, r int, where [2]int, length float64, clock *float64) bool {
	start, ok := g.free(where, *clock, length)
	if ok {
		*clock = start + length
		g.plan.Tasks = append(g.plan.Tasks, g.name(kind, s, device, r, start, length))
	}
	return ok
}

// name makes the task of minibatch r that starts at an instant.
func (g *generator) name(kind pipeline.Kind, s, device, r int, start, length float64) pipeline.Task {
	t := pipeline.Task{Kind: kind, Stage: s, Device: device, Start: start, Shift: r}
	if !math.IsInf(g.period, 1) {
		j := math.Floor(start / g.period)
		t.Start = min(max(start-j*g.period, 0), math.Nextafter(g.period, 0))
		t.Shift = r - int(j)*g.repeats
	}
	if g.rnd.IntN(8) == 0 {
		t.Duration = &length
	}
	return t
}

// free finds a place for a task on a resource, not before an instant.
func (g *generator) free(where [2]int, after, length float64) (start float64, ok bool) {
	start = after
	if g.rnd.IntN(6) == 0 {
		start += float64(g.rnd.IntN(3))
	}
	if length > g.period {
		return 0, false
	}
	for range 4 * (len(g.used[where]) + 1) {
		next, busy := g.busy(where, start, length)
		if !busy {
			at := interval{start, start + length}
			g.used[where] = append(g.used[where], at)
			return start, true
		}
		start = next
	}
	return 0, false
}

// busy reports whether a resource is in use in an interval, and until when.
func (g *generator) busy(where [2]int, start, length float64) (until float64, busy bool) {
	const touch = 1e-12
	for _, u := range g.used[where] {
		for _, by := range g.repetitions(start - u.from) {
			if from, to := u.from+by, u.to+by; start+length > from+touch && start < to-touch {
				return to, true
			}
		}
	}
	return 0, false
}

// repetitions returns by how much an interval moves to its repetitions around one that starts so much later.
func (g *generator) repetitions(later float64) []float64 {
	if math.IsInf(g.period, 1) {
		return []float64{0}
	}
	before := math.Floor(later/g.period) * g.period
	return []float64{before, before + g.period}
}

// WithLevels returns devices of equal memory in a topology, the innermost level first.
func WithLevels(memory int64, levels ...pipeline.Level) *pipeline.Platform {
	devices := 1
	for _, l := range levels {
		devices *= l.Devices
	}
	p := pipeline.NewPlatform(devices, memory, 0)
	p.Levels = levels
	return p
}
