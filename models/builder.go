package models

import (
	"fmt"
	"math/bits"
	"slices"

	"plimsoll/kernels"
)

// maxTensor bounds the bytes of one tensor, so that no sum of sizes overflows.
const maxTensor = 1 << 46

// Builder makes a model layer by layer. The first error stays and is returned by Model; after it nothing is added.
type Builder struct {
	// ConvStart, LinearStart and BiasStart say how the weights of convolutions, those of Linear and the biases of both
	// start.
	ConvStart, LinearStart, BiasStart Distribution
	// DType is the type of the activations, or TF32. When they are not stored in the type of the input, layer 1 begins with
	// its Cast. It is to be set before the first layer.
	DType kernels.DType

	// Parts says how files hold a parameter; nil: as Parameter.Parts of nil. It is to be set before the first layer.
	Parts func(p Parameter) []Part

	// StartScale says how a parameter's StartScale differs from 1; nil: it does not. It is to be set before the first layer.
	StartScale func(p Parameter) float64

	model *Model
	out   kernels.Desc // of the latest layer

	first  int            // layers before those of the branch
	ends   []kernels.Desc // of the branches so far
	joined bool           // there is a layer that joins them

	names map[string]bool
	ties  map[string]string // by the names of parameters to come, those that they are
	err   error
}

// NewBuilder starts a model with the given input and number of classes. Inputs are images N, H, W, C, with a label each, or
// int32 tokens N, T, with a label each. PerPixel and PerSample change the labels.
func NewBuilder(name string, input kernels.Desc, classes int) *Builder {
	b := &Builder{ConvStart: KaimingFanOut, LinearStart: UniformFanIn, BiasStart: UniformFanIn, DType: input.DType, out: input, names: map[string]bool{}}
	labels := input.Shape[:min(1, len(input.Shape))]
	if input.DType == kernels.Int32 {
		b.DType, labels = kernels.Float32, input.Shape
	}
	b.model = &Model{Name: name, Input: input, Classes: classes}
	if len(input.Shape) == 0 || classes < 1 {
		b.err = fmt.Errorf("%w: %s: input %v, %d classes", ErrConfig, name, input, classes)
		return b
	}
	b.err = checkTensor(input)
	b.model.Labels = kernels.Desc{Shape: labels, DType: kernels.Int32}
	return b
}

// PerPixel says that each pixel of an image has a label, so that logits are N, H, W, classes. It is to be called before the first layer.
func (b *Builder) PerPixel() {
	if len(b.model.Input.Shape) != 4 || len(b.model.Layers) > 0 {
		b.fail("PerPixel is for images, and comes before the first layer")
		return
	}
	b.model.Labels.Shape = b.model.Input.Shape[:3]
}

// PerSample gives each sample of tokens one label, so that logits are N, classes. The call comes before the first layer.
func (b *Builder) PerSample() {
	if b.model.Input.DType != kernels.Int32 || len(b.model.Layers) > 0 {
		b.fail("PerSample is for tokens, and comes before the first layer")
		return
	}
	b.model.Labels.Shape = b.model.Input.Shape[:1]
}

// PerPosition gives each of n positions of a sample of numbers a label, so that logits are N, n, classes. The call comes before the first
// layer.
func (b *Builder) PerPosition(n int) {
	if len(b.model.Input.Shape) != 3 || len(b.model.Layers) > 0 {
		b.fail("PerPosition is for N,C,T, and comes before the first layer")
		return
	}
	b.model.Labels.Shape = kernels.Shape{b.model.Input.Shape[0], n}
}

// Layer adds the layer that graph builds from its input to the value that it returns. The names of the layer's
// parameters begin with prefix.
func (b *Builder) Layer(name, prefix string, graph func(g *Graph, x Value) Value) {
	b.add(name, prefix, nil, func(g *Graph) Value {
		x := GraphInput
		if t := b.DType.Stored(); b.out.DType.Float() && b.out.DType != t {
			x = g.Op("cast", kernels.Cast{To: t}, x)
		}
		return graph(g, x)
	})
}

// add adds the layer that graph builds; joined are the inputs that it has besides the output of the latest layer.
func (b *Builder) add(name, prefix string, joined []kernels.Desc, graph func(g *Graph) Value) {
	if b.err != nil {
		return
	}
	l := &Layer{Name: name, descs: []kernels.Desc{b.out}, joined: joined, labels: b.model.Labels}
	g := &Graph{b: b, prefix: prefix, layer: l}
	v := graph(g)
	if b.err == nil {
		b.err = l.check(v)
	}
	if b.err != nil {
		b.err = fmt.Errorf("%s: layer %d (%s): %w", b.model.Name, len(b.model.Layers)+1, name, b.err)
		return
	}
	placeParams(l)
	b.model.Layers = append(b.model.Layers, l)
	b.out = l.Desc(v)
}

// Tie says that a parameter of a layer to come is one that there is, of an earlier layer. It is then none of the model's own: the
// earlier one's gradient gets the sum of both.
func (b *Builder) Tie(name, to string) {
	if b.ties == nil {
		b.ties = map[string]string{}
	}
	b.ties[name] = to
}

// Model adds the loss, softmax cross entropy, and returns the model.
func (b *Builder) Model() (*Model, error) {
	if len(b.model.Layers) == 0 && b.err == nil {
		b.err = fmt.Errorf("%w: %s has no layers", ErrGraph, b.model.Name)
	}
	if len(b.ends) > 0 && !b.joined {
		b.fail("nothing joins its %d branches", len(b.ends))
	}
	b.Layer("loss", "", func(g *Graph, x Value) Value {
		if want := kernels.F32(append(slices.Clone(b.model.Labels.Shape), b.model.Classes)...).As(b.DType.Stored()); !g.layer.Desc(x).Equal(want) {
			return g.fail("loss", fmt.Errorf("%w: the logits are %v, want %v", ErrGraph, g.layer.Desc(x), want))
		}
		return g.Op("loss", kernels.SoftmaxCrossEntropy{}, x, GraphLabels)
	})
	if b.err != nil {
		return nil, b.err
	}
	b.model.unmarkHead()
	return b.model, nil
}

// Graph adds ops to a layer.
type Graph struct {
	b      *Builder
	prefix string
	layer  *Layer
}

// Channels returns the extent of a value's last axis.
func (g *Graph) Channels(v Value) int {
	shape := g.layer.Desc(v).Shape
	return shape[len(shape)-1]
}

// Op adds any op. The methods below add the ones that models are made of.
func (g *Graph) Op(name string, op kernels.Op, in ...Value) Value {
	return g.OpFrom(name, op, nil, in...)
}

// OpFrom is Op with the sources of the first of the op's parameters.
func (g *Graph) OpFrom(name string, op kernels.Op, sources []Source, in ...Value) Value {
	if g.b.err != nil {
		return GraphInput
	}
	if g.b.DType == kernels.TF32 {
		op = kernels.InTF32(op)
	}
	n := Node{Name: name, Op: op, In: in, Salt: salt(op, len(g.b.model.Layers)+1, len(g.layer.Nodes))}
	for _, v := range in {
		if v.branch() > len(g.layer.joined) || v > g.layer.Output() {
			return g.fail(name, fmt.Errorf("%w: input %d is of another layer", ErrGraph, v))
		}
	}
	descs := g.layer.inputs(&n)
	out, err := op.Infer(descs)
	if err == nil {
		err = checkTensor(out)
	}
	if err == nil {
		err = g.params(&n, op.Params(descs), sources)
	}
	if err != nil {
		return g.fail(name, err)
	}
	g.layer.Nodes = append(g.layer.Nodes, n)
	g.layer.descs = append(g.layer.descs, out)
	return g.layer.Output()
}

// Conv is a square convolution without bias, padded so that stride 1 keeps an odd kernel's image size.
func (g *Graph) Conv(name string, x Value, out, kernel, stride int) Value {
	pad := (kernel - 1) / 2
	return g.Op(name, kernels.Conv2D{Out: out, KernelH: kernel, KernelW: kernel, StrideH: stride, StrideW: stride, PadH: pad, PadW: pad}, x)
}

// BN is batch normalization.
func (g *Graph) BN(name string, x Value) Value { return g.Op(name, kernels.BatchNorm{}, x) }

// BNReLU is relu(bn(x)).
func (g *Graph) BNReLU(name string, x Value) Value {
	return g.Op(name, kernels.BatchNorm{ReLU: true}, x)
}

// BNAddReLU is relu(bn(x) + shortcut).
func (g *Graph) BNAddReLU(name string, x, shortcut Value) Value {
	return g.Op(name, kernels.BatchNorm{Residual: true, ReLU: true}, x, shortcut)
}

// ReLU is max(x, 0).
func (g *Graph) ReLU(name string, x Value) Value { return g.Op(name, kernels.ReLU{}, x) }

// Add is x + y.
func (g *Graph) Add(name string, x, y Value) Value { return g.Op(name, kernels.Add{}, x, y) }

// Concat joins channels.
func (g *Graph) Concat(name string, xs ...Value) Value { return g.Op(name, kernels.Concat{}, xs...) }

// MaxPool takes the maximum of square windows.
func (g *Graph) MaxPool(name string, x Value, kernel, stride, pad int) Value {
	return g.Op(name, kernels.MaxPool{KernelH: kernel, KernelW: kernel, StrideH: stride, StrideW: stride, PadH: pad, PadW: pad}, x)
}

// AvgPool takes the mean of square windows.
func (g *Graph) AvgPool(name string, x Value, kernel, stride int) Value {
	return g.Op(name, kernels.AvgPool{KernelH: kernel, KernelW: kernel, StrideH: stride, StrideW: stride}, x)
}

// GlobalAvgPool takes the mean of each channel.
func (g *Graph) GlobalAvgPool(name string, x Value) Value {
	return g.Op(name, kernels.GlobalAvgPool{}, x)
}

// Linear is x W^T + b.
func (g *Graph) Linear(name string, x Value, out int) Value {
	return g.Op(name, kernels.Linear{Out: out, Bias: true}, x)
}

// Dense is x W^T + b on each row of the last axis.
func (g *Graph) Dense(name string, x Value, out int) Value {
	return g.Op(name, kernels.Linear{Out: out, Bias: true, LastAxis: true}, x)
}

// Project is x W^T on each row of the last axis.
func (g *Graph) Project(name string, x Value, out int) Value {
	return g.Op(name, kernels.Linear{Out: out, LastAxis: true}, x)
}

// Rows is Dense with a bias, Project without one.
func (g *Graph) Rows(name string, x Value, out int, bias bool) Value {
	return g.Op(name, kernels.Linear{Out: out, Bias: bias, LastAxis: true}, x)
}

// LayerNorm normalizes each row of the last axis.
func (g *Graph) LayerNorm(name string, x Value) Value { return g.Op(name, kernels.LayerNorm{}, x) }

// Dropout zeroes elements with probability p.
func (g *Graph) Dropout(name string, x Value, p float32) Value {
	return g.Op(name, kernels.Dropout{P: p}, x)
}

func (g *Graph) fail(op string, err error) Value {
	if g.b.err == nil {
		g.b.err = fmt.Errorf("op %q: %w", op, err)
	}
	return GraphInput
}

// params names the node's parameters.
func (g *Graph) params(n *Node, ps []kernels.Param, sources []Source) error {
	for i, p := range ps {
		q := Parameter{
			Name: joined(g.prefix, n.Name, p.Name), Layer: len(g.b.model.Layers) + 1, Desc: p.Desc, Trained: p.Trained,
			Start: g.b.start(n.Op, p.Name), FanIn: p.FanIn, FanOut: p.FanOut,
		}
		switch {
		case i < len(sources):
			sources[i].of(&q)
		case g.b.Parts != nil:
			q.Parts = g.b.Parts(q)
		}
		if q.Parts == nil {
			q.Parts = flattened(n.Op, g.layer.Desc(n.In[0]), q)
		}
		if g.b.StartScale != nil {
			q.StartScale = g.b.StartScale(q)
		}
		var err error
		if q.Of, err = g.tied(&q); err != nil {
			return err
		}
		if q.Of != nil {
			q.Trained, q.Frozen = q.Of.Trained, q.Of.Frozen
		}
		if g.b.names[q.Name] {
			return fmt.Errorf("%w: there is already a parameter %q", ErrGraph, q.Name)
		}
		if err := checkTensor(q.Desc); err != nil {
			return err
		}
		g.b.names[q.Name] = true
		q.Matrix = matrixOf(n.Op, g.layer.inputs(n), p)
		n.Params = append(n.Params, q)
	}
	return nil
}

// flattened returns how files hold the weight of a Linear that reads an image; nil of other parameters.
func flattened(op kernels.Op, in kernels.Desc, q Parameter) []Part {
	l, linear := op.(kernels.Linear)
	if !linear || l.LastAxis || len(in.Shape) != 4 || len(q.Desc.Shape) != 2 || in.Shape[1]*in.Shape[2] == 1 {
		return nil
	}
	return []Part{{Name: q.Name, Rows: q.Desc.Shape[0], Area: in.Shape[1] * in.Shape[2]}}
}

// matrixOf returns the extent of the weight of a linear layer or a convolution, with the type in which the layer multiplies its inputs.
func matrixOf(op kernels.Op, in []kernels.Desc, p kernels.Param) kernels.Matrix {
	switch op.(type) {
	case kernels.Linear, kernels.Conv2D, kernels.ConvTranspose2D:
		if rows := int64(p.Desc.Shape[0]); len(p.Desc.Shape) > 1 {
			return kernels.Matrix{Rows: rows, Columns: p.Desc.Elements() / rows, DType: kernels.Call{Op: op, In: in}.Computes()}
		}
	}
	return kernels.Matrix{}
}

// unmarkHead makes the last of all matrices, also where it is that of another layer, none.
func (m *Model) unmarkHead() {
	for _, l := range slices.Backward(m.Layers) {
		for i := range slices.Backward(l.Nodes) {
			for j := range l.Nodes[i].Params {
				q := &l.Nodes[i].Params[j]
				if !q.Matrix.Is() {
					continue
				}
				q.Matrix = kernels.Matrix{}
				if q.Of != nil {
					q.Of.Matrix = kernels.Matrix{}
				}
				return
			}
		}
	}
}

// of says what a parameter is by its source.
func (s Source) of(p *Parameter) {
	p.Name, p.Fill = s.Name, s.Fill
	if s.Frozen && p.Trained {
		p.Trained, p.Frozen, p.Constant = false, true, s.Constant
	}
	if s.Transposed || s.Shape != nil {
		p.Parts = []Part{{Name: s.Name, Rows: p.Desc.Shape[0], Transposed: s.Transposed, Shape: s.Shape}}
	}
}

// tied returns the parameter that q is; nil: it is its own.
func (g *Graph) tied(q *Parameter) (*Parameter, error) {
	to, tied := g.b.ties[q.Name]
	if !tied {
		return nil, nil
	}
	for _, l := range g.b.model.Layers {
		for i := range l.Nodes {
			for j := range l.Nodes[i].Params {
				if p := &l.Nodes[i].Params[j]; p.Name == to && p.Of == nil && !p.Statistic() && !q.Statistic() && p.Desc.Equal(q.Desc) {
					return p, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("%w: %q is tied to %q, and no earlier layer has that, trained, of %v", ErrGraph, q.Name, to, q.Desc)
}

// start chooses how a parameter starts from the op that it belongs to.
func (b *Builder) start(op kernels.Op, param string) Distribution {
	switch op.(type) {
	case kernels.BatchNorm, kernels.GroupNorm, kernels.LayerNorm, kernels.RMSNorm:
		if param == "weight" || param == "running_var" {
			return Ones
		}
		return Zeros
	case kernels.Embedding:
		return NormalFiftieth
	case kernels.Conv2D, kernels.ConvTranspose2D:
		if param == "weight" {
			return b.ConvStart
		}
	case kernels.Linear:
		if param == "weight" {
			return b.LinearStart
		}
	}
	return b.BiasStart
}

func joined(parts ...string) string {
	var s string
	for _, p := range parts {
		if s != "" && p != "" {
			s += "."
		}
		s += p
	}
	return s
}

// checkTensor refuses tensors without elements and those of maxTensor bytes and more.
func checkTensor(d kernels.Desc) error {
	bytes := uint64(d.DType.Size())
	for _, e := range d.Shape {
		if e < 1 {
			return fmt.Errorf("%w: a tensor of %v has no elements", ErrConfig, d)
		}
		over, low := bits.Mul64(bytes, uint64(e))
		if over != 0 || low >= maxTensor {
			return fmt.Errorf("%w: a tensor of %v is too large", ErrConfig, d)
		}
		bytes = low
	}
	return nil
}

// fail keeps an error about the model's shape, unless there is an earlier one.
func (b *Builder) fail(format string, a ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%w: %s: %s", ErrGraph, b.model.Name, fmt.Sprintf(format, a...))
	}
}

// salt tells the random ops of a model apart; others have none, so that layers that repeat are alike.
func salt(op kernels.Op, layer, node int) uint64 {
	if _, random := op.(kernels.Dropout); !random {
		return 0
	}
	return uint64(layer)<<32 | uint64(node)
}
