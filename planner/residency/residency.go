// Package residency finds cyclic plans of one device. A plan decides which weights, gradients and optimizer state stay on the device, and
// when the others are fetched and written back. It also decides whether the device or the host updates a layer, which activations are
// recomputed or offloaded, and the order of the microbatches. Package cycle judges and times plans, by the design's section 8.
//
// A plan is made in four steps, each a file:
//
//   - File order makes the forwards and backwards of a step, by microbatch, by layer or in groups, with recomputation.
//   - File layout puts the device updates among them, and finds the gaps between two uses of an item, in which it may leave the device.
//   - File keep chooses which gaps an item stays through, for the room that the limit leaves at each turn.
//   - File place chooses where in the sequence copies and host updates stand.
//
// The named strategies fix most choices as the literature does. Auto starts from all of them and searches.
// The package knows no tensor, device or clock.
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
