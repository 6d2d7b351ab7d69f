// Package bound says what no sequence can beat, whatever it recomputes and offloads. It knows no strategy.
package bound

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Seconds returns a makespan that no sequence within the limits is below, with recomputation, offloading, or both;
// +Inf when none fits. Without a limit, or with enough memory, it is the sum of all u_F and u_B, which store-all takes.
//
// Proof. Take the instant t at which some op starts: the first F^all_k, or B_k. Every layer below k has run forward at
// least once by then, because a_{k-1} was made, and each of their backwards is still to come. So at t every ā_l, l < k, is
//
//   - on the device, where all of these must fit beside what the op needs, its input included;
//   - or on the host alone. It left in whole before t, for memory is free when an offload has ended. The prefetch that
//     brings it back starts after t, for memory is taken when a prefetch starts;
//   - or nowhere: the layer runs F^all again after t, and so has one forward more than it must. a_0 cannot be nowhere.
//
// Let D be the bytes that do not fit, of which X are on the host and D - X nowhere. Let R(D - X) be the least time of forwards
// that make D - X bytes nowhere (fractions allowed: a linear relaxation). Compute ops of P seconds and transfers of X/β seconds
// run before t, one after another on each resource. After t run compute ops of A + R, and again transfers of X/β. In all,
// compute ops take C + R, where C is the sum of all u_F and u_B. The makespan is therefore at least
//
//	min over X of max(C + R(D-X), max(P, X/β) + max(A + R(D-X), X/β)),
//
// for one link and for duplex alike: offloads and prefetches are on two sides of t. It holds for every op, so the
// largest of these bounds does. Without recomputation it is Proposition 3 of A. Shilova's thesis or more (section 3.1.1, with
// erratum 4: nothing leaves when D <= 0); neither Algorithm 5 nor pofo's cost bounds whole transfers, they are not used.
//
// Not covered are sequences with a prefetch of a plain activation that a forward_all replaces before it arrives: the rules
// credit its bytes before they are taken. No plan of this program has one, see package auto, and none can be executed.
//
// O(n^2) after sorting; of longer chains a part of the instants is looked at. Errors: those of chain.Validate.
func Seconds(c *chain.Chain, limits schedule.Limits) (float64, error) {
	if err := c.Validate(); err != nil {
		return 0, err
	}
	b := newBounder(c, limits)
	best := b.compute
	for k := 1; k <= b.n; k += 1 + (b.n-1)/mostInstants {
		best = max(best, b.at(b.forward(k)), b.at(b.backward(k)))
	}
	return best, nil
}

// mostInstants is of how many layers the instants at which their ops start are looked at, at most.
const mostInstants = 1 << 12

// Gap returns by which part of the bound a makespan is above it: 0.05 is five per cent. Rounding counts as nothing.
func Gap(makespan, bound float64) float64 {
	if bound <= 0 || makespan <= bound*(1+1e-9) {
		return 0
	}
	return makespan/bound - 1
}

// bounder holds what the bounds of all instants share. Times are seconds, memory is bytes.
type bounder struct {
	c         *chain.Chain
	n         int
	memory    float64
	bandwidth float64   // 0: no transfers
	compute   float64   // C
	again     []float64 // the least time of a forward of each layer, 1..n
	order     []int     // layers with something to save, by again for each byte of ā, rising
	below     []float64 // below[k]: the sum of ā_l, l < k
	firsts    []float64 // firsts[k]: the sum of again over layers below k
	backs     []float64 // backs[k]: the sum of u_B over layers up to k
}

func newBounder(c *chain.Chain, limits schedule.Limits) *bounder {
	n := c.Len()
	b := &bounder{
		c: c, n: n, memory: float64(limits.Memory), bandwidth: max(limits.Link.Bandwidth, 0), again: make([]float64, n+1),
		below: make([]float64, n+2), firsts: make([]float64, n+2), backs: make([]float64, n+1),
	}
	b.below[1] = float64(c.Saved(0))
	for l := 1; l <= n; l++ {
		layer := c.Layer(l)
		b.again[l] = min(layer.ForwardS, layer.DiscardSeconds())
		b.compute += layer.ForwardS + layer.BackwardS
		b.below[l+1] = b.below[l] + float64(layer.SavedBytes)
		b.firsts[l+1] = b.firsts[l] + b.again[l]
		b.backs[l] = b.backs[l-1] + layer.BackwardS
		if layer.SavedBytes > 0 {
			b.order = append(b.order, l)
		}
	}
	slices.SortStableFunc(b.order, func(x, y int) int {
		return cmp.Compare(b.again[x]*float64(c.Saved(y)), b.again[y]*float64(c.Saved(x)))
	})
	return b
}

// instant is the start of an op of layer k.
type instant struct {
	k             int
	need          float64 // bytes of the op beside its input and everything below it
	before, after float64 // P, A: seconds
}

// forward is the first F^all_k.
func (b *bounder) forward(k int) instant {
	layer := b.c.Layer(k)
	return instant{
		k: k, need: float64(layer.SavedBytes) + float64(layer.ForwardOverheadBytes),
		before: b.firsts[k], after: layer.ForwardS + b.backs[k],
	}
}

// backward is B_k; every backward above it came before.
func (b *bounder) backward(k int) instant {
	layer := b.c.Layer(k)
	return instant{
		k: k, need: float64(layer.SavedBytes) + float64(layer.BackwardOverheadBytes) + float64(b.c.Gradient(k)) + float64(b.c.Gradient(k-1)),
		before: b.firsts[b.n+1] + b.backs[b.n] - b.backs[k], after: b.backs[k],
	}
}

// removable returns the bytes that go when ā_l is not on the device at the start of an op of layer k. The op's
// input stays in any case, as a plain activation at least.
func (b *bounder) removable(l, k int) float64 {
	bytes := float64(b.c.Saved(l))
	if l == k-1 {
		bytes -= float64(b.c.Activation(l))
	}
	return bytes
}

// at returns the bound of an instant. R is followed piece by piece, each a layer that goes nowhere.
func (b *bounder) at(i instant) float64 {
	excess := i.need + b.below[i.k] - b.memory
	if excess <= 0 {
		return b.compute
	}
	host := 0.0 // the most that can go to the host
	if b.bandwidth > 0 {
		for l := range i.k {
			host += b.removable(l, i.k)
		}
	}
	best, gone, spent := b.piece(i, excess, host, 0, 0, 0, 0), 0.0, 0.0
	for l := range b.cheapest(i.k) {
		if gone >= excess {
			break
		}
		bytes := b.removable(l, i.k)
		best = min(best, b.piece(i, excess, host, gone, bytes, spent, b.again[l]))
		gone, spent = gone+bytes, spent+b.again[l]
	}
	return best
}

// cheapest yields the layers below k of which something can go nowhere, by again for each byte that goes, rising. That of
// k-1 is another than in order.
func (b *bounder) cheapest(k int) iter.Seq[int] {
	return func(yield func(int) bool) {
		last := k - 1
		placed := last < 1 || b.removable(last, k) == 0
		for _, l := range b.order {
			if l >= last {
				continue
			}
			if !placed && b.again[last]*b.removable(l, k) < b.again[l]*b.removable(last, k) {
				placed = true
				if !yield(last) {
					return
				}
			}
			if !yield(l) {
				return
			}
		}
		if !placed {
			yield(last)
		}
	}
}

// piece returns the least bound when from gone to gone+bytes go nowhere, at spent to spent+cost seconds, and the rest
// of the excess to the host. On a piece the bound is the maximum of four lines in the share of the piece that goes: its
// minimum is at an end or where two lines meet.
func (b *bounder) piece(i instant, excess, host, gone, bytes, spent, cost float64) float64 {
	low, high := 0.0, 1.0 // shares of the piece
	if bytes > 0 {
		low, high = max(0, (excess-host-gone)/bytes), min(1, (excess-gone)/bytes)
	} else if excess > host {
		low = math.Inf(1)
	}
	if low > high {
		return math.Inf(1)
	}
	moved, saved := 0.0, 0.0 // seconds on the link, each way, at the begin of the piece; less at its end
	if b.bandwidth > 0 {
		moved, saved = (excess-gone)/b.bandwidth, bytes/b.bandwidth
	}
	lines := [4]line{
		{b.compute + spent, cost},
		{moved + i.after + spent, cost - saved},
		{i.before + moved, -saved},
		{2 * moved, -2 * saved},
	}
	best := min(highest(lines, low), highest(lines, high))
	for x := range lines {
		for y := range x {
			if s := lines[x].meets(lines[y]); s > low && s < high {
				best = min(best, highest(lines, s))
			}
		}
	}
	return best
}

// line is at + slope·s.
type line struct{ at, slope float64 }

// meets returns where two lines meet; not a number when they are parallel.
func (l line) meets(o line) float64 {
	if l.slope == o.slope {
		return math.NaN()
	}
	return (o.at - l.at) / (l.slope - o.slope)
}

func highest(lines [4]line, s float64) float64 {
	top := math.Inf(-1)
	for _, l := range lines {
		top = max(top, l.at+l.slope*s)
	}
	return top
}
