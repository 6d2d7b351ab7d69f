package main

import (
	"errors"
	"fmt"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// sequenceError is that of a sequence over its limit, with the limit at which it works.
type sequenceError struct {
	error
	limit, peak int64 // bytes
	index       int
	op          schedule.Op
	layer       string
}

func (e *sequenceError) Error() string {
	return fmt.Sprintf("%v; without waiting it needs %s, at op %d, %v (%s)", e.error, units.Precise(e.peak), e.index, e.op, e.layer)
}

func (e *sequenceError) Unwrap() error { return e.error }

// enough adds to the error of a plan for one device over its limit which limit it works at, and which op needs it, and to that of a missing
// link what to give. A sequence that never waits for memory runs at its peak without a limit.
func enough(p *anyPlan, err error) error {
	if !p.plan.IsSequence() {
		return err
	}
	if errors.Is(err, schedule.ErrNoLink) {
		return fmt.Errorf("%w: give that of the link, as in --bandwidth 12GB/s", err)
	}
	if !is[*schedule.MemoryError](err) {
		return err
	}
	r, failed := pipeline.Check(p.chain, p.platform.WithMemory(pipeline.NoLimit), p.plan)
	if failed != nil || r.Sequence.PeakOp < 0 {
		return err
	}
	at := r.Sequence.PeakOp
	op := p.plan.Sequence()[at]
	return &sequenceError{err, p.platform.Memory[0], r.Sequence.Peak, at, op, p.chain.Layer(op.Layer).Name}
}

// missingPrefetch says what to add when an op lacks what an offload before it took away; "" for other errors.
func missingPrefetch(seq schedule.Sequence, err error) string {
	var broken *schedule.RuleError
	if !errors.As(err, &broken) || broken.Op.Kind.Transfer() || broken.Index == len(seq) {
		return ""
	}
	layers := []int{broken.Op.Layer} // whose inputs the op reads
	if broken.Op.Kind == schedule.Backward {
		layers = append(layers, broken.Op.Layer+1)
	}
	for _, layer := range layers {
		at, op := lastTransfer(seq[:broken.Index], layer)
		if op.Kind == schedule.Offload && at >= 0 {
			return fmt.Sprintf("; %v at op %d took it away and nothing brings it back: add %v before op %d",
				op, at, schedule.Op{Kind: schedule.Prefetch, Layer: layer}, broken.Index)
		}
	}
	return ""
}

// lastTransfer returns the last transfer of the input of a layer and its position, -1 when there is none.
func lastTransfer(seq schedule.Sequence, layer int) (int, schedule.Op) {
	for at, op := range slices.Backward(seq) {
		if op.Layer == layer && op.Kind.Transfer() {
			return at, op
		}
	}
	return -1, schedule.Op{}
}
