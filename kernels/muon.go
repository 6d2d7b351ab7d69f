package kernels

import "math"

// Muon is momentum with an orthogonalized step, by a Newton-Schulz iteration, for weights that are matrices. All other weights
// follow AdamW with its Beta1, Beta2 and Epsilon. With the gradient g of a matrix W of m rows and n columns:
//
//	v = Momentum*v + (1-Momentum)*g            (v is 0 at the first update)
//	X = Momentum*v + (1-Momentum)*g            (Nesterov)
//	X = X / max(|X|, MuonTiny)                 (the Frobenius norm)
//	X = a*X + (b*A + c*A*A)*X, A = X*X^T       (MuonSteps times; of a tall matrix from the other side, with A = X^T*X)
//	W = (1 - lr*WeightDecay)*W - lr*MuonScale*sqrt(max(m, n))*X
//
// Five steps move all singular values that are not much smaller than the largest to between 0.7 and 1.2.
//
// Momentum, coefficients and steps are from K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024. The scale
// is equation 4 of J. Liu et al., "Muon is scalable for LLM training", 2025. It makes updates as large as AdamW's, so that both have one
// learning rate. PyTorch's torch.optim.Muon with adjust_lr_fn="match_rms_adamw" is the same, but iterates in bfloat16; here all is
// float32.
//
// States: of a matrix v, of others AdamW's two.
type Muon struct {
	Momentum, WeightDecay, Beta1, Beta2, Epsilon float32
	MatricesOnly                                 bool `json:",omitempty"` // as SGD's
}

// The constants of the iteration.
const (
	MuonSteps = 5
	MuonTiny  = 1e-7 // the least norm
	MuonScale = 0.2  // root mean square of AdamW's updates
)

// MuonCoefficients are a, b and c of the iteration.
var MuonCoefficients = [3]float64{3.4445, -4.7750, 2.0315}

// AdamW is the rule for parameters that are no matrix.
func (m Muon) AdamW() AdamW {
	return AdamW{Beta1: m.Beta1, Beta2: m.Beta2, Epsilon: m.Epsilon, WeightDecay: m.WeightDecay, MatricesOnly: m.MatricesOnly}
}

// Rate returns the factor of the learning rate in an update of a matrix.
func (m Matrix) Rate() float64 { return MuonScale * math.Sqrt(float64(max(m.Rows, m.Columns))) }

// Side is the smaller extent, that of the square matrices of the iteration.
func (m Matrix) Side() int64 { return min(m.Rows, m.Columns) }

// MuonIteration issues MuonSteps steps of the iteration on x, an address of the library, and returns the place of the result: x or next.
// Callback multiply issues a call of a layer without bias (FactorRoles). Callback polynomial reads A from square
// and A*A from again, and writes b*A + c*A*A to again.
func MuonIteration[A any](m Matrix, x, next, square, again A, multiply func(c Call, left, right, product A), polynomial func()) A {
	ofX, ofA, apply := m.muonProducts()
	for range MuonSteps {
		multiply(ofX, x, x, square)
		multiply(ofA, square, square, again)
		polynomial()
		left, right := again, x
		if apply.Pass == Forward {
			left, right = x, again
		}
		multiply(apply, left, right, next)
		x, next = next, x
	}
	return x
}

// muonProducts are the three products of a step, as calls of layers without bias on Rows inputs. For a wide X they are
// forward(X, X) = X*X^T, forward(A, A), and backward from P to the input, P*X. For a tall X they are the gradient of the
// weight X^T*X, forward(A, A), and forward(X, P). A and P are symmetric.
func (m Matrix) muonProducts() (ofX, ofA, apply Call) {
	of := func(p Pass, rows, columns, out int64) Call {
		return Call{Op: Linear{Out: int(out)}, Pass: p, In: []Desc{F32(int(rows), int(columns))}}
	}
	ofA = of(Forward, m.Side(), m.Side(), m.Side())
	if m.Rows <= m.Columns {
		return of(Forward, m.Rows, m.Columns, m.Rows), ofA, of(BackwardInput, m.Rows, m.Columns, m.Rows)
	}
	return of(BackwardParams, m.Rows, m.Columns, m.Columns), ofA, of(Forward, m.Rows, m.Columns, m.Columns)
}

// FactorRoles are the operands of a layer without bias that are factors of a product, and it: forward is left*right^T, backward to the
// input left*right, to the weight left^T*right.
func FactorRoles(p Pass) (left, right, product Role) {
	switch p {
	case BackwardInput:
		return DY, ParamRole, DX
	case BackwardParams:
		return DY, X, DParam
	}
	return X, ParamRole, Y
}
