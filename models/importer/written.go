package importer

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

// Operators of two numbers.
var (
	addition = operator{
		at:      func(x, y float64) float64 { return x + y },
		rightOf: func(n float64) []kernels.Op { return affineOp(1, n) }, leftOf: func(n float64) []kernels.Op { return affineOp(1, n) },
		ofTensors: kernels.Add{},
	}
	subtraction = operator{
		at:      func(x, y float64) float64 { return x - y },
		rightOf: func(n float64) []kernels.Op { return affineOp(1, -n) }, leftOf: func(n float64) []kernels.Op { return affineOp(-1, n) },
		ofTensors: kernels.Add{}, ahead: kernels.Affine{Factor: -1},
	}
	multiplication = operator{
		at:      func(x, y float64) float64 { return x * y },
		rightOf: func(n float64) []kernels.Op { return affineOp(n, 0) }, leftOf: func(n float64) []kernels.Op { return affineOp(n, 0) },
		ofTensors: kernels.Multiply{},
	}
	division = operator{
		at:      func(x, y float64) float64 { return x / y },
		rightOf: func(n float64) []kernels.Op { return affineOp(1/n, 0) },
		leftOf: func(n float64) []kernels.Op {
			return append([]kernels.Op{kernels.Pointwise{Of: kernels.Reciprocal}}, affineOp(n, 0)...)
		},
		ofTensors: kernels.Multiply{}, ahead: kernels.Pointwise{Of: kernels.Reciprocal},
	}
	exponentiation = operator{at: math.Pow, rightOf: powerOf, leftOf: func(float64) []kernels.Op { return nil }}
)

func affineOp(factor, plus float64) []kernels.Op {
	return []kernels.Op{kernels.Affine{Factor: float32(factor), Plus: float32(plus)}}
}

// powerOf is x to the power of n.
func powerOf(n float64) []kernels.Op {
	switch n {
	case 1:
		return affineOp(1, 0)
	case 0.5:
		return []kernels.Op{kernels.Pointwise{Of: kernels.Sqrt}}
	case -1:
		return []kernels.Op{kernels.Pointwise{Of: kernels.Reciprocal}}
	case 0:
		return nil
	}
	return []kernels.Op{kernels.Pointwise{Of: kernels.Power, By: float32(n)}}
}

// pointwise is a function of each element that is functions, one behind the other.
func pointwise(at func(x float64) float64, functions ...kernels.Function) func(c *call) (*value, error) {
	var ops []kernels.Op
	for _, f := range functions {
		ops = append(ops, kernels.Pointwise{Of: f})
	}
	return ofOne(at, ops...)
}

// behind makes ops, one behind the other, of input i; none: the node is no op of a tensor.
func behind(c *call, i int, ops ...kernels.Op) func() (*value, error) {
	return func() (*value, error) {
		if len(ops) == 0 {
			return nil, fmt.Errorf("only of constants, and of one tensor as in an activation, is supported")
		}
		x, err := c.plain(c.at(i), i)
		for _, op := range ops {
			if err == nil {
				x, err = c.push(c.Node, op, as(x), nil, x)
			}
		}
		return x, err
	}
}

// bounded is a function of input 0 between bounds, which is the ops, one behind the other.
func bounded(c *call, low, high float64, ops []kernels.Op) (*value, error) {
	f := c.curve(c.at(0))
	v, err := ofOne(func(x float64) float64 { return min(max(x, low), high) }, ops...)(c)
	if err != nil || f == nil || v.curve == nil {
		return v, err
	}
	reached := func(bound float64, over func(y float64) bool) bool {
		return math.IsInf(bound, 0) || slices.ContainsFunc(f.at, over)
	}
	v.curve.hidden = f.hidden || !reached(low, func(y float64) bool { return y < low }) || !reached(high, func(y float64) bool { return y > high })
	return v, nil
}

// ofTensors is an operator of two tensors, whose axes of 1 are repeated.
func ofTensors(c *call, o operator) (*value, error) {
	x, y := c.at(0), c.at(1)
	switch {
	case o.ofTensors == nil:
		return nil, fmt.Errorf("only of constants, and of one tensor as in an activation, is supported")
	case x == nil || y == nil || x.shape == nil || y.shape == nil:
		return nil, fmt.Errorf("inputs are %s and %s: want tensors that follow from the model's input, or one and a number or a parameter", kindOf(x), kindOf(y))
	case o.ahead == nil:
		return both(c, x, y, o.ofTensors)
	}
	y, err := c.plain(y, 1)
	if err == nil {
		y, err = c.push(c.Node, o.ahead, as(y), nil, y)
	}
	if err != nil {
		return nil, err
	}
	return both(c, x, y, o.ofTensors)
}

// kindOf names a value for a message.
func kindOf(v *value) string {
	if v == nil || v.kind() == "" {
		return "nothing"
	}
	return v.kind()
}

// both is an op of two tensors, whose axes of 1 are repeated.
func both(c *call, x, y *value, op kernels.Op) (*value, error) {
	shape, err := broadcast(x.shape, y.shape)
	if err != nil {
		return nil, fmt.Errorf("inputs are %v and %v, which have no shape in common", x.shape, y.shape)
	}
	if x, err = spread(c, x, 0, shape); err != nil {
		return nil, err
	}
	if y, err = spread(c, y, 1, shape); err != nil {
		return nil, err
	}
	if x.step == y.step {
		switch op.(type) {
		case kernels.Add:
			return c.push(c.Node, kernels.Affine{Factor: 2}, as(x), nil, x)
		case kernels.Multiply:
			return c.push(c.Node, kernels.Pointwise{Of: kernels.Power, By: 2}, as(x), nil, x)
		}
	}
	return c.push(c.Node, op, as(x), nil, x, y)
}

// spread is input i as a tensor of a shape: axes of 1 are repeated.
func spread(c *call, v *value, i int, shape []int) (*value, error) {
	v, err := c.plain(v, i)
	if err != nil {
		return nil, err
	}
	if c.tokens(v) {
		return nil, fmt.Errorf("input %d is the tokens, which only the table of an embedding is read with", i)
	}
	if slices.Equal(v.shape, shape) && len(v.step.desc.Shape) == len(shape) {
		return v, nil
	}
	w := viewOfValue(v)
	w.axes = slices.Concat(make([][]loop, len(shape)-len(w.axes)), w.axes)
	for k, n := range shape {
		if extent(w.axes[k]) != n {
			w.axes[k] = []loop{{n, 0}}
		}
	}
	return c.arranged(c.Node, w)
}

// curve returns a value as a function of a tensor; nil: it is none. Activations are tensors of their own.
func (c *call) curve(v *value) *curve {
	switch {
	case v == nil || v.shape == nil || v.scores != nil || v.turned != nil || v.normed != nil || v.statistic != nil:
		return nil
	case v.curve != nil && v.curve.activation() == nil:
		return v.curve
	case v.curve != nil:
		made, err := c.plain(v, 0)
		if err != nil {
			return nil
		}
		v = made
	}
	return &curve{of: v, at: samples}
}

// mapped is a function of what a curve has, which is written by ops where no activation has its values.
func mapped(c *call, f *curve, g func(i int, y float64) float64, written func() (*value, error)) *value {
	at := make([]float64, len(samples))
	for i, y := range f.at {
		at[i] = g(i, y)
	}
	made := &curve{of: f.of, at: at, factors: f.factors, hidden: f.hidden, written: written}
	if k, is := linear(at); is && k != 0 {
		made.factors = append(slices.Clone(made.factors), k)
	}
	return &value{curve: made, shape: f.of.shape, from: c.Node}
}

// ofOne is a function of each element, of constants too. For a tensor it is the ops, one after the other.
func ofOne(g func(x float64) float64, ops ...kernels.Op) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if _, are := c.constantInputs(1); are {
			return c.computed(func(v []float64) float64 { return g(v[0]) })
		}
		x, written := c.at(0), behind(c, 0, ops...)
		if x != nil && x.statistic != nil {
			return ofStatistic(c, x, g, written), nil
		}
		f := c.curve(x)
		if f == nil {
			return nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
		}
		return mapped(c, f, func(_ int, y float64) float64 { return g(y) }, written), nil
	}
}

// operator is a function of two numbers, and the ops that it is.
type operator struct {
	at func(x, y float64) float64
	// rightOf and leftOf are x op n and n op x as ops of x, one behind the other; none: they are none that is supported.
	rightOf, leftOf func(n float64) []kernels.Op
	// ofTensors is the op of two tensors of one shape, once the second has gone through the op ahead.
	ofTensors, ahead kernels.Op
}

// ofTwo is a function of two: constants, a tensor and a number, two functions of one tensor, or two tensors.
func ofTwo(o operator) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if _, are := c.constantInputs(2); are {
			return c.computed(func(v []float64) float64 { return o.at(v[0], v[1]) })
		}
		x, y := c.at(0), c.at(1)
		f, h := c.curve(x), c.curve(y)
		switch {
		case isNumber(y) && (f != nil || x != nil && x.statistic != nil):
			return withNumber(c, 0, f, o.rightOf, func(v float64) float64 { return o.at(v, y.numbers[0]) }, y.numbers[0])
		case isNumber(x) && (h != nil || y != nil && y.statistic != nil):
			return withNumber(c, 1, h, o.leftOf, func(v float64) float64 { return o.at(x.numbers[0], v) }, x.numbers[0])
		case f != nil && h != nil && f.of.is(h.of):
			both := &curve{of: f.of, at: f.at, factors: slices.Concat(f.factors, h.factors), hidden: f.hidden || h.hidden}
			v := mapped(c, both, func(i int, v float64) float64 { return o.at(v, h.at[i]) }, func() (*value, error) { return ofTensors(c, o) })
			return v, nil
		}
		return ofTensors(c, o)
	}
}

// withNumber is a function of input i, a curve or a statistic, and a number, and the ops that it is.
func withNumber(c *call, i int, f *curve, ops func(n float64) []kernels.Op, g func(v float64) float64, n float64) (*value, error) {
	written := func() (*value, error) {
		all := ops(n)
		if all == nil {
			return nil, fmt.Errorf("of a tensor and %v it is not supported", n)
		}
		return behind(c, i, all...)()
	}
	if x := c.at(i); x.statistic != nil {
		return ofStatistic(c, x, g, written), nil
	}
	return mapped(c, f, func(_ int, v float64) float64 { return g(v) }, written), nil
}
