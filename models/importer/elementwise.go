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

// clip is a tensor between bounds, which may be left out: a ReLU with a maximum, such as ReLU6, other bounds, or a part of an activation.
func clip(c *call) (*value, error) {
	low, high, err := c.bounds()
	if err != nil {
		return nil, err
	}
	var ops []kernels.Op
	if low == 0 && high > 0 {
		op := kernels.ReLU{}
		if !math.IsInf(high, 1) {
			op.Max = float32(high)
		}
		ops = []kernels.Op{op}
	} else {
		if !math.IsInf(low, -1) {
			ops = append(ops, kernels.Pointwise{Of: kernels.AtLeast, By: float32(low)})
		}
		if !math.IsInf(high, 1) {
			ops = append(ops, kernels.Pointwise{Of: kernels.AtMost, By: float32(high)})
		}
	}
	x := c.at(0)
	switch {
	case len(ops) == 0:
		return x, nil
	case x != nil && x.numbers != nil:
		return known(computed([]constant{x.constant}, func(v []float64) float64 { return min(max(v[0], low), high) }))
	case x == nil || x.step == nil && x.view == nil: // a part of an activation that is written out
		return bounded(c, low, high, ops)
	}
	y, seen, err := c.elements()
	for _, op := range ops {
		if err == nil {
			y, err = c.push(c.Node, op, as(y), nil, y)
		}
	}
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}

// bounds are the bounds of Clip: infinite where they are left out.
func (c *call) bounds() (low, high float64, err error) {
	bounds := [2]float64{math.Inf(-1), math.Inf(1)}
	for i, name := range []string{"min", "max"} {
		if a := c.attribute(name); a != nil { // of opset 10 and before
			bounds[i] = float64(a.F)
		}
		if v := c.at(i + 1); v != nil {
			if len(v.numbers) != 1 {
				return 0, 0, fmt.Errorf("input %d, %s, is no constant", i+1, name)
			}
			bounds[i] = v.numbers[0]
		}
	}
	low, high = bounds[0], bounds[1]
	if math.IsNaN(low) || math.IsNaN(high) || math.IsInf(low, 1) || math.IsInf(high, -1) {
		err = fmt.Errorf("bounds are %v and %v, which leave no number", low, high)
	}
	return low, high, err
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
	return ofTwo(multiplication)(c)
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

// trailing is an op of a tensor, input j, and an initializer of its last axes here, input i; false: they are something else. Function op
// makes it from the number of these axes.
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
	n := len(dims) - 1
	ofRows := !slices.ContainsFunc(dims[:n], func(d int64) bool { return d != 1 }) && int(dims[n]) == last(x.shape)
	if ofRows && x.view != nil {
		return rowsWith(c, i, j, op(1))
	}
	if x, err = c.tensor(j); err != nil {
		return nil, true, err
	}
	if ofRows && len(dims) == 4 && len(x.step.desc.Shape) == 4 {
		return rowsWith(c, i, j, op(1))
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
		v.whole = func() (*value, error) { return ofTensors(c, subtraction) }
		return v, nil
	}
	return ofTwo(subtraction)(c)
}

// quotient is Div, of a tensor by a number.
func quotient(c *call) (*value, error) {
	if x, y := c.at(0), c.at(1); x != nil && x.scores != nil && isNumber(y) {
		return c.rescaled(x, 1/y.numbers[0])
	}
	if v := divided(c, c.at(0), c.at(1), false); v != nil {
		return v, nil
	}
	return ofTwo(division)(c)
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
	return ofTwo(addition)(c)
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

// parametric is a function with a parameter.
func parametric(f kernels.Function) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		return elementwise(kernels.Pointwise{Of: f, By: c.float("by", 0)})(c)
	}
}
