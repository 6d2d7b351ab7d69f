package joint

import (
	"context"
	"math"
	"math/bits"

	"plimsoll/planner/pipeline/periodic"
)

// bound returns a time that no plan takes less than for a minibatch in which each device has one stage and replicas take minibatches in turn,
// whatever its schedule.
//
// In a time T for each minibatch, r devices that share a stage of layers i..j have r·T for each of theirs. That is at least their time to
// compute it, and their gradients' time on a link (summing). A link between them and r' others has lcm(r, r')·T for each minibatch, at
// least the time of its messages. A minibatch that enters stays until layers i..n have run, forward and backward, so U(i,n)/(r·T) of them
// are in the memory of one of the devices at one instant. Any sequence makes the saved sets again that it does not keep for all of them
// between F and B. The sets that save most seconds for their bytes are kept (a fractional knapsack). All conditions on a stage depend on
// itself and on r'. A dynamic program finds how many devices layers i..n need at least, when the first of their stages has r. If all
// layers need more than there are, T is too short. Every device is given the most memory of all, every link the bandwidth of the fastest;
// where stages may offload, memory is counted for weights and buffers alone.
//
// Time: O(n²P + nP²) for each T, beside the sequences. It is 0 when the context ends.
func (c *cutter) bound(ctx context.Context) float64 {
	c.kept = newKeeper(c.Chain)
	c.work()
	low, high := 0.0, c.longest()
	for high > low*(1+precision) {
		if middle := (low + high) / 2; c.enough(ctx, middle) {
			high = middle
		} else {
			low = middle
		}
		if low == 0 && high < periodic.Instant || ctx.Err() != nil {
			return 0
		}
	}
	return low
}

// enough reports whether a period may be possible.
func (c *cutter) enough(ctx context.Context, period float64) bool {
	n, p := c.costs.Len(), c.Platform.Devices
	fewest := make([][]int, n+2) // devices for layers i..n, by layer i and devices of its stage
	behind := make([][]int, n+2) // the same for the layers behind i, by layer i and devices of the stage that ends with it
	for i := range fewest {
		fewest[i], behind[i] = make([]int, p+1), make([]int, p+1)
	}
	for i := n; i >= 1 && ctx.Err() == nil; i-- {
		for r := 1; r <= p; r++ {
			behind[i][r] = c.behind(fewest[i+1], i, r, period)
		}
		for r := 1; r <= p; r++ {
			fewest[i][r] = p + 1
			for j := i; j <= n && fewest[i][r] > r && c.costs.U(i, j) <= float64(r)*period*loose; j++ {
				if rest := behind[j][r]; r+rest < fewest[i][r] && c.may(i, j, r, float64(r)*period) {
					fewest[i][r] = r + rest
				}
			}
		}
	}
	for r := 1; r <= p; r++ {
		if fewest[1][r] <= p {
			return true
		}
	}
	return false
}

// behind returns how many devices the layers behind layer i need, when r devices have the stage that ends with it.
func (c *cutter) behind(fewest []int, i, r int, period float64) int {
	if i == c.costs.Len() {
		return 0
	}
	least := c.Platform.Devices + 1
	for next := 1; next < len(fewest); next++ {
		if every := periodic.LCM(r, next); float64(c.costs.Boundary(i))/c.fastest*c.share() <= float64(every)*period*loose {
			least = min(least, fewest[next])
		}
	}
	return least
}

// share is which part of the messages of a boundary one direction of a link carries at least, where each has its own.
func (c *cutter) share() float64 {
	if c.Platform.Duplex {
		return 0.5
	}
	return 1
}

// may reports whether r devices may have a stage of layers i..j, with so many seconds for each of their minibatches.
func (c *cutter) may(i, j, r int, turn float64) bool {
	work, summed := c.costs.U(i, j), float64(c.costs.Summed(i, j))
	if work > turn*loose || c.summing(summed, r) > turn*loose {
		return false
	}
	memory := largest(c.Platform)
	live := max(1, int(math.Ceil(c.costs.U(i, c.costs.Len())/turn*(1-1e-9))))
	if c.need.Bytes(0, i, j, live) <= memory || c.Platform.Host > 0 && c.need.Static(0, i, j, live) <= memory {
		return true
	}
	free := float64(memory - c.need.Static(0, i, j, live))
	kept, rest := free/float64(live), free-float64(c.backward(i, j)) // of each; of all but the one whose backward runs
	if live > 1 {
		kept = min(kept, rest/float64(live-1))
	}
	room := kept - float64(c.Chain.Activation(i-1))
	return room >= 0 && rest >= 0 && work+c.kept.seconds(i, j, room) <= turn*loose
}

// summing returns for how long the busiest link between r devices is used, at least, when they add up gradients of so many bytes.
//
// Proof. Take any byte, and the message behind which a device has the sum of all r gradients for the first time. By then each of the
// r-1 others has sent its own. Each of them needs one message more, for none has the sum. So 2(r-1) messages carry the byte, whatever
// the algorithm, and r(r-1)/2 links share them.
func (c *cutter) summing(bytes float64, r int) float64 {
	if r == 1 {
		return 0
	}
	return bytes / c.fastest * 4 / float64(r) * c.share()
}

// backward returns the least bytes of a minibatch of a stage with ops while the backward of one of its layers runs. These are the inputs of
// the stage and of the layer, the layer's saved set, and the gradients.
func (c *cutter) backward(i, j int) int64 {
	if i == j {
		return c.working[0][i]
	}
	k := bits.Len(uint(j-i)) - 1
	return max(c.working[0][i], c.Chain.Activation(i-1)+max(c.working[k][i+1], c.working[k][j+1-1<<k]))
}

// work finds the memory of each layer's backward without the input of its stage, and the most of 2, 4, 8 and more consecutive layers. Tables are by
// the power of two and the first layer.
func (c *cutter) work() {
	n := c.costs.Len()
	c.working = [][]int64{make([]int64, n+1)}
	for l := 1; l <= n; l++ {
		layer := c.Chain.Layer(l)
		c.working[0][l] = c.Chain.Activation(l-1) + layer.SavedBytes + c.Chain.Gradient(l) + c.Chain.Gradient(l-1) + layer.BackwardOverheadBytes
	}
	for k := 1; 1<<k <= n; k++ {
		of := make([]int64, n+1)
		for l := 1; l+1<<k-1 <= n; l++ {
			of[l] = max(c.working[k-1][l], c.working[k-1][l+1<<(k-1)])
		}
		c.working = append(c.working, of)
	}
}

// loose is more than the judge's tolerance, as a factor.
const loose = 1 + 1e-8
