package models

import (
	"slices"

	"plimsoll/kernels"
)

// purpose is the purpose of a forward.
type purpose uint8

const (
	saving     purpose = iota // forward_all
	forgetting                // forward_checkpoint, forward_discard
	evaluating                // no training at all
)

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
