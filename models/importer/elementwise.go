package importer

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

func elementwise(op kernels.Op) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		x, seen, err := c.elements()
		if err != nil {
			return nil, err
		}
		y, err := c.push(c.Node, op, as(x), nil, x)
		if err != nil {
			return nil, err
		}
		return seen(y), nil
	}
}

// clip is a ReLU with a maximum, such as ReLU6, or a part of another activation.
func clip(c *call) (*value, error) {
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
	x := c.at(0)
	if x == nil || x.curve != nil || bounds[0] != 0 || !(bounds[1] > 0) { // a part of an activation that is written out
		if f := c.curve(x); f != nil {
			under := slices.ContainsFunc(f.at, func(y float64) bool { return y < bounds[0] })
			over := slices.ContainsFunc(f.at, func(y float64) bool { return y > bounds[1] })
			if !math.IsInf(bounds[0], 0) && !under || !math.IsInf(bounds[1], 0) && !over {
				return nil, fmt.Errorf("to %v to %v, a bound that is not told from none", bounds[0], bounds[1])
			}
		}
		return ofOne(func(x float64) float64 { return min(max(x, bounds[0]), bounds[1]) })(c)
	}
	op := kernels.ReLU{}
	if !math.IsInf(bounds[1], 1) {
		op.Max = float32(bounds[1])
	}
	return elementwise(op)(c)
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

// hardSigmoid is ONNX's, with the slope and the offset of PyTorch's.
func hardSigmoid(c *call) (*value, error) {
	if alpha, beta := float64(c.float("alpha", 0.2)), float64(c.float("beta", 0.5)); !near(alpha, 1.0/6) || beta != 0.5 {
		c.fail("attributes alpha and beta are %v and %v, and only 1/6 and 0.5 are supported", alpha, beta)
	}
	return elementwise(kernels.Pointwise{Of: kernels.HardSigmoid})(c)
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
	return elementwise(kernels.Dropout{P: float32(ratio)})(c)
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

// mapped is a function of what a curve has.
func (c *call) mapped(f *curve, g func(i int, y float64) float64) *value {
	at := make([]float64, len(samples))
	for i, y := range f.at {
		at[i] = g(i, y)
	}
	made := &curve{of: f.of, at: at, factors: f.factors}
	if k, is := linear(at); is && k != 0 {
		made.factors = append(slices.Clone(made.factors), k)
	}
	return &value{curve: made, shape: f.of.shape, from: c.Node}
}

// ofOne is a function of each element, of constants too.
func ofOne(g func(x float64) float64) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if _, are := c.constantInputs(1); are {
			return c.computed(func(v []float64) float64 { return g(v[0]) })
		}
		if x := c.at(0); x != nil && x.statistic != nil {
			return ofStatistic(c, x, g), nil
		}
		f := c.curve(c.at(0))
		if f == nil {
			return nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
		}
		return c.mapped(f, func(_ int, y float64) float64 { return g(y) }), nil
	}
}

// ofTwo is a function of two: constants, a tensor and a number, or two functions of one tensor. What it makes of two tensors is the op,
// nil: nothing.
func ofTwo(g func(x, y float64) float64, op kernels.Op) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if _, are := c.constantInputs(2); are {
			return c.computed(func(v []float64) float64 { return g(v[0], v[1]) })
		}
		x, y := c.at(0), c.at(1)
		f, h := c.curve(x), c.curve(y)
		switch {
		case x != nil && x.statistic != nil && isNumber(y):
			return ofStatistic(c, x, func(v float64) float64 { return g(v, y.numbers[0]) }), nil
		case y != nil && y.statistic != nil && isNumber(x):
			return ofStatistic(c, y, func(v float64) float64 { return g(x.numbers[0], v) }), nil
		case f != nil && isNumber(y):
			return c.mapped(f, func(_ int, v float64) float64 { return g(v, y.numbers[0]) }), nil
		case h != nil && isNumber(x):
			return c.mapped(h, func(_ int, v float64) float64 { return g(x.numbers[0], v) }), nil
		case f != nil && h != nil && f.of.is(h.of):
			both := &curve{of: f.of, at: f.at, factors: slices.Concat(f.factors, h.factors)}
			return c.mapped(both, func(i int, v float64) float64 { return g(v, h.at[i]) }), nil
		case op == nil:
			return nil, fmt.Errorf("only of constants, and of one tensor as in an activation, is supported")
		}
		return c.both(op)
	}
}

// both is an op of two tensors of equal shapes.
func (c *call) both(op kernels.Op) (*value, error) {
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	y, err := c.tensor(1)
	if err != nil {
		return nil, err
	}
	if !sameShape(x, y) || x.step == y.step {
		return nil, fmt.Errorf("inputs are %v and %v, and only different ones of equal shapes are supported", x.shape, y.shape)
	}
	return c.push(c.Node, op, as(x), nil, x, y)
}

// truth is a comparison as a function.
func truth(f func(x, y float64) bool) func(c *call) (*value, error) {
	return constants2(func(x, y float64) float64 { return truthOf(f(x, y)) })
}

// constants2 is a function of constants alone.
func constants2(f func(x, y float64) float64) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if _, are := c.constantInputs(2); !are {
			return nil, errNoConstant
		}
		return c.computed(func(v []float64) float64 { return f(v[0], v[1]) })
	}
}

// mod is the rest of a division of integers.
func mod(c *call) (*value, error) {
	c.only("fmod", 0)
	return constants2(func(x, y float64) float64 { return x - y*math.Floor(x/y) })(c)
}

// not is 1 of 0, and 0 of others.
func not(c *call) (*value, error) {
	if _, are := c.constantInputs(1); !are {
		return nil, errNoConstant
	}
	return c.computed(func(v []float64) float64 { return truthOf(v[0] == 0) })
}

// product is Mul: scores may be scaled, and tensors by a parameter, or by a factor for each channel of a sample.
func product(c *call) (*value, error) {
	for i := range 2 {
		if x, y := c.at(i), c.at(1-i); x != nil && x.scores != nil && isNumber(y) {
			return c.rescaled(x, y.numbers[0])
		}
	}
	for i := range 2 {
		x, y := c.at(i), c.at(1-i)
		if v := timesTable(c, x, y); v != nil {
			return v, nil
		}
		if v := divided(c, x, y, true); v != nil {
			return v, nil
		}
		if v, is, err := scaledNorm(c, i, 1-i); is || err != nil {
			return v, err
		}
		if v, is, err := timesOnePlus(c, i, 1-i); is || err != nil {
			return v, err
		}
		if v, is, err := trailing(c, i, 1-i, func(axes int) kernels.Op { return kernels.Scale{Axes: axes} }); is || err != nil {
			return v, err
		}
		if v, is, err := gated(c, i, 1-i); is || err != nil {
			return v, err
		}
	}
	return ofTwo(func(x, y float64) float64 { return x * y }, kernels.Multiply{})(c)
}

// gated multiplies an image, input i, by a factor for each channel, input j, N,C,1,1; false: they are something else.
func gated(c *call, i, j int) (v *value, is bool, err error) {
	x, g := c.at(i), c.at(j)
	if x == nil || g == nil || len(x.shape) != 4 || len(g.shape) != 4 || x.shape[2]*x.shape[3] == 1 || !slices.Equal(g.shape, []int{x.shape[0], x.shape[1], 1, 1}) {
		return nil, false, nil
	}
	if x, err = c.tensor(i); err == nil {
		g, err = c.tensor(j)
	}
	if err != nil {
		return nil, true, err
	}
	v, err = c.push(c.Node, kernels.Gate{}, as(x), nil, x, g)
	return v, true, err
}

// trailing is an op of a tensor, input j, and an initializer of its last axes here, input i; false: they are something else. op makes it of
// how many axes these are.
func trailing(c *call, i, j int, op func(axes int) kernels.Op) (v *value, is bool, err error) {
	p, x := c.at(i), c.at(j)
	if p == nil || x == nil || p.tensor == nil || p.tensor.DType != Float32 || x.shape == nil || x.scores != nil || len(p.tensor.Dims) == 0 {
		return nil, false, nil
	}
	if p.repeated != nil {
		if whole, err := broadcast(p.repeated, x.shape); err != nil || !slices.Equal(whole, x.shape) {
			return nil, true, fmt.Errorf("initializer %q, repeated to %v, with a tensor of %v is not supported", c.In[i], p.repeated, x.shape)
		}
	}
	dims := slices.Clone(p.tensor.Dims)
	for len(dims) < len(x.shape) {
		dims = slices.Insert(dims, 0, 1)
	}
	if n := len(dims) - 1; !slices.ContainsFunc(dims[:n], func(d int64) bool { return d != 1 }) && x.view != nil && int(dims[n]) == last(x.shape) {
		return rowsWith(c, i, j, op(1))
	}
	if x, err = c.tensor(j); err != nil {
		return nil, true, err
	}
	if len(dims) == 4 && len(x.step.desc.Shape) == 4 { // N,H,W,C here
		dims = []int64{dims[0], dims[2], dims[3], dims[1]}
	}
	axes := len(dims)
	for axes > 0 && dims[len(dims)-axes] == 1 {
		axes--
	}
	own := x.step.desc.Shape
	switch {
	case len(dims) != len(own) || axes == 0 || axes == len(own) || !slices.EqualFunc(dims[len(dims)-axes:], own[len(own)-axes:], func(a int64, b int) bool { return a == int64(b) }):
		return nil, true, fmt.Errorf("initializer %q, %v, with a tensor of %v: only one of its last axes, or of an image's channels, is supported", c.In[i], p.tensor.Dims, x.shape)
	case len(own) == 4 && axes > 1:
		return nil, true, fmt.Errorf("initializer %q, %v, with an image: only one of channels is supported", c.In[i], p.tensor.Dims)
	}
	from, err := c.param(i, asIs)
	if err != nil {
		return nil, true, err
	}
	from.axes = axes
	v, err = c.push(c.Node, op(axes), as(x), []source{from}, x)
	return v, true, err
}

// rowsWith is an op of rows, input j, and an initializer of their length, input i.
func rowsWith(c *call, i, j int, op kernels.Op) (v *value, is bool, err error) {
	x, seen, err := c.rowsOf(c.at(j))
	if err != nil {
		return nil, true, err
	}
	from, err := c.param(i, asIs)
	if err != nil {
		return nil, true, err
	}
	from.axes = 1
	y, err := c.push(c.Node, op, as(x), []source{from}, x)
	if err != nil {
		return nil, true, err
	}
	return seen(y), true, nil
}

// difference is Sub: rows less their means are a part of LayerNorm.
func difference(c *call) (*value, error) {
	if v := lessMean(c); v != nil {
		return v, nil
	}
	return ofTwo(func(x, y float64) float64 { return x - y }, nil)(c)
}

// quotient is Div, of a tensor by a number.
func quotient(c *call) (*value, error) {
	if x, y := c.at(0), c.at(1); x != nil && x.scores != nil && isNumber(y) {
		return c.rescaled(x, 1/y.numbers[0])
	}
	if v := divided(c, c.at(0), c.at(1), false); v != nil {
		return v, nil
	}
	return ofTwo(func(x, y float64) float64 { return x / y }, nil)(c)
}

// rescaled is scores times a number, which masks are not to be.
func (c *call) rescaled(x *value, by float64) (*value, error) {
	s := *x.scores
	if s.soft || s.causal || s.terms != (terms{}) {
		return nil, fmt.Errorf("scores are scaled behind their mask, bias or softmax, which is not supported")
	}
	s.scale *= by
	return &value{scores: &s, shape: x.shape, from: c.Node}, nil
}

func add(c *call) (*value, error) {
	for i := range 2 {
		if v := rotary(c, c.at(i), c.at(1-i)); v != nil {
			return v, nil
		}
		if v, is, err := c.bias(i, 1-i); is || err != nil {
			return v, err
		}
		if v, is, err := positions(c, i, 1-i); is || err != nil {
			return v, err
		}
		if x, y := c.at(i), c.at(1-i); x != nil && y != nil && x.scores != nil && y.asMask() != nil {
			return c.masked(x, y.asMask())
		}
		if v, err := maskedPicks(c, c.at(i), c.at(1-i)); v != nil || err != nil {
			return v, err
		}
		if v, err := addTerms(c, c.at(i), c.at(1-i)); v != nil || err != nil {
			return v, err
		}
		if v, is, err := trailing(c, i, 1-i, func(axes int) kernels.Op { return kernels.Bias{Axes: axes} }); is || err != nil {
			return v, err
		}
	}
	return ofTwo(func(x, y float64) float64 { return x + y }, kernels.Add{})(c)
}

// timesOnePlus multiplies a tensor, input j, by a parameter and 1, input i; false: they are something else.
func timesOnePlus(c *call, i, j int) (v *value, is bool, err error) {
	p, x := c.at(i), c.at(j)
	if p == nil || p.fromOne == nil || x == nil || x.shape == nil || x.normed != nil {
		return nil, false, nil
	}
	if x, err = c.tensor(j); err != nil {
		return nil, true, err
	}
	alone := *p.fromOne
	alone.name = cmp.Or(alone.name, alone.tensor.Name)
	c.values[c.In[i]] = &alone
	scaled, is, err := trailing(c, i, j, func(axes int) kernels.Op { return kernels.Scale{Axes: axes} })
	if c.values[c.In[i]] = p; err != nil || !is {
		return nil, is, err
	}
	if scaled, err = c.plain(scaled, j); err != nil {
		return nil, true, err
	}
	v, err = c.push(c.Node, kernels.Add{}, as(x), nil, scaled, x)
	return v, true, err
}
