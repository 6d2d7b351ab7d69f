package ilp

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

// ErrTooLarge means that the program for a chain would be too large.
var ErrTooLarge = errors.New("chain too large for this strategy")

// instance is a request that has been looked at: layers 1..n, each a stage of its own, on devices 0..P-1.
type instance struct {
	pipeline.Request
	costs *pipeline.Costs
	need  *periodic.Footprint
	alike bool // devices and links do not differ
}

// newInstance looks at a request. Errors: ErrTooLarge, periodic.ErrOptions, those of Request.Validate.
func newInstance(r pipeline.Request) (*instance, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if n := r.Chain.Len(); n > mostLayers {
		return nil, fmt.Errorf("%w: %d layers with the loss, ilp's limit is %d: group layers, or take madpipe", ErrTooLarge, n, mostLayers)
	}
	in := &instance{Request: r, costs: pipeline.NewCosts(r.Chain), alike: r.Platform.Uniform()}
	var err error
	in.need, err = periodic.NewFootprint(in.costs, r, 0)
	return in, err
}

// layers returns n, the loss included.
func (in *instance) layers() int { return in.costs.Len() }

// weights returns the bytes of the weights of a layer, all copies, with so many live minibatches. Fractions stay: the check
// rounds the sum of a device.
func (in *instance) weights(l, live int) float64 {
	return in.need.Copies(0, live) * float64(in.costs.OwnWeights(l, l))
}

// held returns the bytes that a live minibatch holds for a layer.
func (in *instance) held(l int) float64 { return float64(in.need.Held(l, l)) }

// own returns the bytes that a live minibatch holds for a layer that is not the first of its stage. The input does not count if it
// is part of the saved set of the layer before.
func (in *instance) own(l int) float64 {
	if l == 1 {
		return in.held(l)
	}
	return float64(in.need.Held(l-1, l) - in.need.Held(l-1, l-1))
}

// limited reports whether some device has a memory limit.
func (in *instance) limited() bool {
	return slices.ContainsFunc(in.Platform.Memory, func(m int64) bool { return m != pipeline.NoLimit })
}

// roomy returns the largest memory of a device that has a limit: the unit of sizes.
func (in *instance) roomy() float64 {
	most := int64(1)
	for _, m := range in.Platform.Memory {
		if m != pipeline.NoLimit {
			most = max(most, m)
		}
	}
	return float64(most)
}

// fastest returns a period that no schedule is below: the largest layer's, or an equal share of all. Seconds.
func (in *instance) fastest() float64 {
	n := in.layers()
	low := in.costs.U(1, n) / float64(in.Platform.Devices)
	for l := 1; l <= n; l++ {
		low = max(low, in.costs.U(l, l))
	}
	return max(low, periodic.Instant)
}

// slowest returns the longest that bytes take between two different devices that a link joins; +Inf: on none.
func (in *instance) slowest(bytes int64) float64 {
	most := math.Inf(-1)
	for x := range in.Platform.Devices {
		for y := range x {
			if in.Platform.Beta(x, y) > 0 {
				most = max(most, in.Platform.Seconds(bytes, x, y))
			}
		}
	}
	return max(0, most)
}

// stages returns the ranges of layers of an allocation, which names the device of each layer.
func stages(devices []int) []pipeline.Stage {
	var all []pipeline.Stage
	for i, d := range devices {
		if last := len(all) - 1; last >= 0 && all[last].Devices[0] == d {
			all[last].Last = i + 1
		} else {
			all = append(all, pipeline.Stage{First: i + 1, Last: i + 1, Devices: []int{d}})
		}
	}
	return all
}

// mostLayers is how many layers a program is made for. That of more takes longer to set up than most searches may last.
const mostLayers = 64
