package onnx

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"plimsoll/kernels"
)

// ops are the ops that are read, by their names in ONNX: what makes of a node the value of its first output.
var ops map[string]func(c *call) (*value, error)

func init() { // they look each other up
	ops = map[string]func(c *call) (*value, error){
		"Conv": conv, "BatchNormalization": batchNorm, "Relu": elementwise(kernels.ReLU{}),
		"MaxPool": maxPool, "AveragePool": avgPool, "GlobalAveragePool": globalAvgPool, "ReduceMean": reduceMean,
		"Gemm": gemm, "MatMul": matMul, "Transpose": transpose, "Add": add, "Mul": multiply, "Concat": concat, "Flatten": flatten, "Reshape": reshape, "Dropout": dropout, "Identity": identity,
		"Constant": constant, "Shape": shapeOf, "Gather": gather, "Unsqueeze": unsqueeze, "Squeeze": squeeze, "Cast": cast,
	}
}

// make returns what a node makes.
func (m *importer) make(n *node) (*value, error) {
	if !m.knows(n) {
		return nil, fmt.Errorf("the op is not supported")
	}
	c := &call{importer: m, node: n, asked: map[string]bool{}}
	v, err := ops[n.op](c)
	if bad := c.done(); bad != nil { // it says more than what follows from it
		return nil, bad
	}
	return v, err
}

func elementwise(op kernels.Op) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		x, err := c.tensor(0)
		if err != nil {
			return nil, err
		}
		return c.push(c.node, op, as(x), nil, x)
	}
}

// pads returns the padding of rows and columns, the same at both ends.
func (c *call) pads() (h, w int) {
	c.onlyText("auto_pad", "NOTSET")
	p := c.ints("pads", 4, 0)
	if p[0] != p[2] || p[1] != p[3] {
		c.fail("attribute pads is %v, and only as much at both ends is supported", p)
	}
	return p[0], p[1]
}

func conv(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	weight, err := c.param(1, channels1)
	if err != nil {
		return nil, err
	}
	if len(weight.tensor.dims) != 4 {
		return nil, fmt.Errorf("weight %q is of shape %v, want 4 axes", weight.name, weight.tensor.dims)
	}
	sources := []source{weight}
	if c.at(2) != nil {
		bias, err := c.param(2, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, bias)
	}
	kernel := []int{int(weight.tensor.dims[2]), int(weight.tensor.dims[3])}
	if k := c.ints("kernel_shape", 2, 0); k[0] != 0 && !slices.Equal(k, kernel) {
		c.fail("attribute kernel_shape is %v, and the weight's %v", k, kernel)
	}
	strides, dilations := c.ints("strides", 2, 1), c.ints("dilations", 2, 1)
	op := kernels.Conv2D{
		Out: int(weight.tensor.dims[0]), KernelH: kernel[0], KernelW: kernel[1], StrideH: strides[0], StrideW: strides[1],
		DilationH: dilations[0], DilationW: dilations[1], Groups: c.int("group", 1), Bias: len(sources) > 1,
	}
	op.PadH, op.PadW = c.pads()
	return c.push(c.node, op, asImage, sources, x)
}

func batchNorm(c *call) (*value, error) {
	x, err := c.tensor(0, 2, 4)
	if err != nil {
		return nil, err
	}
	var sources []source
	for i := 1; i < 5; i++ {
		s, err := c.param(i, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	c.ignore("training_mode")
	op := kernels.BatchNorm{Epsilon: c.float("epsilon", 1e-5), Momentum: complement(c.float("momentum", 0.9))}
	if !(op.Epsilon > 0) || !(op.Momentum > 0) {
		c.fail("attributes epsilon and momentum are %v and %v, and only positive numbers and less than 1 are supported", op.Epsilon, 1-op.Momentum)
	}
	return c.push(c.node, op, as(x), sources, x)
}

// complement is 1 - x of a number as it is written: 0.1 of 0.9.
func complement(x float32) float32 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil {
		return 0
	}
	return float32(1 - v)
}

// window returns the attributes of a pooling op.
func (c *call) window(x *value) kernels.AvgPool {
	kernel, strides := c.ints("kernel_shape", 2, 0), c.ints("strides", 2, 1)
	for _, d := range c.ints("dilations", 2, 1) {
		if d != 1 {
			c.fail("attribute dilations has %d, and only 1 is supported", d)
		}
	}
	op := kernels.AvgPool{KernelH: kernel[0], KernelW: kernel[1], StrideH: max(strides[0], 1), StrideW: max(strides[1], 1)}
	op.PadH, op.PadW = c.pads()
	over := (x.shape[2]+2*op.PadH-op.KernelH)%op.StrideH != 0 || (x.shape[3]+2*op.PadW-op.KernelW)%op.StrideW != 0
	if c.int("ceil_mode", 0) != 0 && over {
		c.fail("attribute ceil_mode is 1, which is supported where windows end with the image alone: this one is %dx%d, use other images", x.shape[2], x.shape[3])
	}
	return op
}

func maxPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	c.ignore("storage_order")
	return c.push(c.node, kernels.MaxPool(c.window(x)), asImage, nil, x)
}

func avgPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	op := c.window(x)
	if c.int("count_include_pad", 0) == 0 && op.PadH+op.PadW > 0 {
		c.fail("attribute count_include_pad is 0, and only 1 is supported where there are pads")
	}
	if op == (kernels.AvgPool{KernelH: 1, KernelW: 1, StrideH: 1, StrideW: 1}) { // of an adaptive one
		return x, nil
	}
	return c.push(c.node, op, asImage, nil, x)
}

func globalAvgPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	return c.push(c.node, kernels.GlobalAvgPool{}, func(d kernels.Desc) []int { return append(slices.Clone(d.Shape), 1, 1) }, nil, x)
}

// reduceMean is of rows and columns.
func reduceMean(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	c.ignore("noop_with_empty_axes")
	axes, err := c.constants(1, "axes")
	if err != nil {
		return nil, err
	}
	for i := range axes {
		axes[i] = positive(axes[i], 4)
	}
	if slices.Sort(axes); !slices.Equal(axes, []int{2, 3}) {
		return nil, fmt.Errorf("it takes the mean over axes %v, and only over 2 and 3 is supported", axes)
	}
	keep := c.int("keepdims", 1) != 0
	return c.push(c.node, kernels.GlobalAvgPool{}, func(d kernels.Desc) []int {
		if keep {
			return append(slices.Clone(d.Shape), 1, 1)
		}
		return slices.Clone(d.Shape)
	}, nil, x)
}

// positive returns an axis that may be counted from the end.
func positive(axis, axes int) int {
	if axis < 0 {
		return axis + axes
	}
	return axis
}

func gemm(c *call) (*value, error) {
	x, err := c.tensor(0, 2)
	if err != nil {
		return nil, err
	}
	c.only("transA", 0)
	if alpha, beta := c.float("alpha", 1), c.float("beta", 1); alpha != 1 || beta != 1 {
		c.fail("attributes alpha and beta are %v and %v, and only 1 is supported", alpha, beta)
	}
	l := transposed
	if c.int("transB", 0) != 0 {
		l = asIs
	}
	return c.linear(x, l, c.at(2) != nil)
}

// matMul is of a tensor and an initializer.
func matMul(c *call) (*value, error) {
	x, err := c.tensor(0, 2, 3)
	if err != nil {
		return nil, err
	}
	return c.linear(x, transposed, false)
}

// linear is x W^T + b with the node's inputs 1 and 2.
func (c *call) linear(x *value, l layout, biased bool) (*value, error) {
	weight, err := c.param(1, l)
	if err != nil {
		return nil, err
	}
	if len(weight.tensor.dims) != 2 {
		return nil, fmt.Errorf("weight %q is of shape %v, want 2 axes", weight.name, weight.tensor.dims)
	}
	out := weight.tensor.dims[0]
	if weight.layout == transposed {
		out = weight.tensor.dims[1]
	}
	sources := []source{weight}
	if biased {
		bias, err := c.param(2, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, bias)
	}
	return c.push(c.node, kernels.Linear{Out: int(out), Bias: biased, LastAxis: len(x.shape) == 3}, asImage, sources, x)
}

// bias adds an initializer, input i, to the Linear that input j is; false: they are something else.
func (c *call) bias(i, j int) (v *value, is bool, err error) {
	b, x := c.at(i), c.at(j)
	if b == nil || x == nil || b.tensor == nil || x.step == nil || c.reads[c.in[j]] != 1 {
		return nil, false, nil
	}
	op, is := x.step.op.(kernels.Linear)
	if !is || op.Bias {
		return nil, false, nil
	}
	from, err := c.param(i, asIs)
	if err != nil {
		return nil, true, err
	}
	op.Bias = true
	params := op.Params([]kernels.Desc{x.step.in[0].desc})
	if err := c.checkSources(params[1:], []source{from}); err != nil {
		return nil, true, err
	}
	x.step.op, x.step.sources = op, append(x.step.sources, from)
	return x, true, nil
}

// transpose is of an initializer that is a matrix.
func transpose(c *call) (*value, error) {
	c.ints("perm", 2, 0)
	x := c.at(0)
	if x == nil || x.tensor == nil || len(x.tensor.dims) != 2 || x.flipped != "" {
		return nil, fmt.Errorf("only of an initializer that is a matrix is supported")
	}
	if p := c.attributes["perm"]; p != nil && !slices.Equal(p.ints, []int64{1, 0}) {
		return nil, fmt.Errorf("attribute perm is %v, and only [1 0] is supported", p.ints)
	}
	return &value{tensor: x.tensor, flipped: c.in[0]}, nil
}

func add(c *call) (*value, error) {
	if x, y := c.at(0), c.at(1); x != nil && y != nil && x.numbers != nil && y.numbers != nil {
		return arithmetic(x, y, func(a, b float64) float64 { return a + b })
	}
	for i := range 2 {
		if v, is, err := c.bias(i, 1-i); is || err != nil {
			return v, err
		}
	}
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	y, err := c.tensor(1)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(x.shape, y.shape) || x.step == y.step {
		return nil, fmt.Errorf("inputs are %v and %v, and only different ones of equal shapes are supported", x.shape, y.shape)
	}
	return c.push(c.node, kernels.Add{}, as(x), nil, x, y)
}

// multiply is of constants.
func multiply(c *call) (*value, error) {
	x, y := c.at(0), c.at(1)
	if x == nil || y == nil || x.numbers == nil || y.numbers == nil {
		return nil, fmt.Errorf("only of constants is supported")
	}
	return arithmetic(x, y, func(a, b float64) float64 { return a * b })
}

func concat(c *call) (*value, error) {
	axis := c.int("axis", 0)
	if all, constants := c.concatConstants(); constants {
		return all, nil
	}
	var in []*value
	for i := range c.in {
		x, err := c.tensor(i, 2, 4)
		if err != nil {
			return nil, err
		}
		if positive(axis, len(x.shape)) != 1 {
			return nil, fmt.Errorf("attribute axis is %d, and only 1, channels, is supported", axis)
		}
		in = append(in, x)
	}
	return c.join(in)
}

// join is Concat. Where it begins with all that an earlier one joins, as each layer of a DenseNet does, it begins with that one: what
// was joined is joined once, and no other layer keeps the parts.
func (c *call) join(in []*value) (*value, error) {
	if len(in) == 1 {
		return in[0], nil
	}
	var all []*step
	for _, x := range in {
		all = append(all, x.step)
	}
	if was := c.joins[all[0]]; was != nil && len(was.joined) < len(all) && slices.Equal(was.joined, all[:len(was.joined)]) {
		in = append([]*value{{step: was, shape: asImage(was.desc)}}, in[len(was.joined):]...)
	}
	v, err := c.push(c.node, kernels.Concat{}, asImage, nil, in...)
	if err == nil {
		v.step.joined, c.joins[all[0]] = all, v.step
	}
	return v, err
}

// concatConstants joins constants; false: there are others.
func (c *call) concatConstants() (*value, bool) {
	all := &value{numbers: []float64{}}
	for i := range c.in {
		x := c.at(i)
		if x == nil || x.numbers == nil || len(all.numbers) > mostElements {
			return nil, false
		}
		all.numbers = append(all.numbers, x.numbers...)
	}
	all.dims = []int{len(all.numbers)}
	return all, true
}

// flat returns an image as a matrix, channel by channel, as PyTorch flattens it.
func (c *call) flat(x *value) (*value, error) {
	switch d := x.step.desc.Shape; {
	case len(d) == 4:
		return c.push(c.node, kernels.AdaptiveAvgPool{OutH: d[1], OutW: d[2]}, asImage, nil, x)
	case len(d) == 2:
		return &value{step: x.step, shape: slices.Clone(d)}, nil
	}
	return nil, fmt.Errorf("input 0 is %v, which is not flattened", x.shape)
}

func flatten(c *call) (*value, error) {
	c.only("axis", 1)
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	return c.flat(x)
}

func reshape(c *call) (*value, error) {
	allowed := c.int("allowzero", 0) != 0
	if x := c.at(0); x != nil && x.numbers != nil {
		return x, nil
	}
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	to, err := c.constants(1, "shape")
	if err != nil {
		return nil, err
	}
	if allowed && slices.Contains(to, 0) {
		return nil, fmt.Errorf("to %v with allowzero, which has no elements", to)
	}
	want, err := reshaped(x, to, c.batch)
	switch {
	case err != nil:
		return nil, err
	case slices.Equal(want, x.shape):
		return x, nil
	case len(want) == 2 && want[0] == x.shape[0]:
		return c.flat(x)
	case len(x.step.desc.Shape) == 2 && len(want) == 4 && want[1] == x.step.desc.Shape[1] && want[2]*want[3] == 1:
		return &value{step: x.step, shape: want}, nil
	}
	return nil, fmt.Errorf("from %v to %v, and only images to rows of features are supported", x.shape, want)
}

// reshaped returns the shape that a Reshape makes: 0 is the extent that there is, -1 what is left, and the batch of the export the batch.
func reshaped(x *value, to []int, batch int) ([]int, error) {
	want, rest, open := slices.Clone(to), 1, -1
	for _, d := range x.shape {
		rest *= d
	}
	for i, d := range want {
		switch {
		case i == 0 && d == batch && d > 0, d == 0 && i < len(x.shape):
			want[i] = x.shape[i]
		case d == -1 && open < 0:
			open = i
			continue
		case d < 1:
			return nil, fmt.Errorf("a shape of %v is not supported", to)
		}
		if rest%want[i] != 0 {
			return nil, fmt.Errorf("%v has no shape of %v", x.shape, to)
		}
		rest /= want[i]
	}
	switch {
	case open >= 0:
		want[open] = rest
	case rest != 1:
		return nil, fmt.Errorf("%v has no shape of %v", x.shape, to)
	}
	return want, nil
}

// dropout is none outside of training, as the node says.
func dropout(c *call) (*value, error) {
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	c.ignore("seed")
	ratio, training := float64(c.float("ratio", 0.5)), true
	if r := c.at(1); r != nil && len(r.numbers) == 1 {
		ratio = r.numbers[0]
	}
	if len(c.in) > 1 {
		mode := c.at(2)
		training = mode != nil && len(mode.numbers) == 1 && mode.numbers[0] != 0
	}
	if !training || ratio == 0 {
		return x, nil
	}
	return c.push(c.node, kernels.Dropout{P: float32(ratio)}, as(x), nil, x)
}

// identity is its input; an initializer gets a name of its own.
func identity(c *call) (*value, error) { return c.at(0), nil }

func constant(c *call) (*value, error) {
	if a := c.attribute("value"); a != nil && a.tensor != nil {
		return a.tensor.value()
	}
	for _, name := range []string{"value_int", "value_ints", "value_float"} {
		a := c.attribute(name)
		switch {
		case a == nil:
		case name == "value_ints":
			v := &value{numbers: make([]float64, len(a.ints)), dims: []int{len(a.ints)}}
			for i, n := range a.ints {
				v.numbers[i] = float64(n)
			}
			return v, nil
		default:
			return &value{numbers: []float64{float64(a.i) + float64(a.f)}}, nil
		}
	}
	return nil, fmt.Errorf("it has no value that is supported")
}

// What exports compute shapes with.

func shapeOf(c *call) (*value, error) {
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	c.only("start", 0)
	v := &value{dims: []int{len(x.shape)}}
	for _, d := range x.shape {
		v.numbers = append(v.numbers, float64(d))
	}
	return v, nil
}

// gather takes numbers out of a list.
func gather(c *call) (*value, error) {
	c.only("axis", 0)
	x, at := c.at(0), c.at(1)
	if x == nil || at == nil || x.numbers == nil || at.numbers == nil {
		return nil, fmt.Errorf("only of constants is supported")
	}
	v := &value{numbers: []float64{}, dims: at.dims}
	for _, i := range at.numbers {
		k := positive(int(max(min(i, math.MaxInt32), -math.MaxInt32)), len(x.numbers))
		if k < 0 || k >= len(x.numbers) || len(x.dims) != 1 {
			return nil, fmt.Errorf("there is no element %v of shape %v", i, x.dims)
		}
		v.numbers = append(v.numbers, x.numbers[k])
	}
	return v, nil
}

func unsqueeze(c *call) (*value, error) {
	c.ignore("axes")
	x := c.at(0)
	if x == nil || x.numbers == nil || len(x.numbers) != 1 {
		return nil, fmt.Errorf("only of one constant is supported")
	}
	return &value{numbers: x.numbers, dims: []int{1}}, nil
}

// squeeze takes the axes of 1 away, of constants or of N,C,1,1.
func squeeze(c *call) (*value, error) {
	c.ignore("axes")
	x := c.at(0)
	if x != nil && x.numbers != nil && len(x.numbers) == 1 {
		return &value{numbers: x.numbers}, nil
	}
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	axes, err := c.constants(1, "axes")
	if err != nil {
		return nil, err
	}
	for i := range axes {
		axes[i] = positive(axes[i], len(x.shape))
	}
	if slices.Sort(axes); !slices.Equal(axes, []int{2, 3}) || len(x.shape) != 4 || x.shape[2]*x.shape[3] != 1 {
		return nil, fmt.Errorf("axes %v of %v, and only 2 and 3 of N,C,1,1 are supported", axes, x.shape)
	}
	return c.flat(x)
}

// cast leaves constants what they are.
func cast(c *call) (*value, error) {
	c.ignore("to", "saturate")
	if x := c.at(0); x != nil && x.numbers != nil {
		return x, nil
	}
	return nil, fmt.Errorf("only of constants is supported")
}

// arithmetic computes with lists of numbers, or one number with each of a list.
func arithmetic(x, y *value, f func(a, b float64) float64) (*value, error) {
	n := max(len(x.numbers), len(y.numbers))
	if len(x.numbers) != n && len(x.numbers) != 1 || len(y.numbers) != n && len(y.numbers) != 1 {
		return nil, fmt.Errorf("constants of %d and %d elements", len(x.numbers), len(y.numbers))
	}
	v := &value{numbers: make([]float64, n), dims: x.dims}
	if len(y.numbers) == n {
		v.dims = y.dims
	}
	for i := range n {
		v.numbers[i] = f(x.numbers[i%len(x.numbers)], y.numbers[i%len(y.numbers)])
	}
	return v, nil
}
