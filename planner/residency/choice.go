package residency

import "slices"

// choice holds the decisions of a plan before its copies are placed.
type choice struct {
	order  *order
	host   []bool          // by owner: the host updates it
	delay  []int           // by owner: ops of the order between its last backward and its update on the device
	moves  [itemKinds]bool // whether items of a kind may leave the device
	policy policy
	forced map[gapKey]hint // against the policy
	gaps   []gapKey        // in which an item may leave, in the layout that was built last
	clock  []float64       // when the turns start in a run that was observed; nil: without waits
}

// policy says how gaps are kept and copies placed, where nothing is forced.
type policy struct {
	reserve float64 // of the bytes of the largest copy: room that is left for copies under way
	lead    float64 // fetches begin so many times their length before they are needed; +Inf: as early as memory lets them
	window  int     // where it is not 0: so many turns before, whatever the length
	whole   bool    // a layer's weights and state stay through all gaps, or none
	belady  bool    // gaps are kept by their length, the shortest first, whatever a byte costs
	most    int     // layers whose items may stay whole; below 0: any number
}

// hint is a choice for a gap.
type hint uint8

const (
	undecided   hint = iota // the policy decides
	stays                   // the item stays
	leaves                  // the item leaves, and the policy decides when it comes back
	leavesEarly             // and it comes back as early as memory lets it
	leavesLate              // and it comes back when it is needed
	hints       = int(iota)
)

// gapKey names a gap, whatever the order.
type gapKey struct {
	kind              itemKind
	layer, microbatch int
	use               int // of the item, from 0, behind which the gap is
}

// itemKind is the kind of an item.
type itemKind uint8

const (
	weightsItem itemKind = iota
	stateItem
	gradientItem
	activationItem
	itemKinds = int(iota)
)

func (x *choice) copied() *choice {
	y := *x
	y.host, y.delay = slices.Clone(x.host), slices.Clone(x.delay)
	y.forced = make(map[gapKey]hint, len(x.forced))
	for k, v := range x.forced {
		y.forced[k] = v
	}
	y.clock = nil
	return &y
}

// blank is a choice in which nothing leaves the device that need not.
func (p *problem) blank(o *order) *choice {
	return &choice{order: o, host: make([]bool, p.n+1), delay: make([]int, p.n+1), policy: policy{lead: 1, most: -1}}
}

// updateOnHost lets the host update all layers that it can, or those that chosen names.
func (p *problem) updateOnHost(x *choice, chosen func(o int) bool) {
	for _, o := range p.owners {
		x.host[o] = p.movable(o) && chosen(o)
	}
}

func every(int) bool { return true }
