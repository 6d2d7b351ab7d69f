package importer

import (
	"math"
	"strings"

	"plimsoll/kernels"
)

// reader makes of a node of one op the value of its first output.
type reader struct {
	read       func(c *call) (*value, error)
	attributes []string // that it reads, or may ignore
}

// window are the attributes of ops that slide over an image.
const window = "auto_pad dilations kernel_shape pads strides "

// ops are the ops that are read, by their names in ONNX.
var ops = map[string]reader{
	"Conv": of(conv, window+"group"), "MaxPool": of(maxPool, window+"ceil_mode storage_order"), "AveragePool": of(avgPool, window+"ceil_mode count_include_pad"),
	"BatchNormalization": of(batchNormalization, "epsilon momentum training_mode"), "LayerNormalization": of(layerNorm, "axis epsilon stash_type"),
	"batch_norm": of(batchNorm, "epsilon momentum frozen"), "rms_norm": of(rmsNorm, "epsilon"), "linear": of(linearOf, ""), "silu": of(elementwise(kernels.SiLU{}), ""),
	"group_norm": of(groupNorm, "groups epsilon"), "conv_transpose": of(convTranspose, window+"extra group"),
	"ReduceSum":  of(reduceSum, "axes keepdims"),
	"leaky_relu": of(parametric(kernels.Leaky), "by"), "elu": of(parametric(kernels.ELU), "by"), "softplus": of(elementwise(kernels.Pointwise{Of: kernels.Softplus}), ""),
	"mish":      of(elementwise(kernels.Pointwise{Of: kernels.Mish}), ""),
	"HardSwish": of(elementwise(kernels.Pointwise{Of: kernels.HardSwish}), ""), "HardSigmoid": of(hardSigmoid, "alpha beta"),
	"hard_sigmoid": of(elementwise(kernels.Pointwise{Of: kernels.HardSigmoid}), ""), "hard_swish": of(elementwise(kernels.Pointwise{Of: kernels.HardSwish}), ""),
	"adaptive_avg_pool": of(adaptiveAvgPool, "output_size"), "attention": of(attentionOf, "causal grouped scale"),
	"pad": of(framed, "circular ahead behind"), "resize": of(resized, "output_size nearest align_corners ratio_h ratio_w"), "put": of(put, "axis"),
	"Relu": of(elementwise(kernels.ReLU{}), ""), "Clip": of(clip, "min max"), "Gelu": of(gelu, "approximate"),
	"GlobalAveragePool": of(globalAvgPool, ""), "ReduceMean": of(reduceMean, "axes keepdims noop_with_empty_axes"),
	"Gemm": of(gemm, "alpha beta transA transB"), "MatMul": of(matMul, ""), "Transpose": of(ofPicks(permutePicks, behindNumbers(transpose)), "perm"), "Add": of(sumOfTexts(add), ""), "Concat": of(concat, "axis"),
	"Flatten": of(flatten, "axis"), "Reshape": of(ofPicks(reshapePicks, behindNumbers(reshape)), "allowzero shape"), "Dropout": of(dropout, "ratio seed"), "Identity": of(identity, ""),
	"Softmax": of(softmax, "axis"), "Split": of(split, "axis num_outputs split"), "Slice": of(behindNumbers(sliced), ""), "Gather": of(rowsOfTexts(gather), "axis fixed"),
	"Unsqueeze": of(ofPicks(unsqueezePicks, behindNumbers(unsqueeze)), "axes"), "Squeeze": of(behindNumbers(squeeze), "axes"), "Cast": of(castOfTexts(cast), "saturate to"),
	"Mul": of(productOfTexts(product), ""), "Div": of(quotient, ""), "Sub": of(difference, ""), "Pow": of(ofTwo(exponentiation), ""),
	"Erf": of(ofOne(math.Erf), ""), "Tanh": of(pointwise(math.Tanh, kernels.Tanh), ""), "Sqrt": of(pointwise(math.Sqrt, kernels.Sqrt), ""),
	"Exp": of(pointwise(math.Exp, kernels.Exp), ""), "Abs": of(pointwise(math.Abs, kernels.Abs), ""), "Log": of(pointwise(math.Log, kernels.Log), ""),
	"rsqrt": of(pointwise(func(x float64) float64 { return 1 / math.Sqrt(x) }, kernels.Sqrt, kernels.Reciprocal), ""),
	"Cos":   of(ofOne(math.Cos), ""), "Sin": of(ofOne(math.Sin), ""), "constant": of(onlyConstant, ""),
	"Reciprocal": of(pointwise(func(x float64) float64 { return 1 / x }, kernels.Reciprocal), ""),
	"Min":        of(constants2(math.Min), ""),
	"Neg":        of(ofOne(func(x float64) float64 { return -x }, kernels.Affine{Factor: -1}), ""),
	"Sigmoid":    of(pointwise(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, kernels.Sigmoid), ""),
	"Constant":   of(literal, "value value_float value_int value_ints"), "ConstantOfShape": of(constantOfShape, "value"), "Shape": of(shapeOf, "start"),
	"Expand": of(ofPicks(expandPicks, expand), ""), "Range": of(ranged, ""), "Trilu": of(trilu, "upper"), "Where": of(where, ""), "Not": of(not, ""), "Mod": of(mod, "fmod"),
	"tile": of(tiled, "times"), "repeat_each": of(repeatedEach, "axis times"),
	"cumsum": of(sumsOf(cumSum), "axis"), "index": of(indexed, ""), "take_along": of(sameOr(takenAlong), "axis"), "not_equal": of(unequal(truth(func(x, y float64) bool { return x != y })), ""),
	"And": of(truth(func(x, y float64) bool { return x != 0 && y != 0 }), ""), "Or": of(truth(func(x, y float64) bool { return x != 0 || y != 0 }), ""),
	"Equal": of(truth(func(x, y float64) bool { return x == y }), ""), "Less": of(truth(func(x, y float64) bool { return x < y }), ""),
	"Greater":        of(truth(func(x, y float64) bool { return x > y }), ""),
	"LessOrEqual":    of(truth(func(x, y float64) bool { return x <= y }), ""),
	"GreaterOrEqual": of(truth(func(x, y float64) bool { return x >= y }), ""),
}

// behindNumbers lets a reader that only moves elements pass those that are multiplied by a number: what it makes is multiplied then.
func behindNumbers(read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		x := c.at(0)
		if x == nil || x.curve == nil {
			return read(c)
		}
		if _, is := x.curve.linear(); !is {
			return read(c)
		}
		c.values[c.In[0]] = x.curve.of
		v, err := read(c)
		if c.values[c.In[0]] = x; err != nil || v.shape == nil {
			return v, err
		}
		return &value{curve: &curve{of: v, at: x.curve.at, factors: x.curve.factors, hidden: x.curve.hidden}, shape: v.shape, from: c.Node}, nil
	}
}

// of is a reader of the attributes that a text lists.
func of(read func(c *call) (*value, error), attributes string) reader {
	return reader{read, strings.Fields(attributes)}
}
