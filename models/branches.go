package models

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
)

// Branch ends the branch so far and begins another one, from an input of its own.
func (b *Builder) Branch() {
	b.end()
	b.out = b.model.Input
}

// Twins ends the branch so far and adds so many more that are like it and share its parameters, as the branches of a
// siamese network do. The gradient of a shared parameter is the sum over the branches. Layers with running statistics
// are refused: what those become would depend on the order of the branches, which is the plan's to choose.
func (b *Builder) Twins(n int) {
	first := b.first
	b.end()
	if b.err != nil {
		return
	}
	branch := slices.Clone(b.model.Layers[first:])
	for _, l := range branch {
		for _, p := range l.Params() {
			if p.Statistic() {
				b.fail("layer %s has running statistics (%s), which branches cannot share", l.Name, p.Name)
				return
			}
		}
	}
	end := b.ends[len(b.ends)-1]
	for k := range n {
		for i, l := range branch {
			b.model.Layers = append(b.model.Layers, l.twin(fmt.Sprintf("%s#%d", l.Name, k+2), first+i+1, len(b.model.Layers)+1))
		}
		b.out = end
		b.end()
	}
	b.out = b.model.Input
}

// twin returns a copy of layer of as layer number, with its parameters and randomness of its own.
func (l *Layer) twin(name string, of, number int) *Layer {
	t := *l
	t.Name, t.Twin, t.Nodes = name, of, slices.Clone(l.Nodes)
	for i := range t.Nodes {
		t.Nodes[i].Salt = salt(t.Nodes[i].Op, number, i)
		t.Nodes[i].Params = slices.Clone(l.Nodes[i].Params)
		for j := range t.Nodes[i].Params {
			t.Nodes[i].Params[j].Layer, t.Nodes[i].Params[j].Of = number, &l.Nodes[i].Params[j]
		}
	}
	return &t
}

// Join ends the last branch and adds the layer that reads the ends of all: graph gets one value for each.
func (b *Builder) Join(name, prefix string, graph func(g *Graph, ends []Value) Value) {
	if b.err == nil && len(b.model.Layers) > b.first {
		b.end()
	}
	if b.err != nil {
		return
	}
	if b.joined || len(b.ends) < 2 || len(b.ends) > chain.MostBranches {
		b.fail("layer %s joins %d branches: want 2 to %d, joined once", name, len(b.ends), chain.MostBranches)
		return
	}
	b.joined, b.out = true, b.ends[0]
	b.add(name, prefix, b.ends[1:], func(g *Graph) Value {
		ends := g.layer.inputValues()
		v := graph(g, ends)
		b.checkJoin(g.layer, ends)
		return v
	})
}

// checkJoin refuses a layer that leaves an end out. It also refuses a layer with a derivative that would hand the
// gradient of a sum on to an end. The gradient must be written where the branch looks for it.
func (b *Builder) checkJoin(l *Layer, ends []Value) {
	read := map[Value]bool{}
	for i := range l.Nodes {
		n := &l.Nodes[i]
		_, sum := n.Op.(kernels.Add)
		for _, v := range n.In {
			if read[v] = true; sum && v.branch() >= 0 {
				b.fail("op %q adds to the end of branch %d: let a Concat or another op read it", n.Name, v.branch())
			}
		}
	}
	for k, v := range ends {
		if !read[v] {
			b.fail("nothing reads the end of branch %d", k)
		}
	}
}

// end ends a branch.
func (b *Builder) end() {
	n := len(b.model.Layers) - b.first
	switch {
	case b.err != nil:
	case b.joined:
		b.fail("a branch begins behind the layer that joins them")
	case n == 0:
		b.fail("branch %d has no layers", len(b.ends))
	default:
		b.model.Branches = append(b.model.Branches, n)
		b.ends = append(b.ends, b.out)
		b.first = len(b.model.Layers)
	}
}
