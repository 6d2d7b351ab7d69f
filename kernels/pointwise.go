package kernels

import "fmt"

// Function is one of a single number. The set is closed.
type Function uint8

const (
	Sigmoid Function = iota // 1/(1 + exp(-x))
	Tanh
	HardSigmoid // min(max(x + 3, 0), 6)/6 (Howard et al.: Searching for MobileNetV3, 2019)
	HardSwish   // x times that
	Functions
)

var functionNames = [Functions]string{"sigmoid", "tanh", "hard_sigmoid", "hard_swish"}

// String returns the name in kernels: "hard_swish".
func (f Function) String() string {
	if f < Functions {
		return functionNames[f]
	}
	return fmt.Sprintf("function(%d)", uint8(f))
}

// Pointwise is a function of each element.
type Pointwise struct{ Of Function }

func (Pointwise) Kind() string                       { return "pointwise" }
func (Pointwise) Params([]Desc) []Param              { return nil }
func (Pointwise) Saved([]Desc) []Desc                { return nil }
func (Pointwise) Needs() Needs                       { return Needs{Inputs: []bool{true}} }
func (Pointwise) Split() bool                        { return false }
func (Pointwise) Alias(p Pass, out, in Operand) bool { return inputwise(p, out, in) }

// Infer implements Op.
func (p Pointwise) Infer(in []Desc) (Desc, error) {
	if p.Of >= Functions {
		return Desc{}, bad(p.Kind(), "Of", "%v is none of %v", p.Of, functionNames)
	}
	return same(p.Kind(), in, 1)
}
