package profiles

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
)

// TestPipeDream: the authors' profiles become chains with all their time and weights.
func TestPipeDream(t *testing.T) {
	t.Parallel()
	// vgg16 has 40 operators that count, of which Size and View are one layer, and the loss.
	layers := map[string]int{"vgg16": 40, "resnet50": 40, "resnext50": 40, "squeezenet1_0": 35, "densenet121": 78, "gnmt": 10, "resnet18": 24}
	files, _ := filepath.Glob("testdata/pipedream/*.graph.txt")
	if len(files) != len(layers) {
		t.Fatalf("%d profiles of %d", len(files), len(layers))
	}
	for _, file := range files {
		g, err := parseFile(t, file, ParseGraph)
		if err != nil {
			t.Fatal(err)
		}
		c, err := g.Chain()
		if err != nil {
			t.Fatal(err)
		}
		nodes, _ := g.operators()
		var forward, backward, sumF, sumB float64
		var weights, saved, sumW, sumS int64
		for _, n := range nodes {
			forward, backward, weights, saved = forward+n.Forward, backward+n.Backward, weights+n.Weights, saved+n.Activation
		}
		for _, l := range c.Layers {
			sumF, sumB, sumW, sumS = sumF+l.ForwardS, sumB+l.BackwardS, sumW+l.WeightBytes, sumS+l.SavedBytes
		}
		if math.Abs(sumF-forward) > 1e-9 || math.Abs(sumB-backward) > 1e-9 || sumW != weights || sumS != saved {
			t.Errorf("%s: the chain has %v %v %v %v, the graph %v %v %v %v", file, sumF, sumB, sumW, sumS, forward, backward, weights, saved)
		}
		if c.Len() != layers[c.Name] {
			t.Errorf("%s: %d layers, want %d", c.Name, c.Len(), layers[c.Name])
		}
	}
}

// TestVGG: a graph that is a chain gives a layer for each operator, with its own figures.
func TestVGG(t *testing.T) {
	t.Parallel()
	g, err := parseFile(t, "testdata/pipedream/vgg16.graph.txt", ParseGraph)
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.Chain()
	if err != nil {
		t.Fatal(err)
	}
	// node11, the first pooling, is the fifth operator; its line is the first of the file.
	l := c.Layer(5)
	want := chain.Layer{Name: "6 node11 MaxPool2d", ForwardS: 0.002211, BackwardS: 0.002788, OutputBytes: 205520896, SavedBytes: 205520896, GradientBytes: 205520896}
	for i := range c.Layers {
		if strings.Contains(c.Layers[i].Name, "node11 ") {
			l, want.Name = &c.Layers[i], c.Layers[i].Name
		}
	}
	if math.Abs(l.ForwardS-want.ForwardS) > 1e-15 || math.Abs(l.BackwardS-want.BackwardS) > 1e-15 || l.OutputBytes != want.OutputBytes || l.SavedBytes != want.SavedBytes ||
		!strings.HasSuffix(l.Name, "node11 MaxPool2d") {
		t.Errorf("%+v, want %+v", *l, want)
	}
	if c.InputBytes != 77070336 || c.Name != "vgg16" {
		t.Errorf("input %d of %s", c.InputBytes, c.Name)
	}
}

// line writes a node.
func line(id, profile string) string { return id + " -- Op(a -- b) -- " + profile + "\n" }

const costs = "forward_compute_time=1000, backward_compute_time=2000, activation_size=[3.0; 4.0], parameter_size=5"

// diamond: 1 -> 2 -> 4, 1 -> 3 -> 4 -> 5
var diamond = line("n5", costs) + line("n4", costs) + line("n3", costs) + line("n2", costs) + line("n1", costs) +
	"\tn1 -- n2\n\tn1 -- n3\n\tn2 -- n4\n\tn3 -- n4\n\tn4 -- n5\n"

// TestDiamond: what runs in parallel is one layer; its overheads are counted by hand. a = δ = 7 everywhere.
func TestDiamond(t *testing.T) {
	t.Parallel()
	g, err := ParseGraph("diamond.graph.txt", []byte(diamond))
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.Chain()
	if err != nil {
		t.Fatal(err)
	}
	if c.Len() != 4 {
		t.Fatalf("%d layers: %+v", c.Len(), c.Layers)
	}
	m := c.Layer(2)
	if m.ForwardS != 3 || m.BackwardS != 6 || m.SavedBytes != 21 || m.OutputBytes != 7 || m.WeightBytes != 15 {
		t.Errorf("%+v", *m)
	}
	// Forward: n2, n3 and n4 are there while n4 runs: 21, the output is 7 of them.
	// Backward: n4 runs with all saved sets, δ of n4, n2 and n3. Beside saved sets and δ_out, that is 14 more. The overhead is 7 of them: 7
	// are counted for δ_in, which is not there yet.
	if *m.DiscardOverheadBytes != 14 || m.BackwardOverheadBytes != 7 {
		t.Errorf("overheads %d and %d, want 14 and 7", *m.DiscardOverheadBytes, m.BackwardOverheadBytes)
	}
}

// TestAsGroup: for operators in a line the overheads are those of chain.Group.
func TestAsGroup(t *testing.T) {
	t.Parallel()
	sizes := []int64{5, 9, 2, 30, 4, 11}
	c := &chain.Chain{Name: "line", InputBytes: 6}
	var nodes []Node
	for i, a := range sizes {
		c.Layers = append(c.Layers, chain.Layer{ForwardS: 1, BackwardS: 1, OutputBytes: a, SavedBytes: a, GradientBytes: a})
		n := Node{Activation: a}
		if i > 0 {
			n.Needs = []int{i - 1}
		}
		nodes = append(nodes, n)
	}
	c.Layers = append(c.Layers, chain.Layer{Name: "loss"})
	count := 0
	for first := 1; first <= len(sizes); first++ {
		for last := first + 1; last <= len(sizes); last++ {
			var lasts []int
			for l := 1; l <= len(sizes)+1; l++ {
				if l < first || l >= last {
					lasts = append(lasts, l)
				}
			}
			g, err := chain.Group(c, lasts)
			if err != nil {
				t.Fatal(err)
			}
			want := g.Layer(first)
			p := part{nodes: nodes, first: first - 1, last: last - 1, input: c.Activation(first - 1)}
			p.passes()
			got := p.layer(first)
			if *got.DiscardOverheadBytes != *want.DiscardOverheadBytes || got.BackwardOverheadBytes != want.BackwardOverheadBytes {
				t.Errorf("%d..%d: overheads %d, %d, chain.Group has %d, %d", first, last, *got.DiscardOverheadBytes, got.BackwardOverheadBytes,
					*want.DiscardOverheadBytes, want.BackwardOverheadBytes)
			}
			count++
		}
	}
	if count != 15 {
		t.Errorf("%d groups", count)
	}
}

func TestGraphErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                    `x: field "node" is missing`,
		"node1 -- Op\n":                       `x:1: field "node" is "node1 -- Op", which is not a name`,
		"n1 -- Op -- a=1":                     `x:1: field "forward_compute_time" is missing`,
		line("n1", costs) + line("n1", costs): `x:2: field "node" is "n1", which is there twice`,
		line("n1", costs) + "\tn1":            `x:2: field "edge" is "n1", which is not two nodes`,
		line("n1", costs) + "\tn1 -- n2":      `x:2: field "edge" is "n2", which is no node`,
		line("n1", costs) + "\tn1 -- n1":      `x: field "edge" is "n1", which is on a cycle`,
		line("n1", strings.Replace(costs, "1000", "-1", 1)):   `x:1: field "forward_compute_time" is "-1", which is negative`,
		line("n1", strings.Replace(costs, "2000", "x", 1)):    `x:1: field "backward_compute_time" is "x", which is not a number`,
		line("n1", strings.Replace(costs, "4.0]", "4.0", 1)):  `x:1: field "activation_size" is "[3.0; 4.0", which does not end with ]`,
		line("n1", strings.Replace(costs, "=5", "=1e300", 1)): `x:1: field "parameter_size" is "1e300", which is too large`,
		line("n1", strings.Replace(costs, "2000", "nan", 1)):  `x:1: field "backward_compute_time" is "nan", which is negative or not finite`,
	} {
		_, err := ParseGraph("x", []byte(text))
		var e *fields.FileError
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	g, err := ParseGraph("x", []byte(strings.Replace(line("n1", costs), "Op(a -- b)", "Input", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Chain(); err == nil {
		t.Error("a graph of inputs is a chain")
	}
}

// TestSeparators: a separator is a node without which no path leads on, found by removing it.
func TestSeparators(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("testdata/pipedream/*.graph.txt")
	for _, file := range files {
		g, err := parseFile(t, file, ParseGraph)
		if err != nil {
			t.Fatal(err)
		}
		nodes, _ := g.operators()
		for first := 0; first < len(nodes); {
			last := separator(nodes, first)
			for v := first; v < last; v++ {
				if separates(nodes, v) {
					t.Errorf("%s: %s is a separator", file, nodes[v].ID)
				}
			}
			if last < len(nodes)-1 && !separates(nodes, last) {
				t.Errorf("%s: %s is none", file, nodes[last].ID)
			}
			first = last + 1
		}
	}
}

// separates reports whether every path from before v to behind it goes through v.
func separates(nodes []Node, v int) bool {
	reached := make([]bool, len(nodes))
	for i := range nodes {
		reached[i] = i < v || slices.ContainsFunc(nodes[i].Needs, func(u int) bool { return u != v && reached[u] })
	}
	return !slices.Contains(reached[v+1:], true)
}

// FuzzGraph: whatever the text, reading ends, and what it reads is a valid chain or an error.
func FuzzGraph(f *testing.F) {
	f.Add([]byte(diamond))
	for _, name := range []string{"vgg16", "gnmt"} {
		data, err := os.ReadFile("testdata/pipedream/" + name + ".graph.txt")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGraph("x", data)
		if err != nil {
			return
		}
		for i, n := range g.Nodes {
			if slices.ContainsFunc(n.Needs, func(from int) bool { return from >= i }) {
				t.Fatalf("node %d of the order needs %v", i, n.Needs)
			}
		}
		c, err := g.Chain()
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNamesAreShown: what would control a terminal is written out in the names of a graph and its operators.
func TestNamesAreShown(t *testing.T) {
	t.Parallel()
	const profile = "forward_compute_time=1.0, backward_compute_time=1.0, activation_size=4.0, parameter_size=4.0"
	g, err := ParseGraph("models/\x1b[2Jnet.graph.txt", []byte("node1 -- Input\x07 -- "+profile+"\nnode2 -- Linear\x1b]0;x\u202e -- "+profile+"\n\tnode1 -- node2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if g.Name != `\u001b[2Jnet` || g.Nodes[1].Op != `Linear\u001b]0;x\u202e` {
		t.Errorf("%q, %q", g.Name, g.Nodes[1].Op)
	}
}

// parseFile parses a file of the tests.
func parseFile[T any](t testing.TB, path string, parse func(string, []byte) (T, error)) (T, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parse(path, data)
}
