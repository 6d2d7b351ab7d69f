package importer

import (
	"math"
	"slices"

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

// activations are the activations that are recognized by their values.
var activations = []struct {
	op kernels.Op
	at func(x float64) float64
}{
	{kernels.GELU{}, func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }},
	{kernels.GELU{Tanh: true}, func(x float64) float64 {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}},
	{kernels.SiLU{}, func(x float64) float64 { return x / (1 + math.Exp(-x)) }},
	{kernels.Pointwise{Of: kernels.Sigmoid}, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }},
	{kernels.Pointwise{Of: kernels.Tanh}, math.Tanh},
	{kernels.Pointwise{Of: kernels.HardSigmoid}, func(x float64) float64 { return min(max(x+3, 0), 6) / 6 }},
	{kernels.Pointwise{Of: kernels.HardSwish}, func(x float64) float64 { return x * min(max(x+3, 0), 6) / 6 }},
}

// activation returns the op that a curve is; nil: it is none.
func (f *curve) activation() kernels.Op {
	if f.hidden {
		return nil
	}
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

// straight is how far a line may be from its samples, as a share of how far they spread: rounding in float64 alone. A tangent that is stretched far is
// no line.
const straight = 1e-12

// linear reports whether a curve is x times a number.
func (f *curve) linear() (k float64, is bool) {
	if f.hidden {
		return 0, false
	}
	return linear(f.at)
}

// finite reports whether all values are numbers.
func finite(at []float64) bool {
	return !slices.ContainsFunc(at, func(y float64) bool { return math.IsNaN(y) || math.IsInf(y, 0) })
}

// linear reports whether values at samples are those of x times a number.
func linear(at []float64) (k float64, is bool) {
	if !finite(at) {
		return 0, false
	}
	k = at[0] / samples[0]
	most := max(slices.Max(at), -slices.Min(at))
	for i, x := range samples {
		if !(math.Abs(at[i]-k*x) <= straight*most) { // nor what is no number
			return 0, false
		}
	}
	return k, true
}

// affine returns the op of a curve that is x times a number, plus one; nil: it is none.
func (f *curve) affine() kernels.Op {
	n := len(samples) - 1
	k := (f.at[n] - f.at[0]) / (samples[n] - samples[0])
	b := f.at[0] - k*samples[0]
	if g, is := linear(f.at); is {
		k, b = g, 0
	}
	if k == 0 || f.hidden || !finite(f.at) {
		return nil
	}
	low, high := slices.Min(f.at), slices.Max(f.at)
	for i, x := range samples {
		if !(math.Abs(f.at[i]-(k*x+b)) <= straight*(high-low)+1e-14*max(high, -low)) {
			return nil
		}
	}
	return kernels.Affine{Factor: float32(k), Plus: float32(b)}
}

// square returns the factor of a curve that is x times x times a number.
func (f *curve) square() (k float64, is bool) {
	if f.hidden || !finite(f.at) {
		return 0, false
	}
	k = f.at[0] / samples[0] / samples[0]
	for i, x := range samples {
		if !(math.Abs(f.at[i]-k*x*x) <= straight*math.Abs(k)*64) {
			return 0, false
		}
	}
	return k, k != 0
}

// Bounds of stretched: activations that samples reach too little of look alike.
const (
	leastStretch = 1.0 / 64
	mostApart    = 2e-7 // of how far samples spread
)

// stretched returns the ops of a curve that is a*f(k*x) + b of an activation f, by a factor that x was multiplied by; nil: it is none.
func (f *curve) stretched() []kernels.Op {
	if f.hidden || !finite(f.at) {
		return nil
	}
	for _, k := range append([]float64{1}, f.factors...) {
		for _, activation := range activations {
			at := make([]float64, len(samples))
			for i, x := range samples {
				at[i] = activation.at(k * x)
			}
			n := len(samples) - 1
			a := (f.at[n] - f.at[n/2]) / (at[n] - at[n/2])
			b := f.at[n] - a*at[n]
			fits := a != 0 && !math.IsInf(a, 0) && math.Abs(k) >= leastStretch
			for i := range samples {
				fits = fits && math.Abs(f.at[i]-(a*at[i]+b)) <= mostApart*math.Abs(a*(at[n]-at[n/2]))
			}
			if !fits {
				continue
			}
			ops := []kernels.Op{activation.op}
			if k != 1 {
				ops = []kernels.Op{kernels.Affine{Factor: float32(k)}, activation.op}
			}
			if near(a, 1) && near(b, 0) {
				return ops
			}
			if math.Abs(b) <= mostApart*math.Abs(a) {
				b = 0
			}
			return append(ops, kernels.Affine{Factor: float32(a), Plus: float32(b)})
		}
	}
	return nil
}
