package chain

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"plimsoll/internal/fields"
)

// Contends reports whether the chain says what ops and copies take from each other.
func (c *Chain) Contends() bool {
	return c.CopiesBeside != nil || slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.ForwardBeside != nil || l.BackwardBeside != nil })
}

// OpBeside returns an op's slowdown, as a factor, beside copies at a bandwidth in bytes/s. Factor times was measured beside copies at the
// chain's bandwidth. Slower copies need the shared memory or cores for a smaller share of the time.
func (c *Chain) OpBeside(times, bandwidth float64) float64 {
	if bandwidth >= c.Bandwidth { // that is 0 where nobody knows it
		return times
	}
	return 1 / (1 - bandwidth/c.Bandwidth*(1-1/times))
}

// CopyBeside returns the slowdown of a copy, as a factor, beside ops, at a bandwidth in bytes/s. Factor times was measured at the chain's
// bandwidth. On a slower link the memory's spare bandwidth makes up for it.
func (c *Chain) CopyBeside(times, bandwidth float64) float64 {
	if bandwidth >= c.Bandwidth {
		return times
	}
	return max(1, times*bandwidth/c.Bandwidth)
}

// BandwidthBeside returns the rest of a bandwidth, in bytes/s, beside ops, in the direction that is slowed more: nearly all copies of
// a good plan run beside ops.
func (c *Chain) BandwidthBeside(bandwidth float64) float64 {
	if c.CopiesBeside == nil {
		return bandwidth
	}
	return bandwidth / c.CopyBeside(max(c.CopiesBeside[ToHost], c.CopiesBeside[ToDevice]), bandwidth)
}

// ForgetContention leaves out what ops, updates on the host and copies take from each other.
func (c *Chain) ForgetContention() {
	c.CopiesBeside, c.HostUpdatesBeside, c.CopiesBesideHostUpdates = nil, nil, nil
	c.OpsBesideHostUpdates, c.HostUpdatesBesideOps = nil, nil
	for i := range c.Layers {
		c.Layers[i].ForwardBeside, c.Layers[i].BackwardBeside = nil, nil
	}
}

// CopyContention takes from another chain of as many layers what ops, updates on the host and copies take from each other.
func (c *Chain) CopyContention(from *Chain) {
	c.CopiesBeside, c.HostUpdatesBeside, c.CopiesBesideHostUpdates = from.CopiesBeside, from.HostUpdatesBeside, from.CopiesBesideHostUpdates
	c.OpsBesideHostUpdates, c.HostUpdatesBesideOps = from.OpsBesideHostUpdates, from.HostUpdatesBesideOps
	for i := range c.Layers {
		c.Layers[i].ForwardBeside, c.Layers[i].BackwardBeside = from.Layers[i].ForwardBeside, from.Layers[i].BackwardBeside
	}
}

// takeFactors reads a field of as many factors as there is room for; false where the object has none.
func takeFactors(o *fields.Object, field string, into []float64) bool {
	if !o.Has(field) {
		return false
	}
	raw := o.Raw(field)
	var all []float64
	if json.Unmarshal(raw, &all) != nil || len(all) != len(into) {
		o.Refuse(field, string(raw), fmt.Sprintf("is not %d numbers", len(into)))
	}
	copy(into, all)
	return true
}

func takeBeside(o *fields.Object, field string) *Beside {
	b := new(Beside)
	if !takeFactors(o, field, b[:]) {
		return nil
	}
	return b
}

func takeCopiesBeside(o *fields.Object, field string) *CopiesBeside {
	b := new(CopiesBeside)
	if !takeFactors(o, field, b[:]) {
		return nil
	}
	return b
}

// Beside returns how many times as long all ops together take while copies run; nil where that is not known.
func (c *Chain) Beside() *Beside {
	forward := c.beside(1, c.Len(), (*Layer).forwardBeside)
	backward := c.beside(1, c.Len(), (*Layer).backwardBeside)
	both := &Chain{Layers: []Layer{{ForwardBeside: forward}, {ForwardBeside: backward}}}
	for i := range c.Layers {
		both.Layers[0].ForwardS += c.Layers[i].ForwardS
		both.Layers[1].ForwardS += c.Layers[i].BackwardS
	}
	return both.beside(1, 2, (*Layer).forwardBeside)
}

func (l *Layer) forwardBeside() (*Beside, float64)  { return l.ForwardBeside, l.ForwardS }
func (l *Layer) backwardBeside() (*Beside, float64) { return l.BackwardBeside, l.BackwardS }

// beside returns the factors of layers first..last as one: their mean by time; nil where none has any.
func (c *Chain) beside(first, last int, of func(*Layer) (*Beside, float64)) *Beside {
	var sum, most Beside
	var seconds float64
	known := false
	for l := first; l <= last; l++ {
		b, s := of(c.Layer(l))
		if known = known || b != nil; b == nil {
			b = &Beside{1, 1, 1}
		}
		seconds += s
		for i, x := range b {
			sum[i] += x * s
			most[i] = max(most[i], x)
		}
	}
	if !known {
		return nil
	}
	for i := range sum {
		if sum[i] /= seconds; !(sum[i] >= 1) || math.IsInf(sum[i], 0) { // rounded, or of no time at all
			sum[i] = 1
		}
		sum[i] = min(sum[i], most[i])
	}
	return &sum
}
