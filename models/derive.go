package models

import (
	"slices"

	"plimsoll/kernels"
)

// derivation derives the backward of a layer: nodes in reverse order, and where a value has several readers, their
// contributions to its gradient in that order. The first contribution is written, the others are added in place.
// The gradient of a sum is passed on, so that one buffer can be the gradient of several values until one of them
// gets a contribution of its own.
//
// The gradient of the layer's input always ends in GradInput, and sums for the input are written there. When a sum passes
// its gradient on to the input, its other term comes from the input too, so that one more contribution follows. (A layer
// that joins branches has no such sum: Builder.Join refuses it.)
type derivation struct {
	layer *Layer
	want  *gradients
	saved map[Value]*buffer
	grad  map[Value]*buffer // what has been summed up so far
	ends  map[Value]*buffer // where the gradients of the layer's inputs must end
	out   *routine
	// params gets the calls that compute gradients of parameters alone: out itself, or a routine that runs later.
	params *routine
}

// backward returns the routine that computes the gradients of parameters and input.
func (l *Layer) backward(g *gradients, saved savedSet) *routine {
	out := &routine{}
	l.derive(g, saved, out, out)
	return out
}

// derive derives the backward. Calls in params, if that is a routine of its own, are to run after out.
func (l *Layer) derive(g *gradients, saved savedSet, out, params *routine) *derivation {
	d := &derivation{layer: l, want: g, saved: l.given(), grad: map[Value]*buffer{}, ends: map[Value]*buffer{}, out: out, params: params}
	for v, ref := range saved.values {
		d.saved[v] = fixed(ref, true, false)
	}
	for k, v := range l.inputValues() {
		end := l.input(k)
		end.Block = GradInput
		d.ends[v] = fixed(end, false, true)
	}
	for _, x := range l.outputs() {
		if !l.loss() {
			d.grad[x.value] = fixed(Ref{Block: GradOutput, Offset: x.offset, Bytes: l.Desc(x.value).Bytes(), Branch: x.branch}, true, false)
		}
	}
	for i := len(l.Nodes) - 1; i >= 0; i-- {
		if g.active[i] {
			d.node(i, saved.extras[i])
		}
	}
	return d
}

// loss reports whether the layer's gradient is implied rather than given.
func (l *Layer) loss() bool {
	return kernels.IsLoss(l.Nodes[len(l.Nodes)-1].Op)
}

// node derives one op. The gradient of its output is complete: every reader of it comes later in the layer.
func (d *derivation) node(i int, extras []Ref) {
	n, v := &d.layer.Nodes[i], Value(i+1)
	dy := d.grad[v]
	if _, sum := n.Op.(kernels.Add); sum {
		delete(d.grad, v)
		for _, in := range n.In {
			d.pass(n, in, dy)
		}
		return
	}
	if !n.Op.Split() {
		d.whole(n, v, extras)
	} else {
		d.halves(n, dy)
	}
	delete(d.grad, v)
}

// whole derives an op that computes all its gradients at once.
func (d *derivation) whole(n *Node, v Value, extras []Ref) {
	s := d.layer.instruction(n, kernels.Backward)
	d.bindNeeds(&s, n)
	if n.Op.Needs().Output {
		s.bind(kernels.Y, 0, d.saved[v])
	}
	for j, ref := range extras {
		s.bind(kernels.Save, j, fixed(ref, true, false))
	}
	s.bind(kernels.DY, 0, d.grad[v])
	s.bindGradients(n)
	d.contribute(&s, n)
}

// halves derives an op whose parameters' and input's gradients are two calls. The parameters' come first, because
// that is the last time that the input is read.
func (d *derivation) halves(n *Node, dy *buffer) {
	if n.trains() {
		s := d.layer.instruction(n, kernels.BackwardParams)
		d.bindNeeds(&s, n)
		s.bind(kernels.DY, 0, dy)
		s.bindGradients(n)
		d.params.add(s)
		if d.params != d.out {
			s.keep()
		}
	}
	if slices.ContainsFunc(n.In, d.want.value) {
		s := d.layer.instruction(n, kernels.BackwardInput)
		s.bind(kernels.DY, 0, dy)
		d.contribute(&s, n)
	}
}

func (d *derivation) bindNeeds(s *instruction, n *Node) {
	for j, in := range n.In {
		if n.Op.Needs().Input(j) {
			s.bind(kernels.X, j, d.saved[in])
		}
	}
}

// bindGradients binds the gradients of a node's parameters. The op also computes those of frozen ones, which nobody reads.
func (s *instruction) bindGradients(n *Node) {
	for j, p := range n.Params {
		switch {
		case p.Trained:
			s.bind(kernels.DParam, j, fixed(p.Grad, false, true))
		case p.Frozen:
			s.bind(kernels.DParam, j, temporary(p.Desc))
		}
	}
}

// contribute completes a call with its DX and adds it, and after it the sums that it cannot do in place.
func (d *derivation) contribute(s *instruction, n *Node) {
	s.call.SkipDX = make([]bool, len(n.In))
	s.call.AddDX = make([]bool, len(n.In))
	var sums []instruction
	owned := d.ownership(n) // before this call changes it: the sums behind it read what was shared before it
	for j, in := range n.In {
		had := d.grad[in]
		switch {
		case !d.want.value(in):
			s.call.SkipDX[j] = true
		case had == nil:
			d.grad[in] = d.target(in)
			s.bind(kernels.DX, j, d.grad[in])
		case owned[j] && !slices.Contains(n.In[:j], in):
			s.call.AddDX[j] = true
			s.bind(kernels.DX, j, d.free(n, in))
		default:
			part := d.target(in)
			if part == had { // the input occurs twice in this op
				part = temporary(d.layer.Desc(in))
			}
			s.bind(kernels.DX, j, part)
			sums = append(sums, d.sum(n, in, part))
		}
	}
	d.out.add(*s)
	for _, sum := range sums {
		d.out.add(sum)
	}
}

// pass hands the gradient of a sum on to one of its terms.
func (d *derivation) pass(n *Node, in Value, dy *buffer) {
	switch {
	case !d.want.value(in):
	case d.grad[in] == nil:
		d.grad[in] = dy
	default:
		d.out.add(d.sum(n, in, dy))
	}
}

// sum adds part to the gradient of v, in a new buffer that may take the place of either.
func (d *derivation) sum(n *Node, v Value, part *buffer) instruction {
	desc := d.layer.Desc(v)
	s := instruction{name: n.Name, call: kernels.Call{Op: kernels.Add{}, In: []kernels.Desc{desc, desc}, Train: true}}
	s.bind(kernels.X, 0, d.grad[v])
	s.bind(kernels.X, 1, part)
	d.grad[v] = d.target(v)
	s.bind(kernels.Y, 0, d.grad[v])
	return s
}

// free returns the gradient of v, which nobody shares, to be changed in place: a copy if it is kept.
func (d *derivation) free(n *Node, v Value) *buffer {
	if b := d.grad[v]; b.kept {
		desc := d.layer.Desc(v)
		s := instruction{name: n.Name, call: kernels.Call{Op: kernels.Concat{}, In: []kernels.Desc{desc}, Train: true}} // of one: a copy
		s.bind(kernels.X, 0, b)
		d.grad[v] = temporary(desc)
		s.bind(kernels.Y, 0, d.grad[v])
		d.out.add(s)
	}
	return d.grad[v]
}

// target returns a buffer for a gradient of v: that of the input must end in GradInput.
func (d *derivation) target(v Value) *buffer {
	if end := d.ends[v]; end != nil {
		return end
	}
	return temporary(d.layer.Desc(v))
}

func (d *derivation) ownership(n *Node) []bool {
	owned := make([]bool, len(n.In))
	for j, in := range n.In {
		owned[j] = d.grad[in] != nil && d.owns(in)
	}
	return owned
}

// owns reports whether the gradient of v may be changed in place: no other value shares it, and it lies where it
// must end.
func (d *derivation) owns(v Value) bool {
	b := d.grad[v]
	for w, other := range d.grad {
		if w != v && other == b {
			return false
		}
	}
	end := d.ends[v]
	return end == nil || b == end
}
