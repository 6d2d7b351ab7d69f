package ilp

import (
	"math"

	"plimsoll/planner/pipeline"
)

// memory: what the device of a task holds when it starts (thesis 6.3) fits.
//
// It holds the weights (6.33), the buffers of the boundaries to other devices (6.34, 6.35), and of each layer of its own:
//
//	activations  what a live minibatch holds, from the start of F_l to the end of B_l (6.3.2)
//	waiting      a_l from the end of F_l to the start of F_{l+1}, and δ_l from the end of B_{l+1} to the start of B_l, where both
//	             are on the device (6.3.1)
//
// Waits and orders give the number of each of them at the start of task t. This number counts whole periods, and one more, or less, for the
// events before t in its period. Between the starts of tasks a device may hold more only where a tensor waits that the next task takes at
// once. That is nothing when forwards run as late and backwards as early as they can (see schedule), unless a gradient is larger than the
// activation that its task frees. A program that is strict counts these tensors too, and leaves the solver's tolerance free: it may refuse
// what would fit, and never proves anything.

// margin is the share of the memory that a strict program leaves free: ten times the solver's tolerance.
const margin = 1e-5

// memory adds the rows of all tasks and devices.
func (g *program) memory() {
	unit := g.roomy()
	for d, m := range g.Platform.Memory {
		if m != pipeline.NoLimit {
			g.device(d, float64(m)/unit, unit)
		}
	}
	for l := 1; l <= g.layers(); l++ {
		static, room := g.static(l, unit), g.room(l, unit)
		for _, t := range []int{g.forward(l), g.backward(l)} {
			g.atLeast(room, static.plus(1, g.activations(t, unit)).plus(1, g.waiting(t, unit)))
		}
	}
}

// device: at some time every layer of a device is live once, and on average as often as periods pass between its forward and the
// end of its backward. The rows of tasks say it too, but not before the orders are known.
func (g *program) device(d int, room, unit float64) {
	var once, average sum
	for l := 1; l <= g.layers(); l++ {
		here := of(g.on[l][d])
		once = once.plus((g.weights(l, 1)+g.kept(l))/unit, here)
		average = average.plus((g.weights(l, 1)+g.kept(l)*g.span(g.forward(l), g.backward(l)+1))/unit, here)
		if l < g.layers() {
			buffers := number(0).plus(float64(g.need.Boundary(l))/unit, of(g.borders[l][d]))
			once, average = once.plus(1, buffers), average.plus(1, buffers)
		}
	}
	g.atLeast(number(room), once)
	g.atLeast(number(room), average)
}

// room returns the memory of the device of a layer.
func (g *program) room(l int, unit float64) sum {
	var s sum
	for d, m := range g.Platform.Memory {
		room := float64(m) / unit
		if m == pipeline.NoLimit {
			room = g.everything() / unit
		}
		s = s.plus(room, of(g.on[l][d]))
	}
	if g.strict {
		s = s.plus(-margin, number(1))
	}
	return s
}

// everything is more bytes than a device can need.
func (g *program) everything() (bytes float64) {
	for l := 1; l <= g.layers(); l++ {
		live := g.most(l)
		bytes += g.weights(l, int(live)) + live*(g.held(l)+float64(g.costs.Boundary(l))) + 2*float64(g.need.Boundary(l))
	}
	return bytes
}

// most returns a number of live minibatches that no layer exceeds.
func (g *program) most(l int) float64 {
	most := 1.0
	for i := g.forward(l); i < g.backward(l); i++ {
		most += float64(2 * len(g.wait[i].terms))
	}
	room := math.Inf(-1)
	for _, m := range g.Platform.Memory {
		if m == pipeline.NoLimit {
			return most
		}
		room = max(room, float64(m)-g.weights(l, 1))
	}
	if held := g.kept(l); held > 0 {
		most = max(1, min(most, math.Floor(room/held)))
	}
	return most
}

// static returns the weights and buffers of the device of a layer.
func (g *program) static(l int, unit float64) sum {
	var s sum
	for m := 1; m <= g.layers(); m++ {
		each := g.weights(m, 2) - g.weights(m, 1) // for each live minibatch: stashed weights
		s = s.plus((g.weights(m, 1)-each)/unit, g.together(l, m))
		if here := g.together(l, m); each > 0 && here.most() > 0 {
			s = s.plus(each/unit, g.count(g.live(g.forward(m), m), g.most(m), here))
		}
		if bytes := float64(g.need.Boundary(m)); bytes > 0 {
			s = s.plus(bytes/unit, g.border(l, m))
		}
	}
	return s
}

// border returns whether the device of layer l has a side of the boundary after layer m, and another device the other.
func (g *program) border(l, m int) sum {
	if l == m || l == m+1 {
		return g.cut(m)
	}
	if g.settled(l, m) && g.settled(l, m+1) {
		x, y := g.together(l, m), g.together(l, m+1)
		return number(math.Abs(x.constant - y.constant))
	}
	b := of(g.Var(0, 0, 1))
	g.atLeast(b.plus(1, g.together(l, m+1)), g.together(l, m))
	g.atLeast(b.plus(1, g.together(l, m)), g.together(l, m+1))
	return b
}

// count returns a variable that is at least what is counted, which is at most most, where a binary is 1.
func (g *program) count(what sum, most float64, where sum) sum {
	y := of(g.Var(0, 0, math.Inf(1)))
	g.atLeast(y.plus(most, number(1)), what.plus(most, where))
	return y
}

// live returns how many minibatches are live in a layer when task t starts, t included.
func (g *program) live(t, l int) sum {
	b := g.backward(l)
	s := of(g.turn[b]).plus(-1, of(g.turn[g.forward(l)])).plus(1, g.by(g.forward(l), t))
	if b != t {
		s = s.plus(-1, g.before(b, t))
	}
	return s
}

// least returns a number of minibatches that are live in layer l in every schedule when task t of the same device starts. A
// minibatch is at t if t is between its F_l and B_l. Later minibatches that have begun, and earlier ones that have not ended,
// follow from the least times from F_l to t and from t to the end of B_l.
func (g *program) least(t, l int) float64 {
	if l > g.layer(t) {
		return max(0, below(g.span(g.forward(l), g.backward(l)+1)))
	}
	return max(1, max(0, below(g.span(g.forward(l), t)))+above(g.span(t, g.backward(l)+1)))
}

// span returns how long tasks i..j-1 take.
func (g *program) span(i, j int) (periods float64) {
	for _, x := range g.length[i:j] {
		periods += x
	}
	return periods
}

// below and above round to whole numbers, up to rounding.
func below(x float64) float64 { return math.Floor(x - 1e-9) }
func above(x float64) float64 { return math.Ceil(x - 1e-9) }

// by returns 1 when a task starts before task t or is t.
func (g *program) by(i, t int) sum {
	if i == t {
		return number(1)
	}
	return g.before(i, t)
}

// activations returns the bytes that live minibatches hold when task t starts. Neighbouring layers may turn out to be one stage,
// which holds the inputs of its later layers only as part of what the earlier ones saved.
func (g *program) activations(t int, unit float64) (s sum) {
	for l := 1; l <= g.layers(); l++ {
		here := g.together(g.layer(t), l)
		if g.held(l) == 0 || here.most() == 0 {
			continue
		}
		y := g.count(g.live(t, l), g.most(l), here)
		g.atLeast(y, number(0).plus(g.least(t, l), here))
		s = s.plus(g.kept(l)/unit, y)
		if input := g.held(l) - g.kept(l); input > 0 {
			first := g.count(g.live(t, l).plus(-g.most(l), g.together(l-1, l)), g.most(l), here)
			s = s.plus(input/unit, first)
		}
	}
	return s
}

// kept returns the bytes that a live minibatch surely holds for a layer.
func (g *program) kept(l int) float64 {
	if g.strict {
		return g.held(l)
	}
	return g.own(l)
}

// waiting returns the tensors between two tasks of the device that wait when task t starts.
func (g *program) waiting(t int, unit float64) (s sum) {
	for i := range len(g.start) - 1 {
		bytes, here := g.bytes(i), g.together(g.layer(t), g.layer(i))
		if bytes == 0 || i == t || here.most() == 0 || g.together(g.layer(t), g.layer(i+1)).most() == 0 {
			continue
		}
		taken := g.by(i+1, t)
		if g.strict && i+1 == t {
			taken = number(0)
		}
		longest := float64(2*len(g.wait[i].terms) + 1)
		tensors := g.wait[i].plus(1, g.before(i, t)).plus(-1, taken).plus(-longest, g.cut(g.boundary(i)))
		s = s.plus(float64(bytes)/unit, g.count(tensors, 1, here))
	}
	return s
}
