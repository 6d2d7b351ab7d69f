package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"plimsoll/kernels"
	"plimsoll/models"
)

// importer makes steps of nodes.
type importer struct {
	*Graph
	chain
	config models.Config
	batch  int // that the file was exported with; 0: any

	values  map[string]*value
	reads   map[string]int   // how many nodes read a tensor
	readers map[string]*Node // of the nodes that the output needs, the first that reads a tensor
	joins   map[*step]*step  // the latest Concat that begins with a step
	used    map[string]*step // parameters, and what they are of
	ties    map[string]int   // how many more steps have a parameter

	computed int // elements of constants so far

	problems []problem
	more     int // problems that are not listed
}

// problem is a reason to refuse an op, with the first node that has it and the number of all others.
type problem struct {
	op, label, reason string
	others            int
}

func (p problem) String() string {
	if p.others > 0 {
		return fmt.Sprintf("%s and %d more: %s", p.label, p.others, p.reason)
	}
	return p.label + ": " + p.reason
}

const (
	mostProblems = 8       // that an error names
	mostComputed = 1 << 25 // elements of all constants that are computed with
)

func newImporter(g *Graph, c models.Config) *importer {
	in := kernels.F32(c.Batch, c.Image, c.Image, c.Channels)
	switch {
	case g.text():
		in = kernels.Desc{Shape: kernels.Shape{c.Batch, c.Image}, DType: kernels.Int32}
	case g.axes() == 1:
		in = kernels.F32(c.Batch, c.Channels)
	case g.axes() == 2:
		in = kernels.F32(c.Batch, c.Channels, c.Image)
	}
	m := &importer{
		Graph: g, chain: chain{input: &step{desc: in}}, config: c, batch: int(g.Inputs[0].Shape[0]),
		values: map[string]*value{}, reads: map[string]int{}, readers: map[string]*Node{}, joins: map[*step]*step{}, used: map[string]*step{}, ties: map[string]int{},
	}
	m.values[g.Inputs[0].Name] = &value{step: m.input, shape: asImage(in)}
	if g.Mask != "" {
		if ones, err := filled(in.Shape, func([]int) float64 { return 1 }); err == nil {
			m.values[g.Mask] = &value{constant: ones}
		}
	}
	return m
}

// problem keeps what is wrong with a node. Nodes of one op with the same reason are one problem.
func (m *importer) problem(n *Node, err error) {
	p := problem{op: n.Op, label: n.Label, reason: err.Error()}
	same := slices.IndexFunc(m.problems, func(q problem) bool { return q.op == p.op && q.reason == p.reason })
	switch {
	case same >= 0:
		m.problems[same].others++
	case len(m.problems) == mostProblems:
		m.more++
	default:
		m.problems = append(m.problems, p)
	}
}

// refusal returns all problems as an error; nil: there are none.
func (m *importer) refusal() error {
	if len(m.problems) == 0 {
		return nil
	}
	var all []string
	for _, p := range m.problems {
		all = append(all, p.String())
	}
	if m.more > 0 {
		all = append(all, fmt.Sprintf("and %d more", m.more))
	}
	return errors.New(strings.Join(all, "; "))
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
	m.tie(op.Params(descs), sources)
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
		dims := s.tensor.Dims
		if s.axes > 0 {
			dims = slices.DeleteFunc(slices.Clone(dims), func(n int64) bool { return n == 1 })
			want = slices.DeleteFunc(want, func(n int) bool { return n == 1 })
		}
		if s.tensor.DType != Float32 || !slices.EqualFunc(want, dims, func(a int, b int64) bool { return int64(a) == b }) {
			return fmt.Errorf("%s %q is %s%v, want float32%v", params[i].Name, s.name, s.tensor.DType, s.tensor.Dims, want)
		}
		again := slices.ContainsFunc(sources[:i], func(t source) bool { return t.name == s.name })
		if (m.used[s.name] != nil || again) && s.tied == 0 {
			return fmt.Errorf("%s %q is a parameter of another node too, which is not supported%s", params[i].Name, s.name, m.Advice.Shared)
		}
	}
	return nil
}

// tie marks sources that are trained parameters of an earlier step already, with the same elements in the same order.
func (m *importer) tie(params []kernels.Param, sources []source) {
	for i := range sources {
		s, of := &sources[i], m.used[sources[i].name]
		if of == nil {
			continue
		}
		k := slices.IndexFunc(of.sources, func(t source) bool { return t.name == s.name })
		if first := of.op.Params(of.inputs())[k]; of.sources[k].layout == s.layout && first.Trained && params[i].Trained && first.Desc.Equal(params[i].Desc) {
			m.ties[s.name]++
			s.tied = m.ties[s.name]
		}
	}
}

// take notes that initializers are parameters of a step.
func (m *importer) take(of *step, sources []source) {
	for _, s := range sources {
		if s.tied == 0 {
			m.used[s.name] = of
		}
	}
}

// widen gives a step's op one more parameter.
func (m *importer) widen(s *step, op kernels.Op, from source) error {
	in := []kernels.Desc{s.in[0].desc}
	if _, err := op.Infer(in); err != nil {
		return err
	}
	added, params := []source{from}, op.Params(in)[len(s.sources):]
	m.tie(params, added)
	if err := m.checkSources(params, added); err != nil {
		return err
	}
	s.op, s.sources = op, append(s.sources, added...)
	m.take(s, added)
	return nil
}

// batched returns a shape with the batch in place of that of the export.
func (m *importer) batched(to []int) []int {
	to = slices.Clone(to)
	if len(to) > 0 && to[0] == m.batch && m.batch > 0 {
		to[0] = m.config.Batch
	}
	return to
}
