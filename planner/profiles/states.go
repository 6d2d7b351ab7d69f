package profiles

import (
	"slices"

	"plimsoll/planner/chain"
)

// State is operators of a graph that can run before all others: with each of them, it holds what that one needs. A pipeline's
// stages end with states, each within the next.
//
// Source: the antichains of PipeDream's optimizer (optimizer_graph_hierarchical.py), each of which stands for what is not behind it.
type State struct {
	Compute             float64 // seconds of its forwards and backwards
	Activation, Weights int64   // bytes of its operators' outputs and weights
	Output              int64   // bytes of those outputs that operators outside read
	in                  []bool  // by position among the operators
	size                int
}

// Within reports whether all operators of the state are in another one.
func (s *State) Within(o *State) bool {
	for v, in := range s.in {
		if in && !o.in[v] {
			return false
		}
	}
	return true
}

// States returns all states but the empty one, a state before those that it is within; nil when there are more than most.
// Operators that need none, but for the first, come with the first that reads them, as in Chain.
func (g *Graph) States(most int) []*State {
	nodes, _ := g.operators()
	source := sources(nodes)
	all := []*State{{in: make([]bool, len(nodes))}}
	seen := map[string]bool{}
	for at := 0; at < len(all); at++ {
		for v := range nodes {
			next := all[at].with(nodes, source, v)
			if next == nil || seen[next.key()] {
				continue
			}
			if len(all) > most {
				return nil
			}
			seen[next.key()] = true
			next.measure(nodes)
			all = append(all, next)
		}
	}
	all = all[1:]
	slices.SortStableFunc(all, func(s, t *State) int { return s.size - t.size })
	return all
}

// sources returns which nodes need none and are read; the first is none of them.
func sources(nodes []Node) []bool {
	source := make([]bool, len(nodes))
	for i := range nodes {
		for _, u := range nodes[i].Needs {
			source[u] = u > 0 && len(nodes[u].Needs) == 0
		}
	}
	return source
}

// with returns the state with one operator more and the sources that it reads; nil when it is no source's turn or needs others.
func (s *State) with(nodes []Node, source []bool, v int) *State {
	if s.in[v] || source[v] {
		return nil
	}
	next := &State{in: slices.Clone(s.in)}
	next.in[v] = true
	for _, u := range nodes[v].Needs {
		if !s.in[u] && !source[u] {
			return nil
		}
		next.in[u] = true
	}
	return next
}

func (s *State) key() string {
	bits := make([]byte, (len(s.in)+7)/8)
	for v, in := range s.in {
		if in {
			bits[v/8] |= 1 << (v % 8)
		}
	}
	return string(bits)
}

func (s *State) measure(nodes []Node) {
	crosses := make([]bool, len(nodes))
	for v := range nodes {
		if !s.in[v] {
			for _, u := range nodes[v].Needs {
				crosses[u] = s.in[u]
			}
		}
	}
	for v, n := range nodes {
		if !s.in[v] {
			continue
		}
		s.size++
		s.Compute, s.Activation, s.Weights = s.Compute+n.Forward+n.Backward, s.Activation+n.Activation, s.Weights+n.Weights
		if crosses[v] {
			s.Output += n.Activation
		}
	}
}

// ChainOf linearizes the graph as Chain does, with a boundary after each of the states as well; each state is contained in the
// next. All tensors that later layers need cross the boundary. A tensor that only passes through a layer counts as saved by it.
func (g *Graph) ChainOf(states []*State) (*chain.Chain, error) {
	nodes, input := g.operators()
	var order, cuts []int
	for _, s := range states {
		for v := range nodes {
			if s.in[v] && !slices.Contains(order, v) {
				order = append(order, v)
			}
		}
		cuts = append(cuts, len(order)-1)
	}
	for v := range nodes {
		if !slices.Contains(order, v) {
			order = append(order, v)
		}
	}
	return g.linearized(renumbered(nodes, order), input, cuts)
}
