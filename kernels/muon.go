package kernels

import "math"

// Muon is momentum with an orthogonalized step, by a Newton-Schulz iteration, for weights that are matrices. All other weights
// follow AdamW with its Beta1, Beta2 and Epsilon. With the gradient g of a matrix W of m rows and n columns:
//
//	v = Momentum*v + (1-Momentum)*g            (v is 0 at the first update)
//	X = Momentum*v + (1-Momentum)*g            (Nesterov)
//	X = X / max(|X|, MuonTiny)                 (the Frobenius norm)
//	X = (a + b*A + c*A*A)*X, A = X*X^T         (MuonSteps times; of a tall matrix from the other side, with A = X^T*X)
//	W = (1 - lr*WeightDecay)*W - lr*MuonScale*sqrt(max(m, n))*X
//
// Five steps move all singular values that are not much smaller than the largest to between 0.7 and 1.2.
//
// Momentum, coefficients and steps are from K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024. The scale
// is equation 4 of J. Liu et al., "Muon is scalable for LLM training", 2025. It makes updates as large as AdamW's, so that both have one
// learning rate. PyTorch's torch.optim.Muon with adjust_lr_fn="match_rms_adamw" has the same steps, and other roundings.
//
// All is float32 but the iteration, from the first X on: Matrix.DType is the type of its products. In TF32 the factors of each product are
// rounded. In bfloat16, which PyTorch always takes, X, A, A*A and a + b*A + c*A*A are bfloat16. Sums are float32.
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

// MuonSpace has the places of the iteration in a library's memory: X and the next X, A, and A*A. MuonBytes gives their sizes.
type MuonSpace[A any] struct{ X, Next, Square, Again A }

// MuonBytes returns the bytes of the places. Again has room for A in float32, where A is the gradient of a weight.
func (m Matrix) MuonBytes() MuonSpace[int64] {
	size, n, square := m.DType.Size(), m.Rows*m.Columns, m.Side()*m.Side()
	b := MuonSpace[int64]{X: size * n, Next: size * n, Square: size * square, Again: size * square}
	if m.roundsSquare() {
		b.Again = Float32.Size() * square
	}
	return b
}

// MuonIteration issues MuonSteps steps of the iteration on X and returns the place of the result: X or Next. Callback issue gets the calls
// and their operands. Callback polynomial reads A from Square and A*A from Again, and writes a + b*A + c*A*A to Again.
func MuonIteration[A any](m Matrix, s MuonSpace[A], issue func(Call, map[Role]A), polynomial func()) A {
	ofX, ofA, apply := m.muonProducts()
	multiply := func(c Call, left, right, product A) {
		l, r, p := factorRoles(c.Pass)
		issue(c, map[Role]A{l: left, r: right, p: product})
	}
	for range MuonSteps {
		if m.roundsSquare() {
			multiply(ofX, s.X, s.X, s.Again)
			issue(Call{Op: Cast{To: BFloat16}, In: []Desc{F32(int(m.Side()), int(m.Side()))}}, map[Role]A{X: s.Again, Y: s.Square})
		} else {
			multiply(ofX, s.X, s.X, s.Square)
		}
		multiply(ofA, s.Square, s.Square, s.Again)
		polynomial()
		left, right := s.Again, s.X
		if apply.Pass == Forward {
			left, right = s.X, s.Again
		}
		multiply(apply, left, right, s.Next)
		s.X, s.Next = s.Next, s.X
	}
	return s.X
}

// roundsSquare reports whether A is a product in float32 that is rounded to bfloat16: the gradient of a weight is float32.
func (m Matrix) roundsSquare() bool { return m.DType == BFloat16 && m.Rows > m.Columns }

// muonProducts are the three products of a step, as calls of layers without bias on Rows inputs. For a wide X they are
// forward(X, X) = X*X^T, forward(A, A), and backward from P to the input, P*X. For a tall X they are the gradient of the
// weight X^T*X, forward(A, A), and forward(X, P). A and P are symmetric.
func (m Matrix) muonProducts() (ofX, ofA, apply Call) {
	of := func(p Pass, rows, columns, out int64) Call {
		stored := m.DType.Stored()
		c := Call{Op: Linear{Out: int(out)}, Pass: p, In: []Desc{F32(int(rows), int(columns)).As(stored)}, Weight: stored}
		if m.DType == TF32 {
			c.Op = InTF32(c.Op)
		}
		return c
	}
	ofA = of(Forward, m.Side(), m.Side(), m.Side())
	if m.Rows <= m.Columns {
		return of(Forward, m.Rows, m.Columns, m.Rows), ofA, of(BackwardInput, m.Rows, m.Columns, m.Rows)
	}
	return of(BackwardParams, m.Rows, m.Columns, m.Columns), ofA, of(Forward, m.Rows, m.Columns, m.Columns)
}

// factorRoles are the operands of a layer without bias that are factors of a product, and it: forward is left*right^T, backward to the
// input left*right, to the weight left^T*right.
func factorRoles(p Pass) (left, right, product Role) {
	switch p {
	case BackwardInput:
		return DY, ParamRole, DX
	case BackwardParams:
		return DY, X, DParam
	}
	return X, ParamRole, Y
}
