// Package residency finds cyclic plans of one device; package cycle judges and times them. A plan decides which weights, gradients and
// optimizer state stay on the device, and when the others are fetched and written back. It also decides where layers are updated, which
// activations are recomputed or offloaded, and the order of microbatches. Auto starts from all named strategies and searches. The package
// knows no tensor, device or clock.
//
// A plan is made in four steps, each a file:
//
//	order   forwards and backwards of a step, by microbatch, by layer or in groups, with recomputation
//	layout  device updates, and the gaps between two uses of an item, in which it may leave the device
//	keep    gaps that an item stays through, for the room that the limit leaves
//	place   copies and host updates in the sequence
package residency

import "context"

// Solve finds a plan. Its in-order peak is within the limit too, so that no duration can make it wait for ever.
// Errors: those of cycle.NewSimulator, *UnknownError, *InfeasibleError, *HostError, the context's, and those of
// Simulator.Run where no sequence that was tried has a steady state.
func Solve(ctx context.Context, r Request) (*Plan, error) {
	p, err := newProblem(ctx, r)
	if err != nil {
		return nil, err
	}
	s := newSearch(p)
	if r.Strategy != "" && r.Strategy != Auto {
		err = s.runNamed(r.Strategy)
	} else {
		err = s.search()
	}
	if err != nil {
		return nil, err
	}
	if s.best == nil {
		return nil, s.refusal()
	}
	return s.plan()
}
