package models

import "slices"

// gradients are the gradients that a layer's derivative computes.
type gradients struct {
	values []bool // by value: its gradient is wanted
	active []bool // by node: its backward runs
}

// wanted finds the gradients that lead to a trained parameter, or to the input when its gradient is asked for.
func (l *Layer) wanted(input bool) *gradients {
	g := &gradients{values: make([]bool, len(l.descs)), active: make([]bool, len(l.Nodes))}
	g.values[GraphInput] = input
	for i := range l.Nodes {
		n := &l.Nodes[i]
		g.active[i] = n.trains() || slices.ContainsFunc(n.In, g.value)
		g.values[i+1] = g.active[i]
	}
	return g
}

func (g *gradients) value(v Value) bool {
	if v.branch() >= 0 { // a layer's inputs are alike
		v = GraphInput
	}
	return v >= GraphInput && g.values[v]
}

// savedSet places what forward_all leaves in the Output block: the output, then what backward reads beyond the
// layer's input.
type savedSet struct {
	values map[Value]Ref
	extras map[int][]Ref // Op.Saved by node
	bytes  int64
}

// saves returns the minimal saved set: what the backward of the active nodes needs.
func (l *Layer) saves(g *gradients) savedSet {
	s := savedSet{values: map[Value]Ref{}, extras: map[int][]Ref{}}
	for _, x := range l.outputs() {
		s.value(l, x.value)
	}
	for i := range l.Nodes {
		if !g.active[i] {
			continue
		}
		n := &l.Nodes[i]
		needs := n.Op.Needs()
		for j, v := range n.In {
			if needs.Input(j) && n.readsInputs() {
				s.value(l, v)
			}
		}
		if needs.Output {
			s.value(l, Value(i+1))
		}
		for _, d := range n.Op.Saved(l.inputs(n)) {
			s.extras[i] = append(s.extras[i], next(Output, &s.bytes, d))
		}
	}
	return s
}

func (s *savedSet) value(l *Layer, v Value) {
	if _, have := s.values[v]; v > GraphInput && !have {
		s.values[v] = next(Output, &s.bytes, l.Desc(v))
	}
}
