package onnx

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/kernels"
	"plimsoll/models"
)

// value is what a tensor of the graph is here: the output of a step, what follows from it without a step so far, a constant that is
// computed with, or an initializer. Of one that is made of something unsupported, none of it is set.
type value struct {
	shape  []int // of what follows from the input, as ONNX has it: N,C,H,W of an image that is N,H,W,C here
	step   *step
	view   *view
	curve  *curve
	scores *scores
	from   *node  // that made it
	made   *value // the tensor that it has become, for something that reads it

	numbers []float64
	dims    []int // of numbers; nil: a scalar
	mask    *mask

	tensor  *tensor
	flipped string // the name of the matrix that tensor is, transposed
	table   *table

	rest []*value // outputs of the node behind the first
}

// table is the first rows of an initializer, one for each position.
type table struct {
	source
	rows int
}

// step is an op of the model.
type step struct {
	op      kernels.Op // nil: the model's input
	in      []*step
	desc    kernels.Desc
	sources []source
	node    string  // that it comes from
	joined  []*step // of a Concat, what it joins, all told

	at int // its number in the order of the steps
}

// source is an initializer that is a parameter.
type source struct {
	name   string
	tensor *tensor
	layout layout
	tied   bool // it is the table of an embedding, too
}

// layout says how an initializer has the elements of a parameter.
type layout uint8

const (
	asIs       layout = iota
	channels1         // O,I,KH,KW of O,KH,KW,I
	transposed        // I,O of O,I
)

// importer makes steps of nodes.
type importer struct {
	*graph
	config models.Config
	batch  int // that the file was exported with; 0: any

	input  *step
	steps  []*step // in topological order
	values map[string]*value
	reads  map[string]int   // how many nodes read a tensor
	joins  map[*step]*step  // the latest Concat that begins with a step
	used   map[string]*step // parameters, and what they are of

	computed int // elements of constants so far

	problems []string
	more     int // problems that are not listed
}

const (
	mostProblems = 8       // that an error names
	mostComputed = 1 << 20 // elements of all constants that are computed with
)

func newImporter(g *graph, c models.Config) *importer {
	in := kernels.F32(c.Batch, c.Image, c.Image, c.Channels)
	if g.text() {
		in = kernels.Desc{Shape: kernels.Shape{c.Batch, c.Image}, DType: kernels.Int32}
	}
	m := &importer{
		graph: g, config: c, batch: int(g.inputs[0].shape[0]), input: &step{desc: in},
		values: map[string]*value{}, reads: map[string]int{}, joins: map[*step]*step{}, used: map[string]*step{},
	}
	m.values[g.inputs[0].name] = &value{step: m.input, shape: asImage(in)}
	return m
}

// run makes the steps. Errors name all nodes that are not supported, up to mostProblems.
func (m *importer) run() error {
	wanted := m.wanted()
	for _, n := range m.nodes {
		for _, in := range n.in {
			m.reads[in]++
		}
	}
	for i, n := range m.nodes {
		if wanted[i] {
			m.add(n)
		}
	}
	if m.problems != nil {
		text := strings.Join(m.problems, "; ")
		if m.more > 0 {
			text += fmt.Sprintf("; and %d more", m.more)
		}
		return fmt.Errorf("%s", text)
	}
	if m.logits() == nil {
		return fmt.Errorf("output %q is no logits, N,classes of images or N,T,classes of tokens, that follow from the input", m.outputs[0].name)
	}
	m.fuse()
	m.prune(m.logits())
	return nil
}

// logits returns the step that makes the output; nil: none does.
func (m *importer) logits() *step {
	out := m.values[m.outputs[0].name]
	if out == nil || out.step == nil || out.step == m.input {
		return nil
	}
	have, labels := out.step.desc.Shape, m.input.desc.Shape[:1]
	if m.text() {
		labels = m.input.desc.Shape
	}
	if !slices.Equal(have[:len(have)-1], labels) || !slices.Equal(out.shape, have) {
		return nil
	}
	return out.step
}

// classes returns how many logits there are.
func (m *importer) classes() int { return last(m.steps[len(m.steps)-1].desc.Shape) }

// wanted returns which nodes the output needs.
func (m *importer) wanted() []bool {
	need, wanted := map[string]bool{m.outputs[0].name: true}, make([]bool, len(m.nodes))
	for i, n := range slices.Backward(m.nodes) {
		if !slices.ContainsFunc(n.out, func(out string) bool { return need[out] }) {
			continue
		}
		wanted[i] = true
		for _, in := range n.in {
			need[in] = true
		}
	}
	return wanted
}

// add makes what a node is of: a step, a constant, another name of a value. What it cannot becomes a problem; nodes that read of one
// are passed over, so that each problem is told once.
func (m *importer) add(n *node) {
	broken := false
	var v *value
	err := func() error {
		for _, in := range n.in {
			x, err := m.value(in)
			if err != nil {
				return err
			}
			broken = broken || x != nil && x.kind() == ""
		}
		if broken && m.knows(n) {
			return nil
		}
		var err error
		if v, err = m.make(n); v != nil {
			m.computed += len(v.numbers)
		}
		if m.computed > mostComputed {
			v, err = nil, fmt.Errorf("the graph computes with more than %d constants", mostComputed)
		}
		return err
	}()
	if err != nil {
		m.problem(n, err)
	}
	if v == nil {
		v = &value{}
	}
	for i, out := range n.out {
		w := &value{}
		if i == 0 {
			w = v
		} else if i <= len(v.rest) {
			w = v.rest[i-1]
		}
		if out != "" {
			m.values[out] = w
		}
	}
}

// knows reports whether there is such an op.
func (m *importer) knows(n *node) bool {
	return ops[n.op].read != nil && (n.domain == "" || n.domain == "ai.onnx")
}

// problem keeps what is wrong with a node.
func (m *importer) problem(n *node, err error) {
	if len(m.problems) == mostProblems {
		m.more++
		return
	}
	m.problems = append(m.problems, fmt.Sprintf("node %q (%s): %v", n.title(), n.op, err))
}

// title is a node's name, or that of its output.
func (n *node) title() string {
	if n.name == "" && len(n.out) > 0 {
		return n.out[0]
	}
	return n.name
}

// value returns a tensor; nil: the name is empty, as that of an input that is left out.
func (m *importer) value(name string) (*value, error) {
	if v := m.values[name]; v != nil || name == "" {
		return v, nil
	}
	t := m.tensors[name]
	if t == nil {
		return nil, fmt.Errorf("nothing before it makes its input %q", name)
	}
	v, err := t.value()
	if err == nil {
		m.values[name] = v
		m.computed += len(v.numbers)
	}
	return v, err
}

// value returns an initializer.
func (t *tensor) value() (*value, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	v, most := &value{tensor: t, mask: t.mask()}, int64(64)
	if t.dtype == typeInt64 || t.dtype == typeInt32 {
		most = mostElements
	}
	if n, err := t.elements(); err == nil && n <= most && v.mask == nil {
		if v.numbers, err = t.numbers(); err != nil {
			return nil, err
		}
		for _, d := range t.dims {
			v.dims = append(v.dims, int(d))
		}
	}
	return v, nil
}

// kind says what a value is; "" of what is made of something unsupported.
func (v *value) kind() string {
	switch {
	case v.shape != nil:
		return "a tensor"
	case v.tensor != nil, v.table != nil:
		return "an initializer"
	case v.numbers != nil, v.mask != nil:
		return "a constant"
	}
	return ""
}

// push adds a step.
func (m *importer) push(n *node, op kernels.Op, shape func(d kernels.Desc) []int, sources []source, in ...*value) (*value, error) {
	s := &step{op: op, sources: sources, node: n.name}
	descs := make([]kernels.Desc, len(in))
	for i, v := range in {
		s.in, descs[i] = append(s.in, v.step), v.step.desc
	}
	var err error
	if s.desc, err = op.Infer(descs); err != nil {
		return nil, err
	}
	if err := m.checkSources(op.Params(descs), sources); err != nil {
		return nil, err
	}
	m.steps = append(m.steps, s)
	m.take(s, sources)
	return &value{step: s, shape: shape(s.desc)}, nil
}

// checkSources refuses initializers that are not as the op's parameters are, or parameters already.
func (m *importer) checkSources(params []kernels.Param, sources []source) error {
	for i, s := range sources {
		want := slices.Clone(params[i].Desc.Shape)
		switch s.layout {
		case channels1:
			want = []int{want[0], want[3], want[1], want[2]}
		case transposed:
			want = []int{want[1], want[0]}
		}
		if s.tensor.dtype != typeFloat || !slices.EqualFunc(want, s.tensor.dims, func(a int, b int64) bool { return int64(a) == b }) {
			return fmt.Errorf("%s %q is %s%v, want float32%v", params[i].Name, s.name, typeName(s.tensor.dtype), s.tensor.dims, want)
		}
		again := slices.ContainsFunc(sources[:i], func(t source) bool { return t.name == s.name })
		if (m.used[s.name] != nil || again) && !s.tied {
			return fmt.Errorf("%s %q is a parameter of another node too, which is not supported: export with dynamo=False, which keeps apart what begins with equal values", params[i].Name, s.name)
		}
	}
	return nil
}

// take notes that initializers are parameters of a step.
func (m *importer) take(of *step, sources []source) {
	for _, s := range sources {
		if !s.tied {
			m.used[s.name] = of
		}
	}
}

// Shapes, as ONNX has them, of what is made of a description.

// asImage is N,C,H,W of N,H,W,C, and that of others.
func asImage(d kernels.Desc) []int {
	s := slices.Clone(d.Shape)
	if len(s) == 4 {
		s[1], s[2], s[3] = s[3], s[1], s[2]
	}
	return s
}

// as is the shape of a value.
func as(v *value) func(kernels.Desc) []int {
	return func(kernels.Desc) []int { return slices.Clone(v.shape) }
}

// fill returns what writes a parameter's elements.
func (s source) fill(shape kernels.Shape) func(dst []float32) {
	return func(dst []float32) {
		if s.layout == asIs {
			for i := range dst {
				dst[i] = s.tensor.float(i)
			}
			return
		}
		outer, rows, columns := 1, shape[0], len(dst)/shape[0] // a matrix of the parameter is the file's, transposed
		if s.layout == channels1 {
			outer, rows, columns = shape[0], shape[1]*shape[2], shape[3]
		}
		for o := range outer {
			for i := range rows {
				for j := range columns {
					dst[(o*rows+i)*columns+j] = s.tensor.float((o*columns+j)*rows + i)
				}
			}
		}
	}
}
