package models

import (
	"slices"

	"plimsoll/kernels"
)

// Skip is an activation that passes layers: layer From makes it, layer To reads it, and those between hand it on as it is.
type Skip struct {
	From, To int
	Bytes    int64 // of its storage; its gradient has as many
}

// Portals returns the portals of stages whose last layers, all but the last stage's, are given: where the stages that skips pass
// are, each once, by From and To. Bytes is all that is filled in.
func Portals(skips []Skip, lasts []int) (all []Portal) {
	at := func(layer int) int { return stageOf(lasts, layer) }
	for _, s := range skips {
		from, to := at(s.From), at(s.To)
		if to-from < 2 {
			continue
		}
		i := slices.IndexFunc(all, func(p Portal) bool { return p.From == from && p.To == to })
		if i < 0 {
			i, all = len(all), append(all, Portal{From: from, To: to})
		}
		all[i].Bytes += s.Bytes
	}
	slices.SortFunc(all, func(a, b Portal) int {
		if a.From != b.From {
			return a.From - b.From
		}
		return a.To - b.To
	})
	return all
}

// stageOf returns the stage of a layer.
func stageOf(lasts []int, layer int) int {
	i, _ := slices.BinarySearch(lasts, layer)
	return i
}

// tensor is a part of an activation: what one layer makes for one other.
type tensor struct {
	desc     kernels.Desc
	from, to int
}

// span is a range of the parts of an activation.
type span struct{ lo, hi int }

// parts are the tensors that the activations of a model hold. A layer that reads one of several tensors takes it out with a
// Slice, and one that makes several ends with a Pack. A tensor that is only taken out to be packed again passes the layer,
// whoever wrote it.
type parts struct {
	model *Model
	of    [][]*tensor // by activation, in the order in which they are packed
}

// parts finds them. An activation that a layer reads otherwise than by whole tensors is one part.
func (m *Model) parts() *parts {
	p := &parts{model: m, of: [][]*tensor{{{desc: m.Input, to: 1}}}}
	for i, l := range m.Layers {
		in, number := p.of[i], i+1
		out := reading{l, in}.packed(number)
		if out == nil || i+1 < len(m.Layers) && !(reading{m.Layers[i+1], out}).takesWhole() {
			out = []*tensor{{desc: l.Desc(l.Output()), from: number}}
		}
		for _, t := range in {
			if !slices.Contains(out, t) {
				t.to = number
			}
		}
		p.of = append(p.of, out)
	}
	for _, t := range p.of[len(m.Layers)] {
		t.to = len(m.Layers) + 1
	}
	return p
}

// Skips returns the tensors that pass layers, in the order of the layers that make them. Models of branches have none.
func (m *Model) Skips() (all []Skip) {
	if m.Branches != nil {
		return nil
	}
	p := m.parts()
	for l, of := range p.of {
		for _, t := range of {
			if t.from == l && t.to > l+1 {
				all = append(all, Skip{t.from, t.to, t.desc.Storage()})
			}
		}
	}
	return all
}

// packs returns the Pack that a layer ends with; nil when it ends otherwise.
func (l *Layer) packs() *Node {
	last := &l.Nodes[len(l.Nodes)-1]
	if _, is := last.Op.(kernels.Pack); is {
		return last
	}
	return nil
}

// reading is a layer with the tensors of its input.
type reading struct {
	*Layer
	in []*tensor
}

// packed returns the tensors of the layer's output; nil when it does not pack several.
func (r reading) packed(number int) (out []*tensor) {
	pack := r.packs()
	if pack == nil {
		return nil
	}
	for _, v := range pack.In {
		if s, passes := r.passing(v); passes {
			out = append(out, r.in[s.lo:s.hi]...)
			continue
		}
		out = append(out, &tensor{desc: r.Desc(v), from: number})
	}
	return out
}

// passing returns which tensors of the input a value is, when nothing reads it but the Pack at the end, nor reads them
// otherwise.
func (r reading) passing(v Value) (s span, passes bool) {
	if v < 1 || len(r.in) < 2 {
		return s, false
	}
	s, takes := r.takes(&r.Nodes[v-1])
	if !takes || r.readers(v) != 1 {
		return s, false
	}
	for i := range r.Nodes {
		if other, too := r.takes(&r.Nodes[i]); too && Value(i+1) != v && other.lo < s.hi && s.lo < other.hi {
			return s, false
		}
	}
	return s, true
}

// readers returns how often nodes read a value.
func (r reading) readers(v Value) (n int) {
	for i := range r.Nodes {
		for _, in := range r.Nodes[i].In {
			if in == v {
				n++
			}
		}
	}
	return n
}

// takes returns which tensors of the input a node takes out of it, if it does.
func (r reading) takes(n *Node) (s span, ok bool) {
	op, is := n.Op.(kernels.Slice)
	if !is || n.In[0] != GraphInput || op.Defaults().Rows > 1 {
		return s, false
	}
	at := 0
	for i, t := range r.in {
		if at == op.From {
			s.lo, ok = i, true
		}
		if at += sample(t.desc); at == op.From+op.H*op.W*op.C && ok {
			s.hi = i + 1
			return s, true
		}
	}
	return s, false
}

// takesWhole reports whether a layer reads an input of several tensors by taking out one at a time, as it was packed, or some
// to pack them again.
func (r reading) takesWhole() bool {
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if !slices.Contains(n.In, GraphInput) {
			continue
		}
		s, takes := r.takes(n)
		if !takes {
			return false
		}
		if one := s.hi == s.lo+1 && r.in[s.lo].desc.Equal(r.Desc(Value(i+1))); one {
			continue
		}
		if _, passes := r.passing(Value(i + 1)); !passes {
			return false
		}
	}
	return true
}

// sample returns the elements of one sample.
func sample(d kernels.Desc) int { return int(d.Elements() / int64(d.Shape[0])) }

// Straight returns the model for stages with the given last layers, of all stages but the last. Skips that pass a whole stage
// leave that stage's activations. Tensors that cross from one stage to another are not packed: each is an output of the layer
// before the cut and an input of the layer after it. Only copies are left out, so the bits of all parameters stay the same.
// Portals says where the skips are. A model in which no skip passes a stage is returned as it is.
func (m *Model) Straight(lasts []int) *Model {
	portals := Portals(m.Skips(), lasts)
	if len(portals) == 0 {
		return m
	}
	p := &straightener{parts: m.parts(), lasts: lasts, portals: portals}
	out := *m
	out.Lasts, out.Portals, out.Layers = slices.Clone(lasts), p.portals, make([]*Layer, len(m.Layers))
	for i, l := range m.Layers {
		out.Layers[i] = p.layer(l, i+1)
	}
	return &out
}

// straightener rebuilds the layers of a model for its stages.
type straightener struct {
	*parts
	lasts   []int
	portals []Portal
}

func (p *straightener) stage(layer int) int { return stageOf(p.lasts, layer) }

// keeps reports whether the layers of a stage hold a tensor: those that it passes do not.
func (p *straightener) keeps(s int, t *tensor) bool {
	return p.stage(t.from) == s || p.stage(t.to) == s || t.from == 0
}

// group returns the tensors of a_l that one stage makes for another, l being the last layer of the first.
func (p *straightener) group(l, from, to int) (all []*tensor) {
	for _, t := range p.of[l] {
		if t.from > 0 && p.stage(t.from) == from && p.stage(t.to) == to {
			all = append(all, t)
		}
	}
	return all
}

// layer rebuilds a layer.
func (p *straightener) layer(l *Layer, number int) *Layer {
	s := p.stage(number)
	r := &rebuilt{
		straightener: p, old: l, in: p.of[number-1], number: number, stage: s,
		apart: s > 0 && p.lasts[s-1] == number-1, ends: s < len(p.lasts) && p.lasts[s] == number,
		values: map[Value]Value{GraphLabels: GraphLabels},
	}
	return r.layer()
}

// rebuilt is a layer that is rebuilt.
type rebuilt struct {
	*straightener
	old    *Layer
	new    *Layer
	in     []*tensor
	number int
	stage  int
	apart  bool // it begins a stage: its inputs are not packed
	ends   bool // it ends one: nor are its outputs
	values map[Value]Value
	inputs []*tensor // that it has, as it has them
}

func (r *rebuilt) layer() *Layer {
	l := *r.old
	l.Nodes, l.descs = nil, nil
	r.new = &l
	r.enter()
	outputs := r.copyNodes()
	if r.ends {
		r.leave(outputs)
	} else {
		r.end(outputs)
	}
	return &l
}

// enter finds the inputs.
func (r *rebuilt) enter() {
	l := r.new
	if !r.apart {
		for _, t := range r.in {
			if r.keeps(r.stage, t) {
				r.inputs = append(r.inputs, t)
			}
		}
		switch {
		case len(r.inputs) == len(r.in):
			l.descs = []kernels.Desc{r.old.Input()}
		case len(r.inputs) == 1:
			l.descs = []kernels.Desc{r.inputs[0].desc}
		default:
			d := r.old.Input()
			d.Shape = kernels.Shape{d.Shape[0], 1, 1, elements(r.inputs)}
			l.descs = []kernels.Desc{d}
		}
		return
	}
	add := func(branch int, group []*tensor) {
		at := int64(0)
		for _, t := range group {
			r.inputs = append(r.inputs, t)
			l.entries = append(l.entries, Ref{Block: Input, Branch: branch, Offset: at, Bytes: t.desc.Bytes()})
			at += t.desc.Storage()
		}
	}
	add(0, r.group(r.number-1, r.stage-1, r.stage))
	branch := 0
	for i := range r.portals {
		if q := &r.portals[i]; q.To == r.stage {
			branch++
			q.Entry = branch
			add(branch, r.group(r.lasts[q.From], q.From, q.To))
		}
	}
	l.descs, l.joined = []kernels.Desc{r.inputs[0].desc}, nil
	for _, t := range r.inputs[1:] {
		l.joined = append(l.joined, t.desc)
	}
}

func elements(all []*tensor) (n int) {
	for _, t := range all {
		n += sample(t.desc)
	}
	return n
}

// add adds a node.
func (r *rebuilt) add(n Node) Value {
	l := r.new
	d, err := n.Op.Infer(l.inputs(&n))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	l.Nodes, l.descs = append(l.Nodes, n), append(l.descs, d)
	return Value(len(l.Nodes))
}

// take returns the value of one tensor of the input.
func (r *rebuilt) take(name string, t *tensor) Value {
	i := slices.Index(r.inputs, t)
	if r.apart || len(r.inputs) == 1 {
		return InputOf(i)
	}
	return r.slice(name, i, i+1, t.desc.Shape)
}

// takeAll returns the value of tensors of the input that follow each other; several are packed.
func (r *rebuilt) takeAll(name string, all []*tensor) Value {
	if len(all) == 1 {
		return r.take(name, all[0])
	}
	if !r.apart {
		lo := slices.Index(r.inputs, all[0])
		return r.slice(name, lo, lo+len(all), nil)
	}
	n := Node{Name: name, Op: kernels.Pack{}}
	for _, t := range all {
		n.In = append(n.In, r.take(name, t))
	}
	return r.add(n)
}

// slice takes tensors lo to hi-1 of a packed input.
func (r *rebuilt) slice(name string, lo, hi int, shape kernels.Shape) Value {
	op := kernels.Slice{From: elements(r.inputs[:lo]), H: 1, W: 1, C: elements(r.inputs[lo:hi])}
	if len(shape) == 4 {
		op.H, op.W, op.C = shape[1], shape[2], shape[3]
	}
	return r.add(Node{Name: name, Op: op, In: []Value{GraphInput}})
}

// copied returns a value that is no input: a copy of one.
func (r *rebuilt) copied(v Value) Value {
	return r.add(Node{Name: "copy", Op: kernels.Concat{}, In: []Value{v}}) // of one
}

// result is an output of a layer: what it has made, or what it has of its input.
type result struct {
	tensor *tensor
	value  Value // of what it has made
	passed bool
	name   string // of the slice that takes it
}

// copyNodes adds the nodes of the layer, and returns what it puts out.
func (r *rebuilt) copyNodes() (outputs []result) {
	old := r.old
	var ends []Value // what a Pack at the end would read, that is taken apart
	out := r.of[r.number]
	if pack := old.packs(); pack != nil && len(out) > 1 {
		ends = pack.In
	}
	if len(r.in) < 2 {
		r.values[GraphInput] = GraphInput
	}
	n := len(old.Nodes)
	if ends != nil {
		n--
	}
	for i := range old.Nodes[:n] {
		r.copyNode(i, ends)
	}
	if ends == nil {
		return []result{{tensor: out[0], value: r.values[old.Output()]}}
	}
	k := 0
	for _, v := range ends {
		s, passes := reading{old, r.in}.passing(v)
		if !passes {
			outputs = append(outputs, result{tensor: out[k], value: r.values[v]})
			k++
			continue
		}
		for ; s.lo < s.hi; s.lo++ {
			if r.keeps(r.stage, out[k]) {
				outputs = append(outputs, result{tensor: out[k], passed: true, name: old.Nodes[v-1].Name})
			}
			k++
		}
	}
	return outputs
}

// copyNode adds a node, unless it takes a part of the input that is at hand or only passes.
func (r *rebuilt) copyNode(i int, ends []Value) {
	n, v := r.old.Nodes[i], Value(i+1)
	of := reading{r.old, r.in}
	if s, takes := of.takes(&n); takes && len(r.in) > 1 {
		if _, passes := of.passing(v); passes && slices.Contains(ends, v) {
			return
		}
		x := r.takeAll(n.Name, r.in[s.lo:s.hi])
		if x.branch() >= 0 && r.added(v) {
			x = r.copied(x)
		}
		r.values[v] = x
		return
	}
	n.In = slices.Clone(n.In)
	for j, in := range n.In {
		n.In[j] = r.values[in]
	}
	r.values[v] = r.add(n)
}

// added reports whether a sum reads a value of the old layer: its gradient would be handed on to what it is.
func (r *rebuilt) added(v Value) bool {
	return slices.ContainsFunc(r.old.Nodes, func(n Node) bool {
		_, sum := n.Op.(kernels.Add)
		return sum && slices.Contains(n.In, v)
	})
}

// end packs what the layer puts out.
func (r *rebuilt) end(outputs []result) {
	var all []Value
	for i := 0; i < len(outputs); i++ {
		if !outputs[i].passed {
			all = append(all, outputs[i].value)
			continue
		}
		if r.apart || len(r.inputs) == 1 {
			all = append(all, r.take(outputs[i].name, outputs[i].tensor))
			continue
		}
		lo := slices.Index(r.inputs, outputs[i].tensor)
		hi := lo + 1
		for i+1 < len(outputs) && outputs[i+1].passed && hi < len(r.inputs) && r.inputs[hi] == outputs[i+1].tensor {
			i, hi = i+1, hi+1
		}
		all = append(all, r.slice(outputs[i].name, lo, hi, nil))
	}
	l := r.new
	switch {
	case len(all) > 1:
		pack := *r.old.packs()
		pack.In = all
		r.add(pack)
	case all[0].branch() >= 0:
		r.copied(all[0])
	case all[0] != l.Output():
		l.exits = []exit{{value: all[0]}}
	}
}

// leave puts out one tensor beside the other, those for the next stage first.
func (r *rebuilt) leave(outputs []result) {
	l := r.new
	add := func(branch int, group []*tensor) (from int64) {
		from = l.outputBytes()
		at := int64(0)
		for _, t := range group {
			x := outputs[slices.IndexFunc(outputs, func(o result) bool { return o.tensor == t })]
			v := x.value
			if x.passed {
				v = r.take(x.name, t)
			}
			if v.branch() >= 0 || slices.ContainsFunc(l.exits, func(e exit) bool { return e.value == v }) {
				v = r.copied(v)
			}
			l.exits = append(l.exits, exit{value: v, branch: branch, offset: at})
			at += t.desc.Storage()
		}
		return from
	}
	l.exits = []exit{}
	add(0, r.group(r.number, r.stage, r.stage+1))
	branch := 0
	for i := range r.portals {
		if q := &r.portals[i]; q.From == r.stage {
			branch++
			q.Exit = branch
			q.Offset = add(branch, r.group(r.number, q.From, q.To))
		}
	}
}
