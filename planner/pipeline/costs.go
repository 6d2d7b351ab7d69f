package pipeline

import "plimsoll/planner/chain"

// Costs answers in constant time what ranges of layers of a chain cost. Layers are counted from 1, ranges i..j include
// both ends: 1 <= i <= j <= n. Times are seconds, sizes bytes.
type Costs struct {
	Chain *chain.Chain
	// prefix sums over layers; [0] is 0
	forward, backward, backwardInput, backwardWeight []float64
	weights, summed, inputs, saved                   []int64
	shared                                           []int // layers with weights of other layers
}

// NewCosts prepares the sums of a chain.
func NewCosts(c *chain.Chain) *Costs {
	k := &Costs{Chain: c}
	k.forward = prefix(c, func(l int) float64 { return c.Layer(l).ForwardS })
	k.backward = prefix(c, func(l int) float64 { return c.Layer(l).BackwardS })
	k.backwardInput = prefix(c, func(l int) float64 { return value(c.Layer(l).BackwardInputS) })
	k.backwardWeight = prefix(c, func(l int) float64 { return value(c.Layer(l).BackwardWeightS) })
	k.weights = prefix(c, func(l int) int64 {
		if c.Shares(l) {
			return 0
		}
		return c.Layer(l).WideWeights()
	})
	k.summed = prefix(c, func(l int) int64 { return c.SummedWeights(l) })
	k.inputs = prefix(c, func(l int) int64 { return c.Inputs(l) })
	k.saved = prefix(c, func(l int) int64 { return c.Layer(l).SavedBytes })
	for l := range c.Len() {
		if c.Shares(l + 1) {
			k.shared = append(k.shared, l+1)
		}
	}
	return k
}

func prefix[T int64 | float64](c *chain.Chain, of func(layer int) T) []T {
	sums := make([]T, c.Len()+1)
	for l := 1; l <= c.Len(); l++ {
		sums[l] = sums[l-1] + of(l)
	}
	return sums
}

func value(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// Len returns n, the number of layers with the loss.
func (k *Costs) Len() int { return k.Chain.Len() }

// U returns U(i,j), the time of forward and backward of layers i..j.
func (k *Costs) U(i, j int) float64 { return k.Forward(i, j) + k.Backward(i, j) }

// Forward returns the time of the forward of layers i..j.
func (k *Costs) Forward(i, j int) float64 { return k.forward[j] - k.forward[i-1] }

// Backward returns the time of the whole backward of layers i..j.
func (k *Costs) Backward(i, j int) float64 { return k.backward[j] - k.backward[i-1] }

// BackwardInput returns the time of the input half of the backward of layers i..j; see CanSplit.
func (k *Costs) BackwardInput(i, j int) float64 { return k.backwardInput[j] - k.backwardInput[i-1] }

// BackwardWeight returns the time of the weight half of the backward of layers i..j; see CanSplit.
func (k *Costs) BackwardWeight(i, j int) float64 { return k.backwardWeight[j] - k.backwardWeight[i-1] }

// CanSplit returns 0 when every layer has both halves of its backward, or else the first layer that lacks one.
func (k *Costs) CanSplit() (lacking int) {
	for l := 1; l <= k.Len(); l++ {
		if layer := k.Chain.Layer(l); layer.BackwardInputS == nil || layer.BackwardWeightS == nil {
			return l
		}
	}
	return 0
}

// OwnWeights returns the weights of layers i..j, once.
func (k *Costs) OwnWeights(i, j int) int64 { return k.weights[j] - k.weights[i-1] }

// Weights returns the weights of layers i..j, once, with those that they share with other layers.
func (k *Costs) Weights(i, j int) int64 {
	bytes := k.OwnWeights(i, j)
	for _, l := range k.shared {
		if o := k.Chain.Owner(l); i <= l && l <= j && (o < i || o > j) {
			bytes += k.Chain.Layer(o).WideWeights()
		}
	}
	return bytes
}

// ReceivesShared returns the bytes of blocks for gradients of the weights of layers i..j that layers of other stages share, on devices without
// these stages.
func (k *Costs) ReceivesShared(i, j int) (bytes int64) {
	for _, l := range k.shared {
		if o := k.Chain.Owner(l); i <= o && o <= j && (l < i || l > j) {
			bytes += k.Chain.SummedWeights(l)
		}
	}
	return bytes
}

// Summed returns the bytes of the gradients that replicas of a stage of layers i..j add up: of weights that are not frozen.
func (k *Costs) Summed(i, j int) int64 { return k.summed[j] - k.summed[i-1] }

// Held returns the bytes that one live minibatch holds in a stage i..j: the inputs a_{i-1}..a_{j-1} of its layers or,
// accounting saved, a_{i-1} and the saved sets of layers i..j.
func (k *Costs) Held(i, j int, a Accounting) int64 {
	if a == Saved {
		return k.Chain.Activation(i-1) + k.saved[j] - k.saved[i-1]
	}
	return k.inputs[j] - k.inputs[i-1]
}

// Boundary returns the bytes a_l + δ_l that pass between layers l and l+1 for a minibatch; the buffers of the
// boundary on each side have as many. It is 0 at the ends of the chain (l = 0, l = n).
func (k *Costs) Boundary(l int) int64 {
	if l <= 0 || l >= k.Len() {
		return 0
	}
	return k.Chain.Activation(l) + k.Chain.Gradient(l)
}

// Buffers returns the communication buffers of a stage i..j whose neighbours are on other devices (thesis assumption 5).
func (k *Costs) Buffers(i, j int) int64 { return k.Boundary(i-1) + k.Boundary(j) }

// Memory returns M(i,j,g), the memory of a device that holds the stage i..j alone with at most g live minibatches and
// copies of its weights (thesis, chapter 6):
//
//	copies·W(i,j) + g·Held(i,j) + Buffers(i,j)
//
// Without buffers, subtract Buffers. Fractions of bytes round up.
func (k *Costs) Memory(i, j, g int, copies float64, a Accounting) int64 {
	return weightBytes(copies, k.Weights(i, j)) + int64(g)*k.Held(i, j, a) + k.Buffers(i, j)
}

// weightBytes returns copies times a size, rounded up.
func weightBytes(copies float64, size int64) int64 {
	if n := int64(copies); float64(n) == copies {
		return n * size
	}
	return ceil(times(copies, size))
}

// C returns C(l), the time of both communications of the boundary between layers l and l+1 over a link of bandwidth
// beta; 0 at the ends of the chain.
func (k *Costs) C(l int, beta float64) float64 { return float64(k.Boundary(l)) / beta }

// Virtual is a stage, or a boundary between two stages on different devices. A half-duplex pipeline treats both alike:
// one resource runs their forward and backward. 1F1B* on them is exact (thesis, section 5.2).
type Virtual struct {
	Stage             int  // the stage, or the stage before the boundary
	Boundary          bool // a boundary: CF and CB of Stage
	Forward, Backward float64
}

// U returns the load of the resource, seconds.
func (v Virtual) U() float64 { return v.Forward + v.Backward }

// Virtuals returns the virtual stages of contiguous stages (one device each), in order: at most 2P-1 for P stages.
// Boundaries inside one device and those that take no time are left out.
func (k *Costs) Virtuals(stages []Stage, p *Platform) []Virtual {
	var out []Virtual
	for s, st := range stages {
		out = append(out, Virtual{Stage: s, Forward: k.Forward(st.First, st.Last), Backward: k.Backward(st.First, st.Last)})
		if s+1 == len(stages) {
			break
		}
		x, y, l := st.Devices[0], stages[s+1].Devices[0], st.Last
		link := Virtual{Stage: s, Boundary: true, Forward: p.Seconds(k.Chain.Activation(l), x, y), Backward: p.Seconds(k.Chain.Gradient(l), x, y)}
		if link.U() > 0 {
			out = append(out, link)
		}
	}
	return out
}
