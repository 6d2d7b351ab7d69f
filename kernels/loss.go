package kernels

import (
	"fmt"
	"math"
)

// Criterion is a loss by the name that PyTorch's modules have. The set is closed.
type Criterion uint8

const (
	CrossEntropy Criterion = iota // SoftmaxCrossEntropy, of labels; the others are ElementLosses, of targets
	MSE                           // (x - t)^2, MSELoss
	L1                            // |x - t|, L1Loss
	BCE                           // log(1 + exp(x)) - x*t, BCEWithLogitsLoss
	Criteria
)

var criterionNames = [Criteria]string{"cross-entropy", "mse", "l1", "bce"}

// CriterionNames lists the names of all criteria.
func CriterionNames() []string { return criterionNames[:] }

// String returns the name: "mse".
func (c Criterion) String() string {
	if c < Criteria {
		return criterionNames[c]
	}
	return fmt.Sprintf("criterion(%d)", uint8(c))
}

// ParseCriterion returns the criterion of a name.
func ParseCriterion(name string) (Criterion, error) {
	for i, known := range criterionNames {
		if name == known {
			return Criterion(i), nil
		}
	}
	return 0, fmt.Errorf("%q is no loss: want one of %v", name, criterionNames)
}

// Predicts reports whether an output is right or wrong, so that accuracy has a meaning.
func (c Criterion) Predicts() bool { return c == CrossEntropy || c == BCE }

// Loss returns the loss of one output x and its target. Only a criterion of elements has it. BCE takes no exponential of a positive number.
func (c Criterion) Loss(x, target float64) float64 {
	switch c {
	case MSE:
		return (x - target) * (x - target)
	case L1:
		return math.Abs(x - target)
	}
	return max(x, 0) - x*target + math.Log1p(math.Exp(-math.Abs(x)))
}

// Right reports whether an output predicts its target: x > 0 and t > 1/2 agree. Only BCE predicts.
func (c Criterion) Right(x, target float32) bool { return c == BCE && (x > 0) == (target > 0.5) }

// ElementLoss is the mean of a criterion over all elements of X[0]. X[0]: outputs of any shape, X[1]: float32 targets of that shape,
// which have no gradient.
//
// Y is float32[3], as of SoftmaxCrossEntropy: the loss, the number of elements that are right, and that of all elements, which backward
// divides by. An element is right with BCE where x > 0 and t > 1/2 agree; no element is right with the others. DY is implied to be 1.
type ElementLoss struct{ Of Criterion }

func (ElementLoss) Kind() string          { return "element_loss" }
func (ElementLoss) Params([]Desc) []Param { return nil }
func (ElementLoss) Saved([]Desc) []Desc   { return nil }
func (ElementLoss) Needs() Needs          { return Needs{Inputs: []bool{true, true}, Output: true} }
func (ElementLoss) Split() bool           { return false }

// Alias of the loss: the outputs' gradient may lie on the outputs.
func (ElementLoss) Alias(pass Pass, out, in Operand) bool {
	return pass != Forward && out == Operand{DX, 0} && in == Operand{X, 0}
}

// Infer implements Op.
func (l ElementLoss) Infer(in []Desc) (Desc, error) {
	if l.Of == CrossEntropy || l.Of >= Criteria {
		return Desc{}, bad(l.Kind(), "Of", "%v is no loss of elements", l.Of)
	}
	if len(in) != 2 {
		return Desc{}, bad(l.Kind(), "X", "want outputs and targets, have %v", in)
	}
	if err := tensor(l.Kind(), 0, in[0]); err != nil {
		return Desc{}, err
	}
	if want := F32(in[0].Shape...); !in[1].Equal(want) {
		return Desc{}, bad(l.Kind(), "X", "targets are %v, want %v", in[1], want)
	}
	return F32(3), nil
}

// IsLoss reports whether an op ends a model: its gradient is implied to be 1, and X[1], labels or targets, has none.
func IsLoss(op Op) bool {
	switch op.(type) {
	case SoftmaxCrossEntropy, ElementLoss:
		return true
	}
	return false
}
