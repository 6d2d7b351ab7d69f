package models

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

// Extents returns the extent of Scratch of each program beside its lower bound.
func Extents(l *Layer, inputGradient bool) (extents, bounds []int64) {
	want := l.wanted(inputGradient)
	for _, c := range l.routines(want, l.saves(want)) {
		layout := newLayout(c.routine, c.spare)
		bounds = append(bounds, layout.lowerBound())
		extents = append(extents, layout.place())
	}
	return extents, bounds
}

// Ln is the natural logarithm of init.go.
var Ln = ln
