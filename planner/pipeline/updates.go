package pipeline

import "plimsoll/planner/chain"

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
// Devices that share processors share them in equal parts.
func UpdateSeconds(c *chain.Chain, on *Platform, p *Plan) float64 {
	if !p.IsFlush() || p.IsCycle() {
		return 0
	}
	longest, total, updates := 0.0, 0.0, map[int]float64{}
	for _, s := range p.Stages {
		seconds := 0.0
		for i := s.First; i <= s.Last; i++ {
			if u := c.Layers[i-1].Update; u.WeightsOf == 0 {
				seconds += u.NormS + u.DeviceS
			}
		}
		if p.Zero == ZeroShards {
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
