package pipeline

import "plimsoll/planner/chain"

// Order returns the order of the work of a plan, as it follows from the starts.
//
// Where work starts at one instant, rounding aside, it is in the order of a minibatch's passage, and work of no duration comes first. The
// order also has work that plans do not list: communications that take no time, updates, and what messages between replicas need. To a first
// stage with ops, batches come from the host so many seconds ahead of their forward.
//
// Errors: those of Check up to RuleBoundary, those of Swaps, ErrPlan.
func Order(c *chain.Chain, p *Platform, plan *Plan, ahead float64) (*WorkOrder, error) {
	if plan.IsCycle() {
		return orderCycle(c, plan)
	}
	l, err := arrange(c, p, plan)
	if err != nil {
		return nil, err
	}
	o, err := newOrderer(l, ahead)
	if err != nil {
		return nil, err
	}
	o.addTasks()
	o.addLeftOut()
	o.addUpdates()
	o.addSums()
	return o.order(), nil
}

func newOrderer(l *layout, ahead float64) (*orderer, error) {
	o := &orderer{layout: l, devices: make([][]queuedWork, l.platform.Devices), sumOf: map[int]*sum{}, rounds: map[roundOf]*roundEnd{}}
	var err error
	if o.ops, err = o.opTimes(ahead); err != nil {
		return nil, err
	}
	var others []ticks
	for _, x := range o.ops {
		if x != nil {
			others = append(others, x.all()...)
		}
	}
	for _, x := range l.sums {
		if x.part > 0 {
			others = append(others, divisionOf(o.layout).addedAt(x))
		}
	}
	o.moments = l.findMoments(others...)
	return o, nil
}

// order returns the order when all work is there.
func (o *orderer) order() *WorkOrder {
	out := &WorkOrder{Moments: o.moments.count(), periodic: o.period != nil, spans: o.spans(), parts: o.partsThere()}
	for _, x := range o.ops {
		if x == nil {
			out.Ops = append(out.Ops, nil)
			continue
		}
		out.Ops = append(out.Ops, x.number(o.moments))
	}
	for d, list := range o.devices {
		out.Passing = append(out.Passing, o.passingMoments(d))
		sortWork(list)
		o.yield(list)
		var all []Work
		for _, w := range list {
			all = append(all, w.Work)
		}
		out.Devices = append(out.Devices, all)
	}
	return out
}
