package chain

import (
	"fmt"
	"math"
	"strconv"

	"plimsoll/internal/fields"
)

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

// update checks the fields of one layer.
func (t *totals) update(l *Layer) {
	u := &l.Update
	if u.GradientBytes != nil {
		t.bytes("weight_gradient_bytes", *u.GradientBytes)
	}
	t.bytes("wide_gradient_bytes", u.WideGradientBytes)
	if wide := u.WideGradientBytes; t.err == nil && wide > l.BackwardOverheadBytes {
		t.fail("wide_gradient_bytes", strconv.FormatInt(wide, 10), "is more than backward_overhead_bytes, which has them: leave it out where no gradient is kept rounded")
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

func (t *totals) beside(field string, factors []float64) {
	for _, x := range factors {
		if t.err == nil && !(x >= 1 && x <= mostBeside) {
			t.fail(field, formatFloat(x), "is not from 1 to 1e6: how many times as long something takes")
		}
	}
}

// mostBeside bounds the factors: what is slower by a million is broken.
const mostBeside = 1e6

func (t *totals) optionalBeside(field string, b *Beside) {
	if b != nil {
		t.beside(field, b[:])
	}
}

func (t *totals) optionalFactor(field string, x *float64) {
	if x != nil {
		t.beside(field, []float64{*x})
	}
}

func (t *totals) copiesBeside(field string, b *CopiesBeside) {
	if b != nil {
		t.beside(field, b[:])
	}
}

func (t *totals) fail(field, value, reason string) {
	t.err = &fields.Error{Field: field, Value: value, Reason: reason}
}

func formatFloat(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// MaxBytes bounds the sum of all sizes of a chain: 2^53, the largest whole number that every JSON reader keeps
// exact. Sums of sizes that a planner makes stay far below the range of int64.
const MaxBytes = 1 << 53

// SlowestLink is the least bandwidth above 0, bytes/s: sums of the times of transfers, of up to MaxBytes, are numbers.
const SlowestLink = 1e-100
