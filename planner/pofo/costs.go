package pofo

import (
	"fmt"
	"math"

	"plimsoll/planner/chain"
	"plimsoll/planner/offload"
	"plimsoll/planner/strategy"
)

// costs is a chain in the numbers that the dynamic programs add, indexed as in the thesis. Everything is bytes: a time
// stands for what the link moves in it, β·u, so that idle time, time and data have one unit.
type costs struct {
	n                 int
	bandwidth         float64
	duplex            bool
	a, saved, grad    []float64 // a_i, ā_i, δ_i, 0..n
	all, back         []float64 // β·u of F^all and B, 1..n
	again             []float64 // again[l]: β·u of forwards 1..l that save nothing
	needAll           []float64 // ā_s + o_F: F^all_s beside its input and δ_t
	needBack          []float64 // M_B of section 4.2: B_s beside its input
	discardOver       []float64
	restAll, restBack []float64 // sums of all and back over l..n+1
	restFirst         []float64 // sums of the longer forward of each layer over l..n+1
}

// maxLayers bounds the tables, which have an entry for every two layers.
const maxLayers = 1024

// newCosts validates a problem and converts it. Errors: those of chain.Validate, ErrTooLarge, offload.ErrLink.
func newCosts(p strategy.Problem) (*costs, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	c, n := p.Chain, p.Chain.Len()
	k := &costs{n: n, bandwidth: c.BandwidthBeside(p.Link.Bandwidth), duplex: p.Link.Duplex}
	for i := range n + 1 {
		k.a = append(k.a, float64(c.Activation(i)))
		k.saved = append(k.saved, float64(c.Saved(i)))
		k.grad = append(k.grad, float64(c.Gradient(i)))
	}
	k.addLayer(&chain.Layer{}, 0)
	for l := 1; l <= n; l++ {
		k.addLayer(c.Layer(l), l)
	}
	k.sumUp()
	return k, nil
}

// check refuses what no strategy of this package can plan for.
func check(p strategy.Problem) error {
	if err := p.Chain.Validate(); err != nil {
		return err
	}
	if b := p.Link.Bandwidth; !(b > 0) || math.IsInf(b, 0) {
		return fmt.Errorf("%w: its bandwidth_bytes_per_s is %g; give one above 0, "+
			"or use a strategy without transfers such as rotor-exact", offload.ErrLink, b)
	}
	if n := p.Chain.Len(); n > maxLayers {
		return fmt.Errorf("%w: %d layers with the loss, the limit is %d: group layers", ErrTooLarge, n, maxLayers)
	}
	return nil
}

func (k *costs) addLayer(layer *chain.Layer, l int) {
	k.all = append(k.all, layer.ForwardS*k.bandwidth)
	k.back = append(k.back, layer.BackwardS*k.bandwidth)
	k.again = append(k.again, layer.DiscardSeconds()*k.bandwidth)
	k.discardOver = append(k.discardOver, float64(layer.DiscardOverhead()))
	k.needAll = append(k.needAll, k.saved[l]+float64(layer.ForwardOverheadBytes))
	k.needBack = append(k.needBack, k.saved[l]+k.grad[l]+k.grad[max(l-1, 0)]+float64(layer.BackwardOverheadBytes))
}

func (k *costs) sumUp() {
	k.restAll, k.restBack, k.restFirst = make([]float64, k.n+2), make([]float64, k.n+2), make([]float64, k.n+2)
	for l := 1; l <= k.n; l++ {
		k.again[l] += k.again[l-1]
	}
	for l := k.n; l >= 1; l-- {
		k.restAll[l] = k.restAll[l+1] + k.all[l]
		k.restBack[l] = k.restBack[l+1] + k.back[l]
		k.restFirst[l] = k.restFirst[l+1] + max(k.all[l], k.again[l]-k.again[l-1])
	}
}

// input returns I_s^x, the size of the input of layer s.
func (k *costs) input(s int, saved bool) float64 {
	if saved {
		return k.saved[s-1]
	}
	return k.a[s-1]
}

// needForward returns M_F of section 4.2 for a forward of layer h that saves nothing, in a run that began with layer s:
// beside the input of s and δ_t.
func (k *costs) needForward(s, h int) float64 {
	need := k.a[h] + k.discardOver[h]
	if h > s {
		need += k.a[h-1]
	}
	return need
}

// must returns the time of one F^all and one B of each of the layers s..t.
func (k *costs) must(s, t int) float64 {
	return k.restAll[s] - k.restAll[t+1] + k.restBack[s] - k.restBack[t+1]
}
