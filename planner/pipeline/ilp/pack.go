package ilp

import (
	"context"

	"plimsoll/planner/pipeline"
)

// pack: which memory is enough for some schedule. Every schedule has all layers of a device live at once, when their minibatch
// reaches the loss; running one minibatch at a time needs no more. So an allocation fits when each device holds its weights, its
// buffers and one live minibatch of each stage: an integer program without times.

// packing is an allocation that exceeds the memory of some devices by as little as possible.
type packing struct {
	devices []int // of each layer
	excess  int64 // bytes that the largest device lacks; at most 0: it fits
	proved  bool  // no allocation lacks less
}

// pack returns the best allocation for devices of these memories. Errors: those of milp.
func (s *search) pack(ctx context.Context, memory []int64) (*packing, error) {
	var p rows
	a := newAllocation(s.instance, &p, nil)
	a.bounds()
	unit := max(1, float64(a.need.Bytes(0, 1, a.layers(), 1)))
	excess := p.Var(1, 0, 2)
	for d, m := range memory {
		if m == pipeline.NoLimit {
			continue
		}
		a.p.atLeast(of(excess).plus(float64(m)/unit, number(1)), a.alone(d, unit))
	}
	found, err := s.run(ctx, &p.Program, 1)
	if err != nil {
		return nil, err
	}
	devices := a.read(found)
	return &packing{devices, a.lacking(devices, memory), found.Proved}, nil
}

// alone returns the bytes that a device holds while one minibatch runs at a time; its neighbouring layers are one stage.
func (a *allocation) alone(d int, unit float64) (s sum) {
	for l := 1; l <= a.layers(); l++ {
		s = s.plus((a.weights(l, 1)+a.own(l))/unit, of(a.on[l][d]))
		s = s.plus((a.held(l)-a.own(l))/unit, a.begins(l, d))
		if l < a.layers() {
			s = s.plus(float64(a.need.Boundary(l))/unit, of(a.borders[l][d]))
		}
	}
	return s
}

// begins returns whether a stage of a device begins with a layer.
func (a *allocation) begins(l, d int) sum {
	if l == 1 {
		return of(a.on[l][d])
	}
	b := of(a.p.Var(0, 0, 1))
	a.p.atLeast(b.plus(1, of(a.on[l-1][d])), of(a.on[l][d]))
	return b
}

// lacking returns by how many bytes an allocation exceeds the memories, at most; 0 when it does not.
func (in *instance) lacking(devices []int, memory []int64) (most int64) {
	need := in.needs(devices)
	for d, m := range memory {
		if need[d] > m {
			most = max(most, need[d]-m)
		}
	}
	return most
}

// needs returns the bytes that each device needs for one minibatch at a time.
func (in *instance) needs(devices []int) []int64 {
	all := make([]int64, in.Platform.Devices)
	for _, st := range stages(devices) {
		d := st.Devices[0]
		all[d] += in.need.Bytes(0, st.First, st.Last, 1)
	}
	return all
}

// fewest returns the smallest memory of each device that is enough. Errors: those of milp.
func (s *search) fewest(ctx context.Context) (*packing, error) {
	return s.pack(ctx, make([]int64, s.Platform.Devices))
}
