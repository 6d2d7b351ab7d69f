package profiles

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
)

// Chain linearizes the graph: a layer is all operators after one separator, up to and with the next. A separator is an
// operator on every path from the inputs to the last operators, so that only its output goes on. Operators that run in
// parallel, or beside a skip connection, form one layer, as chain.Group would merge them. The last layer ends with the
// last separator or, where the graph has several ends, holds them all.
//
// As in PipeDream's optimizer, operators named Input are no layers. Their forward time is the loading of data, and their output is a_0; a
// later layer that reads one gets it from outside. Ends named __getitem__ are no layers either. Times, weights and saved sets (all outputs
// of the members) add up; the output is the separator's, its gradient has the same size. The profile knows no overheads; those of a layer
// of several operators are what its members need beside each other when they run one by one in topological order:
//
//	forward that saves nothing  each output lives until its last reader has run
//	backward                    in the reverse order; a gradient lives from the first of its readers' backwards to its own
//
// for a layer without branches the same as chain.Group's. A loss that costs nothing is the last layer. Errors: those of
// chain.Validate, and an *fields.FileError for a graph of inputs only.
func (g *Graph) Chain() (*chain.Chain, error) {
	nodes, input := g.operators()
	return g.linearized(nodes, input, nil)
}

// linearized makes layers that end with separators and with the nodes at the cuts, rising positions.
func (g *Graph) linearized(nodes []Node, input int64, cuts []int) (*chain.Chain, error) {
	if len(nodes) == 0 {
		return nil, &fields.FileError{File: g.Name, Field: "node", Reason: "is missing: the graph holds inputs only"}
	}
	c := &chain.Chain{Name: g.Name, InputBytes: input}
	part := part{nodes: nodes, input: input}
	for part.first < len(nodes) {
		part.last = separator(nodes, part.first)
		if at, _ := slices.BinarySearch(cuts, part.first); at < len(cuts) {
			part.last = min(part.last, cuts[at])
		}
		part.passes()
		c.Layers = append(c.Layers, part.layer(len(c.Layers)+1))
		part.first, part.input = part.last+1, part.output
	}
	c.Layers = append(c.Layers, chain.Layer{Name: "loss"})
	return c, c.Validate()
}

// operators returns the nodes that are layers, and the bytes that the others feed into them.
func (g *Graph) operators() (nodes []Node, input int64) {
	read := make([]bool, len(g.Nodes))
	for i := range g.Nodes {
		for _, from := range g.Nodes[i].Needs {
			read[from] = true
		}
	}
	var order []int
	for i := range g.Nodes {
		switch n := &g.Nodes[i]; {
		case strings.HasPrefix(n.Op, "Input"):
			input += n.Activation
		case strings.HasPrefix(n.Op, "__getitem__") && !read[i]:
		default:
			order = append(order, i)
		}
	}
	return renumberedPart(g.Nodes, late(g.Nodes, order)), input
}

// late moves sources, nodes that need none of the order, to where they are needed first. A second input, such as the target
// sentence of a translator, is fed to the layer that reads it.
func late(nodes []Node, order []int) []int {
	inside := make([]bool, len(nodes))
	for _, v := range order {
		inside[v] = true
	}
	source := func(v int) bool {
		return !slices.ContainsFunc(nodes[v].Needs, func(from int) bool { return inside[from] })
	}
	out := make([]int, 0, len(order))
	placed := make([]bool, len(nodes))
	place := func(v int) {
		if !placed[v] {
			placed[v] = true
			out = append(out, v)
		}
	}
	for _, v := range order {
		if source(v) {
			continue
		}
		for _, from := range nodes[v].Needs {
			if inside[from] && source(from) {
				place(from)
			}
		}
		place(v)
	}
	for _, v := range order {
		place(v) // what nothing reads
	}
	return out
}

// renumberedPart is renumbered for some of the nodes: needs of the others are left out.
func renumberedPart(nodes []Node, order []int) []Node {
	kept := slices.Clone(nodes)
	for i := range kept {
		kept[i].Needs = slices.DeleteFunc(slices.Clone(kept[i].Needs), func(from int) bool { return !slices.Contains(order, from) })
	}
	return renumbered(kept, order)
}

// separator returns the first node, from first on, that separates earlier nodes from later ones. All later nodes read it,
// by some path, and read no earlier node beside it. If there is none, it returns the last node.
func separator(nodes []Node, first int) int {
	for v := first; v < len(nodes)-1; v++ {
		crosses := func(n Node) bool { return len(n.Needs) > 0 && n.Needs[0] < v }
		if !slices.ContainsFunc(nodes[v+1:], crosses) {
			return v
		}
	}
	return len(nodes) - 1
}

// part is the nodes first..last. Its input and output are what passes its boundaries, bytes: of a separator, its output.
type part struct {
	nodes         []Node
	first, last   int
	input, output int64
	through       int64        // of the output, what is the input's
	out           map[int]bool // nodes of the part whose output is read behind it; the last one in any case
}

// passes finds what passes the end of the part.
func (p *part) passes() {
	p.out, p.output, p.through = map[int]bool{p.last: true}, p.nodes[p.last].Activation, 0
	read := map[int]bool{p.last: true}
	for _, n := range p.nodes[p.last+1:] {
		for _, u := range n.Needs {
			if u > p.last || read[u] {
				continue
			}
			read[u] = true
			p.output += p.nodes[u].Activation
			if u < p.first {
				p.through += p.nodes[u].Activation
			} else {
				p.out[u] = true
			}
		}
	}
}

func (p part) layer(number int) chain.Layer {
	l := chain.Layer{Name: p.name(number), OutputBytes: p.output, GradientBytes: p.output, SavedBytes: p.through}
	for i := p.first; i <= p.last; i++ {
		n := &p.nodes[i]
		l.ForwardS += n.Forward
		l.BackwardS += n.Backward
		l.SavedBytes += n.Activation
		l.WeightBytes += n.Weights
	}
	if p.first < p.last {
		discard := p.discardOverhead()
		l.DiscardOverheadBytes = &discard
		l.BackwardOverheadBytes = p.backwardOverhead(l.SavedBytes)
	}
	return l
}

func (p part) name(number int) string {
	op := p.nodes[p.last].Op
	op, _, _ = strings.Cut(op, "(")
	if p.first < p.last {
		return fmt.Sprintf("%d %s..%s %s", number, p.nodes[p.first].ID, p.nodes[p.last].ID, op)
	}
	return fmt.Sprintf("%d %s %s", number, p.nodes[p.last].ID, op)
}

// discardOverhead returns the bytes that a forward that saves nothing needs beside the input and the output. An output
// that nothing in the part reads goes when its node has run.
func (p part) discardOverhead() int64 {
	ends := p.lastReaders()
	var live, peak int64
	for v := p.first; v <= p.last; v++ {
		live += p.nodes[v].Activation
		peak = max(peak, live)
		for u := p.first; u <= v; u++ {
			if ends[u-p.first] == v {
				live -= p.nodes[u].Activation
			}
		}
	}
	return peak + p.through - p.output
}

// lastReaders returns for each node of the part the last one of the part that needs it: itself when none does, the last one when
// something behind the part does.
func (p part) lastReaders() []int {
	last := make([]int, p.last-p.first+1)
	for v := p.first; v <= p.last; v++ {
		last[v-p.first] = v
		for _, u := range p.nodes[v].Needs {
			if u >= p.first {
				last[u-p.first] = v
			}
		}
	}
	for u := range p.out {
		last[u-p.first] = p.last
	}
	return last
}

// backwardOverhead returns the bytes that the backward needs beside the saved sets and the gradients of input and
// output. The gradients of nodes that nothing reads do not exist.
func (p part) backwardOverhead(saved int64) (overhead int64) {
	beside := saved + p.output + p.input
	live := saved + p.output // saved sets and gradients
	exists := maps.Clone(p.out)
	for v := p.last; v >= p.first; v-- {
		for _, u := range p.inputs(v) {
			u = max(u, p.first-1) // the input as a whole
			if !exists[u] {
				exists[u] = true
				live += p.gradient(u)
			}
		}
		overhead = max(overhead, live-beside)
		live -= p.nodes[v].Activation
		if exists[v] {
			live -= p.nodes[v].Activation
		}
	}
	return overhead
}

// inputs returns the nodes for which a node of the part computes a gradient: the nodes that it reads. For a node of the
// first part that reads nothing, it is the input of the chain.
func (p part) inputs(v int) []int {
	if p.first == 0 && len(p.nodes[v].Needs) == 0 {
		return []int{p.first - 1}
	}
	return p.nodes[v].Needs
}

// gradient returns the bytes of the gradient of a node of the part, or of its input.
func (p part) gradient(u int) int64 {
	if u < p.first {
		return p.input
	}
	return p.nodes[u].Activation
}
