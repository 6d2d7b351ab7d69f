package train

import (
	"fmt"
	"math"
)

// Decay is how a learning rate falls after its warm-up.
type Decay uint8

const (
	// Constant stays at the peak.
	Constant Decay = iota
	// Step is multiplied by Gamma every Every steps, counted from the first of the run (Goyal et al., 2017, section 5.1).
	Step
	// Cosine goes down to 0 along half a cosine (Loshchilov and Hutter, SGDR, 2017, equation 5, without restarts).
	Cosine
)

// Rate is a learning rate over the steps of a run: a linear warm-up to Peak (Goyal et al., 2017, section 2.2), then a decay.
type Rate struct {
	Peak   float64
	Warmup int // steps
	Decay  Decay
	Every  int     // steps, of Step
	Gamma  float64 // of Step
	Steps  int     // of the whole run, for Cosine
}

// At returns the rate of a step, counted from 0.
func (r Rate) At(step int) float32 {
	if step < r.Warmup {
		return float32(r.Peak * float64(step+1) / float64(r.Warmup))
	}
	switch r.Decay {
	case Step:
		return float32(r.Peak * math.Pow(r.Gamma, float64(step/r.Every)))
	case Cosine:
		done := float64(step-r.Warmup) / float64(max(r.Steps-r.Warmup, 1))
		return float32(r.Peak * (1 + math.Cos(math.Pi*done)) / 2)
	}
	return float32(r.Peak)
}

// String names everything that At depends on: equal words, equal rates.
func (r Rate) String() string {
	s := fmt.Sprintf("constant %v", r.Peak)
	switch r.Decay {
	case Step:
		s = fmt.Sprintf("step %v, times %v every %d steps", r.Peak, r.Gamma, r.Every)
	case Cosine:
		s = fmt.Sprintf("cosine %v over %d steps", r.Peak, r.Steps)
	}
	if r.Warmup > 0 {
		s += fmt.Sprintf(", warm-up of %d steps", r.Warmup)
	}
	return s
}
