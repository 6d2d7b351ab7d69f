package models

import (
	"fmt"
	"reflect"
	"slices"

	"plimsoll/kernels"
)

// Value names a tensor of a layer's graph: GraphInput, GraphLabels, or i+1 for the output of node i.
type Value int

const (
	// GraphLabels are the labels of the batch; only the loss reads them.
	GraphLabels Value = -1
	// GraphInput is the layer's input; in a layer that joins branches, the end of branch 0. See InputOf.
	GraphInput Value = 0
)

// InputOf returns the value that is the end of a branch, in the layer that joins the branches.
func InputOf(branch int) Value {
	if branch == 0 {
		return GraphInput
	}
	return GraphLabels - Value(branch)
}

// branch returns whose end a value is; -1 when it is no input of the layer.
func (v Value) branch() int {
	switch {
	case v == GraphInput:
		return 0
	case v < GraphLabels:
		return int(GraphLabels - v)
	}
	return -1
}

// Node is one named op of a layer.
type Node struct {
	Name   string // within the layer: "conv1"
	Op     kernels.Op
	In     []Value
	Params []Parameter // as Op.Params
	Salt   uint64      // tells the random ops of a model apart; 0 for others
}

// Layer is an indivisible block of a chain: a small graph of ops with one input and one output.
//
// Invariants: nodes are in topological order, every node's output but the last one's is read by a later node, and
// the last one's is the layer's output.
//
// Two kinds of layer exist only in a model of branches: the one that joins them has an input for each, and a twin has
// the parameters of another layer.
type Layer struct {
	Name  string
	Nodes []Node
	// Twin is the layer whose parameters this one shares; 0: it has its own.
	Twin int

	descs []kernels.Desc // by value
	// For a layer beside a cut of a model with portals: where its inputs lie, by InputOf, and its outputs. Otherwise nil.
	entries    []Ref
	exits      []exit
	joined     []kernels.Desc // the inputs from the ends of branches 1 and up
	labels     kernels.Desc
	paramBytes int64
	gradBytes  int64
}

// like reports whether two layers compile to the same programs: deep models repeat a layer hundreds of times.
func (l *Layer) like(o *Layer) bool {
	return reflect.DeepEqual(l.descs, o.descs) && slices.EqualFunc(l.Nodes, o.Nodes, Node.like) && reflect.DeepEqual(l.ends(), o.ends())
}

// ends returns a layer's fields about its neighbours' values.
func (l *Layer) ends() []any { return []any{l.entries, l.exits, l.joined, l.labels} }

// like reports whether two nodes differ in nothing but what their parameters are called.
func (n Node) like(o Node) bool {
	return n.Name == o.Name && n.Salt == o.Salt && slices.Equal(n.In, o.In) && reflect.DeepEqual(n.Op, o.Op) &&
		slices.EqualFunc(n.Params, o.Params, func(p, q Parameter) bool {
			p.Name, p.Layer, p.Parts, p.Of, p.Fill, q.Fill = q.Name, q.Layer, q.Parts, q.Of, nil, nil
			return reflect.DeepEqual(p, q)
		})
}

// trains reports whether a parameter of the node is trained.
func (n *Node) trains() bool {
	return slices.ContainsFunc(n.Params, func(p Parameter) bool { return p.Trained })
}

// trains reports whether a parameter of a layer is trained.
func trains(l *Layer) bool {
	return slices.ContainsFunc(l.Nodes, func(n Node) bool { return n.trains() })
}

// readsInputs reports whether the node's backward reads the inputs that its op needs. The input's gradient alone reads none of an op
// whose backward is two calls.
func (n *Node) readsInputs() bool { return n.trains() || !n.Op.Split() }

// Desc returns the description of a value.
func (l *Layer) Desc(v Value) kernels.Desc {
	switch {
	case v == GraphLabels:
		return l.labels
	case v < GraphLabels:
		return l.joined[v.branch()-1]
	}
	return l.descs[v]
}

// Input returns the description of the layer's input.
func (l *Layer) Input() kernels.Desc { return l.descs[GraphInput] }

// inputValues returns the values that are the layer's inputs.
func (l *Layer) inputValues() []Value {
	all := make([]Value, 1+len(l.joined))
	for k := range all {
		all[k] = InputOf(k)
	}
	return all
}

// exit is one of several outputs of a layer, and where its gradient lies in GradOutput. In the Output block they lie one
// behind the other.
type exit struct {
	value  Value
	branch int
	offset int64
}

// Output returns the value that is the layer's output, or of several the first.
func (l *Layer) Output() Value {
	if len(l.exits) > 0 {
		return l.exits[0].value
	}
	return Value(len(l.Nodes))
}

// outputs returns all outputs.
func (l *Layer) outputs() []exit {
	if l.exits != nil {
		return l.exits
	}
	return []exit{{value: l.Output()}}
}

// outputBytes returns the storage of all outputs.
func (l *Layer) outputBytes() (bytes int64) {
	for _, x := range l.outputs() {
		bytes += l.Desc(x.value).Storage()
	}
	return bytes
}

// input returns where an input lies.
func (l *Layer) input(k int) Ref {
	if l.entries != nil {
		return l.entries[k]
	}
	return Ref{Block: Input, Bytes: l.Desc(InputOf(k)).Bytes(), Branch: k}
}

// Params returns the layer's own parameters and buffers in the order in which they lie in its Params block; a twin has none.
func (l *Layer) Params() []Parameter {
	return l.params(func(p Parameter) bool { return p.Of == nil })
}

// Tied returns the parameters that are those of other layers. They lie behind the layer's own, in Params and in Grads.
func (l *Layer) Tied() []Parameter {
	return l.params(func(p Parameter) bool { return p.Of != nil })
}

// TiedBytes returns how much of Params, and of Grads, those of other layers take.
func (l *Layer) TiedBytes() (params, grads int64) {
	for _, p := range l.Tied() {
		params += p.Desc.Storage()
		if p.Trained {
			grads += p.Desc.Storage()
		}
	}
	return params, grads
}

func (l *Layer) params(which func(Parameter) bool) (ps []Parameter) {
	for i := range l.Nodes {
		for _, p := range l.Nodes[i].Params {
			if which(p) {
				ps = append(ps, p)
			}
		}
	}
	return ps
}

// placeParams gives each parameter of a layer its place in the layer's blocks. Tied parameters lie behind the layer's own.
func placeParams(l *Layer) {
	for _, own := range []bool{true, false} {
		for i := range l.Nodes {
			for j := range l.Nodes[i].Params {
				q := &l.Nodes[i].Params[j]
				if (q.Of == nil) != own {
					continue
				}
				q.Value = next(Params, &l.paramBytes, q.Desc)
				if q.Trained {
					q.Grad = next(Grads, &l.gradBytes, q.Desc)
				}
			}
		}
	}
}

// inputs returns the descriptions of a node's inputs.
func (l *Layer) inputs(n *Node) []kernels.Desc {
	in := make([]kernels.Desc, len(n.In))
	for i, v := range n.In {
		in[i] = l.Desc(v)
	}
	return in
}

// check refuses a graph whose output is not v or that computes something nobody reads.
func (l *Layer) check(v Value) error {
	if v != l.Output() || v == GraphInput {
		return fmt.Errorf("%w: its output is not the output of its last op", ErrGraph)
	}
	read := map[Value]bool{}
	for i := range l.Nodes {
		for _, in := range l.Nodes[i].In {
			read[in] = true
		}
	}
	for i := range l.Nodes[:len(l.Nodes)-1] {
		if !read[Value(i+1)] {
			return fmt.Errorf("%w: nothing reads the output of op %q", ErrGraph, l.Nodes[i].Name)
		}
	}
	return nil
}
