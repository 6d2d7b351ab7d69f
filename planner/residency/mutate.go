package residency

import (
	"math"
	"math/rand/v2"
	"slices"
)

// mutator changes the choices of plans at random.
type mutator struct {
	*problem
	orders []*order
	random *rand.Rand
}

// listOrders arranges the orders that the search chooses from.
func (m *mutator) listOrders() {
	for _, g := range m.groups() {
		for _, t := range m.patterns(g) {
			if o := m.arrange(t); o != nil {
				m.orders = append(m.orders, o)
			}
		}
	}
	slices.SortStableFunc(m.orders, func(a, b *order) int {
		switch {
		case a.total < b.total:
			return -1
		case a.total > b.total:
			return 1
		}
		return 0
	})
}

// mutate changes one decision, of one layer or of several.
func (m *mutator) mutate(x *choice) {
	switch m.random.IntN(10) {
	case 0, 1:
		m.mutateHost(x)
	case 2, 3:
		m.mutateDelay(x)
	case 4, 5, 6:
		m.mutateGaps(x)
	case 7:
		m.mutateOrder(x)
	case 8:
		k := m.random.IntN(itemKinds)
		x.moves[k] = !x.moves[k]
	default:
		m.mutatePolicy(&x.policy)
	}
}

// mutateOrder takes another order, or computes other layers again.
func (m *mutator) mutateOrder(x *choice) {
	next := m.orders[m.random.IntN(len(m.orders))]
	if m.random.IntN(2) == 0 {
		t := x.order.pattern
		t.segment = slices.Clone(t.segment)
		for _, l := range m.some() {
			switch t.segment[l] {
			case 0:
				t.segment[l] = l
			case l:
				t.segment[l] = 0
			}
		}
		t.segment[m.n] = 0
		if next = m.arrange(t); next == nil { // the first layer of a segment saves its output now
			return
		}
	}
	x.order, x.forced = next, map[gapKey]hint{}
}

func (m *mutator) mutatePolicy(y *policy) {
	switch m.random.IntN(5) {
	case 0:
		y.lead, y.window = [...]float64{0.5, 1, 1.5, 2, 4, math.Inf(1)}[m.random.IntN(6)], 0
	case 1:
		y.reserve = [...]float64{0, 0.5, 1, 2, 3, 5}[m.random.IntN(6)]
	case 2:
		y.belady = !y.belady
	case 3:
		y.whole, y.most = !y.whole, -1
	default:
		y.window = m.random.IntN(4)
	}
}

// some returns layers of equal costs: one, neighbours, or every so many.
func (m *mutator) some() (layers []int) {
	if len(m.classes) == 0 {
		return nil
	}
	class := m.classes[m.random.IntN(len(m.classes))]
	first := m.random.IntN(len(class))
	switch m.random.IntN(4) {
	case 0:
		return class
	case 1:
		return class[first : first+1+m.random.IntN(len(class)-first)]
	case 2:
		every := 1 + m.random.IntN(5)
		for i := first % every; i < len(class); i += every {
			layers = append(layers, class[i])
		}
		return layers
	}
	return class[first : first+1]
}

func (m *mutator) mutateHost(x *choice) {
	host := m.random.IntN(2) == 0
	layers := m.some()
	if len(layers) == 1 {
		host = !x.host[layers[0]]
	}
	for _, o := range layers {
		x.host[o] = host && m.movable(o)
	}
}

// mutateDelay lets updates come at once, somewhere later in the step, at its end, or right before the next forward.
func (m *mutator) mutateDelay(x *choice) {
	n := len(x.order.ops)
	_, last := m.extent(x.order.ops)
	kind, ops := m.random.IntN(5), 1+m.random.IntN(min(n, 8))
	for _, o := range m.some() {
		switch kind {
		case 0:
			x.delay[o] = 0
		case 1:
			x.delay[o] = n - 1 - last[o]
		case 2:
			x.delay[o] = n
		case 3:
			x.delay[o] = ops
		default:
			x.delay[o] = n - 1 - last[o] + ops
		}
	}
}

// mutateGaps lets items leave in a gap, or stay, against the policy.
func (m *mutator) mutateGaps(x *choice) {
	layers := m.some()
	if len(x.gaps) == 0 {
		return
	}
	key, said := x.gaps[m.random.IntN(len(x.gaps))], hint(m.random.IntN(hints))
	if !slices.Contains(layers, key.layer) {
		layers = []int{key.layer}
	}
	for _, o := range layers {
		key.layer = o
		if said == undecided {
			delete(x.forced, key)
		} else {
			x.forced[key] = said
		}
	}
}
