package kernels

import (
	"fmt"
	"math"
)

// Function is one of a single number, and of the parameter By where a comment names it. The set is closed.
type Function uint8

const (
	Sigmoid Function = iota // 1/(1 + exp(-x))
	Tanh
	HardSigmoid // min(max(x + 3, 0), 6)/6 (Howard et al.: Searching for MobileNetV3, 2019)
	HardSwish   // x times that
	Leaky       // x, or By*x where x is not positive
	ELU         // x, or By*(exp(x) - 1) where x is not positive (Clevert, Unterthiner, Hochreiter, 2016)
	Softplus    // log(1 + exp(x))
	Mish        // x*tanh(log(1 + exp(x))) (Misra, 2019)
	Abs
	AtLeast // x, or By where x is less; the gradient passes where x is more than By
	AtMost  // x, or By where x is more; the gradient passes where x is less than By
	Exp
	Log
	Sqrt
	Reciprocal // 1/x
	Power      // x^By
	Functions
)

// Total is the number of functions that are finite for all small numbers. Those from Total on have poles, or are functions of positive
// numbers.
const Total = Log

var functionNames = [Functions]string{
	"sigmoid", "tanh", "hard_sigmoid", "hard_swish", "leaky_relu", "elu", "softplus", "mish", "abs", "at_least", "at_most", "exp", "log", "sqrt", "reciprocal", "power",
}

// String returns the name in kernels: "hard_swish".
func (f Function) String() string {
	if f < Functions {
		return functionNames[f]
	}
	return fmt.Sprintf("function(%d)", uint8(f))
}

// HasParameter reports whether By is a part of the function.
func (f Function) HasParameter() bool {
	return f == Leaky || f == ELU || f == AtLeast || f == AtMost || f == Power
}

// Pointwise is a function of each element.
type Pointwise struct {
	Of Function
	By float32
}

func (Pointwise) Kind() string                       { return "pointwise" }
func (Pointwise) Params([]Desc) []Param              { return nil }
func (Pointwise) Saved([]Desc) []Desc                { return nil }
func (Pointwise) Needs() Needs                       { return Needs{Inputs: []bool{true}} }
func (Pointwise) Split() bool                        { return false }
func (Pointwise) Alias(p Pass, out, in Operand) bool { return inputwise(p, out, in) }

// Infer implements Op.
func (p Pointwise) Infer(in []Desc) (Desc, error) {
	switch {
	case p.Of >= Functions:
		return Desc{}, bad(p.Kind(), "Of", "%v is none of %v", p.Of, functionNames)
	case !p.Of.HasParameter() && p.By != 0 || !(math.Abs(float64(p.By)) <= math.MaxFloat32):
		return Desc{}, bad(p.Kind(), "By", "%v is no parameter of %v", p.By, p.Of)
	}
	return same(p.Kind(), in, 1)
}
