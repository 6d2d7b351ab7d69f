package models

import (
	"slices"

	"plimsoll/kernels"
)

// purpose is what a forward is for.
type purpose uint8

const (
	saving     purpose = iota // forward_all
	forgetting                // forward_checkpoint, forward_discard
	evaluating                // no training at all
)

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
			if needs.Input(j) {
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

// forward returns the routine that computes the layer's output.
func (l *Layer) forward(p purpose, saved savedSet) *routine {
	values, r := l.given(), &routine{}
	output := func(v Value) bool { return slices.ContainsFunc(l.outputs(), func(x exit) bool { return x.value == v }) }
	for i := range l.Nodes {
		n, v := &l.Nodes[i], Value(i+1)
		if ref, ok := saved.values[v]; ok && (p == saving || output(v)) {
			values[v] = fixed(ref, false, true)
		} else {
			values[v] = temporary(l.Desc(v))
		}
		s := l.instruction(n, kernels.Forward)
		s.call.Train = p != evaluating
		for j, in := range n.In {
			s.bind(kernels.X, j, values[in])
		}
		s.bind(kernels.Y, 0, values[v])
		if p == saving {
			for j, ref := range saved.extras[i] {
				s.bind(kernels.Save, j, fixed(ref, false, true))
			}
		}
		r.add(s)
	}
	return r
}

// given returns the values that a layer's programs find: its inputs and the labels.
func (l *Layer) given() map[Value]*buffer {
	values := map[Value]*buffer{GraphLabels: fixed(Ref{Block: Labels, Bytes: l.labels.Bytes()}, true, true)}
	for k, v := range l.inputValues() {
		values[v] = fixed(l.input(k), true, true)
	}
	return values
}

// instruction starts a call of a node, its parameters bound.
func (l *Layer) instruction(n *Node, pass kernels.Pass) instruction {
	s := instruction{name: n.Name, call: kernels.Call{Op: n.Op, Pass: pass, In: l.inputs(n), Train: true, Salt: n.Salt}}
	for j, p := range n.Params {
		s.bind(kernels.ParamRole, j, fixed(p.Value, true, true))
	}
	return s
}
