package periodic

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
)

// Footprint says what stages need in the memory of a device, with the versions, copies and accounting of a request.
type Footprint struct {
	costs    *pipeline.Costs
	versions pipeline.Versions
	copies   []float64 // nil: those of the versions; one for all stages, or one for each
	held     pipeline.Accounting
	buffers  bool
}

// NewFootprint reads the options of a request for a number of stages; 0 when that is still to be chosen, and then all
// stages must have the same copies. Errors: ErrOptions.
func NewFootprint(k *pipeline.Costs, r pipeline.Request, stages int) (*Footprint, error) {
	f := &Footprint{costs: k, versions: r.Versions, copies: r.WeightCopies, held: r.Accounting, buffers: !r.Platform.NoBuffers}
	if f.versions == "" {
		f.versions = pipeline.DoubleBuffered
	}
	if err := f.known(); err != nil {
		return nil, err
	}
	if f.versions == pipeline.Flush {
		return nil, fmt.Errorf("%w: versions flush: a periodic schedule has no flush; give latest, stash or double_buffered", ErrOptions)
	}
	if _, ok := f.versions.Copies(1); !ok && len(f.copies) == 0 {
		return nil, fmt.Errorf("%w: versions %s: give weight_copies, they do not follow from the versions", ErrOptions, f.versions)
	}
	if n := len(f.copies); n > 1 && n != stages {
		if stages == 0 {
			return nil, fmt.Errorf("%w: weight_copies has %d entries, but the stages are still to be chosen: give one", ErrOptions, n)
		}
		return nil, fmt.Errorf("%w: weight_copies has %d entries, there are %d stages", ErrOptions, n, stages)
	}
	return f, nil
}

// known refuses values that no request may have.
func (f *Footprint) known() error {
	if !slices.Contains(pipeline.AllVersions(), f.versions) {
		return fmt.Errorf("%w: versions %q: give latest, stash, vertical_sync or double_buffered", ErrOptions, f.versions)
	}
	if f.held != "" && f.held != pipeline.Inputs && f.held != pipeline.Saved {
		return fmt.Errorf("%w: accounting %q: give %s or %s", ErrOptions, f.held, pipeline.Inputs, pipeline.Saved)
	}
	for _, x := range f.copies {
		if !(x >= 0) || math.IsInf(x, 1) {
			return fmt.Errorf("%w: weight_copies has %g: give finite numbers, none negative", ErrOptions, x)
		}
	}
	return nil
}

// Copies returns the copies of the weights of a stage with so many live minibatches.
func (f *Footprint) Copies(stage, live int) float64 {
	switch len(f.copies) {
	case 0:
		n, _ := f.versions.Copies(live)
		return n
	case 1:
		return f.copies[0]
	}
	return f.copies[stage]
}

// Held returns the bytes that a live minibatch holds in layers i..j.
func (f *Footprint) Held(i, j int) int64 { return f.costs.Held(i, j, f.held) }

// Boundary returns the buffers that each side of the boundary after layer l needs when its two sides are on different
// devices.
func (f *Footprint) Boundary(l int) int64 {
	if !f.buffers {
		return 0
	}
	return f.costs.Boundary(l)
}

// Bytes returns M(i,j,g) of a stage: copies of its weights, g live minibatches, and the buffers of both boundaries.
func (f *Footprint) Bytes(stage, i, j, g int) int64 {
	bytes := f.costs.Memory(i, j, g, f.Copies(stage, g), f.held)
	if !f.buffers {
		bytes -= f.costs.Buffers(i, j)
	}
	return bytes
}

// Static returns the part of Bytes that live minibatches do not hold: weights and buffers.
func (f *Footprint) Static(stage, i, j, g int) int64 {
	return f.Bytes(stage, i, j, g) - int64(g)*f.Held(i, j)
}

// Sums returns the fewest bytes that each replica of a stage needs for gradients that arrive from another one, as the judge counts them.
// These are two blocks for buckets of a layer each, or one block for all layers.
func (f *Footprint) Sums(i, j int) int64 {
	heaviest := int64(0)
	for l := i; l <= j && f.buffers; l++ {
		heaviest = max(heaviest, f.costs.Summed(l, l))
	}
	return f.SumsOf(f.costs.Summed(i, j), heaviest)
}

// SumsOf is Sums of a stage with so many bytes of weights, and in one layer at most so many.
func (f *Footprint) SumsOf(weights, heaviest int64) int64 {
	if !f.buffers {
		return 0
	}
	return min(weights, 2*heaviest)
}

// Plan returns a plan without tasks and period that says what the footprint counted.
func (f *Footprint) Plan(stages []pipeline.Stage) *pipeline.Plan {
	return &pipeline.Plan{Stages: stages, Versions: f.versions, Copies: pipeline.Copies{WeightCopies: f.copies, Accounting: f.held}}
}
