package cycle

import (
	"cmp"
	"math"
	"slices"

	"plimsoll/planner/schedule"
)

// Item tells the uses of a device's bytes apart.
type Item uint8

// The items.
const (
	Weights Item = iota
	State
	Gradients   // of weights
	Activations // outputs, saved sets, and the input, whose gradient takes its place
	ActivationGradients
	Overhead
	Items = int(iota)
)

func (i Item) String() string {
	return [...]string{"weights", "optimizer state", "gradients of weights", "activations", "gradients of activations", "overhead"}[i]
}

// Hold is bytes of the device between two instants of a run.
type Hold struct {
	Item              Item
	Layer, Microbatch int // 0: the input, or of all microbatches
	Bytes             int64
	From, Until       float64 // seconds from the start of the first step; +Inf: to the end of the run and beyond
}

// Holds lists the bytes on the device in the latest run of the simulator. At every instant they add up to the bytes in use.
func (s *Simulator) Holds() []Hold {
	h := &holder{l: &s.ledger}
	k, n := s.costs.clock, len(h.l.seq)
	for _, x := range s.player.starts {
		for len(h.begin) < (x.step+1)*n {
			h.begin, h.end = append(h.begin, math.Inf(1)), append(h.end, math.Inf(1))
		}
		h.begin[x.step*n+x.position], h.end[x.step*n+x.position] = k.seconds(x.at), k.seconds(x.end)
	}
	return h.run()
}

// AtPeak returns the position of the op at whose start the run that was simulated last needs most memory, and what the device holds then. It
// is the run in which every op runs alone, in the order of the sequence, where that needs more (InOrderPeak). -1: what is resident is all.
func (s *Simulator) AtPeak() (op int, parts []Hold) {
	n, r := len(s.ledger.seq), &s.player.result
	if r.Peak > r.InOrderPeak {
		if r.PeakOp < 0 {
			return -1, heldAt(s.Holds(), 0)
		}
		at := slices.IndexFunc(r.Starts, func(x Start) bool { return x.Step == r.PeakStep && x.Position == r.PeakOp })
		return r.PeakOp, heldAt(s.Holds(), r.Starts[at].Start)
	}
	h := &holder{l: &s.ledger}
	for i := range 2 * n {
		h.begin, h.end = append(h.begin, float64(i)), append(h.end, float64(i)+0.5)
	}
	all := h.run()
	at := fullest(all)
	return int(at) % n, heldAt(all, at)
}

// fullest returns the first instant at which most is held; what ends then is free already.
func fullest(all []Hold) (at float64) {
	type change struct {
		at    float64
		bytes int64
	}
	var changes []change
	for _, h := range all {
		changes = append(changes, change{h.From, h.Bytes}, change{h.Until, -h.Bytes})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.bytes, b.bytes)) })
	sum, most := int64(0), int64(-1)
	for _, x := range changes {
		if sum += x.bytes; sum > most {
			most, at = sum, x.at
		}
	}
	return at
}

// heldAt returns the holds at an instant.
func heldAt(all []Hold, at float64) (parts []Hold) {
	for _, h := range all {
		if h.From <= at && at < h.Until && h.Bytes > 0 {
			parts = append(parts, h)
		}
	}
	return parts
}

// holdKey names an item that the device has once at most.
type holdKey struct {
	item              Item
	layer, microbatch int
}

// holder replays the steps of a run with the times of their ops.
type holder struct {
	l          *ledger
	begin, end []float64 // by instance: step times the ops of a step, and position; +Inf: it did not start
	open       map[holdKey]int
	holds      []Hold
	rules      []*schedule.Follower // by microbatch
	frees      int                  // of the step so far
}

// run replays all steps.
func (h *holder) run() []Hold {
	h.start()
	for step := range len(h.begin) / len(h.l.seq) {
		h.replay(step)
	}
	return h.holds
}

// start takes what is resident.
func (h *holder) start() {
	h.open = map[holdKey]int{}
	for i := 1; i <= h.l.c.Len(); i++ {
		if h.l.weights[i].initial != absent {
			h.take(Weights, i, 0, h.l.weights[i].bytes, 0)
		}
		if h.l.states[i].initial != absent {
			h.take(State, i, 0, h.l.states[i].bytes, 0)
		}
		if g := &h.l.gradients[i]; g.initial == onDevice {
			h.take(Gradients, i, 0, g.bytes, 0)
		}
	}
	for m := range h.l.microbatches {
		h.rules = append(h.rules, schedule.Follow(h.l.c))
		h.take(Activations, 0, m+1, h.l.c.InputBytes, 0)
	}
}

// take begins a hold at an instant.
func (h *holder) take(item Item, layer, microbatch int, bytes int64, at float64) {
	h.open[holdKey{item, layer, microbatch}] = len(h.holds)
	h.holds = append(h.holds, Hold{item, layer, microbatch, bytes, at, math.Inf(1)})
}

// release ends a hold at an instant.
func (h *holder) release(item Item, layer, microbatch int, at float64) {
	k := holdKey{item, layer, microbatch}
	if i, is := h.open[k]; is {
		h.holds[i].Until = at
		delete(h.open, k)
	}
}

// replay replays a step.
func (h *holder) replay(step int) {
	h.frees = 0
	for _, f := range h.rules {
		f.Restart(h.l.c)
	}
	for p, op := range h.l.seq {
		at := step*len(h.l.seq) + p
		if op.Kind.OfState() {
			h.ofState(op, step, at)
		} else {
			h.ofMicrobatch(op, step, at)
		}
		if s, runs := StreamOf(op.Kind); !runs || s != Compute {
			continue
		}
		for _, f := range h.rules {
			f.Leave() // what offloads left for this op
		}
	}
}

func (h *holder) ofState(op Op, step, at int) {
	switch l := op.Layer; op.Kind {
	case schedule.FetchWeights:
		h.take(Weights, l, 0, h.l.weights[l].bytes, h.begin[at])
	case schedule.DropWeights:
		h.release(Weights, l, 0, h.freed(step))
	case schedule.FetchState:
		h.take(State, l, 0, h.l.states[l].bytes, h.begin[at])
	case schedule.DropState:
		h.release(State, l, 0, h.freed(step))
	case schedule.FetchGradient:
		h.take(Gradients, l, 0, h.l.gradients[l].bytes, h.begin[at])
	case schedule.OffloadGradient:
		h.release(Gradients, l, 0, h.end[at])
	case schedule.Update:
		for _, user := range h.l.users[l] {
			h.release(Gradients, user, 0, h.end[at])
		}
	}
}

// freed returns when the next bytes of the step that an op frees behind others are free.
func (h *holder) freed(step int) (at float64) {
	for _, r := range h.l.frees[h.frees].holds {
		if i := (step-1)*len(h.l.seq) + int(r); r != none && i >= 0 {
			at = max(at, h.end[i])
		}
	}
	h.frees++
	return at
}

// ofMicrobatch compares what the device has of the activations before an op and behind it.
func (h *holder) ofMicrobatch(op Op, step, at int) {
	m := max(op.Microbatch, 1)
	f := h.rules[m-1]
	before := make([]schedule.Residency, h.l.c.Len()+1)
	for i := range before {
		before[i] = f.Stored(i)
	}
	effect, _ := f.Do(schedule.Op{Kind: op.Kind, Layer: op.Layer}) // the ledger has judged it
	until, taken := h.end[at], int64(0)
	if op.Kind == schedule.Offload {
		until = h.freed(step)
	}
	for i := range before {
		if f.Stored(i) == before[i] {
			continue
		}
		if before[i] != schedule.Nothing {
			h.release(Activations, i, m, until)
		}
		if bytes := f.Bytes(i); bytes > 0 {
			h.take(Activations, i, m, bytes, h.begin[at])
			taken += bytes
		}
	}
	if op.Kind == schedule.Backward {
		taken += h.backward(op.Layer, m, at)
	}
	if bytes := effect.Takes - taken; bytes > 0 {
		h.holds = append(h.holds, Hold{Overhead, op.Layer, m, bytes, h.begin[at], h.end[at]})
	}
}

// backward takes the gradients that a backward makes, and frees the one that it reads. It returns the bytes of that of its input.
func (h *holder) backward(layer, microbatch, at int) int64 {
	if _, has := h.open[holdKey{Gradients, layer, 0}]; !has && h.l.gradients[layer].bytes > 0 {
		h.take(Gradients, layer, 0, h.l.gradients[layer].bytes, h.begin[at])
	}
	bytes := h.l.c.Gradient(layer - 1)
	h.release(ActivationGradients, layer, microbatch, h.end[at])
	if layer == 1 {
		h.take(Activations, 0, microbatch, bytes, h.begin[at])
	} else {
		h.take(ActivationGradients, layer-1, microbatch, bytes, h.begin[at])
	}
	return bytes
}
