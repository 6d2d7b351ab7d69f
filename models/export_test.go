package models

import "plimsoll/kernels"

// Saved returns the places of the saved tensors that backward reads, in the Output block.
func Saved(l *Layer, inputGradient bool) []Ref {
	want := l.wanted(inputGradient)
	s := l.saves(want)
	read := map[Value]bool{}
	for i := range l.Nodes {
		if n := &l.Nodes[i]; want.active[i] {
			for j, v := range n.In {
				read[v] = read[v] || n.Op.Needs().Input(j)
			}
			read[Value(i+1)] = read[Value(i+1)] || n.Op.Needs().Output
		}
	}
	var refs []Ref
	for v, r := range s.values {
		if v != l.Output() || read[v] {
			refs = append(refs, r)
		}
	}
	for _, extras := range s.extras {
		refs = append(refs, extras...)
	}
	return refs
}

// Extents returns the extents of a layer's blocks, each beside its lower bound. First comes Scratch of each program of one piece. Then
// come, of the backward in halves, Kept and both Scratches, each with the ones before it in place.
func Extents(l *Layer, inputGradient, late bool) (extents, bounds []int64) {
	place := func(layout *layout) int64 {
		bounds = append(bounds, layout.lowerBound())
		extents = append(extents, layout.place())
		return extents[len(extents)-1]
	}
	want := l.wanted(inputGradient)
	saved := l.saves(want)
	for _, c := range l.routines(want, saved) {
		place(newLayout(c.routine, c.spare))
	}
	best, err := l.bestHalves(spare{}, want, saved, late)
	if err != nil {
		panic(err)
	}
	h := l.halved(want, saved, late, best.gradOutput)
	h.gradOutput = best.gradOutput
	kept := l.layoutKept(h)
	h.kept = place(kept)
	for _, b := range kept.temporaries {
		b.fixed = true
	}
	place(l.layoutInput(h))
	h.handOver()
	place(l.layoutParams(h))
	return extents, bounds
}

// spare needs no workspaces.
type spare struct{ kernels.Library }

func (spare) Workspace(kernels.Call) (int64, error) { return 0, nil }

// Ln is the natural logarithm of init.go.
var Ln = ln

// Joined returns the layer's inputs from the ends of branches 1 and up.
func (l *Layer) Joined() []kernels.Desc { return l.joined }

// CompileLayer compiles one layer, whatever the others are.
func (m *Model) CompileLayer(i int, lib kernels.Library) (*Programs, error) {
	return m.Layers[i].compile(lib, m.DifferentiatesInput(i+1))
}

// FileNames exports what files call a parameter.
func FileNames(p Parameter) []string { return p.fileNames() }
