package importer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/kernels"
)

// reader makes of a node of one op the value of its first output.
type reader struct {
	read       func(c *call) (*value, error)
	attributes []string // that it reads, or may ignore
}

// ops are the ops that are read, by their names in ONNX.
var ops map[string]reader

func init() { // they look each other up
	const window = "auto_pad dilations kernel_shape pads strides "
	ops = map[string]reader{
		"Conv": of(conv, window+"group"), "MaxPool": of(maxPool, window+"ceil_mode storage_order"), "AveragePool": of(avgPool, window+"ceil_mode count_include_pad"),
		"BatchNormalization": of(batchNormalization, "epsilon momentum training_mode"), "LayerNormalization": of(layerNorm, "axis epsilon stash_type"),
		"batch_norm": of(batchNorm, "epsilon momentum"), "rms_norm": of(rmsNorm, "epsilon"), "linear": of(linearOf, ""), "silu": of(elementwise(kernels.SiLU{}), ""),
		"adaptive_avg_pool": of(adaptiveAvgPool, "output_size"), "attention": of(attentionOf, "causal grouped scale"),
		"Relu": of(elementwise(kernels.ReLU{}), ""), "Clip": of(clip, "min max"), "Gelu": of(gelu, "approximate"),
		"GlobalAveragePool": of(globalAvgPool, ""), "ReduceMean": of(reduceMean, "axes keepdims noop_with_empty_axes"),
		"Gemm": of(gemm, "alpha beta transA transB"), "MatMul": of(matMul, ""), "Transpose": of(transpose, "perm"), "Add": of(add, ""), "Concat": of(concat, "axis"),
		"Flatten": of(flatten, "axis"), "Reshape": of(reshape, "allowzero shape"), "Dropout": of(dropout, "ratio seed"), "Identity": of(identity, ""),
		"Softmax": of(softmax, "axis"), "Split": of(split, "axis num_outputs split"), "Slice": of(sliced, ""), "Gather": of(gather, "axis"),
		"Unsqueeze": of(unsqueeze, "axes"), "Squeeze": of(squeeze, "axes"), "Cast": of(cast, "saturate to"),
		"Mul": of(product, ""), "Div": of(quotient, ""), "Sub": of(ofTwo(func(x, y float64) float64 { return x - y }, nil), ""), "Pow": of(ofTwo(math.Pow, nil), ""),
		"Erf": of(ofOne(math.Erf), ""), "Tanh": of(ofOne(math.Tanh), ""), "Sqrt": of(ofOne(math.Sqrt), ""), "Exp": of(ofOne(math.Exp), ""),
		"Neg":      of(ofOne(func(x float64) float64 { return -x }), ""),
		"Sigmoid":  of(ofOne(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }), ""),
		"Constant": of(constant, "value value_float value_int value_ints"), "ConstantOfShape": of(constantOfShape, "value"), "Shape": of(shapeOf, "start"),
		"Expand": of(expand, ""), "Range": of(ranged, ""), "Trilu": of(trilu, "upper"), "Where": of(where, ""), "Not": of(not, ""), "Mod": of(mod, "fmod"),
		"cumsum": of(cumSum, "axis"), "index": of(indexed, ""), "not_equal": of(truth(func(x, y float64) bool { return x != y }), ""),
		"And": of(truth(func(x, y float64) bool { return x != 0 && y != 0 }), ""), "Or": of(truth(func(x, y float64) bool { return x != 0 || y != 0 }), ""),
		"Equal": of(truth(func(x, y float64) bool { return x == y }), ""), "Less": of(truth(func(x, y float64) bool { return x < y }), ""),
		"Greater":        of(truth(func(x, y float64) bool { return x > y }), ""),
		"LessOrEqual":    of(truth(func(x, y float64) bool { return x <= y }), ""),
		"GreaterOrEqual": of(truth(func(x, y float64) bool { return x >= y }), ""),
	}
}

// of is a reader of the attributes that a text lists.
func of(read func(c *call) (*value, error), attributes string) reader {
	return reader{read, strings.Fields(attributes)}
}

func elementwise(op kernels.Op) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		x, err := c.tensor(0)
		if err != nil {
			return nil, err
		}
		return c.push(c.Node, op, as(x), nil, x)
	}
}

// clip is a ReLU with a maximum, such as ReLU6.
func clip(c *call) (*value, error) {
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	bounds := [2]float64{math.Inf(-1), math.Inf(1)}
	for i, name := range []string{"min", "max"} {
		if a := c.attribute(name); a != nil { // of opset 10 and before
			bounds[i] = float64(a.F)
		}
		if v := c.at(i + 1); v != nil {
			if len(v.numbers) != 1 {
				return nil, fmt.Errorf("input %d, %s, is no constant", i+1, name)
			}
			bounds[i] = v.numbers[0]
		}
	}
	if bounds[0] != 0 || !(bounds[1] > 0) {
		return nil, fmt.Errorf("to %v to %v, and only from 0 to a positive number is supported", bounds[0], bounds[1])
	}
	op := kernels.ReLU{}
	if !math.IsInf(bounds[1], 1) {
		op.Max = float32(bounds[1])
	}
	return c.push(c.Node, op, as(x), nil, x)
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
	if len(weight.tensor.Dims) != 4 {
		return nil, fmt.Errorf("weight %q is of shape %v, want 4 axes", weight.name, weight.tensor.Dims)
	}
	sources := []source{weight}
	if c.at(2) != nil {
		bias, err := c.param(2, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, bias)
	}
	kernel := []int{int(weight.tensor.Dims[2]), int(weight.tensor.Dims[3])}
	if k := c.ints("kernel_shape", 2, 0); k[0] != 0 && !slices.Equal(k, kernel) {
		c.fail("attribute kernel_shape is %v, and the weight's %v", k, kernel)
	}
	strides, dilations, groups := c.counts("strides", 2), c.counts("dilations", 2), c.int("group", 1)
	if groups < 1 {
		c.fail("attribute group is %d, want a number from 1", groups)
	}
	op := kernels.Conv2D{
		Out: int(weight.tensor.Dims[0]), KernelH: kernel[0], KernelW: kernel[1], StrideH: strides[0], StrideW: strides[1],
		DilationH: dilations[0], DilationW: dilations[1], Groups: groups, Bias: len(sources) > 1,
	}
	op.PadH, op.PadW = c.pads()
	return c.push(c.Node, op, asImage, sources, x)
}

// batchNormalization has ONNX's momentum, the share that running statistics keep.
func batchNormalization(c *call) (*value, error) {
	if c.int("training_mode", 0) == 0 && !c.trains() {
		return nil, fmt.Errorf("training_mode is 0, so it computes with its running statistics, and training here computes with those of the batch%s", c.Advice.Frozen)
	}
	return c.batchNorm(c.float("epsilon", 1e-5), complement(c.float("momentum", 0.9)))
}

// batchNorm has PyTorch's momentum, the share of the batch.
func batchNorm(c *call) (*value, error) {
	return c.batchNorm(c.float("epsilon", 1e-5), c.float("momentum", 0.1))
}

func (c *call) batchNorm(epsilon, momentum float32) (*value, error) {
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
	if !(epsilon > 0) || !(momentum > 0 && momentum <= 1) {
		c.fail("epsilon is %v and the share of the batch in the running statistics is %v, and only positive ones are supported, the latter up to 1", epsilon, momentum)
	}
	return c.push(c.Node, kernels.BatchNorm{Epsilon: epsilon, Momentum: momentum}, as(x), sources, x)
}

// trains reports whether a BatchNorm has the outputs that it had for training before it had an attribute for that.
func (c *call) trains() bool { return c.Attributes["training_mode"] == nil && len(c.Out) > 1 }

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
	kernel, strides := c.ints("kernel_shape", 2, 0), c.counts("strides", 2)
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
	return c.push(c.Node, kernels.MaxPool(c.window(x)), asImage, nil, x)
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
	return c.push(c.Node, op, asImage, nil, x)
}

func globalAvgPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	return c.push(c.Node, kernels.GlobalAvgPool{}, func(d kernels.Desc) []int { return append(slices.Clone(d.Shape), 1, 1) }, nil, x)
}

// adaptiveAvgPool takes the mean of as many windows as it is told.
func adaptiveAvgPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	out := c.ints("output_size", 2, 0)
	h, w := out[0], out[1]
	switch {
	case h == 1 && w == 1:
		return globalAvgPool(c)
	case h < 1 || w < 1:
		return nil, fmt.Errorf("attribute output_size is %v, and only positive numbers are supported", out)
	case h == x.shape[2] && w == x.shape[3]:
		return x, nil
	case x.shape[2]%h == 0 && x.shape[3]%w == 0:
		return c.push(c.Node, kernels.AvgPool{KernelH: x.shape[2] / h, KernelW: x.shape[3] / w}, asImage, nil, x)
	}
	shape := append(slices.Clone(x.shape[:2]), h, w)
	return c.push(c.Node, kernels.AdaptiveAvgPool{OutH: h, OutW: w}, func(kernels.Desc) []int { return shape }, nil, x)
}

// reduceMean is of rows and columns.
func reduceMean(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
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
	return c.push(c.Node, kernels.GlobalAvgPool{}, func(d kernels.Desc) []int {
		if keep {
			return append(slices.Clone(d.Shape), 1, 1)
		}
		return slices.Clone(d.Shape)
	}, nil, x)
}

func gemm(c *call) (*value, error) {
	x, seen, err := c.rows(2)
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
	y, err := c.linear(x, l, c.at(2) != nil)
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}

// matMul is of a tensor and an initializer, or a part of attention.
func matMul(c *call) (*value, error) {
	if y := c.at(1); y != nil && y.shape != nil {
		return headProduct(c)
	}
	x, seen, err := c.rows(2, 3)
	if err != nil {
		return nil, err
	}
	y, err := c.linear(x, transposed, false)
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}

// linearOf is of rows, with a weight as a Linear has it.
func linearOf(c *call) (*value, error) {
	x, seen, err := c.rows(2, 3)
	if err != nil {
		return nil, err
	}
	y, err := c.linear(x, asIs, c.at(2) != nil)
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}

// linear is x W^T + b with the node's inputs 1 and 2.
func (c *call) linear(x *value, l layout, biased bool) (*value, error) {
	weight, err := c.param(1, l)
	if err != nil {
		return nil, err
	}
	if len(weight.tensor.Dims) != 2 {
		return nil, fmt.Errorf("weight %q is of shape %v, want 2 axes", weight.name, weight.tensor.Dims)
	}
	out := weight.tensor.Dims[0]
	if weight.layout == transposed {
		out = weight.tensor.Dims[1]
	}
	if of := c.used[weight.name]; of != nil && !biased && weight.layout == asIs {
		_, weight.tied = of.op.(kernels.Embedding)
	}
	sources := []source{weight}
	if biased {
		bias, err := c.param(2, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, bias)
	}
	return c.push(c.Node, kernels.Linear{Out: int(out), Bias: biased, LastAxis: len(x.shape) == 3}, asImage, sources, x)
}

// bias adds an initializer, input i, to the Linear that input j is; false: they are something else.
func (c *call) bias(i, j int) (v *value, is bool, err error) {
	b, x := c.at(i), c.at(j)
	s := x.base()
	if b == nil || s == nil || b.tensor == nil || len(b.tensor.Dims) != 1 {
		return nil, false, nil
	}
	op, is := s.op.(kernels.Linear)
	switch alone := is && s.reads == 1 && x.hasRows(); {
	case !is || op.Bias || !alone && isNumber(b):
		return nil, false, nil
	case !alone:
		return nil, true, fmt.Errorf("%q is added to %v of a linear layer: only along the layer's last axis, where nothing else reads its output, is supported",
			c.In[i], x.shape)
	}
	from, err := c.param(i, asIs)
	if err != nil {
		return nil, true, err
	}
	op.Bias = true
	return x, true, c.widen(s, op, from)
}

// positions adds what input i has for each position to the Embedding that input j is; false: they are something else.
func (c *call) positions(i, j int) (v *value, is bool, err error) {
	p, x := c.at(i), c.at(j)
	if p == nil || x == nil || p.table == nil || x.step == nil {
		return nil, false, nil
	}
	op, is := x.step.op.(kernels.Embedding)
	if !is || op.Positions > 0 || x.step.reads != 1 || p.table.rows != x.shape[1] {
		return nil, true, fmt.Errorf("%d rows of %q are added to %v: only one for each token's position, to an embedding that nothing else reads, is supported",
			p.table.rows, p.table.name, x.shape)
	}
	op.Positions = int(p.table.tensor.Dims[0])
	return x, true, c.widen(x.step, op, p.table.source)
}

// widen gives a step's op one more parameter.
func (c *call) widen(s *step, op kernels.Op, from source) error {
	in := []kernels.Desc{s.in[0].desc}
	if _, err := op.Infer(in); err != nil {
		return err
	}
	if err := c.checkSources(op.Params(in)[len(s.sources):], []source{from}); err != nil {
		return err
	}
	s.op, s.sources = op, append(s.sources, from)
	c.take(s, []source{from})
	return nil
}

// gelu is GELU, exact or by tanh.
func gelu(c *call) (*value, error) {
	how := ""
	if a := c.attribute("approximate"); a != nil {
		how = a.S
	}
	if how != "" && how != "none" && how != "tanh" {
		c.fail("attribute approximate is %s, and only none and tanh are supported", how)
	}
	return elementwise(kernels.GELU{Tanh: how == "tanh"})(c)
}

func add(c *call) (*value, error) {
	for i := range 2 {
		if v, is, err := c.bias(i, 1-i); is || err != nil {
			return v, err
		}
		if v, is, err := c.positions(i, 1-i); is || err != nil {
			return v, err
		}
		if x, y := c.at(i), c.at(1-i); x != nil && y != nil && x.scores != nil && y.asMask() != nil {
			return c.masked(x, y.asMask())
		}
	}
	return ofTwo(func(x, y float64) float64 { return x + y }, kernels.Add{})(c)
}

func concat(c *call) (*value, error) {
	axis := c.int("axis", 0)
	if all, constant := c.constantInputs(len(c.In)); constant && len(all) > 0 && !slices.ContainsFunc(all, func(v *value) bool { return v.numbers == nil }) {
		return joined(listed(all), axis)
	}
	var in []*value
	for i := range c.In {
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

// listed makes lists of one of numbers without axes, as symbols are.
func listed(all []*value) []*value {
	for i, v := range all {
		if len(v.dims) == 0 && len(v.numbers) == 1 {
			all[i] = &value{numbers: v.numbers, dims: []int{1}}
		}
	}
	return all
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
	v, err := c.push(c.Node, kernels.Concat{}, asImage, nil, in...)
	if err == nil {
		v.step.joined, c.joins[all[0]] = all, v.step
	}
	return v, err
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
	x := c.at(0)
	switch {
	case x != nil && x.numbers != nil:
		return c.reshapedConstant(x)
	case x == nil || x.shape == nil:
		return nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
	}
	to, err := c.constants(1, "shape")
	if err != nil {
		return nil, err
	}
	if allowed && slices.Contains(to, 0) {
		return nil, fmt.Errorf("to %v with allowzero, which has no elements", to)
	}
	want, err := reshaped(x, c.batched(to))
	if err != nil {
		want, err = reshaped(x, to)
	}
	switch {
	case err != nil:
		return nil, err
	case slices.Equal(want, x.shape):
		return x, nil
	case x.scores == nil && len(want) <= MostAxes && (x.step == nil || len(x.step.desc.Shape) == 3):
		return c.reordered(want)
	case x.step == nil:
		return nil, fmt.Errorf("of scores from %v to %v is not supported", x.shape, want)
	case len(want) == 2 && want[0] == x.shape[0]:
		return c.flat(x)
	case len(x.step.desc.Shape) == 2 && len(want) == 4 && want[1] == x.step.desc.Shape[1] && want[2]*want[3] == 1:
		return &value{step: x.step, shape: want}, nil
	}
	return nil, fmt.Errorf("from %v to %v, and only images to rows of features are supported", x.shape, want)
}

// reshapedConstant is a constant with other axes.
func (c *call) reshapedConstant(x *value) (*value, error) {
	to, err := c.constants(1, "shape")
	if err != nil {
		return nil, err
	}
	dims, err := reshaped(&value{shape: x.dims}, to)
	if err != nil || len(dims) > MostAxes {
		return nil, fmt.Errorf("a constant of %v to %v: %w", x.dims, to, errors.Join(err))
	}
	return &value{numbers: x.numbers, dims: dims}, nil
}

// batched returns a shape with the batch in place of that of the export.
func (c *call) batched(to []int) []int {
	to = slices.Clone(to)
	if len(to) > 0 && to[0] == c.batch && c.batch > 0 {
		to[0] = c.config.Batch
	}
	return to
}

// reshaped returns the shape that a Reshape makes: 0 is the extent that there is, -1 what is left.
func reshaped(x *value, to []int) ([]int, error) {
	want, rest, open := slices.Clone(to), 1, -1
	for _, d := range x.shape {
		rest *= d
	}
	for i, d := range want {
		switch {
		case d == 0 && i < len(x.shape):
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
	ratio, training := float64(c.float("ratio", 0.5)), true
	if r := c.at(1); r != nil && len(r.numbers) == 1 {
		ratio = r.numbers[0]
	}
	if len(c.In) > 1 {
		mode := c.at(2)
		training = mode != nil && len(mode.numbers) == 1 && mode.numbers[0] != 0
	}
	if !training || ratio == 0 {
		return c.at(0), nil
	}
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	return c.push(c.Node, kernels.Dropout{P: float32(ratio)}, as(x), nil, x)
}

// identity is its input; an initializer gets a name of its own.
func identity(c *call) (*value, error) { return c.at(0), nil }

func constant(c *call) (*value, error) {
	if a := c.attribute("value"); a != nil && a.Tensor != nil {
		return a.Tensor.value()
	}
	for _, name := range []string{"value_int", "value_ints", "value_float"} {
		a := c.attribute(name)
		switch {
		case a == nil:
		case name == "value_ints":
			v := &value{numbers: make([]float64, len(a.Ints)), dims: []int{len(a.Ints)}}
			for i, n := range a.Ints {
				v.numbers[i] = float64(n)
			}
			return v, nil
		default:
			return &value{numbers: []float64{float64(a.I) + float64(a.F)}}, nil
		}
	}
	return nil, fmt.Errorf("it has no value that is supported")
}
