// Package cycle judges and simulates cyclic plans: sequences of one device that also say when weights, gradients and optimizer state are on
// the device. It stands below all strategies, decides nothing, and knows no device, tensor or clock. The rules of the design stand
// below and at the head of clock.go.
package cycle

// Section 4 holds for activations, by microbatch; package schedule replays them. Section 8 adds:
//
//   - A sequence is one step of the steady state. Residency, and where the newest copy is, are the same at its end as at its start; both
//     follow from the first op of each item.
//   - F and B need current weights. U on the device or H on the host updates a layer once, between its last B of a step and its next F. The
//     update needs the layer's whole gradient. After H the device's weights and state are stale and can only be dropped.
//   - The first B of a step takes the gradient's memory, later ones add to it on the device, in the order of microbatches. Og moves it to the
//     host, Pg back. Og, Pg, U and H carry a prime exactly where the gradient is that of the step before.
//   - A layer with a gradient of 0 bytes is frozen. Tied layers have a gradient each, which Og and Pg move by its layer's number. The other
//     ops name the owner of the weights, and its update needs and frees the gradients of all tied layers.
//   - With Limits.UpdatesLast no update of a step starts before its last B has ended. The B that makes the gradient of some weights whole then
//     takes norm_s longer, in which the device adds up its squares.

import (
	"fmt"
	"math"

	"plimsoll/planner/chain"
)

// Simulate judges and plays a sequence. Errors: those of NewSimulator and of Simulator.Run.
func Simulate(c *chain.Chain, seq Sequence, link Link, limits Limits) (*Result, error) {
	s, err := NewSimulator(c, link)
	if err != nil {
		return nil, err
	}
	return s.Run(seq, limits)
}

// Simulator simulates sequences of one chain, which must not change meanwhile, over one link.
type Simulator struct {
	costs  *costs
	link   Link
	ledger ledger
	player player
}

// NewSimulator prepares the times of a chain. Errors: those of chain.Validate, ErrBranches, ErrBandwidth.
func NewSimulator(c *chain.Chain, link Link) (*Simulator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(c.Branches) > 0 {
		return nil, ErrBranches
	}
	for _, x := range [...]float64{link.ToDevice, link.ToHost} {
		if x != 0 && !(x >= chain.SlowestLink && x <= math.MaxFloat64) {
			return nil, fmt.Errorf("%w %g: it is not at least %g bytes/s; 0 stands for no link", ErrBandwidth, x, chain.SlowestLink)
		}
	}
	k := newCosts(c, link)
	return &Simulator{costs: k, link: link, ledger: newLedger(c, k)}, nil
}

// Verify replays a sequence against the rules that hold whatever the durations and the memory. Errors: *RuleError.
func (s *Simulator) Verify(seq Sequence, limits Limits) error {
	return s.ledger.judge(seq, limits.UpdatesLast)
}

// Run judges and plays a sequence. The result is valid until the next call. Errors: *RuleError, *LinkError, *MemoryError, *HostMemoryError,
// ErrNoSteadyState.
func (s *Simulator) Run(seq Sequence, limits Limits) (*Result, error) {
	l := &s.ledger
	if err := l.judge(seq, limits.UpdatesLast); err != nil {
		return nil, err
	}
	if err := l.checkLink(); err != nil {
		return nil, err
	}
	l.addWaits(limits.Waits)
	p := &s.player
	p.load(l, s.costs.contention, s.link.Duplex, limits)
	if err := p.play(); err != nil {
		return nil, err
	}
	r := p.finish(s.costs.clock)
	r.HostPeak = l.homes + p.hostPeak
	if r.HostPeak > limits.Host {
		return nil, &HostMemoryError{r.HostPeak, limits.Host}
	}
	r.InOrderPeak = l.inOrderPeak()
	return r, nil
}
