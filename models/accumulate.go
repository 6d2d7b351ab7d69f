package models

import (
	"slices"

	"plimsoll/kernels"
)

// Accumulating returns the step's call for gradient accumulation: it adds gradients of parameters to those in Grads. The
// first microbatch of a minibatch runs Step.Call, the others run this call. A step without such gradients is the same in
// both.
//
// It is sound for every step of Back, BackInput and BackParams. Each gradient of a parameter is written by one step, and
// no other step touches its bytes. Grads holds no temporaries, and no op lets a DParam share memory. The sum is the
// library's: it rounds where its kernel adds, not where two whole gradients would be added. So microbatches in the same
// order give the same bits, in halves or not, in other orders others.
//
// A twin sums in the Grads block of its own; the sum over the twins follows the last microbatch.
//
// The workspace may be another one: see Accumulation.
func (s *Step) Accumulating() kernels.Call {
	c := s.Call
	c.AddParams = writesGradients(c)
	return c
}

// writesGradients reports whether the call computes gradients of parameters.
func writesGradients(c kernels.Call) bool {
	trained := func(p kernels.Param) bool { return p.Trained }
	return (c.Pass == kernels.Backward || c.Pass == kernels.BackwardParams) && slices.ContainsFunc(c.Op.Params(c.In), trained)
}

// Accumulation returns a library like lib whose workspaces suffice for Step.Call and for Step.Accumulating: a model that
// is to run both is compiled for it. A library may choose another algorithm for what it adds to its result.
func Accumulation(lib kernels.Library) kernels.Library { return accumulation{lib} }

type accumulation struct{ kernels.Library }

// Workspace implements kernels.Library.
func (a accumulation) Workspace(c kernels.Call) (int64, error) {
	n, err := a.Library.Workspace(c)
	if err != nil || !writesGradients(c) {
		return n, err
	}
	c.AddParams = true
	more, err := a.Library.Workspace(c)
	return max(n, more), err
}
