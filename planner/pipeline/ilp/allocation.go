package ilp

import (
	"plimsoll/planner/milp"
)

// allocation: which layer is where (thesis 6.2.1).
//
// The thesis names no device, so that renaming them gives no new solution: z says which tasks are together, and (6.1) to
// (6.3) that there are at most P groups. Here x names the device, which keeps devices and links that differ and makes the load of a device
// a row. Where all are alike, a layer may only be on a device whose predecessor has a layer before it.

// allocation is the variables that say where layers are.
type allocation struct {
	*instance
	p       *rows
	fixed   []int        // the device of each layer that is not open; nil: all are open
	on      [][]milp.Var // x: layer l is on device d
	with    [][]milp.Var // z: layers l < m are on the same device
	borders [][]milp.Var // the boundary after layer l joins device d to another one
}

// open is the device of a layer that may be on any.
const open = -1

// newAllocation adds x to a program, for layers that are open or fixed. Layers count from 1.
func newAllocation(in *instance, p *rows, fixed []int) *allocation {
	a := &allocation{instance: in, p: p, fixed: fixed, on: make([][]milp.Var, in.layers()+1)}
	for l := 1; l <= in.layers(); l++ {
		var one sum
		for d := range in.Platform.Devices {
			v := a.place(l, d)
			a.on[l], one = append(a.on[l], v), one.plus(1, of(v))
			if in.alike && fixed == nil {
				a.inTurn(l, d)
			}
		}
		p.equal(one, number(1))
	}
	a.links()
	return a
}

// place adds x of a layer and a device.
func (a *allocation) place(l, d int) milp.Var {
	switch at := a.at(l); at {
	case open:
		return a.p.Binary(0)
	case d:
		return a.p.Var(0, 1, 1)
	}
	return a.p.Var(0, 0, 0)
}

// at returns the device of a layer, or open.
func (a *allocation) at(l int) int {
	if a.fixed == nil {
		return open
	}
	return a.fixed[l-1]
}

// settled reports whether two layers are both fixed.
func (a *allocation) settled(l, m int) bool { return a.at(l) != open && a.at(m) != open }

// inTurn: a layer is on device d only when a layer before it is on device d-1.
func (a *allocation) inTurn(l, d int) {
	var before sum
	for m := 1; m < l && d > 0; m++ {
		before = before.plus(1, of(a.on[m][d-1]))
	}
	if d > 0 {
		a.p.atLeast(before, of(a.on[l][d]))
	}
}

// links: neighbours are not on devices that no link joins.
func (a *allocation) links() {
	for x := range a.Platform.Devices {
		for y := range a.Platform.Devices {
			if x != y && a.Platform.Beta(x, y) == 0 {
				for l := 1; l < a.layers(); l++ {
					a.apart(l, x, y)
				}
			}
		}
	}
}

// apart: layers l and l+1 are not on devices x and y.
func (a *allocation) apart(l, x, y int) {
	a.p.atLeast(number(1), of(a.on[l][x]).plus(1, of(a.on[l+1][y])))
}

// pairs adds z: together, and only together, are layers on the same device.
func (a *allocation) pairs() {
	n := a.layers()
	a.with = make([][]milp.Var, n+1)
	for l := 1; l <= n; l++ {
		a.with[l] = make([]milp.Var, n+1)
		for m := l + 1; m <= n; m++ {
			if a.settled(l, m) {
				continue
			}
			z := a.p.Var(0, 0, 1)
			a.with[l][m] = z
			for d := range a.on[l] {
				x, y := of(a.on[l][d]), of(a.on[m][d])
				a.p.atLeast(of(z), x.plus(1, y).plus(-1, number(1)))
				a.p.atLeast(number(1).plus(-1, x).plus(1, y), of(z))
				a.p.atLeast(number(1).plus(-1, y).plus(1, x), of(z))
			}
		}
	}
}

// together returns z of two layers.
func (a *allocation) together(l, m int) sum {
	switch {
	case l == m:
		return number(1)
	case a.settled(l, m) && a.at(l) == a.at(m):
		return number(1)
	case a.settled(l, m):
		return number(0)
	case l > m:
		l, m = m, l
	}
	return of(a.with[l][m])
}

// bounds adds, for all boundaries l and devices d, whether d has one side of it and another device the other.
func (a *allocation) bounds() {
	a.borders = make([][]milp.Var, a.layers())
	for l := 1; l < a.layers(); l++ {
		for d := range a.on[l] {
			b := a.p.Var(0, 0, 1)
			a.borders[l] = append(a.borders[l], b)
			here, there := of(a.on[l][d]), of(a.on[l+1][d])
			a.p.atLeast(of(b).plus(1, there), here)
			a.p.atLeast(of(b).plus(1, here), there)
		}
	}
}

// read returns the device of each layer of a solution.
func (a *allocation) read(s *milp.Solution) []int {
	devices := make([]int, a.layers())
	for l := 1; l <= a.layers(); l++ {
		for d, v := range a.on[l] {
			if s.Value(v) > 0.5 {
				devices[l-1] = d
			}
		}
	}
	return devices
}
