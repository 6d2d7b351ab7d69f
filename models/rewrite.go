package models

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/kernels"
)

// rewriter makes a layer anew, node by node.
type rewriter struct {
	number int
	out    *Layer
	values map[Value]Value // of the old layer
}

// rewrite replaces each node of a layer by the nodes that each adds; each returns their value. The node passed to each reads values of the
// new layer.
func (m *Model) rewrite(each func(r *rewriter, n Node) (Value, error)) error {
	for i, l := range m.Layers {
		out := *l
		out.Nodes, out.descs = nil, slices.Clone(l.descs[:1])
		r := &rewriter{i + 1, &out, map[Value]Value{}}
		for k, n := range l.Nodes {
			n.In = slices.Clone(n.In)
			for j, v := range n.In {
				if to, made := r.values[v]; made {
					n.In[j] = to
				}
			}
			v, err := each(r, n)
			if err != nil {
				return m.at(i, err)
			}
			r.values[Value(k+1)] = v
		}
		m.Layers[i] = &out
	}
	m.place()
	return nil
}

// add adds a node.
func (r *rewriter) add(n Node) (Value, error) {
	d, err := n.Op.Infer(r.out.inputs(&n))
	if err == nil {
		err = checkTensor(d)
	}
	if err != nil {
		return 0, fmt.Errorf("op %q: %w", n.Name, err)
	}
	r.out.Nodes, r.out.descs = append(r.out.Nodes, n), append(r.out.descs, d)
	return r.out.Output(), nil
}

// op adds an op whose parameters, if it has any, complete makes whole.
func (r *rewriter) op(name string, op kernels.Op, complete func(*Parameter), in ...Value) (Value, error) {
	n := Node{Name: name, Op: op, In: in}
	descs := r.out.inputs(&n)
	for _, p := range op.Params(descs) {
		q := Parameter{Layer: r.number, Desc: p.Desc, Trained: p.Trained, FanIn: p.FanIn, FanOut: p.FanOut, Matrix: matrixOf(op, descs, p)}
		complete(&q)
		if q.Parts == nil {
			q.Parts = flattened(op, r.out.Desc(in[0]), q)
		}
		n.Params = append(n.Params, q)
	}
	return r.add(n)
}

// separate makes the linear layers that files have as several a layer each, where which says so of the names of the weight's parts.
func (m *Model) separate(which func(parts []string) (bool, error)) error {
	return m.rewrite(func(r *rewriter, n Node) (Value, error) {
		if len(n.Params) == 0 || len(n.Params[0].Parts) < 2 {
			return r.add(n)
		}
		if do, err := which(n.Params[0].fileNames()); err != nil || !do {
			v, more := r.add(n)
			return v, firstError(err, more)
		}
		return r.apart(n)
	})
}

// apart adds a linear layer as one for each part of its weight, and joins their outputs.
func (r *rewriter) apart(n Node) (Value, error) {
	op, linear := n.Op.(kernels.Linear)
	w := n.Params[0]
	if !linear || w.Fill != nil || w.Of != nil || slices.ContainsFunc(n.Params, func(p Parameter) bool { return len(p.Parts) != len(w.Parts) }) {
		return 0, fmt.Errorf("%w: %s is one weight here, and %v cannot be told apart: name all of them or none", ErrConfig, w.Name, w.fileNames())
	}
	var all []Value
	for i, part := range w.Parts {
		op.Out = part.Rows
		k := 0
		v, err := r.op(n.Name+"."+module(part.Name), op, func(q *Parameter) {
			from := n.Params[k]
			q.Name, q.Start, q.StartScale, q.Frozen, q.Trained = from.Parts[i].Name, from.Start, from.StartScale, from.Frozen, from.Trained
			if from.Parts[i].Transposed {
				q.Parts = []Part{from.Parts[i]}
			}
			k++
		}, n.In[0])
		if err != nil {
			return 0, err
		}
		all = append(all, v)
	}
	return r.op(n.Name+".join", kernels.Concat{}, nil, all...)
}

// module returns the last name of the module of a parameter: "q_proj" of "layers.0.q_proj.weight".
func module(name string) string {
	at := strings.LastIndex(name, ".")
	name = name[:max(at, 0)]
	return name[strings.LastIndex(name, ".")+1:]
}

func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// eachOwn calls do for all parameters that are not those of other layers.
func (m *Model) eachOwn(do func(*Parameter)) {
	for _, l := range m.Layers {
		for i := range l.Nodes {
			for j := range l.Nodes[i].Params {
				if p := &l.Nodes[i].Params[j]; p.Of == nil {
					do(p)
				}
			}
		}
	}
}

// place lays out the parameters of each layer and their gradients. Those of other layers follow their owners.
func (m *Model) place() {
	owners := map[string]*Parameter{}
	m.eachOwn(func(p *Parameter) { owners[p.Name] = p })
	for _, l := range m.Layers {
		l.paramBytes, l.gradBytes = 0, 0
		for i := range l.Nodes {
			for j := range l.Nodes[i].Params {
				p := &l.Nodes[i].Params[j]
				p.Grad = Ref{}
				p.follow(owners)
			}
		}
		placeParams(l)
	}
}

// follow makes a parameter that is another layer's train as its owner does.
func (p *Parameter) follow(owners map[string]*Parameter) {
	if p.Of == nil {
		return
	}
	owner := owners[p.Of.Name]
	if owner == nil {
		panic("BUG: " + p.Name + " is tied to " + p.Of.Name + ", which no layer has")
	}
	p.Of, p.Trained, p.Frozen = owner, owner.Trained, owner.Frozen
}
