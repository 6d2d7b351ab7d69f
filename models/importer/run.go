package importer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// logits returns the step that makes the output; nil: none does.
func (m *importer) logits() *step {
	out := m.values[m.Outputs[0].Name]
	if out == nil || out.step == nil || out.step == m.input {
		return nil
	}
	have, in := out.step.desc.Shape, m.input.desc.Shape
	if len(have) < 2 {
		return nil
	}
	labels := have[:len(have)-1]
	switch {
	case !slices.Equal(out.shape, asImage(out.step.desc)):
		return nil
	case slices.Equal(labels, in[:1]), m.text() && slices.Equal(labels, in), m.axes() == 2 && len(labels) == 2 && labels[0] == in[0], len(in) == 4 && slices.Equal(labels, in[:3]):
		return out.step
	}
	return nil
}

// wanted returns which nodes the output needs.
func (m *importer) wanted() []bool {
	need, wanted := map[string]bool{m.Outputs[0].Name: true}, make([]bool, len(m.Nodes))
	for i, n := range slices.Backward(m.Nodes) {
		if !slices.ContainsFunc(n.Out, func(out string) bool { return need[out] }) {
			continue
		}
		wanted[i] = true
		for _, in := range n.In {
			need[in] = true
		}
	}
	return wanted
}

// add makes a step, a constant, or another name of a value from a node. A node that it cannot read becomes a problem; nodes that
// read from one are passed over, so that each problem is told once.
func (m *importer) add(n *Node) {
	broken := false
	var v *value
	err := func() error {
		for _, in := range n.In {
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
		if v, err = m.make(n); errors.Is(err, errNoConstant) {
			err = m.trainedConstant(n, err)
		}
		if v != nil {
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
	for i, out := range n.Out {
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
	m.count(n)
}

// trainedConstant returns the error of a node that computes with constants alone, and names a parameter among its inputs.
func (m *importer) trainedConstant(n *Node, err error) error {
	for _, in := range n.In {
		v := m.values[in]
		if v.untrained() {
			if _, large := v.tensor.numbers(); large != nil {
				return large
			}
		}
		if v != nil && v.tensor != nil && v.tensor.Trains {
			return fmt.Errorf("parameter %q is read as a constant, which would not train: only parameters of layers are supported", cmp.Or(v.name, in))
		}
	}
	return err
}

// count adds up who reads the steps that a node makes or gives other names. A node that gives another name reads no elements.
func (m *importer) count(n *Node) {
	own := map[*step]bool{}
	for _, out := range n.Out {
		if s := m.values[out].base(); s != nil {
			s.reads += m.reads[out]
			own[s] = true
		}
	}
	for _, in := range n.In {
		if s := m.values[in].base(); own[s] {
			s.reads--
		}
	}
}

// errUnknownOp is the refusal of an op that has no reader.
var errUnknownOp = errors.New("the op is not supported")

// knows reports whether there is such an op.
func (m *importer) knows(n *Node) bool {
	return n.Err == nil && ops[n.Op].read != nil
}

// make returns the value of a node. An attribute that no reader knows is the first reason to refuse it, then one with a value that is
// not supported, then its inputs.
func (m *importer) make(n *Node) (*value, error) {
	if !m.knows(n) {
		return nil, cmp.Or(n.Err, errUnknownOp)
	}
	r := ops[n.Op]
	for _, name := range slices.Sorted(maps.Keys(n.Attributes)) {
		if !slices.Contains(r.attributes, name) {
			return nil, fmt.Errorf("attribute %s is not supported", name)
		}
	}
	if err := m.settled(n); err != nil {
		return nil, err
	}
	c := &call{m, attributes{Node: n, known: r.attributes}}
	v, err := r.read(c)
	if c.err != nil {
		return nil, c.err
	}
	return v, err
}

// finish makes an output that is a view, or a function of a tensor, a tensor.
func (m *importer) finish() error {
	name := m.Outputs[0].Name
	v := m.values[name]
	if v == nil || v.view == nil && v.curve == nil {
		return nil
	}
	c := &call{m, attributes{Node: v.from}}
	made, err := c.plain(v, 0)
	if err == nil {
		m.values[name] = made
	}
	return err
}

// run makes the steps. Errors name all nodes that are not supported, up to mostProblems.
func (m *importer) run() error {
	if m.Mask != "" && m.values[m.Mask] == nil {
		return fmt.Errorf("input attention_mask of %v has more than %d elements: give a smaller batch, or leave the mask out", m.input.desc.Shape, mostConstant)
	}
	wanted := m.wanted()
	for _, n := range m.Nodes {
		for _, in := range n.In {
			m.reads[in]++
		}
	}
	for i, n := range m.Nodes {
		if !wanted[i] {
			continue
		}
		for _, in := range n.In {
			if m.readers[in] == nil {
				m.readers[in] = n
			}
		}
		m.add(n)
	}
	if err := m.refusal(); err != nil {
		return err
	}
	if err := m.finish(); err != nil {
		return err
	}
	if m.logits() == nil {
		return fmt.Errorf("output %q is no logits, N,classes or N,classes,H,W of images or N,T,classes of tokens or frames, that follow from the input", m.Outputs[0].Name)
	}
	m.fuse(m.logits())
	m.prune(m.logits())
	if err := m.checkMask(); err != nil {
		return err
	}
	return m.checkTies(m.Advice.Shared)
}

// settled makes heads that are turned completely a view, for nodes but those that may join them with channels that are not.
func (m *importer) settled(n *Node) error {
	if n.Op == "Concat" || n.Op == "Cast" {
		return nil
	}
	for _, in := range n.In {
		if v := m.values[in]; v != nil && v.turned != nil && v.whole != nil {
			made, err := v.whole()
			if err != nil {
				return err
			}
			m.values[in] = made
		}
	}
	return nil
}
