package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"plimsoll/planner/chain"
)

// StepSeconds returns the time of a minibatch with its share of the step's updates, in seconds: of several plans with a flush, those for
// which it is least train fastest. Without a flush it is SecondsPerMinibatch.
func StepSeconds(c *chain.Chain, on *Platform, p *Plan) float64 {
	seconds := p.SecondsPerMinibatch()
	if updates := UpdateSeconds(c, on, p); updates > 0 {
		seconds += updates / float64(p.Microbatches)
	}
	return seconds
}

// UpdateSeconds returns how long the updates of a plan with a flush take behind its last task and message, in seconds. It is 0 of a cyclic
// plan, which has them among its ops, and without a flush. Whether all gradients are finite is known when they are all there. Then all
// devices of a platform measure the gradients of their stages and update the weights, or the parts of them that they own (Plan.Zero).
// Devices that share processors share them in equal parts. Of state on the host see hostUpdates.
func UpdateSeconds(c *chain.Chain, on *Platform, p *Plan) float64 {
	switch {
	case !p.IsFlush() || p.IsCycle():
		return 0
	case p.HostState:
		return hostUpdates(c, on, p)
	}
	longest, total, updates := 0.0, 0.0, map[int]float64{}
	for _, s := range p.Stages {
		seconds := 0.0
		for i := s.First; i <= s.Last; i++ {
			if u := c.Layers[i-1].Update; u.WeightsOf == 0 {
				seconds += u.NormS + u.DeviceS
			}
		}
		if p.Zero != ZeroNothing {
			seconds /= float64(len(s.Devices))
		}
		for _, d := range s.Devices {
			total += seconds
			updates[d] += seconds
			longest = max(longest, updates[d])
		}
	}
	if on.OpsAtOnce > 0 {
		return max(longest, total/on.OpsAtOnce)
	}
	return longest
}

// checkHostState refuses state on the host in plans that do not update once for all, or whose layers the host cannot update.
func checkHostState(l *layout) error {
	if !l.plan.HostState {
		return nil
	}
	if l.plan.IsCycle() {
		return errors.New("field \"host_state\" is true: a plan that moves weights and state says itself what the host updates: leave it out")
	}
	if !l.plan.IsFlush() {
		return fmt.Errorf("field \"host_state\" is true: the host updates plans with a flush, and field \"weight_versions\" is %q", l.plan.Versions)
	}
	for i := range l.chain.Layers {
		if u := l.chain.Layers[i].Update; u.DeviceS > 0 && u.HostS == nil && u.WeightsOf == 0 {
			return fmt.Errorf("field \"host_state\" is true: the host cannot update layer %d (%s), which lacks field \"host_update_s\" of the chain", i+1, l.chain.Layers[i].Name)
		}
	}
	return nil
}

// hostUpdate is the update of a layer on the host, for a device.
type hostUpdate struct {
	device       int
	come         float64 // when its gradient has
	copy, update float64 // seconds of a copy of the gradient, or of the weights, and of the update
}

// hostUpdates returns how long updates take, in seconds, that one host makes for all devices, one after the other as gradients come. A device
// sends the gradients of all its layers, behind the norm of all gradients, then gets new weights. Without a bandwidth to host memory copies
// take no time.
func hostUpdates(c *chain.Chain, on *Platform, p *Plan) (end float64) {
	norm, link := make([]float64, on.Devices), make([]float64, on.Devices) // until when
	var all []hostUpdate
	for _, s := range p.Stages {
		for i := s.First; i <= s.Last; i++ {
			u, share := c.Layers[i-1].Update, 1.0
			if p.Zero != ZeroNothing {
				share = 1 / float64(len(s.Devices))
			}
			for _, d := range s.Devices {
				if u.WeightsOf > 0 {
					continue
				}
				if norm[d] += share * u.NormS; u.HostS == nil {
					continue
				}
				x := hostUpdate{device: d, update: share * *u.HostS}
				if on.Host > 0 {
					x.copy = share * float64(c.SummedWeights(i)) / on.Host
				}
				link[d] += x.copy
				x.come = link[d]
				all = append(all, x)
			}
		}
	}
	measured := slices.Max(norm)
	slices.SortStableFunc(all, func(x, y hostUpdate) int { return cmp.Compare(x.come, y.come) })
	back, host := make([]float64, on.Devices), measured
	for d := range back {
		if !on.Duplex {
			back[d] = measured + link[d]
		}
	}
	end = measured
	for _, x := range all {
		host = max(host, measured+x.come) + x.update
		back[x.device] = max(back[x.device], host) + x.copy
		end = max(end, back[x.device])
	}
	return end
}
