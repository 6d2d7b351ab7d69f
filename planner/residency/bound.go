package residency

// Bound of the periods of all plans within the limits (design, section 8).
//
// Proof. Take three kinds of instants of a step. At A_l the first forward of a layer l starts, and at E_l its last backward. At M_l its
// backward of a microbatch starts, for each microbatch. Let f be the lowest layer that reads the weights of an owner o. At A_l, E_l and M_l
// with l > f the weights have been read in the step and will be read again: pass 1. At A_l and E_l with l < f their last backward is over
// and the next step's first forward is to come: pass 2. A pass in which the weights are away at an instant has a fetch behind it. So these
// hold:
//
//   - up is at least the sum of three terms. The first is w if the weights are away in pass 1. The second is w if they are away in pass 2
//     or the host updates them. The third is s if the state is ever away.
//   - down >= g of each user, if the host updates. Else down >= w if the weights are ever away, and s if the state is.
//   - An item that is never away takes its bytes at all instants of its pass, or of the step, beside the memory that the op itself needs.
//   - The saved output of a layer j < l takes its bytes at M_l, with one microbatch also at A_l. Or it went to the host and back. Or it is
//     computed again, by one forward more than one a layer.
//
// The seconds of each stream are at most the period. Take nonnegative weights of these inequalities that sum to 1 over the streams. They
// give a lower bound: the least weighted sum over the choices of each layer, one by one (Lagrangian relaxation). An ascent looks for good
// weights. Each choice also has circles of waits, none longer than the period. The first circle is the forwards and backwards of layers f
// and above, the gradient's copy, the host's update and a fetch. The second is the update and the state's copies. The third is forward,
// fetch, backward, update and fetch. A period below a circle excludes its choice.
//
// O(n) for each step of the ascent, of which there are a fixed number for each of about log n circles.

import (
	"context"
	"math"
	"slices"

	"plimsoll/planner/cycle"
)

// Bound returns a period in seconds that no plan within the limits is below, +Inf where none fits. Errors: those of cycle.NewSimulator.
func Bound(r Request) (float64, error) {
	p, err := newProblem(context.Background(), r)
	if err != nil {
		return 0, err
	}
	b := newBounder(p)
	if b.hopeless() {
		return math.Inf(1), nil
	}
	circles := b.circles()
	low, high := 0, len(circles) // the bound without the choices whose circles are circles[low:] and longer is at least circles[low]
	for low < high {
		k := (low + high) / 2
		if b.ascend(circles[k]) >= circles[k] {
			low = k + 1
		} else {
			high = k
		}
	}
	best := 0.0
	if low > 0 {
		best = circles[low-1]
	}
	end := math.Inf(1)
	if low < len(circles) {
		end = circles[low]
	}
	const rounding = 1 - 1e-9
	return rounding * max(best, min(b.ascend(end), end)), nil
}

// The weights of the streams, and the families of instants.
const (
	computes = iota
	ups
	downs
	hosts
	resources
)

const (
	firstForward = iota // A_l
	lastBackward        // E_l
	eachBackward        // M_l
	instantKinds
)

// option is a choice of a plan for the weights and the state of an owner.
type option struct {
	owner, lowest        int
	load                 [resources]float64 // seconds
	pass1, pass2, always int64              // bytes on the device in pass 1, in pass 2, and in the whole step
	circle               float64
}

// bounder holds the inequalities.
type bounder struct {
	p       *problem
	options [][]option // by owner
	need    [instantKinds][]int64
	compute float64 // of all forwards and backwards

	stream [resources]float64      // weights
	memory [instantKinds][]float64 // weights: seconds for a byte
	sums   [instantKinds][]float64 // of memory, from layer 1 on
	load   [resources]float64      // of the choices that are least
	used   [instantKinds][]int64   // and their bytes, by differences
}

func newBounder(p *problem) *bounder {
	b := &bounder{p: p}
	for l := 1; l <= p.n; l++ {
		layer := p.c.Layer(l)
		b.compute += float64(p.microbatches) * (layer.ForwardS + layer.BackwardS)
	}
	for k := range instantKinds {
		b.need[k], b.memory[k] = make([]int64, p.n+1), make([]float64, p.n+1)
		b.sums[k], b.used[k] = make([]float64, p.n+2), make([]int64, p.n+2)
	}
	for l := 1; l <= p.n; l++ {
		b.need[firstForward][l] = b.forwardNeed(l)
		b.need[lastBackward][l] = b.backwardNeed(l)
		b.need[eachBackward][l] = b.backwardNeed(l)
	}
	for _, o := range p.owners {
		b.options = append(b.options, b.choices(o))
	}
	return b
}

// weights returns the bytes of the weights that a layer reads.
func (b *bounder) weights(l int) int64 {
	if o := b.p.c.Owner(l); o > 0 {
		return b.p.c.Layer(o).WeightBytes
	}
	return 0
}

func (b *bounder) forwardNeed(l int) int64 {
	layer := b.p.c.Layer(l)
	out := min(layer.SavedBytes+layer.ForwardOverheadBytes, layer.OutputBytes+layer.DiscardOverhead())
	return b.p.c.Activation(l-1) + out + b.weights(l)
}

func (b *bounder) backwardNeed(l int) int64 {
	c, layer := b.p.c, b.p.c.Layer(l)
	gradient := int64(0)
	if o := c.Owner(l); o > 0 {
		gradient = c.Layer(o).WeightGradient()
	}
	return c.Activation(l-1) + layer.SavedBytes + c.Gradient(l) + c.Gradient(l-1) + layer.BackwardOverheadBytes + b.weights(l) + gradient
}

// hopeless reports whether an op does not fit by itself.
func (b *bounder) hopeless() bool {
	for k := range instantKinds {
		if slices.Max(b.need[k]) > b.p.limits.Memory {
			return true
		}
	}
	return false
}

// choices lists what a plan may do with an owner.
func (b *bounder) choices(o int) (all []option) {
	for _, away1 := range [...]bool{false, true} {
		for _, away2 := range [...]bool{false, true} {
			for _, moves := range [...]bool{false, true} {
				if x, legal := b.onDevice(o, away1, away2, moves); legal {
					all = append(all, x)
				}
			}
		}
		if b.p.movable(o) {
			all = append(all, b.onHost(o, away1))
		}
	}
	return all
}

// onDevice is an owner that the device updates, or that is frozen; false: there is no link for that, or no state to move.
func (b *bounder) onDevice(o int, away1, away2, moves bool) (x option, legal bool) {
	p, layer := b.p, b.p.c.Layer(o)
	frozen, w, s := p.frozen(o), layer.WeightBytes, layer.Update.StateBytes
	if frozen {
		s = 0
	}
	if moves && s == 0 || (away1 || away2) && p.link.ToDevice == 0 || (moves || !frozen && (away1 || away2)) && p.link.ToHost == 0 {
		return x, false
	}
	x = option{owner: o, lowest: slices.Min(p.users[o])}
	fetches := 0.0
	x.hold(&x.pass1, w, away1, &fetches)
	x.hold(&x.pass2, w, away2, &fetches)
	if fetches > 0 {
		x.load[ups] = fetches * p.up(w)
	}
	if !frozen {
		x.load[computes] = layer.Update.DeviceS
	}
	if fetches > 0 && !frozen {
		x.load[downs] = p.down(w)
	}
	if moves {
		x.load[ups] += p.up(s)
		x.load[downs] += p.down(s)
		x.circle = layer.Update.DeviceS + p.up(s) + p.down(s)
	} else {
		x.always = s
	}
	x.circle = max(x.circle, b.circle(&x, away1, away2, x.load[computes]))
	return x, true
}

// hold counts bytes that stay, or a fetch.
func (x *option) hold(into *int64, bytes int64, away bool, fetches *float64) {
	if away {
		*fetches++
	} else {
		*into = bytes
	}
}

// onHost is an owner that the host updates.
func (b *bounder) onHost(o int, away1 bool) option {
	p, layer := b.p, b.p.c.Layer(o)
	w, g := layer.WeightBytes, layer.WeightGradient()
	x := option{owner: o, lowest: slices.Min(p.users[o])}
	fetches := 1.0
	x.hold(&x.pass1, w, away1, &fetches)
	x.load[ups], x.load[hosts] = fetches*p.up(w), p.hostSeconds(o)
	x.load[downs] = float64(len(p.users[o])) * p.down(g)
	x.circle = b.circle(&x, away1, true, p.down(g)+p.hostSeconds(o))
	return x
}

// circle returns the longest circle of waits through the owner's first forward, its last backward and its update.
func (b *bounder) circle(x *option, away1, away2 bool, update float64) float64 {
	p := b.p
	layer := p.c.Layer(x.lowest)
	whole, short := update, update+min(layer.ForwardS, layer.DiscardSeconds())+layer.BackwardS
	for l := x.lowest; l <= p.n; l++ {
		whole += float64(p.microbatches) * (p.c.Layer(l).ForwardS + p.c.Layer(l).BackwardS)
	}
	w := p.c.Layer(x.owner).WeightBytes
	if away2 {
		whole, short = whole+p.up(w), short+p.up(w)
	}
	if away1 {
		short += p.up(w)
	}
	return max(whole, short)
}

// circles returns the circles of all choices, rising, each once.
func (b *bounder) circles() (all []float64) {
	for _, options := range b.options {
		for _, x := range options {
			all = append(all, x.circle)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

const ascents = 300

// ascend returns the best bound found over the choices whose circles are shorter than end.
func (b *bounder) ascend(end float64) (best float64) {
	b.stream = [resources]float64{0.4, 0.2, 0.2, 0.2}
	if !b.p.link.Duplex {
		b.stream = [resources]float64{0.4, 0.4, 0.4, 0.2}
	}
	for k := range instantKinds {
		clear(b.memory[k])
	}
	best = b.compute
	for i := range ascents {
		value, possible := b.value(end)
		if !possible {
			return math.Inf(1)
		}
		best = max(best, value)
		b.improve(best, 1/math.Sqrt(float64(i+1)))
	}
	return best
}

// value returns the bound for the weights as they are; false: a layer has no choice left.
func (b *bounder) value(end float64) (total float64, possible bool) {
	p := b.p
	for k := range instantKinds {
		for l := 1; l <= p.n; l++ {
			b.sums[k][l+1] = b.sums[k][l] + b.memory[k][l]
			total += b.memory[k][l] * float64(b.need[k][l]-p.limits.Memory)
		}
		clear(b.used[k])
	}
	b.load = [resources]float64{computes: b.compute}
	total += b.stream[computes] * b.compute
	for _, options := range b.options {
		least, chosen := math.Inf(1), -1
		for i := range options {
			if x := &options[i]; x.circle < end {
				if v := b.price(x); v < least {
					least, chosen = v, i
				}
			}
		}
		if chosen < 0 {
			return 0, false
		}
		total += least
		b.take(&options[chosen])
	}
	for l := 1; l < p.n; l++ {
		total += b.activation(l)
	}
	return total, true
}

// between returns the weights of the memory at instants of layers from first to last.
func (b *bounder) between(kind, first, last int) float64 {
	if last < first {
		return 0
	}
	return b.sums[kind][last+1] - b.sums[kind][first]
}

// price is a choice's part of the weighted sum.
func (b *bounder) price(x *option) (v float64) {
	n := b.p.n
	for r, load := range x.load {
		v += b.stream[r] * load
	}
	if x.pass1 > 0 {
		sum := b.between(firstForward, x.lowest+1, n) + b.between(lastBackward, x.lowest+1, n) + b.between(eachBackward, x.lowest+1, n)
		for _, u := range b.p.users[x.owner] {
			if u > x.lowest { // it reads them, and need has them
				sum -= b.memory[firstForward][u] + b.memory[lastBackward][u] + b.memory[eachBackward][u]
			}
		}
		v += sum * float64(x.pass1)
	}
	if x.pass2 > 0 {
		v += (b.between(firstForward, 1, x.lowest-1) + b.between(lastBackward, 1, x.lowest-1)) * float64(x.pass2)
	}
	if x.always > 0 {
		v += (b.sums[firstForward][n+1] + b.sums[lastBackward][n+1] + b.sums[eachBackward][n+1]) * float64(x.always)
	}
	return v
}

// take adds the seconds and bytes of a choice.
func (b *bounder) take(x *option) {
	for r, load := range x.load {
		b.load[r] += load
	}
	n := b.p.n
	for k := range instantKinds {
		b.span(k, 1, n, x.always)
		b.span(k, x.lowest+1, n, x.pass1)
		for _, u := range b.p.users[x.owner] {
			if u > x.lowest {
				b.span(k, u, u, -x.pass1)
			}
		}
		if k != eachBackward {
			b.span(k, 1, x.lowest-1, x.pass2)
		}
	}
}

func (b *bounder) span(kind, first, last int, bytes int64) {
	if first <= last {
		b.used[kind][first] += bytes
		b.used[kind][last+1] -= bytes
	}
}

// activation is the part of the saved output of layer j in all microbatches: on the device at all instants, on the host, or computed again.
func (b *bounder) activation(j int) float64 {
	p, layer := b.p, b.p.c.Layer(j)
	kinds := []int{eachBackward}
	if p.microbatches == 1 {
		kinds = append(kinds, firstForward)
	}
	bytes, beyond := layer.SavedBytes, layer.SavedBytes-layer.OutputBytes // the next layer's op has its input anyway
	many := float64(p.microbatches)
	stay := 0.0
	for _, k := range kinds {
		stay += b.between(k, j+2, p.n)*float64(bytes) + b.memory[k][j+1]*float64(beyond)
	}
	seconds := many * min(layer.ForwardS, layer.DiscardSeconds())
	again := b.stream[computes] * seconds
	move := math.Inf(1)
	if p.link.ToDevice > 0 && p.link.ToHost > 0 {
		move = many * (b.stream[ups]*p.up(bytes) + b.stream[downs]*p.down(bytes))
	}
	switch {
	case stay <= again && stay <= move:
		for _, k := range kinds {
			b.span(k, j+2, p.n, bytes)
			b.span(k, j+1, j+1, beyond)
		}
		return stay
	case again <= move:
		b.load[computes] += seconds
		return again
	}
	b.load[ups] += many * p.up(bytes)
	b.load[downs] += many * p.down(bytes)
	return move
}

// improve moves the weights along the ascent: those of streams and instants that the choices overload rise.
func (b *bounder) improve(best, step float64) {
	limit := b.p.limits.Memory
	if limit != cycle.NoLimit && limit > 0 {
		b.improveMemory(best, step)
	}
	scale := step * 2 / max(best, 1e-300)
	loads := b.load
	if !b.p.link.Duplex {
		loads[ups] += loads[downs]
		loads[downs] = 0
	}
	sum, most := 0.0, slices.Max(loads[:])
	for r := range b.stream {
		if r == downs && !b.p.link.Duplex {
			continue
		}
		b.stream[r] *= math.Exp(max(scale*(loads[r]-most), -2))
		sum += b.stream[r]
	}
	for r := range b.stream {
		b.stream[r] = max(b.stream[r]/sum, 1e-9)
	}
	if !b.p.link.Duplex {
		b.stream[downs] = b.stream[ups]
	}
	b.normalize()
}

// normalize makes the weights of the streams 1 in all.
func (b *bounder) normalize() {
	sum := b.stream[computes] + b.stream[ups] + b.stream[hosts]
	if b.p.link.Duplex {
		sum += b.stream[downs]
	}
	for r := range b.stream {
		b.stream[r] /= sum
	}
}

func (b *bounder) improveMemory(best, step float64) {
	limit := float64(b.p.limits.Memory)
	norm := 0.0
	excess := [instantKinds][]float64{}
	for k := range instantKinds {
		sum := int64(0)
		excess[k] = make([]float64, b.p.n+1)
		for l := 1; l <= b.p.n; l++ {
			sum += b.used[k][l]
			excess[k][l] = (float64(sum+b.need[k][l]) - limit) / limit
			if excess[k][l] > 0 || b.memory[k][l] > 0 {
				norm += excess[k][l] * excess[k][l]
			}
		}
	}
	if norm == 0 {
		return
	}
	size := step * best / math.Sqrt(norm) / limit
	for k := range instantKinds {
		for l := range excess[k] {
			b.memory[k][l] = max(0, b.memory[k][l]+size*excess[k][l])
		}
	}
}
