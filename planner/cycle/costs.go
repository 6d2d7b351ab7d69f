package cycle

import (
	"math/big"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// costs is the durations of a chain's ops over a link, in ticks.
type costs struct {
	c          *chain.Chain
	contention *chain.Contention // nil: nothing slows anything
	clock      clock
	layers     []layerTicks // layers[l] is layer l's; layers[0] has copies of the input alone
}

// layerTicks is the durations of one layer; never: no such op is possible.
type layerTicks struct {
	forward, discard, backward, update, host, norm int64
	// Copies to the device and to the host.
	plain, saved, weights, state, gradient [2]int64
}

// never is the duration of an op that the chain or the link does not know.
const never = -1

// newCosts measures everything in exact seconds first, then in the ticks that follow.
func newCosts(c *chain.Chain, link Link) *costs {
	r := recorder{link: link}
	k := &costs{c: c, contention: c.ContentionOver(link.ToHost, link.ToDevice), layers: make([]layerTicks, c.Len()+1)}
	for i := range k.layers {
		t := &k.layers[i]
		r.copies(&t.plain, c.Activation(i))
		r.copies(&t.saved, c.Saved(i))
		if i > 0 {
			r.layer(t, c.Layer(i))
		}
		if o := owner(c, i); o > 0 {
			r.copies(&t.gradient, c.Layer(o).WeightGradient())
		}
	}
	k.clock = newClock(r.seconds)
	if k.contention != nil {
		k.clock = fineClock(r.seconds)
	}
	for i, d := range r.seconds {
		*r.into[i] = never
		if d != nil {
			*r.into[i] = k.clock.ticks(d)
		}
	}
	return k
}

// owner returns the layer whose weights activation i's layer reads; 0: none.
func owner(c *chain.Chain, i int) int {
	if i == 0 {
		return 0
	}
	return c.Owner(i)
}

// recorder collects durations, which are exact, and where their ticks belong.
type recorder struct {
	link    Link
	seconds []*big.Rat // nil: never
	into    []*int64
}

func (r *recorder) add(into *int64, seconds *big.Rat) {
	r.seconds, r.into = append(r.seconds, seconds), append(r.into, into)
}

// layer records the ops of one layer.
func (r *recorder) layer(t *layerTicks, l *chain.Layer) {
	r.add(&t.forward, decimal(l.ForwardS))
	r.add(&t.discard, decimal(l.DiscardSeconds()))
	r.add(&t.backward, decimal(l.BackwardS))
	r.add(&t.update, decimal(l.Update.DeviceS))
	r.add(&t.norm, decimal(l.Update.NormS))
	var host *big.Rat
	if l.Update.HostS != nil {
		host = decimal(*l.Update.HostS)
	}
	r.add(&t.host, host)
	r.copies(&t.weights, l.WeightBytes)
	r.copies(&t.state, l.Update.StateBytes)
}

// copies records a copy of bytes each way.
func (r *recorder) copies(into *[2]int64, bytes int64) {
	for way, bandwidth := range [...]float64{chain.ToHost: r.link.ToHost, chain.ToDevice: r.link.ToDevice} {
		var d *big.Rat
		if bandwidth > 0 {
			d = new(big.Rat).Quo(new(big.Rat).SetInt64(bytes), decimal(bandwidth))
		}
		r.add(&into[way], d)
	}
}

// of returns the duration of an op; bytes is what the transfer of an activation moves.
func (k *costs) of(op Op, bytes int64) int64 {
	t := &k.layers[op.Layer]
	switch op.Kind {
	case schedule.ForwardAll:
		return t.forward
	case schedule.Backward:
		return t.backward
	case schedule.Update:
		return t.update
	case schedule.HostUpdate:
		return t.host
	case schedule.Offload, schedule.Prefetch:
		if bytes == k.c.Saved(op.Layer-1) {
			return k.layers[op.Layer-1].saved[way(op.Kind)]
		}
		return k.layers[op.Layer-1].plain[way(op.Kind)]
	case schedule.FetchWeights, schedule.WriteWeights:
		return t.weights[way(op.Kind)]
	case schedule.FetchState, schedule.WriteState:
		return t.state[way(op.Kind)]
	case schedule.FetchGradient, schedule.OffloadGradient:
		return t.gradient[way(op.Kind)]
	}
	return t.discard
}
