package ref

import (
	"math"
	"slices"

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
	r := roundings(s.matrix.DType)
	r.results(x)
	for i := range x {
		x[i] /= norm
	}
	r.results(x)
	for range kernels.MuonSteps {
		x = r.newtonSchulz(x, int(s.matrix.Rows), int(s.matrix.Columns))
	}
	lr := float64(k.LR)
	for i, w := range s.w {
		s.w[i] = float32((1-lr*float64(u.WeightDecay))*float64(w) - lr*s.matrix.Rate()*x[i])
	}
	return nil
}

// rounds are the roundings of the iteration: of factors of products, and of results.
type rounds struct{ factors, results func([]float64) }

// roundings returns the roundings of a type.
func roundings(d kernels.DType) rounds {
	none := func([]float64) {}
	each := func(round func(float32) float32) func([]float64) {
		return func(all []float64) {
			for i, v := range all {
				all[i] = float64(round(float32(v)))
			}
		}
	}
	switch d {
	case kernels.BFloat16:
		return rounds{none, each(kernels.RoundBFloat16)}
	case kernels.TF32:
		return rounds{each(kernels.RoundTF32), none}
	}
	return rounds{none, none}
}

// newtonSchulz returns (a + b*A + c*A*A)*X with A = X*X^T, of m rows and n columns, or of as many columns and rows.
func (r rounds) newtonSchulz(x []float64, m, n int) []float64 {
	if m > n {
		return flip(r.newtonSchulz(flip(x, m, n), n, m), n, m)
	}
	f := kernels.MuonCoefficients
	a := r.times(x, flip(x, m, n), m, n, m)
	p := r.times(a, a, m, m, m)
	for i := range p {
		p[i] = f[1]*a[i] + f[2]*p[i]
		if i%(m+1) == 0 {
			p[i] += f[0]
		}
	}
	r.results(p)
	return r.times(p, x, m, m, n)
}

// times is the product of two matrices by the roundings.
func (r rounds) times(a, b []float64, m, k, n int) []float64 {
	a, b = slices.Clone(a), slices.Clone(b)
	r.factors(a)
	r.factors(b)
	product := times(a, b, m, k, n)
	r.results(product)
	return product
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
