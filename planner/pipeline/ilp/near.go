package ilp

import (
	"context"
	"slices"

	"plimsoll/planner/pipeline"
)

// near looks for better plans near the best one. HiGHS, as it is bound here, takes no plan to start from. If only a few layers in a row may
// move, the program is small, and it is solved in less time than the whole program. If it finds no plan, this says nothing about the rest.

const (
	narrow   = 4    // layers in a row that may move, at first
	stride   = 2    // between the first layers of windows; and what they grow by
	progress = 1e-3 // by which part a period has to be shorter
	effort   = 0.05 // of the time that is left, for each window
)

// near improves a plan until no window does that leaves a layer where it is, or until half of the time is over. Errors: the
// context's when it was cancelled.
func (s *search) near(ctx context.Context, best *pipeline.Plan) (*pipeline.Plan, error) {
	until := s.half()
	for width := narrow; width < s.layers() && !until(); width += stride {
		var err error
		if best, err = s.windows(ctx, best, width, until); err != nil {
			return nil, err
		}
	}
	return best, nil
}

// windows improves a plan until no window of a width does, or the time is over.
func (s *search) windows(ctx context.Context, best *pipeline.Plan, width int, over func() bool) (*pipeline.Plan, error) {
	n := s.layers()
	for first, idle := 0, 0; idle*stride < n && !over(); first, idle = (first+stride)%n, idle+1 {
		target := best.Period * (1 - max(progress, s.gap()))
		if target < s.fastest() {
			break
		}
		plan, answer, err := s.ask(ctx, target, best.Period, effort, opened(best, first, width))
		if err != nil {
			return nil, err
		}
		if answer == found {
			best, idle = plan, -1
		}
	}
	return best, nil
}

// opened returns the devices of the layers of a plan, but a window of them open.
func opened(p *pipeline.Plan, first, width int) []int {
	var devices []int
	for _, st := range p.Stages {
		devices = append(devices, slices.Repeat(st.Devices[:1], st.Len())...)
	}
	for i := range width {
		devices[(first+i)%len(devices)] = open
	}
	return devices
}
