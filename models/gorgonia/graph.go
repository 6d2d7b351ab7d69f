// Package gorgonia expresses models as Gorgonia expression graphs, channels first, in float64. Gorgonia then
// differentiates them in its own way: an oracle for our programs, and a way out for who has Gorgonia code.
//
// A model in bfloat16 becomes the function that it rounds: its casts are left out. BatchNorm is written with Gorgonia's elementary ops, not its own, and uses the statistics of the batch.
package gorgonia

import (
	"errors"
	"fmt"

	g "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"plimsoll/kernels"
	"plimsoll/models"
)

// ErrUnsupported: the model has an op or an attribute that Gorgonia lacks; the message names it.
var ErrUnsupported = errors.New("gorgonia has no such op")

// Graph is the training loss of a model as a function of input, labels and parameters.
type Graph struct {
	Graph  *g.ExprGraph
	Input  *g.Node // N, C, H, W
	Labels *g.Node // N, classes: one 1 in each row
	Loss   *g.Node // the mean over the batch
	Params map[string]*g.Node
}

// New returns the graph of a model, whose trained parameters have the given values (our layout: convolution weights
// O, KH, KW, I).
func New(m *models.Model, values func(models.Parameter) []float32) (_ *Graph, err error) {
	graph := g.NewGraph()
	b := &builder{Graph: Graph{Graph: graph, Params: map[string]*g.Node{}}, values: values}
	defer func() {
		if v := recover(); v != nil { // Gorgonia panics at some graphs that it cannot build
			err = fmt.Errorf("%s: gorgonia: %w", m.Name, errors.Join(b.err, fmt.Errorf("%v", v)))
		}
	}()
	b.Input = g.NewTensor(graph, g.Float64, len(m.Input.Shape), g.WithShape(channelsFirst(m.Input.Shape)...), g.WithName("input"))
	b.Labels = g.NewMatrix(graph, g.Float64, g.WithShape(m.Input.Shape[0], m.Classes), g.WithName("labels"))
	x := b.Input
	for _, l := range m.Layers {
		x = b.layer(l, x)
		if b.err != nil {
			return nil, fmt.Errorf("%s: layer %s: %w", m.Name, l.Name, b.err)
		}
	}
	b.Loss = x
	return &b.Graph, nil
}

// channelsFirst turns N, H, W, C into N, C, H, W.
func channelsFirst(s kernels.Shape) []int {
	if len(s) != 4 {
		return s
	}
	return []int{s[0], s[3], s[1], s[2]}
}

// builder adds nodes to a graph; the first error stays.
type builder struct {
	Graph
	values func(models.Parameter) []float32
	err    error
}

// do passes on a node or keeps the error that came in its stead.
func (b *builder) do(n *g.Node, err error) *g.Node {
	if err != nil && b.err == nil {
		b.err = err
	}
	return n
}

func (b *builder) layer(l *models.Layer, x *g.Node) *g.Node {
	values := map[models.Value]*g.Node{models.GraphInput: x, models.GraphLabels: b.Labels}
	for i := range l.Nodes {
		n := &l.Nodes[i]
		in := make([]*g.Node, len(n.In))
		for j, v := range n.In {
			in[j] = values[v]
		}
		y := b.node(n, in)
		if b.err != nil {
			b.err = fmt.Errorf("op %q: %w", n.Name, b.err)
			return nil
		}
		values[models.Value(i+1)] = y
	}
	return values[l.Output()]
}

func (b *builder) node(n *models.Node, in []*g.Node) *g.Node {
	switch op := n.Op.(type) {
	case kernels.Conv2D:
		return b.conv(op.Defaults(), n, in[0])
	case kernels.BatchNorm:
		if op.Frozen {
			return b.unsupported("%s with its running statistics", op.Kind())
		}
		return b.batchNorm(op, n, in)
	case kernels.ReLU:
		if op.Max != 0 {
			return b.unsupported("%s with a maximum", op.Kind())
		}
		return b.do(g.Rectify(in[0]))
	case kernels.Add:
		return b.do(g.Add(in[0], in[1]))
	case kernels.Cast:
		return in[0]
	case kernels.Concat:
		if op.Axis != 0 {
			return b.unsupported("%s along axis %d", op.Kind(), op.Axis)
		}
		return b.do(g.Concat(1, in...))
	case kernels.Pack:
		return b.pack(in)
	case kernels.Slice:
		return b.slice(op.Defaults(), in[0])
	case kernels.Upsample:
		return b.upsample(op.Factor, in[0])
	case kernels.MaxPool:
		if op = op.Defaults(); op.Ceil {
			return b.unsupported("%s whose windows reach beyond the image", op.Kind())
		}
		return b.do(g.MaxPool2D(in[0], tensor.Shape{op.KernelH, op.KernelW}, []int{op.PadH, op.PadW}, []int{op.StrideH, op.StrideW}))
	case kernels.AvgPool:
		if op.Uneven() {
			return b.unsupported("%s of uneven windows", op.Kind())
		}
		return b.avgPool(op.Defaults(), n.Name, in[0])
	case kernels.GlobalAvgPool:
		return b.do(g.Mean(in[0], 2, 3))
	case kernels.Linear:
		return b.linear(n, in[0])
	case kernels.SoftmaxCrossEntropy:
		return b.loss(in[0], in[1])
	}
	return b.unsupported("%s", n.Op.Kind())
}

func (b *builder) unsupported(format string, args ...any) *g.Node {
	return b.do(nil, fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...)))
}

// param makes a node of a parameter's values in the given order of axes.
func (b *builder) param(p models.Parameter, shape []int, order func(i int) int) *g.Node {
	from := b.values(p)
	to := make([]float64, len(from))
	for i := range to {
		to[i] = float64(from[order(i)])
	}
	n := b.tensor(p.Name, shape, to)
	b.Params[p.Name] = n
	return n
}

func (b *builder) tensor(name string, shape []int, values []float64) *g.Node {
	return g.NewTensor(b.Graph.Graph, g.Float64, len(shape), g.WithShape(shape...), g.WithName(name),
		g.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))))
}

func same(i int) int { return i }

// conv is a convolution with one group. Gorgonia's filters are O, I, KH, KW.
func (b *builder) conv(op kernels.Conv2D, n *models.Node, x *g.Node) *g.Node {
	if op.Groups != 1 {
		return b.unsupported("conv2d with %d groups", op.Groups)
	}
	s := n.Params[0].Desc.Shape
	shape := []int{s[0], s[3], s[1], s[2]}
	filter := b.param(n.Params[0], shape, ChannelsLast(s))
	y := b.do(g.Conv2d(x, filter, tensor.Shape{op.KernelH, op.KernelW},
		[]int{op.PadH, op.PadW}, []int{op.StrideH, op.StrideW}, []int{op.DilationH, op.DilationW}))
	if op.Bias {
		bias := b.param(n.Params[1], []int{1, op.Out, 1, 1}, same)
		y = b.do(g.BroadcastAdd(y, bias, nil, perChannel))
	}
	return y
}

// ChannelsLast maps a flat index of a channels-first tensor to that of the same element channels last; s is the
// shape channels last.
func ChannelsLast(s kernels.Shape) func(int) int {
	return func(i int) int {
		w, h, c, o := i%s[2], i/s[2]%s[1], i/s[2]/s[1]%s[3], i/s[2]/s[1]/s[3]
		return ((o*s[1]+h)*s[2]+w)*s[3] + c
	}
}

// perChannel is the axes along which a value per channel is repeated.
var perChannel = []byte{0, 2, 3}

// batchNorm is w (x-mean)/sqrt(variance+epsilon) + b, then the residual and ReLU.
func (b *builder) batchNorm(op kernels.BatchNorm, n *models.Node, in []*g.Node) *g.Node {
	if in[0].Dims() != 4 {
		return b.unsupported("batchnorm of %d axes", in[0].Dims())
	}
	shape := []int{1, in[0].Shape()[1], 1, 1}
	centered := b.do(g.BroadcastSub(in[0], b.channelMean(in[0], shape), nil, perChannel))
	variance := b.channelMean(b.do(g.Square(centered)), shape)
	epsilon := float64(op.Epsilon)
	if epsilon == 0 {
		epsilon = 1e-5
	}
	deviation := b.do(g.Sqrt(b.do(g.Add(variance, g.NewConstant(epsilon)))))
	y := b.do(g.BroadcastHadamardDiv(centered, deviation, nil, perChannel))
	y = b.do(g.BroadcastHadamardProd(y, b.param(n.Params[0], shape, same), nil, perChannel))
	y = b.do(g.BroadcastAdd(y, b.param(n.Params[1], shape, same), nil, perChannel))
	if op.Residual {
		y = b.do(g.Add(y, in[1]))
	}
	if op.ReLU {
		y = b.do(g.Rectify(y))
	}
	return y
}

// channelMean is the mean over all axes but the second.
func (b *builder) channelMean(x *g.Node, shape []int) *g.Node {
	return b.do(g.Reshape(b.do(g.Mean(x, 0, 2, 3)), shape))
}

// avgPool is a convolution with a constant filter that keeps channels apart.
func (b *builder) avgPool(op kernels.AvgPool, name string, x *g.Node) *g.Node {
	c, area := x.Shape()[1], op.KernelH*op.KernelW
	weights := make([]float64, c*c*area)
	for i := range weights {
		if o, k := i/area/c, i/area%c; o == k {
			weights[i] = 1 / float64(area)
		}
	}
	filter := b.tensor(name, []int{c, c, op.KernelH, op.KernelW}, weights)
	return b.do(g.Conv2d(x, filter, tensor.Shape{op.KernelH, op.KernelW},
		[]int{op.PadH, op.PadW}, []int{op.StrideH, op.StrideW}, []int{1, 1}))
}

// rows returns a matrix of so many rows, channels last, as our tensors lie in memory.
func (b *builder) rows(x *g.Node, rows int) *g.Node {
	if x.Dims() == 4 {
		x = b.do(g.Transpose(x, 0, 2, 3, 1))
	}
	return b.do(g.Reshape(x, tensor.Shape{rows, x.Shape().TotalSize() / rows}))
}

// image makes an image, channels first, of rows.
func (b *builder) image(x *g.Node, n, h, w, c int) *g.Node {
	return b.do(g.Transpose(b.do(g.Reshape(x, tensor.Shape{n, h, w, c})), 0, 3, 1, 2))
}

func (b *builder) pack(in []*g.Node) *g.Node {
	rows := make([]*g.Node, len(in))
	for i, x := range in {
		rows[i] = b.rows(x, x.Shape()[0])
	}
	y := b.do(g.Concat(1, rows...))
	return b.image(y, y.Shape()[0], 1, 1, y.Shape()[1])
}

func (b *builder) slice(op kernels.Slice, x *g.Node) *g.Node {
	n, width := x.Shape()[0], op.H*op.W*op.C/op.Rows
	part := b.do(g.Slice(b.rows(x, n*op.Rows), nil, g.S(op.From, op.From+width)))
	return b.image(part, n, op.H, op.W, op.C)
}

// upsample joins each pixel with its copies, then each row.
func (b *builder) upsample(factor int, x *g.Node) *g.Node {
	s := x.Shape() // N, C, H, W
	for _, rows := range []int{s[0] * s[2] * s[3], s[0] * s[2]} {
		copies := make([]*g.Node, factor)
		for i := range copies {
			copies[i] = b.rows(x, rows)
		}
		x = b.do(g.Concat(1, copies...))
	}
	return b.image(x, s[0], factor*s[2], factor*s[3], s[1])
}

// linear is x W^T + b; images are flattened channels last, as ours are.
func (b *builder) linear(n *models.Node, x *g.Node) *g.Node {
	s := n.Params[0].Desc.Shape
	if x.Dims() == 4 {
		x = b.do(g.Reshape(b.do(g.Transpose(x, 0, 2, 3, 1)), tensor.Shape{x.Shape()[0], s[1]}))
	}
	weight := b.param(n.Params[0], []int{s[0], s[1]}, same)
	y := b.do(g.Mul(x, b.do(g.Transpose(weight))))
	if len(n.Params) > 1 {
		y = b.do(g.BroadcastAdd(y, b.param(n.Params[1], []int{1, s[0]}, same), nil, []byte{0}))
	}
	return y
}

// loss is the mean over the batch of log Σ exp(logits) - logits[label].
func (b *builder) loss(logits, labels *g.Node) *g.Node {
	total := b.do(g.Log(b.do(g.Sum(b.do(g.Exp(logits)), 1))))
	picked := b.do(g.Sum(b.do(g.HadamardProd(logits, labels)), 1))
	return b.do(g.Mean(b.do(g.Sub(total, picked))))
}
