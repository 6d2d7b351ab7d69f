package models

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// headRow is the number of elements of which the head of a window looks at two, in an activation that is no image.
const headRow = 8

// Window returns layers from..to, ℓ from 1, as a model of its own, and its compiled programs. It is measured if the whole
// model has no room. Its input is the input of layer from; all are the model's programs, for lib. A window that ends before
// the loss gets a head: two layers that make a loss of a_to, and so a gradient for its backwards. A window is a chain. If
// branches join, their ends are one input, one after the other. A twin has parameters of its own, and so has a layer with
// tied ones. Errors: ErrGraph for layers beyond WindowEnd, and for a model with portals.
func (m *Model) Window(lib kernels.Library, all []*Programs, from, to int) (*Model, []*Programs, error) {
	if to > m.WindowEnd(from) || len(m.Portals) > 0 {
		return nil, nil, fmt.Errorf("%w: %s: layers %d to %d are no chain", ErrGraph, m.Name, from, to)
	}
	w := &Model{
		Name: m.Name, Input: m.Layers[from-1].Input(), Labels: m.Labels, Classes: m.Classes,
		Layers: slices.Clone(m.Layers[from-1 : to]), InputGradient: m.DifferentiatesInput(from),
	}
	programs := slices.Clone(all[from-1 : to])
	for i, l := range w.Layers {
		w.Layers[i] = l.alone()
	}
	if first := w.Layers[0]; len(first.joined) > 0 {
		first, w.Input = first.oneInput()
		p, err := first.compile(lib, w.InputGradient)
		if err == nil {
			err = first.compileHalves(p, lib, w.InputGradient, m.readLate()[from])
		}
		if err != nil {
			return nil, nil, err
		}
		w.Layers[0], programs[0] = first, p
	}
	if to == len(m.Layers) {
		return w, programs, nil
	}
	last := m.Layers[to-1]
	head, err := head(last.Desc(last.Output()))
	if err != nil {
		return nil, nil, err
	}
	compiled, err := head.Compile(lib)
	if err != nil {
		return nil, nil, err
	}
	w.Classes, w.Layers = head.Classes, append(w.Layers, head.Layers...)
	return w, append(programs, compiled...), nil
}

// WindowEnd returns the last layer of the longest window that begins with a layer: that of its branch, or the model's.
func (m *Model) WindowEnd(from int) int {
	end := 0
	for _, n := range m.Branches {
		if end += n; from <= end {
			return end
		}
	}
	return len(m.Layers)
}

// alone returns a layer that shares its parameters with none.
func (l *Layer) alone() *Layer {
	if len(l.Tied()) == 0 {
		return l
	}
	own := *l
	own.Twin, own.Nodes = 0, slices.Clone(l.Nodes)
	for i := range own.Nodes {
		own.Nodes[i].Params = slices.Clone(l.Nodes[i].Params)
		for j := range own.Nodes[i].Params {
			own.Nodes[i].Params[j].Of = nil
		}
	}
	return &own
}

// oneInput returns the layer that joins branches as one that finds their ends one behind the other in one input.
func (l *Layer) oneInput() (*Layer, kernels.Desc) {
	one, in, bytes := *l, l.Input(), int64(0)
	for _, v := range l.inputValues() {
		d := l.Desc(v)
		one.entries = append(one.entries, Ref{Block: Input, Offset: bytes, Bytes: d.Bytes()})
		bytes += d.Storage()
	}
	batch := in.Shape[0]
	sample := in.DType.Size() * int64(batch)
	in.Shape = kernels.Shape{batch, int((bytes + sample - 1) / sample)}
	return &one, in
}

// head is a model that makes a loss of any activation, with few bytes of its own. It classifies the means of the channels
// of images, and otherwise the means of pairs of elements, a pair of each row of headRow.
func head(of kernels.Desc) (*Model, error) {
	each := int(of.Elements()) / of.Shape[0]
	classes := of.Shape[len(of.Shape)-1]
	image := len(of.Shape) == 4 && classes > 1 && classes < each
	if !image {
		classes = min(2, each)
	}
	b := NewBuilder("head", of, classes)
	b.Layer("head", "", func(g *Graph, x Value) Value {
		if !image {
			pairs := kernels.Slice{H: 1, W: 1, C: classes}
			if rows := each / headRow; each%headRow == 0 {
				pairs.Rows, pairs.H = rows, rows
			}
			x = g.Op("slice", pairs, x)
		}
		return g.GlobalAvgPool("pool", x)
	})
	m, err := b.Model()
	if m != nil {
		m.InputGradient = true
	}
	return m, err
}
