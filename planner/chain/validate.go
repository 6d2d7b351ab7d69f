package chain

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"plimsoll/internal/fields"
)

// MaxBytes bounds the sum of all sizes of a chain: 2^53, the largest whole number that every JSON reader keeps
// exact. Sums of sizes that a planner makes stay far below the range of int64.
const MaxBytes = 1 << 53

// SlowestLink is the least bandwidth above 0, bytes/s: sums of the times of transfers, of up to MaxBytes, are numbers.
const SlowestLink = 1e-100

// Validate checks the invariants of the type. Errors name layer, field and value.
func (c *Chain) Validate() error {
	if err := c.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

func (c *Chain) validate() error {
	if len(c.Layers) == 0 {
		return &fields.Error{Field: "layers", Value: "[]", Reason: "must hold at least the loss"}
	}
	var sum totals
	sum.bytes("input_bytes", c.InputBytes)
	sum.bandwidth("bandwidth_bytes_per_s", c.Bandwidth)
	sum.bandwidth("host_memory_bandwidth_bytes_per_s", c.HostMemoryBandwidth)
	sum.number("batch", float64(c.Batch))
	sum.copiesBeside("copies_beside", c.CopiesBeside)
	sum.optionalBeside("host_updates_beside", c.HostUpdatesBeside)
	sum.copiesBeside("copies_beside_host_updates", c.CopiesBesideHostUpdates)
	sum.optionalFactor("ops_beside_host_updates", c.OpsBesideHostUpdates)
	sum.optionalFactor("host_updates_beside_ops", c.HostUpdatesBesideOps)
	if sum.err != nil {
		return sum.err
	}
	for i := range c.Layers {
		if sum.layer(&c.Layers[i]); sum.err != nil {
			return c.inLayer(i, sum.err)
		}
	}
	if err := cmp.Or(c.checkOwners(), c.checkBranches()); err != nil {
		return err
	}
	return c.checkOthers()
}

// totals adds up a chain; the first bad field stays as err.
type totals struct {
	size    int64
	seconds float64
	err     error
}

func (t *totals) layer(l *Layer) {
	t.time("forward_s", l.ForwardS)
	t.time("backward_s", l.BackwardS)
	t.bytes("output_bytes", l.OutputBytes)
	t.bytes("saved_bytes", l.SavedBytes)
	t.bytes("gradient_bytes", l.GradientBytes)
	t.bytes("forward_overhead_bytes", l.ForwardOverheadBytes)
	t.bytes("backward_overhead_bytes", l.BackwardOverheadBytes)
	t.bytes("weight_bytes", l.WeightBytes)
	t.bytes("unrounded_weight_bytes", l.UnroundedWeightBytes)
	if wide := l.UnroundedWeightBytes; t.err == nil && wide != 0 && wide < l.WeightBytes {
		t.fail("unrounded_weight_bytes", strconv.FormatInt(wide, 10), "is less than weight_bytes, of the same parameters: leave it out where none is rounded")
	}
	t.update(l)
	t.optionalTime("discard_forward_s", l.DiscardForwardS)
	t.optionalTime("backward_input_s", l.BackwardInputS)
	t.optionalTime("backward_weight_s", l.BackwardWeightS)
	t.optionalBeside("forward_beside", l.ForwardBeside)
	t.optionalBeside("backward_beside", l.BackwardBeside)
	if l.DiscardOverheadBytes != nil {
		t.bytes("discard_overhead_bytes", *l.DiscardOverheadBytes)
	}
	if t.err == nil && l.SavedBytes < l.OutputBytes {
		t.fail("saved_bytes", strconv.FormatInt(l.SavedBytes, 10),
			fmt.Sprintf("is less than output_bytes, %d: the saved set contains the output", l.OutputBytes))
	}
}

func (t *totals) optionalTime(field string, x *float64) {
	if x != nil {
		t.time(field, *x)
	}
}

func (t *totals) time(field string, x float64) {
	t.number(field, x)
	if t.seconds += x; t.err == nil && math.IsInf(t.seconds, 0) {
		t.fail(field, formatFloat(x), "makes the sum of all times infinite")
	}
}

func (t *totals) bandwidth(field string, x float64) {
	t.number(field, x)
	if t.err == nil && x > 0 && x < SlowestLink {
		t.fail(field, formatFloat(x), "is next to nothing: times would be too long for numbers")
	}
}

func (t *totals) number(field string, x float64) {
	if t.err == nil && !(x >= 0 && x <= math.MaxFloat64) {
		t.fail(field, formatFloat(x), "is negative or not finite")
	}
}

func (t *totals) bytes(field string, n int64) {
	switch {
	case t.err != nil:
	case n < 0:
		t.fail(field, strconv.FormatInt(n, 10), "is negative")
	case n > MaxBytes-t.size:
		t.fail(field, strconv.FormatInt(n, 10), "makes the sum of all sizes exceed 2^53 bytes")
	default:
		t.size += n
	}
}

func (t *totals) fail(field, value, reason string) {
	t.err = &fields.Error{Field: field, Value: value, Reason: reason}
}

func formatFloat(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// update checks the fields of one layer.
func (t *totals) update(l *Layer) {
	u := &l.Update
	if u.GradientBytes != nil {
		t.bytes("weight_gradient_bytes", *u.GradientBytes)
	}
	t.bytes("state_bytes", u.StateBytes)
	t.time("update_s", u.DeviceS)
	t.optionalTime("host_update_s", u.HostS)
	t.time("norm_s", u.NormS)
	gradient := l.WeightGradient()
	switch {
	case t.err != nil || u.WeightsOf != 0:
	case l.WeightBytes == 0 && gradient > 0:
		t.fail("weight_gradient_bytes", strconv.FormatInt(gradient, 10), "belongs to a layer with weight_bytes above 0")
	case gradient == 0 && u.StateBytes > 0:
		t.fail("state_bytes", strconv.FormatInt(u.StateBytes, 10), "belongs to a layer that is updated: weight_bytes and weight_gradient_bytes above 0")
	}
}

// checkOwners refuses tied layers that do not agree with the layer whose weights they read.
func (c *Chain) checkOwners() error {
	for i := range c.Layers {
		if reason := c.badTie(i + 1); reason != "" {
			return c.inLayer(i, badOwner(strconv.Itoa(c.Layers[i].Update.WeightsOf), reason))
		}
	}
	return nil
}

// badTie returns the rule that weights_of of layer l breaks, or "".
func (c *Chain) badTie(l int) (reason string) {
	tied, o := c.Layer(l), c.Layer(l).Update.WeightsOf
	if o == 0 {
		return ""
	}
	if o < 1 || o > c.Len() || o == l {
		return fmt.Sprintf("is not the number of another layer, of 1 to %d", c.Len())
	}
	owner, u := c.Layer(o), &tied.Update
	switch {
	case owner.Update.WeightsOf != 0 || owner.WeightBytes == 0:
		return "is a layer without weights of its own"
	case tied.WeightBytes != 0 && tied.WeightBytes != owner.WeightBytes:
		return fmt.Sprintf("is a layer with weight_bytes %d, and this one has %d: leave them out here", owner.WeightBytes, tied.WeightBytes)
	case u.GradientBytes != nil && *u.GradientBytes != owner.WeightGradient(), u.StateBytes != 0 && u.StateBytes != owner.Update.StateBytes:
		return "is a layer with another weight_gradient_bytes or state_bytes: leave them out here"
	}
	return ""
}
