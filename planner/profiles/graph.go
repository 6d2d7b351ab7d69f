package profiles

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/internal/visible"
)

// Graph is PipeDream's profile of a model: operators and what each needs.
//
// Source: D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP, 2019, section 3.1, and
// the files graph.txt of its authors.
type Graph struct {
	Name  string
	Nodes []Node // in topological order; what may come first by the file comes first
}

// Node is an operator.
type Node struct {
	ID         string // "node12"
	Op         string // "Conv2d(64, 64, ...)"
	Forward    float64
	Backward   float64 // seconds; the file has milliseconds
	Activation int64   // bytes of all its outputs
	Weights    int64   // bytes
	Needs      []int   // positions of the nodes whose output it reads, rising
}

// ParseGraph reads a graph; file is its name in errors, and, without folder and ".graph.txt", the graph's name.
//
// A line is a node, "node4 -- Embedding(...) -- forward_compute_time=0.073, ...", or, behind a tab, an edge,
// "node1 -- node4". A list of sizes, "[8.0; 2.0]", is their sum. The field after the profile (stage_id) is not
// read.
func ParseGraph(file string, data []byte) (*Graph, error) {
	p := &graphParser{file: file, at: map[string]int{}}
	for i, line := range bytes.Split(data, []byte("\n")) {
		p.line = i + 1
		if err := p.take(visible.Lines(strings.TrimRight(string(line), "\r "))); err != nil {
			return nil, err
		}
	}
	if p.line = 0; len(p.nodes) == 0 {
		return nil, p.fail("node", "", "is missing: the file names no operator")
	}
	nodes, err := p.sorted()
	if err != nil {
		return nil, err
	}
	return &Graph{Name: visible.Name(file, ".graph.txt", ".txt"), Nodes: nodes}, nil
}

// graphParser is a graph while it is read.
type graphParser struct {
	file  string
	line  int
	nodes []Node
	at    map[string]int // position of a node by its ID
	edges []edge
}

type edge struct {
	from, to string
	line     int
}

func (p *graphParser) fail(field, value, reason string) error {
	return &fields.FileError{File: p.file, Line: p.line, Field: field, Value: value, Reason: reason}
}

func (p *graphParser) take(line string) error {
	parts := strings.Split(line, " -- ")
	switch {
	case strings.TrimSpace(line) == "":
		return nil
	case line[0] == '\t' && len(parts) == 2:
		p.edges = append(p.edges, edge{strings.TrimSpace(parts[0]), strings.TrimSpace(parts[1]), p.line})
		return nil
	case line[0] == '\t':
		return p.fail("edge", strings.TrimSpace(line), "is not two nodes with \" -- \" between them")
	case len(parts) < 3:
		return p.fail("node", line, "is not a name, an operator and a profile with \" -- \" between them")
	}
	return p.node(parts)
}

// node takes a line of a node. The operator may hold the separator, the profile may be followed by a stage.
func (p *graphParser) node(parts []string) error {
	profile := slices.IndexFunc(parts, func(s string) bool { return strings.HasPrefix(s, "forward_compute_time=") })
	if profile < 0 {
		return p.fail("forward_compute_time", "", "is missing")
	}
	n := Node{ID: parts[0], Op: strings.Join(parts[1:max(profile, 1)], " -- ")}
	if _, twice := p.at[n.ID]; twice {
		return p.fail("node", n.ID, "is there twice")
	}
	if err := p.profile(&n, parts[profile]); err != nil {
		return err
	}
	p.at[n.ID] = len(p.nodes)
	p.nodes = append(p.nodes, n)
	return nil
}

func (p *graphParser) profile(n *Node, text string) error {
	values := map[string]string{}
	for _, pair := range strings.Split(text, ", ") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	var err error
	get := func(field string, most float64) float64 {
		value, ok := values[field]
		if err != nil {
			return 0
		}
		sum, reason := sumOf(value)
		switch {
		case !ok:
			err = p.fail(field, "", "is missing")
		case reason == "" && sum > most:
			err = p.fail(field, value, "is too large")
		case reason != "":
			err = p.fail(field, value, reason)
		}
		return sum
	}
	n.Forward = get("forward_compute_time", math.MaxFloat64) / 1000
	n.Backward = get("backward_compute_time", math.MaxFloat64) / 1000
	n.Activation = int64(math.Round(get("activation_size", 1<<53)))
	n.Weights = int64(math.Round(get("parameter_size", 1<<53)))
	return err
}

// sumOf reads a number, or the sum of "[8.0; 2.0]".
func sumOf(text string) (sum float64, reason string) {
	inner, list := strings.CutPrefix(text, "[")
	if list {
		inner, list = strings.CutSuffix(inner, "]")
		if !list {
			return 0, "does not end with ]"
		}
	}
	for _, part := range strings.Split(inner, ";") {
		x, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil {
			return 0, "is not a number"
		}
		if !(x >= 0) || math.IsInf(sum+x, 0) {
			return 0, "is negative or not finite"
		}
		sum += x
	}
	return sum, ""
}

// sorted resolves the edges and returns the nodes in topological order.
func (p *graphParser) sorted() ([]Node, error) {
	for _, e := range p.edges {
		p.line = e.line
		for _, id := range []string{e.from, e.to} {
			if _, ok := p.at[id]; !ok {
				return nil, p.fail("edge", id, "is no node of the file")
			}
		}
		to := &p.nodes[p.at[e.to]]
		if from := p.at[e.from]; !slices.Contains(to.Needs, from) {
			to.Needs = append(to.Needs, from)
		}
	}
	p.line = 0
	order := topological(p.nodes)
	if len(order) < len(p.nodes) {
		return nil, p.fail("edge", p.stuck(order), "is on a cycle or behind one: no operator of it can run first")
	}
	return renumbered(p.nodes, order), nil
}

// topological returns the positions in an order in which every node comes after those it needs; it leaves out those on
// and behind cycles. Of the nodes that are ready the one that the file names first goes first.
func topological(nodes []Node) []int {
	missing := make([]int, len(nodes))
	readers := make([][]int, len(nodes))
	var ready, order []int
	for i := range nodes {
		if missing[i] = len(nodes[i].Needs); missing[i] == 0 {
			ready = append(ready, i)
		}
		for _, from := range nodes[i].Needs {
			readers[from] = append(readers[from], i)
		}
	}
	for len(ready) > 0 {
		slices.Sort(ready)
		v := ready[0]
		ready, order = ready[1:], append(order, v)
		for _, r := range readers[v] {
			if missing[r]--; missing[r] == 0 {
				ready = append(ready, r)
			}
		}
	}
	return order
}

// stuck returns the first node of the file that is not in the order.
func (p *graphParser) stuck(order []int) string {
	for i := range p.nodes {
		if !slices.Contains(order, i) {
			return p.nodes[i].ID
		}
	}
	return ""
}

// renumbered returns the nodes of the order, in it.
func renumbered(nodes []Node, order []int) []Node {
	at := make([]int, len(nodes))
	for i, v := range order {
		at[v] = i
	}
	out := make([]Node, 0, len(order))
	for _, v := range order {
		n := nodes[v]
		n.Needs = slices.Clone(n.Needs)
		for k, from := range n.Needs {
			n.Needs[k] = at[from]
		}
		slices.Sort(n.Needs)
		out = append(out, n)
	}
	return out
}
