package importer

import (
	"fmt"
	"math"

	"plimsoll/kernels"
)

// samples are arguments in which all activations are told apart, and where none is constant.
var samples = func() (all []float64) {
	for x := -7.9; x < 8; x += 0.37 {
		all = append(all, x)
	}
	return all
}()

// near allows for constants of float32.
func near(a, b float64) bool { return math.Abs(a-b) <= 2e-6*(1+math.Abs(b)) }

// activations are those that are told from their values.
var activations = []struct {
	op kernels.Op
	at func(x float64) float64
}{
	{kernels.GELU{}, func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }},
	{kernels.GELU{Tanh: true}, func(x float64) float64 {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}},
	{kernels.SiLU{}, func(x float64) float64 { return x / (1 + math.Exp(-x)) }},
}

// activation returns the op that a curve is; nil: it is none.
func (f *curve) activation() kernels.Op {
next:
	for _, a := range activations {
		for i, x := range samples {
			if !near(f.at[i], a.at(x)) {
				continue next
			}
		}
		return a.op
	}
	return nil
}

// curve returns a value as a function of a tensor; nil: it is none. Activations are tensors of their own.
func (c *call) curve(v *value) *curve {
	switch {
	case v == nil || v.shape == nil || v.scores != nil:
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
	return &curve{v, samples}
}

// mapped is a function of what a curve has.
func (c *call) mapped(f *curve, g func(i int, y float64) float64) *value {
	at := make([]float64, len(samples))
	for i, y := range f.at {
		at[i] = g(i, y)
	}
	return &value{curve: &curve{f.of, at}, shape: f.of.shape, from: c.Node}
}

// ofOne is a function of each element, of constants too.
func ofOne(g func(x float64) float64) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if _, constant := c.constantInputs(1); constant {
			return c.computed(func(v []float64) float64 { return g(v[0]) })
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
		if _, constant := c.constantInputs(2); constant {
			return c.computed(func(v []float64) float64 { return g(v[0], v[1]) })
		}
		x, y := c.at(0), c.at(1)
		f, h := c.curve(x), c.curve(y)
		switch {
		case f != nil && isNumber(y):
			return c.mapped(f, func(_ int, v float64) float64 { return g(v, y.numbers[0]) }), nil
		case h != nil && isNumber(x):
			return c.mapped(h, func(_ int, v float64) float64 { return g(x.numbers[0], v) }), nil
		case f != nil && h != nil && f.of.is(h.of):
			return c.mapped(f, func(i int, v float64) float64 { return g(v, h.at[i]) }), nil
		case op == nil:
			return nil, fmt.Errorf("only of constants, and of one tensor as in an activation, is supported")
		}
		return c.both(op)
	}
}

// is reports whether two values are one tensor or view.
func (v *value) is(w *value) bool {
	if v.view != nil && w.view != nil {
		return v.view.same(*w.view)
	}
	return v.step != nil && v.step == w.step
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

// product is Mul: scores may be scaled.
func product(c *call) (*value, error) {
	for i := range 2 {
		if x, y := c.at(i), c.at(1-i); x != nil && x.scores != nil && isNumber(y) {
			return c.rescaled(x, y.numbers[0])
		}
	}
	return ofTwo(func(x, y float64) float64 { return x * y }, kernels.Multiply{})(c)
}

// quotient is Div, of a tensor by a number.
func quotient(c *call) (*value, error) {
	if x, y := c.at(0), c.at(1); x != nil && x.scores != nil && isNumber(y) {
		return c.rescaled(x, 1/y.numbers[0])
	}
	return ofTwo(func(x, y float64) float64 { return x / y }, nil)(c)
}

// rescaled is scores times a number, which masks are not to be.
func (c *call) rescaled(x *value, by float64) (*value, error) {
	s := *x.scores
	if s.soft || s.causal {
		return nil, fmt.Errorf("scores are scaled behind their mask or softmax, which is not supported")
	}
	s.scale *= by
	return &value{scores: &s, shape: x.shape, from: c.Node}, nil
}
