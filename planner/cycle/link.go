package cycle

import (
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Link is the connection of the device with host memory. Bandwidths are bytes per second; 0: no copies that way.
type Link struct {
	ToDevice, ToHost float64
	Duplex           bool // each direction has a queue of its own; otherwise copies run in one order
}

// Stream is a queue of ops that run one at a time.
type Stream uint8

// The streams. On one link copies to the host are in the queue of those to the device.
const (
	Compute Stream = iota
	ToDevice
	ToHost
	Host
	streams = int(iota)
)

// StreamOf returns the stream on which ops of a kind run; false: they run on none.
func StreamOf(k schedule.Kind) (Stream, bool) {
	switch k {
	case schedule.HostUpdate:
		return Host, true
	case schedule.DropWeights, schedule.DropState:
		return 0, false
	case schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard, schedule.Backward, schedule.Update:
		return Compute, true
	}
	if way(k) == chain.ToHost {
		return ToHost, true
	}
	return ToDevice, true
}

// way returns the direction of a copy.
func way(k schedule.Kind) int {
	switch k {
	case schedule.Offload, schedule.WriteWeights, schedule.WriteState, schedule.OffloadGradient:
		return chain.ToHost
	}
	return chain.ToDevice
}
