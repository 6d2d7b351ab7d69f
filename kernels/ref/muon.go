package ref

import (
	"math"

	"plimsoll/kernels"
)

// UpdateWorkspace implements kernels.Library: what an update needs is there while it runs.
func (l *Library) UpdateWorkspace(u kernels.Update, m kernels.Matrix) (int64, error) {
	return 0, kernels.CheckMatrix(u, m)
}

// muon is kernels.Muon's step of a matrix, by its definition in float64.
func (s *update) muon(u kernels.Muon) error {
	k := kernels.GetScalars(s.scalars)
	if k.Skip != 0 {
		return nil
	}
	x, norm, beta := make([]float64, len(s.w)), 0.0, float64(u.Momentum)
	for i, grad := range s.g {
		g := float64(grad) * float64(k.GradScale)
		v := beta*float64(s.states[0][i]) + (1-beta)*g
		s.states[0][i] = float32(v)
		x[i] = beta*v + (1-beta)*g
		norm += x[i] * x[i]
	}
	norm = max(math.Sqrt(norm), kernels.MuonTiny)
	for i := range x {
		x[i] /= norm
	}
	for range kernels.MuonSteps {
		x = newtonSchulz(x, int(s.matrix.Rows), int(s.matrix.Columns))
	}
	lr := float64(k.LR)
	for i, w := range s.w {
		s.w[i] = float32((1-lr*float64(u.WeightDecay))*float64(w) - lr*s.matrix.Rate()*x[i])
	}
	return nil
}

// newtonSchulz returns a*X + (b*A + c*A*A)*X with A = X*X^T, of m rows and n columns, or of as many columns and rows.
func newtonSchulz(x []float64, m, n int) []float64 {
	if m > n {
		return flip(newtonSchulz(flip(x, m, n), n, m), n, m)
	}
	f := kernels.MuonCoefficients
	a := times(x, flip(x, m, n), m, n, m)
	p := times(a, a, m, m, m)
	for i := range p {
		p[i] = f[1]*a[i] + f[2]*p[i]
	}
	y := times(p, x, m, m, n)
	for i := range y {
		y[i] += f[0] * x[i]
	}
	return y
}

// times is the product of a matrix of m rows and k columns and one of k rows and n columns.
func times(a, b []float64, m, k, n int) []float64 {
	out := make([]float64, m*n)
	for i := range m {
		for t := range k {
			for j := range n {
				out[i*n+j] += a[i*k+t] * b[t*n+j]
			}
		}
	}
	return out
}

// flip transposes a matrix of m rows and n columns.
func flip(x []float64, m, n int) []float64 {
	out := make([]float64, len(x))
	for i := range m {
		for j := range n {
			out[j*m+i] = x[i*n+j]
		}
	}
	return out
}
