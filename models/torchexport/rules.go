package torchexport

import (
	"math"
	"slices"
	"strings"

	"plimsoll/models/importer"
)

// rules lower ops, by their names without overload, or as targets where an overload is an op of its own. A rule returns the names of what
// the node makes. Arguments that it does not read are refused, and those that are left out have the defaults of PyTorch's schemas.
var rules map[string]func(c *call) []string

func init() { // they look each other up
	rules = map[string]func(c *call) []string{
		"conv2d": one(conv2d), "linear": one(linear), "addmm": one(addmm),
		"layer_norm": one(layerNorm), "rms_norm": one(rmsNorm),
		"matmul": one(plain("MatMul", "self", "other")), "mm": one(plain("MatMul", "self", "mat2")), "bmm": one(plain("MatMul", "self", "mat2")),
		"embedding": one(embedding), "scaled_dot_product_attention": one(attention), "softmax": one(softmax), "dropout": one(dropout),
		"relu": one(plain("Relu", "self")), "relu6": one(relu6), "hardtanh": one(hardtanh), "gelu": one(gelu), "silu": one(plain("silu", "self")),
		"hardswish": one(plain("hard_swish", "self")), "hardsigmoid": one(plain("hard_sigmoid", "self")),
		"max_pool2d": one(maxPool), "avg_pool2d": one(avgPool), "adaptive_avg_pool2d": one(adaptiveAvgPool), "mean": one(mean),
		"pad": one(pad), "roll": one(roll), "einsum": one(einsum), "upsample_bilinear2d": one(upsampled(false)), "upsample_nearest2d": one(upsampled(true)),
		"fill_": one(fill(true)), "zero_": one(fill(false)),

		"add": one(sum), "addcmul": one(addcmul), "sub": one(difference), "mul": one(withOther("Mul")), "div": one(quotient), "pow": one(power), "neg": one(plain("Neg", "self")),
		"erf": one(plain("Erf", "self")), "tanh": one(plain("Tanh", "self")), "sqrt": one(plain("Sqrt", "self")), "rsqrt": one(plain("rsqrt", "self")),
		"cos": one(plain("Cos", "self")), "sin": one(plain("Sin", "self")), "exp": one(plain("Exp", "self")),
		"sigmoid": one(plain("Sigmoid", "self")), "masked_fill": one(maskedFill), "where": one(plain("Where", "condition", "self", "other")),
		"eq": one(withOther("Equal")), "lt": one(withOther("Less")), "gt": one(withOther("Greater")),
		"le": one(withOther("LessOrEqual")), "ge": one(withOther("GreaterOrEqual")),
		"ne": one(withOther("not_equal")), "__and__": one(ofBools(withOther("And"))), "__or__": one(ofBools(withOther("Or"))),
		"logical_and": one(withOther("And")), "logical_or": one(withOther("Or")),
		"bitwise_and": one(ofBools(withOther("And"))), "bitwise_or": one(ofBools(withOther("Or"))),
		"diff": one(diff), "cumsum": one(cumSum), "gather": one(gather),
		"logical_not": one(plain("Not", "self")), "bitwise_not": one(ofBools(plain("Not", "self"))),

		"cat": one(cat), "flatten": one(flatten), "view": one(reshape("size")), "reshape": one(reshape("shape")), "_unsafe_view": one(reshape("size")),
		"unflatten": one(unflatten), "permute": one(permute), "transpose": one(transpose), "swapaxes": one(swapaxes), "t": one(matrixTransposed),
		"unsqueeze": one(unsqueeze), "squeeze": one(squeeze), "slice": one(slice), "select": one(selected), "split": parts, "split_with_sizes": parts,
		"chunk": parts, "unbind": unbind, "expand": one(expand),
		"contiguous": one(same), "alias": one(same), "clone": one(same), "to": one(to),

		"arange": one(arange), "full": one(full), "zeros": one(filled(0)), "ones": one(filled(1)), "new_ones": one(filled(1)),
		"new_zeros": one(filled(0)), "triu": one(triangle(1)), "tril": one(triangle(0)), "sym_size": one(symSize),
		"_operator.mul": one(symbols("Mul")), "_operator.add": one(symbols("Add")), "_operator.sub": one(symbols("Sub")),
	}
	for _, op := range strings.Fields("relu relu6 hardtanh hardswish hardsigmoid silu add sub mul div dropout") {
		rules[op+"_"] = rules[op] // in-place ops make what the others make: see aliases
	}
	rules["torch.ops.aten.conv2d.padding"] = one(conv2dPadding)
}

func one(rule func(c *call) string) func(c *call) []string {
	return func(c *call) []string { return []string{rule(c)} }
}

// plain is an op that the importer has, of tensors alone.
func plain(op string, tensors ...string) func(c *call) string {
	return func(c *call) string {
		var in []string
		for _, name := range tensors {
			in = append(in, c.tensor(name))
		}
		return c.emit(op, nil, in...)
	}
}

// withOther is an op of a tensor and a tensor or a number.
func withOther(op string) func(c *call) string {
	return func(c *call) string { return c.emit(op, nil, c.operand("self"), c.operand("other")) }
}

// ofBools refuses an op on bits of anything but truth values, where it is one on truth values.
func ofBools(rule func(c *call) string) func(c *call) string {
	return func(c *call) string {
		for _, name := range []string{"self", "other"} {
			if a, given := c.args[name]; given && !c.isBool(a) {
				c.fail("argument %s is of no bool, and bits of numbers are not supported: want logical_and, logical_or or logical_not", name)
			}
		}
		return rule(c)
	}
}

// isBool reports whether an argument is a truth value, or a tensor of them.
func (c *call) isBool(a argument) bool {
	value, err := a.name()
	if err != nil {
		return a.kind == "as_bool"
	}
	m, err := c.meta(value)
	return err == nil && dtypes[m.DType] == importer.Bool
}

// same is an op that changes no element.
func same(c *call) string {
	c.ignore("memory_format")
	return c.tensor("self")
}

// to is a conversion to a type.
func to(c *call) string {
	c.ignore("memory_format", "non_blocking", "copy", "device", "layout", "pin_memory")
	dtype := int64(0)
	if !c.decode("dtype", &dtype, "as_scalar_type") { // to another device alone
		return c.tensor("self")
	}
	return c.emit("Cast", attributes{"to": number(int64(dtypes[dtype]))}, c.tensor("self"))
}

func conv2d(c *call) string {
	p := c.pair("padding", 0, 0)
	return c.conv(attributes{"pads": numbers(p[0], p[1], p[0], p[1])})
}

// conv2dPadding is a convolution whose padding is a word.
func conv2dPadding(c *call) string {
	how := c.text("padding", "valid")
	if how == "valid" {
		return c.conv(attributes{})
	}
	kernel, dilation := c.sizes("weight"), c.pair("dilation", 1, 1)
	if len(kernel) != 4 || how != "same" {
		c.fail("padding %.40q of a weight of %v is not supported", how, kernel)
		return ""
	}
	h, w := dilation[0]*(kernel[2]-1), dilation[1]*(kernel[3]-1)
	if h%2 != 0 || w%2 != 0 {
		c.fail("padding 'same' of an even kernel is not the same at both ends, which is not supported")
	}
	return c.conv(attributes{"pads": numbers(h/2, w/2, h/2, w/2)})
}

// conv adds a convolution's other attributes.
func (c *call) conv(a attributes) string {
	a["strides"], a["dilations"], a["group"] = numbers(c.pair("stride", 1, 1)...), numbers(c.pair("dilation", 1, 1)...), number(c.int("groups", 1))
	return c.emit("Conv", a, c.tensor("input"), c.tensor("weight"), c.tensor("bias"))
}

func linear(c *call) string {
	return c.emit("linear", nil, c.tensor("input"), c.tensor("weight"), c.tensor("bias"))
}

func addmm(c *call) string {
	a := attributes{"beta": decimal(c.float("beta", 1)), "alpha": decimal(c.float("alpha", 1))}
	return c.emit("Gemm", a, c.tensor("mat1"), c.tensor("mat2"), c.tensor("self"))
}

// lastAxis refuses norms of several axes.
func (c *call) lastAxis() {
	if shape := c.ints("normalized_shape"); len(shape) != 1 {
		c.fail("argument normalized_shape is %v, and only the last axis is supported", shape)
	}
}

func layerNorm(c *call) string {
	c.ignore("cudnn_enable")
	c.lastAxis()
	a := attributes{"axis": number(-1), "epsilon": decimal(c.float("eps", 1e-5))}
	in := []string{c.tensor("input"), c.tensor("weight"), c.tensor("bias")}
	return c.emit("LayerNormalization", a, in...)
}

// epsilonOfFloat32 is the default epsilon of a norm: the distance from 1 to the next float32.
const epsilonOfFloat32 = 1.0 / (1 << 23)

func rmsNorm(c *call) string {
	c.lastAxis()
	return c.emit("rms_norm", attributes{"epsilon": decimal(c.float("eps", epsilonOfFloat32))}, c.tensor("input"), c.tensor("weight"))
}

func embedding(c *call) string {
	if c.bool("scale_grad_by_freq", false) || c.bool("sparse", false) {
		c.fail("arguments scale_grad_by_freq and sparse are not supported")
	}
	return c.emit("Gather", attributes{"axis": number(0), "fixed": number(c.int("padding_idx", -1))}, c.tensor("weight"), c.tensor("indices"))
}

func attention(c *call) string {
	if p := c.float("dropout_p", 0); p != 0 {
		c.fail("argument dropout_p is %v, and weights of attention that are dropped out are not supported: build the model with dropout=0 there", p)
	}
	in := []string{c.tensor("query"), c.tensor("key"), c.tensor("value")}
	if mask := c.tensor("attn_mask"); mask != "" {
		in = append(in, c.added(mask))
	}
	a := attributes{"causal": flag(c.bool("is_causal", false)), "grouped": flag(c.bool("enable_gqa", false))}
	if _, given := c.argument("scale"); given {
		a["scale"] = decimal(c.float("scale", 0))
	}
	return c.emit("attention", a, in...)
}

// added returns a mask as numbers that are added: one of truth values says what is seen.
func (c *call) added(mask string) string {
	if !c.isBool(c.args["attn_mask"]) {
		return mask
	}
	return c.emit("Where", nil, mask, c.constant(0), c.constant(math.Inf(-1)))
}

func softmax(c *call) string {
	return c.emit("Softmax", attributes{"axis": number(c.int("dim", -1))}, c.tensor("self"))
}

func dropout(c *call) string {
	in := "input"
	if _, given := c.args[in]; !given {
		in = "self"
	}
	p := c.float("p", 0.5)
	if !c.bool("train", false) || p == 0 {
		return c.tensor(in)
	}
	return c.emit("Dropout", attributes{"ratio": decimal(p)}, c.tensor(in))
}

func gelu(c *call) string {
	return c.emit("Gelu", attributes{"approximate": texts(c.text("approximate", "none"))}, c.tensor("self"))
}

func relu6(c *call) string {
	return c.emit("Clip", attributes{"min": decimal(0), "max": decimal(6)}, c.tensor("self"))
}

func hardtanh(c *call) string {
	return c.emit("Clip", attributes{"min": decimal(c.float("min_val", -1)), "max": decimal(c.float("max_val", 1))}, c.tensor("self"))
}

// window returns the attributes of a pool.
func (c *call) window() attributes {
	kernel := c.pair("kernel_size")
	p := c.pair("padding", 0, 0)
	return attributes{
		"kernel_shape": numbers(kernel...), "strides": numbers(c.pair("stride", kernel...)...), "pads": numbers(p[0], p[1], p[0], p[1]),
		"ceil_mode": flag(c.bool("ceil_mode", false)),
	}
}

func maxPool(c *call) string {
	a := c.window()
	a["dilations"] = numbers(c.pair("dilation", 1, 1)...)
	return c.emit("MaxPool", a, c.tensor("self"))
}

func avgPool(c *call) string {
	if _, given := c.argument("divisor_override"); given {
		c.fail("argument divisor_override is not supported")
	}
	a := c.window()
	a["count_include_pad"] = flag(c.bool("count_include_pad", true))
	return c.emit("AveragePool", a, c.tensor("self"))
}

func adaptiveAvgPool(c *call) string {
	return c.emit("adaptive_avg_pool", attributes{"output_size": numbers(c.pair("output_size")...)}, c.tensor("self"))
}

// mean is of axes.
func mean(c *call) string {
	c.refuseDType()
	c.refuseWhole("mean")
	return c.emit("ReduceMean", attributes{"axes": numbers(c.ints("dim")...), "keepdims": flag(c.bool("keepdim", false))}, c.tensor("self"))
}

// refuseWhole refuses a reduction of all axes: a number of the whole batch.
func (c *call) refuseWhole(what string) {
	if _, given := c.argument("dim"); !given && c.rank() > 0 {
		c.fail("the %s of all axes, the batch's too, is not supported: return logits, as the loss is computed here, or name axes of a sample", what)
	}
}

// refuseDType refuses a result of another type than float32.
func (c *call) refuseDType() {
	if t := int64(7); c.decode("dtype", &t, "as_scalar_type") && dtypes[t] != importer.Float32 {
		c.fail("argument dtype is %d of PyTorch, and only float32 (7) is supported", t)
	}
}

// scaledBy refuses a sum or difference whose second part is multiplied.
func (c *call) scaledBy() {
	if by := c.float("alpha", 1); by != 1 {
		c.fail("argument alpha is %v, and only 1 is supported", by)
	}
}

func sum(c *call) string {
	c.scaledBy()
	return withOther("Add")(c)
}

func difference(c *call) string {
	c.scaledBy()
	return withOther("Sub")(c)
}

func quotient(c *call) string {
	if _, given := c.argument("rounding_mode"); given {
		c.fail("argument rounding_mode is not supported")
	}
	return withOther("Div")(c)
}

func power(c *call) string { return c.emit("Pow", nil, c.operand("self"), c.operand("exponent")) }

func maskedFill(c *call) string {
	return c.emit("Where", nil, c.tensor("mask"), c.operand("value"), c.tensor("self"))
}

func cat(c *call) string {
	a, given := c.argument("tensors")
	if !given || a.kind != "as_tensors" {
		c.fail("argument tensors is no list of tensors")
	}
	var in []string
	values := a.list()
	for _, value := range values {
		in = append(in, c.names[value])
	}
	axis := c.int("dim", 0)
	if len(values) > 0 && axis < 0 {
		all, err := c.extents(values[0])
		if err != nil {
			c.fail("argument tensors: %w", err)
		}
		axis += int64(len(all))
	}
	return c.emit("Concat", attributes{"axis": number(axis)}, in...)
}

// reshaped emits a Reshape to a shape: 0 stands for the extent that there is.
func (c *call) reshaped(shape []int64) string {
	return c.emit("Reshape", attributes{"shape": numbers(shape...)}, c.tensor("self"))
}

func reshape(shape string) func(c *call) string {
	return func(c *call) string {
		if slices.Contains(c.fixedInts(shape), 0) {
			c.fail("argument %s has a 0: a tensor without elements", shape)
		}
		return c.emit("Reshape", nil, c.tensor("self"), c.numbers(shape))
	}
}

// fixedInts returns a list that may be of symbols: then nothing.
func (c *call) fixedInts(name string) []int64 {
	if c.args[name].kind != "as_ints" {
		return nil
	}
	return c.ints(name)
}

// kept returns the shape of a Reshape that leaves all axes as they are.
func (c *call) kept() []int64 { return make([]int64, c.rank()) }

func flatten(c *call) string {
	from, to := c.axis(c.int("start_dim", 0)), c.axis(c.int("end_dim", -1))
	have := c.sizes("self")
	if from > to || c.err != nil {
		c.fail("axes %d to %d", from, to)
		return ""
	}
	if from == to {
		return c.tensor("self")
	}
	return c.reshaped(slices.Concat(make([]int64, from), []int64{-1}, have[to+1:]))
}

func unflatten(c *call) string {
	axis, have := c.axis(c.int("dim", 0)), c.sizes("self")
	if c.err != nil {
		return ""
	}
	return c.reshaped(slices.Concat(make([]int64, axis), c.ints("sizes"), have[min(axis+1, int64(len(have))):]))
}

// permuted emits a Transpose.
func (c *call) permuted(order []int64) string {
	return c.emit("Transpose", attributes{"perm": numbers(order...)}, c.tensor("self"))
}

func permute(c *call) string {
	order := slices.Clone(c.ints("dims"))
	for i, axis := range order {
		order[i] = c.axis(axis)
	}
	return c.permuted(order)
}

// swapped exchanges two axes.
func (c *call) swapped(a, b int64) string {
	order := c.kept()
	for i := range order {
		order[i] = int64(i)
	}
	a, b = c.axis(a), c.axis(b)
	if len(order) == 0 || c.err != nil {
		return c.tensor("self")
	}
	order[a], order[b] = order[b], order[a]
	return c.permuted(order)
}

func transpose(c *call) string { return c.swapped(c.int("dim0", 0), c.int("dim1", 0)) }

func swapaxes(c *call) string { return c.swapped(c.int("axis0", 0), c.int("axis1", 0)) }

func matrixTransposed(c *call) string {
	if c.rank() < 2 {
		return c.tensor("self")
	}
	return c.swapped(0, 1)
}

func unsqueeze(c *call) string {
	axis := c.int("dim", 0)
	if axis < 0 {
		axis += c.rank() + 1
	}
	return c.emit("Unsqueeze", attributes{"axes": numbers(axis)}, c.tensor("self"))
}

// squeeze takes away axes of 1, of those that are named, or of all.
func squeeze(c *call) string {
	have, axes := c.sizes("self"), c.fixedInts("dim")
	if c.args["dim"].kind == "as_int" {
		axes = []int64{c.int("dim", 0)}
	}
	if _, named := c.argument("dim"); !named {
		for i := range have {
			axes = append(axes, int64(i))
		}
	}
	var ones []int64
	for _, axis := range axes {
		if axis = c.axis(axis); axis < int64(len(have)) && have[axis] == 1 {
			ones = append(ones, axis)
		}
	}
	if len(ones) == 0 {
		return c.tensor("self")
	}
	return c.emit("Squeeze", attributes{"axes": numbers(ones...)}, c.tensor("self"))
}

func slice(c *call) string {
	axis := c.axis(c.int("dim", 0))
	bound := func(name string, open int64) string {
		if a, given := c.argument(name); given && a.kind == "as_sym_int" {
			return c.scalar(a, name)
		}
		return c.list([]int64{c.int(name, open)})
	}
	from, to := bound("start", 0), bound("end", importer.MostBytes)
	c.noteCut(axis, from, to)
	return c.emit("Slice", nil, c.tensor("self"), from, to, c.list([]int64{axis}), c.list([]int64{c.int("step", 1)}))
}

// cut is a range of an axis of a value of the graph.
func (c *call) cut(x string, axis, from, to int64) string {
	return c.emit("Slice", nil, x, c.list([]int64{from}), c.list([]int64{to}), c.list([]int64{axis}))
}

// diff is the difference of each element and the one before.
func diff(c *call) string {
	if n := c.int("n", 1); n != 1 {
		c.fail("argument n is %d, and only 1 is supported", n)
	}
	axis, all := c.axis(c.int("dim", -1)), []string{c.tensor("self")}
	if before := c.tensor("prepend"); before != "" {
		all = append([]string{before}, all...)
	}
	if after := c.tensor("append"); after != "" {
		all = append(all, after)
	}
	x := c.emit("Concat", attributes{"axis": number(axis)}, all...)
	return c.emit("Sub", nil, c.cut(x, axis, 1, importer.MostBytes), c.cut(x, axis, 0, -1))
}

func cumSum(c *call) string {
	c.ignore("dtype")
	return c.emit("cumsum", attributes{"axis": number(c.axis(c.int("dim", 0)))}, c.tensor("self"))
}

// index takes elements by constants, one for each of the first axes.
func index(c *call) string {
	a, given := c.argument("indices")
	if !given || a.kind != "as_tensors" {
		c.fail("argument indices is no list of tensors")
	}
	in := []string{c.tensor("self")}
	for _, value := range a.list() {
		if m, err := c.meta(value); err != nil || dtypes[m.DType] != importer.Int64 && dtypes[m.DType] != importer.Int32 {
			c.fail("argument indices has %.100q, which is of no integers", value)
		}
		in = append(in, c.names[value])
	}
	return c.emit("index", nil, in...)
}

func selected(c *call) string {
	axis := c.axis(c.int("dim", 0))
	return c.emit("Gather", attributes{"axis": number(axis)}, c.tensor("self"), c.constant(float64(c.int("index", 0))))
}

// parts cuts an axis; its parts are as large as they were when the model was exported.
func parts(c *call) []string {
	c.ignore("split_size", "split_sizes", "chunks")
	axis, outputs := c.axis(c.int("dim", 0)), c.node.outputs()
	var sizes []int64
	for _, out := range outputs {
		have, err := c.extents(out)
		if err != nil || axis >= int64(len(have)) || have[axis] < 1 {
			c.fail("its parts are of no constant size")
			return nil
		}
		sizes = append(sizes, have[axis])
	}
	return c.emitAll(len(outputs), "Split", attributes{"axis": number(axis), "split": numbers(sizes...)}, c.tensor("self"))
}

func unbind(c *call) (all []string) {
	axis := c.axis(c.int("dim", 0))
	for i := range c.node.outputs() {
		all = append(all, c.emit("Gather", attributes{"axis": number(axis)}, c.tensor("self"), c.constant(float64(i))))
	}
	return all
}

// expand repeats axes of 1; -1 keeps an axis.
func expand(c *call) string {
	c.ignore("implicit")
	return c.emit("Expand", nil, c.tensor("self"), c.numbers("size"))
}

// constants ignores where a constant lies, and reads its type, which changes nothing: constants are computed with in float64.
func (c *call) constants() {
	c.ignore("device", "pin_memory", "layout", "dtype", "memory_format")
}

func arange(c *call) string {
	c.constants()
	from, by := c.constant(0), c.constant(1)
	if a, given := c.argument("start"); given {
		from = c.scalar(a, "start")
	}
	if a, given := c.argument("step"); given {
		by = c.scalar(a, "step")
	}
	return c.emit("Range", nil, from, c.operand("end"), by)
}

func full(c *call) string {
	c.constants()
	return c.emit("Expand", nil, c.operand("fill_value"), c.numbers("size"))
}

func filled(v float64) func(c *call) string {
	return func(c *call) string {
		c.constants()
		c.ignore("self")
		return c.emit("Expand", nil, c.constant(v), c.numbers("size"))
	}
}

// triangle is the part above the diagonal, or the other one.
func triangle(upper int64) func(c *call) string {
	return func(c *call) string {
		return c.emit("Trilu", attributes{"upper": number(upper)}, c.tensor("self"), c.constant(float64(c.int("diagonal", 0))))
	}
}

// symSize is an extent, a symbol.
func symSize(c *call) string {
	return c.emit("Gather", attributes{"axis": number(0)}, c.emit("Shape", nil, c.tensor("self")), c.constant(float64(c.axis(c.int("dim", 0)))))
}

// symbols is an op of Python on symbols and numbers.
func symbols(op string) func(c *call) string {
	return func(c *call) string {
		var in []string
		for _, a := range c.node.Inputs {
			c.read[a.Name] = true
			in = append(in, c.scalar(a.Arg, a.Name))
		}
		return c.emit(op, nil, in...)
	}
}

// gather takes an element along an axis for each index.
func gather(c *call) string {
	c.ignore("sparse_grad")
	return c.emit("take_along", attributes{"axis": number(c.axis(c.int("dim", 0)))}, c.tensor("self"), c.tensor("index"))
}

// addcmul is self + value * tensor1 * tensor2.
func addcmul(c *call) string {
	if by := c.float("value", 1); by != 1 {
		c.fail("argument value is %v, and only 1 is supported", by)
	}
	return c.emit("Add", nil, c.tensor("self"), c.emit("Mul", nil, c.tensor("tensor1"), c.tensor("tensor2")))
}
