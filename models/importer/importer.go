package importer

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
)

const (
	asIs       layout = iota
	channels1         // O,I,KH,KW of O,KH,KW,I
	transposed        // I,O of O,I
)

// importer makes steps of nodes.
type importer struct {
	*Graph
	config models.Config
	batch  int // that the file was exported with; 0: any

	input   *step
	steps   []*step // in topological order
	values  map[string]*value
	reads   map[string]int   // how many nodes read a tensor
	readers map[string]*Node // of the nodes that the output needs, the first that reads a tensor
	joins   map[*step]*step  // the latest Concat that begins with a step
	used    map[string]*step // parameters, and what they are of

	computed int // elements of constants so far

	problems []string
	more     int // problems that are not listed
}

const (
	mostProblems = 8       // that an error names
	mostComputed = 1 << 22 // elements of all constants that are computed with
)

func newImporter(g *Graph, c models.Config) *importer {
	in := kernels.F32(c.Batch, c.Image, c.Image, c.Channels)
	if g.text() {
		in = kernels.Desc{Shape: kernels.Shape{c.Batch, c.Image}, DType: kernels.Int32}
	}
	m := &importer{
		Graph: g, config: c, batch: int(g.Inputs[0].Shape[0]), input: &step{desc: in},
		values: map[string]*value{}, reads: map[string]int{}, readers: map[string]*Node{}, joins: map[*step]*step{}, used: map[string]*step{},
	}
	m.values[g.Inputs[0].Name] = &value{step: m.input, shape: asImage(in)}
	return m
}

// classes returns how many logits there are.
func (m *importer) classes() int { return last(m.steps[len(m.steps)-1].desc.Shape) }

// problem keeps what is wrong with a node.
func (m *importer) problem(n *Node, err error) {
	if len(m.problems) == mostProblems {
		m.more++
		return
	}
	m.problems = append(m.problems, fmt.Sprintf("%s: %v", n.Label, err))
}

// value returns a tensor; nil: the name is empty, as that of an input that is left out.
func (m *importer) value(name string) (*value, error) {
	if v := m.values[name]; v != nil || name == "" {
		return v, nil
	}
	t := m.Tensors[name]
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
func (t *Tensor) value() (*value, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	v, most := &value{tensor: t, mask: t.mask()}, int64(64)
	if t.DType == Int64 || t.DType == Int32 {
		most = MostElements
	}
	if n, err := t.Elements(); err == nil && n <= most && v.mask == nil {
		if v.numbers, err = t.numbers(); err != nil {
			return nil, err
		}
		for _, d := range t.Dims {
			v.dims = append(v.dims, int(d))
		}
	}
	return v, nil
}

// push adds a step.
func (m *importer) push(n *Node, op kernels.Op, shape func(d kernels.Desc) []int, sources []source, in ...*value) (*value, error) {
	s := &step{op: op, sources: sources, node: n.Name, module: n.Module, label: n.Label}
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
		if s.tensor.DType != Float32 || !slices.EqualFunc(want, s.tensor.Dims, func(a int, b int64) bool { return int64(a) == b }) {
			return fmt.Errorf("%s %q is %s%v, want float32%v", params[i].Name, s.name, s.tensor.DType, s.tensor.Dims, want)
		}
		again := slices.ContainsFunc(sources[:i], func(t source) bool { return t.name == s.name })
		if (m.used[s.name] != nil || again) && !s.tied {
			return fmt.Errorf("%s %q is a parameter of another node too, which is not supported%s", params[i].Name, s.name, m.Advice.Shared)
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
				dst[i] = s.tensor.Float(i)
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
					dst[(o*rows+i)*columns+j] = s.tensor.Float((o*columns+j)*rows + i)
				}
			}
		}
	}
}
