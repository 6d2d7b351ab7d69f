package pipelinetest

import "math"

// Corrected are the weights of backwards with PipeMare's second technique, T2 (Yang et al. 2021, section 3.2): for stage s
//
//	u = w - τ_s δ,  δ' = γ δ + (1-γ)(w' - w),  γ = D^{1/τ_s}
//
// where an update makes w' of the latest weights w, and δ begins as 0. Computed in float64, u rounded once.
type Corrected struct {
	Delays []float64 // τ of the stages; 0: not corrected
	Decay  float64   // D
}

// drift is δ of the trained parameters of a stage.
type drift [][]float64

// follow moves δ of a stage behind an update from before to after, and returns u.
func (c *Corrected) follow(s int, d *drift, before, after [][]float32) (u [][]float32) {
	tau := c.Delays[s]
	gamma := math.Pow(c.Decay, 1/tau)
	if *d == nil {
		for _, w := range before {
			*d = append(*d, make([]float64, len(w)))
		}
	}
	for i, w := range after {
		estimate := make([]float32, len(w))
		for k, x := range w {
			delta := &(*d)[i][k]
			*delta = gamma**delta + (1-gamma)*(float64(x)-float64(before[i][k]))
			estimate[k] = float32(float64(x) - tau**delta)
		}
		u = append(u, estimate)
	}
	return u
}
