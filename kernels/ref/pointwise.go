package ref

import (
	"math"

	"plimsoll/kernels"
)

// pointwise is a function of each element.
func pointwise(op kernels.Pointwise, t *tensors) error {
	f, by := functions[op.Of], float64(op.By)
	return activation(func(x float64) float64 { return f.value(x, by) }, func(x float64) float64 { return f.slope(x, by) }, t)
}

// functions are values and slopes, by kernels.Function.
var functions = [kernels.Functions]struct{ value, slope func(x, by float64) float64 }{
	kernels.Sigmoid: {alone(sigmoid), alone(func(x float64) float64 { return sigmoid(x) * (1 - sigmoid(x)) })},
	kernels.Tanh:    {alone(math.Tanh), alone(func(x float64) float64 { return 1 - math.Tanh(x)*math.Tanh(x) })},
	kernels.HardSigmoid: {alone(hardSigmoid), alone(func(x float64) float64 {
		if x > -3 && x < 3 {
			return 1.0 / 6
		}
		return 0
	})},
	kernels.HardSwish: {alone(func(x float64) float64 { return x * hardSigmoid(x) }), alone(func(x float64) float64 {
		switch {
		case x < -3:
			return 0
		case x <= 3:
			return x/3 + 0.5
		}
		return 1
	})},
	kernels.Leaky: {func(x, by float64) float64 { return x * leaky(x, by) }, leaky},
	kernels.ELU: {func(x, by float64) float64 { return chosen(x, x, by*math.Expm1(x)) }, func(x, by float64) float64 {
		return chosen(x, 1, by*math.Exp(x))
	}},
	kernels.Softplus: {alone(softplus), alone(sigmoid)},
	kernels.Mish: {alone(func(x float64) float64 { return x * math.Tanh(softplus(x)) }), alone(func(x float64) float64 {
		y := math.Tanh(softplus(x))
		return y + x*(1-y*y)*sigmoid(x)
	})},
	kernels.Abs: {alone(math.Abs), alone(func(x float64) float64 {
		if x == 0 {
			return 0
		}
		return chosen(x, 1, -1)
	})},
	kernels.AtLeast: {func(x, by float64) float64 {
		if x < by {
			return by
		}
		return x
	}, func(x, by float64) float64 {
		if x > by {
			return 1
		}
		return 0
	}},
	kernels.AtMost: {func(x, by float64) float64 {
		if x > by {
			return by
		}
		return x
	}, func(x, by float64) float64 {
		if x < by {
			return 1
		}
		return 0
	}},
	kernels.Exp:        {alone(math.Exp), alone(math.Exp)},
	kernels.Log:        {alone(math.Log), alone(func(x float64) float64 { return 1 / x })},
	kernels.Sqrt:       {alone(math.Sqrt), alone(func(x float64) float64 { return 0.5 / math.Sqrt(x) })},
	kernels.Reciprocal: {alone(func(x float64) float64 { return 1 / x }), alone(func(x float64) float64 { return -1 / (x * x) })},
	kernels.Power:      {math.Pow, func(x, by float64) float64 { return by * math.Pow(x, by-1) }},
}

// alone is a function without a parameter.
func alone(f func(x float64) float64) func(x, by float64) float64 {
	return func(x, _ float64) float64 { return f(x) }
}

// chosen is a for positive x, b for others.
func chosen(x, a, b float64) float64 {
	if x > 0 {
		return a
	}
	return b
}

// leaky is the slope of a leaky ReLU.
func leaky(x, by float64) float64 { return chosen(x, 1, by) }

// softplus is log(1 + exp(x)), without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// hardSigmoid is min(max(x + 3, 0), 6)/6; NaN stays NaN.
func hardSigmoid(x float64) float64 { return min(max(x+3, 0), 6) / 6 }
