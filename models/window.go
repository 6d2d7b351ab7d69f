package models

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// headRow is the number of elements of which the head of a window looks at two, in an activation that is no image.
const headRow = 8

// Window returns layers from..to of a chain, ℓ from 1, as a model of its own whose input is a_{from-1}, and its compiled
// programs: what is measured where the whole model has no room. all are the model's programs, for lib. A window that ends
// before the loss has a head behind it, two layers that make a loss of a_to and so a gradient for its backwards.
// Errors: ErrGraph for a model of branches.
func (m *Model) Window(lib kernels.Library, all []*Programs, from, to int) (*Model, []*Programs, error) {
	if m.Branches != nil || len(m.Portals) > 0 {
		return nil, nil, fmt.Errorf("%w: %s: only a chain has windows", ErrGraph, m.Name)
	}
	w := &Model{
		Name: m.Name, Input: m.Layers[from-1].Input(), Labels: m.Labels, Classes: m.Classes,
		Layers: slices.Clone(m.Layers[from-1 : to]), InputGradient: m.InputGradient || from > 1,
	}
	programs := slices.Clone(all[from-1 : to])
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

// head is a model that makes a loss of any activation, with few bytes of its own: of images it classifies the means of the
// channels, of all else the means of pairs of elements, a pair of each row of headRow.
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
