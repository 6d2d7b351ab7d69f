package ilp

import (
	"math"

	"plimsoll/planner/milp"
)

// program asks for a schedule of a period, and for its allocation. Times are in periods, sizes in memories.
//
// Tasks are numbered 0..2n-1 in the order in which a minibatch passes them: the forwards of layers 1..n, then their
// backwards, n..1. A task starts at τ in [0, 1] of each period; it may run over the end.
type program struct {
	rows
	*allocation
	period float64
	strict bool // see memory

	length []float64 // of tasks
	start  []milp.Var
	order  [][]milp.Var // task i starts before task j in the period, i < j
	wait   []sum        // by how many periods task i+1 of a minibatch is behind task i
	turn   []milp.Var   // by how many periods task i is behind task 0
	sends  []*send      // between tasks i and i+1; nil: none, or it takes no time
}

func newProgram(in *instance, period float64, strict bool, fixed []int) *program {
	g := &program{period: period, strict: strict}
	g.allocation = newAllocation(in, &g.rows, fixed)
	g.pairs()
	g.bounds()
	g.tasks()
	g.orders()
	g.communications()
	g.path()
	g.loads()
	if in.limited() {
		g.memory()
	}
	return g
}

// layer returns the layer of a task.
func (g *program) layer(i int) int {
	if n := g.layers(); i >= n {
		return 2*n - i
	}
	return i + 1
}

// forward and backward return the tasks of a layer.
func (g *program) forward(l int) int  { return l - 1 }
func (g *program) backward(l int) int { return 2*g.layers() - l }

// same returns z of the layers of two tasks.
func (g *program) same(i, j int) sum { return g.together(g.layer(i), g.layer(j)) }

// tasks adds τ (thesis 6.2.4). A pattern may begin anywhere: it begins with the first forward.
func (g *program) tasks() {
	for i := range 2 * g.layers() {
		g.length = append(g.length, g.seconds(i)/g.period)
		g.start = append(g.start, g.Var(0, 0, min(1, float64(i))))
	}
}

// orders: of two tasks on a device, one is before the other in the period, and both are around once in it (thesis 6.2.2 and
// 6.20).
func (g *program) orders() {
	g.order = make([][]milp.Var, len(g.start))
	for i := range g.start {
		g.order[i] = make([]milp.Var, len(g.start))
		for j := i + 1; j < len(g.start); j++ {
			z := g.same(i, j)
			if z.most() == 0 {
				continue
			}
			g.order[i][j] = g.Binary(0)
			g.exclude(g.start[i], g.start[j], g.order[i][j], z, number(0).plus(g.length[i], z), number(0).plus(g.length[j], z))
		}
	}
}

// exclude separates two tasks or communications x and y on the same resource. The start of y comes at least the length of x after
// the start of x. The next start of x, one period later if x comes first, is at least the length of y after the start of y.
// Elsewhere the lengths given are at most 0, and the order says nothing.
func (g *program) exclude(x, y, first milp.Var, same, length, back sum) {
	later := of(y).plus(-1, of(x)).plus(-1, of(first))
	g.atLeast(later.plus(2, number(1)), length.plus(1, same))
	g.atLeast(number(1), later.plus(1, back).plus(1, same))
}

// before returns 1 when task i starts before another task j in the period.
func (g *program) before(i, j int) sum {
	if i < j {
		return of(g.order[i][j])
	}
	return number(1).plus(-1, of(g.order[j][i]))
}

// path: each task of a minibatch starts when the one before, and its communication, have ended. The number of periods between
// them in the pattern is v of thesis 6.3.2, ṽ after a communication. Both are at most 2, because tasks start in their period and
// are no longer than it.
func (g *program) path() {
	g.turn = []milp.Var{g.Var(0, 0, 0)}
	for i := range len(g.start) - 1 {
		from, length := g.start[i], number(g.length[i])
		shift := g.Integer(0, 0, 2)
		wait := of(shift)
		if s := g.sends[i]; s != nil {
			g.atLeast(of(s.start).plus(1, of(shift)), of(from).plus(1, length))
			from, length = s.start, s.length
			shift = g.Integer(0, 0, 2)
			wait = wait.plus(1, of(shift))
			s.shift = shift
		}
		g.atLeast(of(g.start[i+1]).plus(1, of(shift)), of(from).plus(1, length))
		g.wait = append(g.wait, wait)
		g.turn = append(g.turn, g.Var(0, 0, math.Inf(1)))
		g.equal(of(g.turn[i+1]), of(g.turn[i]).plus(1, wait))
	}
	g.turns()
}

// turns: where a task starts before one that comes ahead of it in the minibatch, and on the same device, they work on different
// minibatches.
func (g *program) turns() {
	for i := range g.start {
		for j := i + 1; j < len(g.start); j++ {
			if z := g.same(i, j); z.most() > 0 {
				g.atLeast(of(g.turn[j]).plus(1, g.before(i, j)), of(g.turn[i]).plus(1, z))
			}
		}
	}
}

// loads: what a device does in a period fits in one. The orders say it too, but not before they are known.
func (g *program) loads() {
	for d := range g.Platform.Devices {
		var load sum
		for l := 1; l <= g.layers(); l++ {
			load = load.plus(g.length[g.forward(l)]+g.length[g.backward(l)], of(g.on[l][d]))
		}
		g.atLeast(number(1), load)
	}
}

// cut returns how much of the boundary after a layer is there: 1, or 0 when both sides are on one device.
func (g *program) cut(l int) sum { return number(1).plus(-1, g.together(l, l+1)) }

// boundary returns the boundary between tasks i and i+1: the layer before it.
func (g *program) boundary(i int) int { return min(g.layer(i), g.layer(i+1)) }

// bytes returns the bytes that task i sends to task i+1 when they are on different devices.
func (g *program) bytes(i int) int64 {
	switch l := g.boundary(i); {
	case g.layer(i) == g.layer(i+1):
		return 0
	case i < g.layers():
		return g.Chain.Activation(l)
	default:
		return g.Chain.Gradient(l)
	}
}

// seconds returns the length of a task.
func (g *program) seconds(i int) float64 {
	l := g.layer(i)
	if i < g.layers() {
		return g.costs.Forward(l, l)
	}
	return g.costs.Backward(l, l)
}
