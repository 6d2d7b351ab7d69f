package bound

import "plimsoll/planner/chain"

// Memory returns a peak that no sequence is below: what F^all_l or B_l needs beside its input, whatever else has gone; without a link
// a_0 stays to the end. O(n).
func Memory(c *chain.Chain, link bool) (peak int64) {
	for l := 1; l <= c.Len(); l++ {
		layer := c.Layer(l)
		before := c.Activation(l - 1)
		if l > 1 && !link {
			before += c.Activation(0)
		}
		forward := layer.ForwardOverheadBytes
		backward := layer.BackwardOverheadBytes + c.Gradient(l) + c.Gradient(l-1)
		peak = max(peak, before+c.Saved(l)+max(forward, backward))
	}
	return peak
}
