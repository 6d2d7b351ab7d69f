// Package chain holds the costs of a chain of layers: what a planner may know about a model.
//
// A chain is layers 1..L and the loss, layer n = L+1; each layer needs only the output of the layer
// before it. The package knows nothing of tensors, devices or clocks: it reads, validates, groups,
// scales and writes costs (file format plimsoll.chain/v1).
package chain

import (
	"cmp"
	"encoding/json"
)

// Format is the value of the "format" field of a chain file.
const Format = "plimsoll.chain/v1"

// Chain is the measured costs of a chain of layers. Times are seconds, sizes bytes, bandwidths bytes per second.
//
// Invariants (checked by Validate): at least one layer; every time finite and not negative; every size not
// negative; SavedBytes >= OutputBytes for every layer.
type Chain struct {
	Name       string
	InputBytes int64   // a_0
	Layers     []Layer // layers 1..n in order; the last one is the loss
	Bandwidth  float64 // device to host link, bytes/s; 0 when unknown
	// HostMemoryBandwidth, bytes/s, is shared by updates on the host and copies; 0 when unknown.
	HostMemoryBandwidth float64
	Device              string
	DType               string
	Batch               int
	Estimated           bool // times and bandwidths were computed from a description of the device, and nothing was measured
	// CopiesBeside is how much slower copies are beside computation; nil: not at all.
	CopiesBeside *CopiesBeside
	// HostUpdatesBeside is how much slower updates on the host are beside copies, and CopiesBesideHostUpdates the reverse; nil: not at all.
	HostUpdatesBeside       *Beside
	CopiesBesideHostUpdates *CopiesBeside
	// OpsBesideHostUpdates is how many times as long ops take while the host updates, and HostUpdatesBesideOps the reverse; nil: once.
	OpsBesideHostUpdates, HostUpdatesBesideOps *float64
	// Branches are the layers of each branch of a model whose branches meet in one loss, nil for a chain. Layers lists the
	// branches one after the other, then the layers behind them; every branch has an input of InputBytes. See Wiring.
	Branches []int
	// Others are the same layers at other batch sizes, none of which has others; nil: they were measured at one. See Sizes.
	Others []*Chain
	// Extra keeps the fields of the file that this package does not know, so that nothing is lost on rewriting.
	Extra map[string]json.RawMessage
}

// Layer is the costs of one layer ℓ.
type Layer struct {
	Name                  string
	ForwardS              float64 // u_F: forward that saves everything backward needs
	BackwardS             float64 // u_B
	OutputBytes           int64   // a_ℓ
	SavedBytes            int64   // ā_ℓ: includes the output, excludes the input
	GradientBytes         int64   // δ_ℓ
	ForwardOverheadBytes  int64   // o_F
	BackwardOverheadBytes int64   // o_B
	WeightBytes           int64   // parameters, as forward and backward read them; counted by pipelines and cyclic plans only
	Update                Update  // of the weights; counted by cyclic plans, and behind the makespans of plans with a flush
	// UnroundedWeightBytes is WeightBytes with all parameters in float32, where some are rounded; 0: none is. See WideWeights.
	UnroundedWeightBytes int64

	// DiscardForwardS and DiscardOverheadBytes are the cost of a forward that saves nothing for backward
	// (forward_checkpoint and forward_discard); nil means as ForwardS and ForwardOverheadBytes.
	DiscardForwardS      *float64
	DiscardOverheadBytes *int64
	// BackwardInputS and BackwardWeightS are the two halves of backward, for split-backward schedules; nil when unknown.
	BackwardInputS  *float64
	BackwardWeightS *float64
	// ForwardBeside, of all forwards, and BackwardBeside are how much slower the ops are while copies run; nil: not at all.
	ForwardBeside, BackwardBeside *Beside

	Extra map[string]json.RawMessage

	inner int64 // inputs of all layers but the first, of a layer that Group has merged
}

// Len returns n = L+1, the number of layers with the loss.
func (c *Chain) Len() int { return len(c.Layers) }

// Layer returns layer l, 1 <= l <= Len().
func (c *Chain) Layer(l int) *Layer { return &c.Layers[l-1] }

// Activation returns the bytes of a_i, 0 <= i <= Len().
func (c *Chain) Activation(i int) int64 {
	if i == 0 {
		return c.InputBytes
	}
	return c.Layers[i-1].OutputBytes
}

// Inputs returns the bytes of the inputs of a layer, 1 <= l <= Len(): of one that Group has merged, those of all its layers. Files do not have it.
func (c *Chain) Inputs(l int) int64 { return c.Activation(l-1) + c.Layer(l).inner }

// Saved returns the bytes of ā_i, 0 <= i <= Len(); ā_0 = a_0.
func (c *Chain) Saved(i int) int64 {
	if i == 0 {
		return c.InputBytes
	}
	return c.Layers[i-1].SavedBytes
}

// Gradient returns the bytes of δ_i, 0 <= i <= Len(): δ_0 has the size of a_0, δ_{L+1} is empty.
func (c *Chain) Gradient(i int) int64 {
	switch i {
	case 0:
		return c.InputBytes
	case len(c.Layers):
		return 0
	}
	return c.Layers[i-1].GradientBytes
}

// DiscardSeconds returns the time of a forward that saves nothing for backward.
func (l *Layer) DiscardSeconds() float64 {
	if l.DiscardForwardS != nil {
		return *l.DiscardForwardS
	}
	return l.ForwardS
}

// DiscardOverhead returns the overhead of a forward that saves nothing for backward.
func (l *Layer) DiscardOverhead() int64 {
	if l.DiscardOverheadBytes != nil {
		return *l.DiscardOverheadBytes
	}
	return l.ForwardOverheadBytes
}

// Update holds the costs of updating a layer's weights (design, section 8). The zero value has no optimizer state.
// Its gradient has the size of the weights, and its update takes no time on the device and cannot run on the host.
type Update struct {
	GradientBytes *int64 // weight_gradient_bytes; nil: as WeightBytes; 0: the layer is frozen
	// Gradients that are kept rounded are added up in float32, in so many bytes of the backward's overhead; 0: none is.
	WideGradientBytes int64
	StateBytes        int64    // what an update needs beyond weights and gradient: moments, a master copy of rounded weights
	DeviceS           float64  // update_s, on the device
	HostS             *float64 // host_update_s; nil: the host cannot
	NormS             float64  // norm_s, in which the device adds up the squares of the gradient, where gradients are clipped
	// WeightsOf is the layer whose weights these are, where two layers are tied, numbered from 1; 0: the layer's own. The sizes and times of
	// the owner count.
	WeightsOf int

	owner string // weights_of of a file that names the layer, until the chain is read
}

// Owner returns the layer whose weights layer l reads, l itself where they are its own; 0: it has none.
func (c *Chain) Owner(l int) int {
	switch layer := c.Layer(l); {
	case layer.Update.WeightsOf > 0:
		return layer.Update.WeightsOf
	case layer.WeightBytes > 0:
		return l
	}
	return 0
}

// WideWeights returns the bytes of the layer's parameters without rounding, as plans for several devices have them.
func (l *Layer) WideWeights() int64 {
	return cmp.Or(l.UnroundedWeightBytes, l.WeightBytes)
}

// WeightGradient returns the bytes of the gradient of the layer's own weights; 0: the layer is frozen, or has none.
func (l *Layer) WeightGradient() int64 {
	if l.Update.GradientBytes != nil {
		return *l.Update.GradientBytes
	}
	return l.WeightBytes
}

// SummedWeights returns the bytes of gradients that replicas of layer l add up. A layer whose weights are another one's has a gradient of
// its own.
func (c *Chain) SummedWeights(l int) int64 {
	if c.Shares(l) {
		return c.Layer(c.Owner(l)).SummedWeights()
	}
	return c.Layer(l).SummedWeights()
}

// Shares reports whether layer l of a chain without branches has the weights of another layer. It may repeat their bytes.
func (c *Chain) Shares(l int) bool { return c.Layer(l).Update.WeightsOf > 0 && len(c.Branches) == 0 }

// SummedWeights returns the bytes of gradients that replicas of the layer add up: of weights without rounding, frozen ones left out.
func (l *Layer) SummedWeights() int64 {
	if l.Update.GradientBytes != nil {
		return min(*l.Update.GradientBytes, l.WideWeights())
	}
	return l.WideWeights()
}

// Beside is how many times as long an op takes while copies at the chain's Bandwidth run beside it: to the host, to the device, both ways at
// once. Each at least 1.
type Beside [3]float64

// CopiesBeside is how many times as long a copy to the host, and one to the device, takes while an op, or an update on the host, runs
// beside it. Each at least 1.
type CopiesBeside [2]float64

// Ways that copies between device and host memory can go while an op runs.
const (
	ToHost = iota
	ToDevice
	BothWays
)
