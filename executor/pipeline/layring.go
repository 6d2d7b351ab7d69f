package pipeline

import "math"

// layRing places what the minibatches in flight hold of a stage with a ring.
func (lay *layout) layRing(t *localStage, costs Costs, g *allocator, m *Memory) (err error) {
	if t.ring, err = newRing(lay, t, costs); err != nil {
		return err
	}
	t.slabs = t.ring.slabs(t, g.alloc(t.ring.extent()).Offset)
	m.InFlight, m.Offloaded = t.ring.live, t.ring.locked
	return nil
}

// newRing lays out a stage with ops of its own. If images take time to come from the host, they come ahead of their forward, unless that
// takes more memory. The forward would else be longer than planned by that time. They come within a period: their places in page-locked
// memory, of which there are stagingSlots, are known to be free when the forward that many minibatches before has been issued.
func newRing(lay *layout, t *localStage, costs Costs) (*ring, error) {
	r, err := buildRing(lay, t, costs, false)
	if err != nil || t.stage > 0 || costs.Platform.Host == 0 || costs.batchSeconds(lay.Workload) >= lay.order.Plan.Period {
		return r, err
	}
	early, err := buildRing(lay, t, costs, true)
	if err == nil && (early.live > r.live || early.bytes > r.bytes || early.locked > r.locked) {
		return r, nil
	}
	return early, err
}

// onLinkAtOnce is for how many seconds a piece of a transfer has the link to the host. Scalars of a minibatch, which tasks wait for, wait no longer
// for their turn.
const onLinkAtOnce = 200e-6

// pieceBytes returns how much that is, whole pages.
func pieceBytes(bandwidth float64) int64 {
	const page = 4096
	if bandwidth == 0 {
		return math.MaxInt64
	}
	return max(1, int64(bandwidth*onLinkAtOnce)/page) * page
}

// buildRing lays out a ring whose images come ahead, or with their forward.
func buildRing(lay *layout, t *localStage, costs Costs, ahead bool) (*ring, error) {
	r := &ringBuilder{
		ring: &ring{piece: pieceBytes(costs.Platform.Host), labels: none, images: none, ahead: ahead, duplex: costs.Platform.Duplex},
		t:    t, ops: t.ops[1], order: lay.order, moments: lay.order.Work.Ops[t.stage], period: lay.order.Work.Moments,
	}
	r.list(lay)
	r.leaves = r.lastReader()
	r.compute(costs.Chain)
	if err := r.assemble(); err != nil {
		return nil, err
	}
	r.lifetimes()
	r.pack()
	r.depend()
	return r.ring, nil
}
