package cycle

import "fmt"

// status says what the device has of the weights, or the state, of a layer, beside the host.
type status uint8

const (
	absent status = iota
	same
	newer // than the host's
	stale // the host's are newer
)

func (s status) String() string {
	return [...]string{"not on the device", "on the device", "on the device and newer than the host's", "stale on the device"}[s]
}

// resident is the weights or the optimizer state of a layer.
type resident struct {
	word                          string // "weights", "state"
	layer                         int
	bytes                         int64 // 0: there are none
	status, initial               status
	fetched, written, hostUpdated ref // its last ops
	first                         firstOp
}

// firstOp holds the facts about an item that the ops of a sequence state before they are judged.
type firstOp struct {
	met     bool // an op was met that needs the item on the device, or away from it
	present bool // the op needs it there
	onHost  bool // some op uses the host's copy
}

// clear forgets the sequence before.
func (r *resident) clear() {
	r.status, r.initial, r.first = absent, absent, firstOp{}
	r.fetched, r.written, r.hostUpdated = none, none, none
}

// meet notes an op that needs the item on the device, or away from it.
func (r *resident) meet(present bool) {
	f := &r.first
	if f.met {
		return
	}
	if f.met, f.present = true, present && r.bytes > 0; f.present {
		r.status = same
	}
}

// meetCopy notes a copy to the device, or one to the host, which needs the item on the device.
func (r *resident) meetCopy(toHost bool) {
	r.meet(toHost)
	r.first.onHost = true
	if !toHost || r.status != absent {
		r.status = same
	}
}

func (r *resident) meetDrop() {
	r.meet(true)
	r.status = absent
}

func (r *resident) meetUpdate() {
	r.meet(true)
	if r.bytes > 0 {
		r.status = newer
	}
}

func (r *resident) meetHostUpdate() {
	r.first.onHost = true
	if r.status != absent {
		r.status = stale
	}
}

// settle makes the item what the end of a step leaves, where that agrees with its first op. It returns the bytes of its home on the host.
func (r *resident) settle() (home int64) {
	if present := r.status != absent; present != r.first.present {
		r.status = absent
		if r.first.present {
			r.status = same // and the plan is not cyclic: changed says so when its ops have been judged
		}
	}
	r.initial = r.status
	if r.first.onHost {
		return r.bytes
	}
	return 0
}

// missing says why an op cannot use the device's copy; "": it can.
func (r *resident) missing() (reason string) {
	switch r.status {
	case absent:
		return fmt.Sprintf("the device has no %s of layer %d", r.word, r.layer)
	case stale:
		return fmt.Sprintf("the device has stale %s of layer %d, which the host has updated: drop and fetch them", r.word, r.layer)
	}
	return ""
}

// place says where the gradient of a layer's weights is.
type place uint8

const (
	nowhere place = iota
	onDevice
	onHost
)

func (p place) String() string { return [...]string{"nowhere", "on the device", "on the host"}[p] }

// gradient is the gradient of the weights that one layer reads.
type gradient struct {
	layer          int
	owner          int   // whose update needs it; 0: none
	bytes          int64 // 0: there is none
	place, initial place
	step           int // whose backwards add to it
	parts          int // microbatches that were added
	latest         int // microbatch of the last backward in the step that is replayed
	fetched, moved ref
	met            bool // an op of it was met before the sequence was judged
}

// clear forgets the sequence before.
func (g *gradient) clear() { g.empty(); g.initial, g.met = nowhere, false }

// empty makes the gradient that of no step.
func (g *gradient) empty() { g.place, g.parts, g.fetched, g.moved = nowhere, 0, none, none }

// meet notes an op that needs the gradient at a place: a first one with a prime says that it is there when the step begins.
func (g *gradient) meet(op Op, at place, parts int) {
	if !g.met && op.Prime {
		g.place, g.step, g.parts = at, -1, parts
	}
	g.met = true
}

// misplaced says why an op cannot use the gradient at a place in a step; "": it can.
func (g *gradient) misplaced(op Op, at place, step int) (reason string) {
	switch {
	case g.place == nowhere && op.Prime:
		return fmt.Sprintf("there is no gradient of layer %d of the step before", g.layer)
	case g.place == nowhere:
		return fmt.Sprintf("there is no gradient of layer %d yet", g.layer)
	case op.Prime && g.step != step-1:
		return fmt.Sprintf("the gradient of layer %d is that of this step: write no prime", g.layer)
	case !op.Prime && g.step != step:
		return fmt.Sprintf("the gradient of layer %d is that of the step before: write a prime", g.layer)
	case g.place != at:
		return fmt.Sprintf("the gradient of layer %d is %v", g.layer, g.place)
	}
	return ""
}
