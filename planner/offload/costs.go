package offload

import (
	"fmt"
	"math"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// costs is a chain in the numbers of the thesis, section 3.1.1, indexed as there. Nothing is recomputed, so that
// every forward is F^all and every activation is a saved set.
//
// Bytes are float64, which holds the sums of all sizes that chains may have. Transfers and times meet in the unit
// "bytes that the link could carry", u·β, in which the equations of section 3.3 have no divisions.
type costs struct {
	n         int
	memory    float64   // M
	bandwidth float64   // β
	duplex    bool      // the link has a queue for each direction
	saved     []float64 // ā_i, 0..n
	below     []float64 // the sum of ā_k, k < i, 0..n+1
	// uF and uB are the times of forwards and backwards, seconds, 1..n.
	uF, uB []float64
	// needF and needB are what F_l and B_l need beside the activations below l: equations 3.1 and 3.2.
	needF, needB []float64
}

// newCosts checks a problem and converts it. Errors: those of chain.Validate, ErrLink.
func newCosts(p strategy.Problem) (*costs, error) {
	c := p.Chain
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := checkLink(p.Link); err != nil {
		return nil, err
	}
	n := c.Len()
	k := &costs{n: n, memory: float64(p.Memory), bandwidth: p.Link.Bandwidth, duplex: p.Link.Duplex}
	sum := 0.0
	k.below = append(k.below, 0)
	for i := range n + 1 {
		k.saved = append(k.saved, float64(c.Saved(i)))
		sum += k.saved[i]
		k.below = append(k.below, sum)
	}
	k.uF, k.uB = make([]float64, n+1), make([]float64, n+1)
	k.needF, k.needB = make([]float64, n+1), make([]float64, n+1)
	for l := 1; l <= n; l++ {
		layer := c.Layer(l)
		k.uF[l], k.uB[l] = layer.ForwardS, layer.BackwardS
		k.needF[l] = k.saved[l] + float64(layer.ForwardOverheadBytes)
		k.needB[l] = k.saved[l] + float64(layer.BackwardOverheadBytes) + float64(c.Gradient(l)) + float64(c.Gradient(l-1))
	}
	return k, nil
}

func checkLink(link schedule.Link) error {
	if b := link.Bandwidth; !(b > 0) || math.IsInf(b, 1) {
		return fmt.Errorf("%w: the bandwidth is %v bytes/s: give that of the link, above 0, as in --bandwidth 12GB/s", ErrLink, b)
	}
	return nil
}

// need returns the bytes that the more demanding of F_l and B_l needs beside the activations below l.
func (k *costs) need(l int) float64 { return max(k.needF[l], k.needB[l]) }

// peak returns M_peak, equation 3.3: what is needed when nothing is offloaded.
func (k *costs) peak() (bytes float64) {
	for l := 1; l <= k.n; l++ {
		bytes = max(bytes, k.need(l)+k.below[l])
	}
	return bytes
}

// smallest returns the least limit at which offloading has a sequence, and the layer that needs it. Only the input
// of the layer must be on the device; everything below it may be away (constraints 3.8 and 3.9 with A = 0).
func (k *costs) smallest() (bytes float64, layer int) {
	for l := 1; l <= k.n; l++ {
		if b := k.need(l) + k.saved[l-1]; b > bytes || layer == 0 {
			bytes, layer = b, l
		}
	}
	return bytes, layer
}

// Smallest returns the smallest limit, in bytes with a_0, at which a chain has a sequence that offloads and recomputes nothing. It
// does not depend on times or on the link's bandwidth. Errors: those of chain.Validate.
func Smallest(c *chain.Chain) (int64, error) {
	k, err := newCosts(strategy.Problem{Chain: c, Link: schedule.Link{Bandwidth: 1}})
	if err != nil {
		return 0, err
	}
	bytes, _ := k.smallest()
	return int64(bytes), nil
}

// busy returns the time of all forwards and backwards, seconds.
func (k *costs) busy() (seconds float64) {
	for l := 1; l <= k.n; l++ {
		seconds += k.uF[l] + k.uB[l]
	}
	return seconds
}

// infeasible says that the limit is below the least one, at which the op of the layer binds.
func (k *costs) infeasible(name string, p strategy.Problem) error {
	bytes, l := k.smallest()
	op := schedule.Op{Kind: schedule.ForwardAll, Layer: l}
	if k.needB[l] >= k.needF[l] {
		op.Kind = schedule.Backward
	}
	return &pipeline.InfeasibleError{
		Strategy: name, Memory: p.Memory, Smallest: int64(bytes), Op: op, LayerName: p.Chain.Layer(l).Name,
	}
}
