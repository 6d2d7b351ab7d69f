package main

import (
	"errors"
	"fmt"
	"slices"

	"plimsoll/bench"
	"plimsoll/executor"
	"plimsoll/executor/measure"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/units"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/residency"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// refusal says what does not fit, and what would, in bytes. Unknown fields are left out.
type refusal struct {
	Strategy      string `json:"strategy,omitempty"`
	LimitBytes    int64  `json:"limit_bytes,omitempty"`
	SmallestBytes int64  `json:"smallest_bytes,omitempty"`  // the smallest limit that is known to work
	Found         bool   `json:"smallest_found,omitempty"`  // a smaller one may work
	Tried         int    `json:"sequences_tried,omitempty"` // by a search for less
	StaticBytes   int64  `json:"static_bytes,omitempty"`    // of which weights, gradients and optimizer state
	Host          bool   `json:"host_memory,omitempty"`     // the limit is that of host memory
	Op            string `json:"op,omitempty"`              // that needs it: "B4"
	Layer         int    `json:"layer,omitempty"`
	LayerName     string `json:"layer_name,omitempty"`
	Device        *int   `json:"device,omitempty"`  // that needs it, from 0; each device has the limit
	Devices       int    `json:"devices,omitempty"` // it works with so many, in the limit
	alone         bool   // Device is the only one
}

// refusalOf returns the refusal in an error, nil when it is of another kind.
func refusalOf(err error) *refusal {
	if e, ok := errors.AsType[*executor.TooSmallError](err); ok {
		r := refusal{Strategy: e.Strategy, LimitBytes: e.Limit, SmallestBytes: e.Smallest, Found: e.Found, StaticBytes: e.Static, alone: e.Devices == 1}
		if e.Devices > 0 {
			r.Device = &e.Device
		}
		return neededBy(e.Op, e.LayerName, r)
	}
	if e, ok := errors.AsType[*executor.HostLimitError](err); ok {
		return &refusal{LimitBytes: e.Limit, SmallestBytes: e.Needed, Host: true}
	}
	if e, ok := errors.AsType[*residency.HostError](err); ok {
		return &refusal{Strategy: e.Strategy, LimitBytes: e.Limit, SmallestBytes: e.Smallest, Host: true, Found: true}
	}
	if e, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		return neededBy(e.Op, e.LayerName, refusal{Strategy: e.Strategy, LimitBytes: e.Memory, SmallestBytes: e.Smallest, Found: e.Found, Tried: e.Tried, Devices: e.Devices})
	}
	if e, ok := errors.AsType[*bench.NothingFitsError](err); ok {
		return &refusal{Strategy: e.Strategy, LimitBytes: e.LimitBytes, SmallestBytes: e.SmallestBytes, Found: true}
	}
	if e, ok := errors.AsType[*sequenceError](err); ok {
		return neededBy(e.op, e.layer, refusal{LimitBytes: e.limit, SmallestBytes: e.peak})
	}
	return plainRefusalOf(err)
}

// plainRefusalOf returns the refusals that do not know what would fit.
func plainRefusalOf(err error) *refusal {
	if e, ok := errors.AsType[*measure.WindowError](err); ok {
		return &refusal{LimitBytes: e.Limit, SmallestBytes: e.Needed}
	}
	if e, ok := errors.AsType[*pipe.LimitError](err); ok {
		return &refusal{LimitBytes: e.Limit, SmallestBytes: e.Needed, StaticBytes: e.Static, Device: &e.Device}
	}
	if e, ok := errors.AsType[*schedule.MemoryError](err); ok {
		return neededBy(e.Op, "", refusal{LimitBytes: e.Limit})
	}
	if e, ok := errors.AsType[*cycle.MemoryError](err); ok {
		return &refusal{LimitBytes: e.Limit}
	}
	if e, ok := errors.AsType[*cycle.HostMemoryError](err); ok {
		return &refusal{LimitBytes: e.Limit, SmallestBytes: e.Needed, Host: true}
	}
	if e, ok := errors.AsType[*schedule.HostMemoryError](err); ok {
		return &refusal{LimitBytes: e.Limit, SmallestBytes: e.Needed, Host: true}
	}
	if e, ok := errors.AsType[*runtime.OutOfMemoryError](err); ok {
		return &refusal{LimitBytes: e.Limit, Host: e.Space == runtime.Host}
	}
	return nil
}

// neededBy adds the op that needs so much; the zero op is the chain's input.
func neededBy(op schedule.Op, layer string, r refusal) *refusal {
	if op.Layer > 0 {
		r.Op, r.Layer, r.LayerName = op.String(), op.Layer, layer
	}
	return &r
}

// explain says on one line what does not fit, and what to give.
func (r *refusal) explain(err error) string {
	switch {
	case r == nil || r.SmallestBytes == 0:
		return oneLine(err)
	case r.Host:
		return oneLine(err) + fmt.Sprintf(": give at least --host-memory %d", r.SmallestBytes)
	case r.Strategy != "" && r.Op != "":
		return r.tooSmall("", fmt.Sprintf(", needed by %s, layer %d (%s)", r.Op, r.Layer, r.LayerName))
	case r.alone:
		return r.tooSmall("", "")
	case r.Strategy != "" && r.Device != nil:
		return r.tooSmall(" on each device", fmt.Sprintf(", needed by device %d", *r.Device))
	case r.Strategy != "":
		return oneLine(err) + fmt.Sprintf(" (--memory %d)", r.SmallestBytes)
	}
	return oneLine(err)
}

func (r *refusal) tooSmall(where, by string) string {
	smallest := "that works"
	if r.Found {
		smallest = "found"
	}
	text := fmt.Sprintf("%s: a limit of %s%s is too small: the smallest %s is %s (--memory %d)%s",
		r.Strategy, units.Bytes(r.LimitBytes), where, smallest, units.Bytes(r.SmallestBytes), r.SmallestBytes, by)
	if r.StaticBytes > 0 {
		less := "a smaller --batch, or train's --accumulate,"
		switch {
		case r.alone:
			less = "a smaller --batch, or more parts (--accumulate),"
		case r.Device != nil:
			less = "a smaller --batch, or more parts (--microbatches),"
		}
		text += fmt.Sprintf("; %s of it are weights, gradients and optimizer: %s lowers the rest", units.Bytes(r.StaticBytes), less)
	}
	return text
}

// sequenceError is the error for a sequence over its limit, with the limit at which it works.
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

// enough adds the limit that works, and the op that needs it, to the error of a plan for one device over its limit. To the error of a
// missing link it adds the flag to give. A sequence that never waits for memory runs at its peak without a limit.
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
