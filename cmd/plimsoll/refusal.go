package main

import (
	"errors"
	"fmt"

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

// refusal is what does not fit, and what would: bytes. What is not known is left out.
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

// refusalOf returns what an error says does not fit, nil when it is of another kind.
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
