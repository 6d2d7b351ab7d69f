package train

import (
	"cmp"
	"fmt"

	"plimsoll/internal/cores"
	"plimsoll/internal/units"
	"plimsoll/runtime/devices"
)

// SharedProcessors counts devices of a machine that compete for fewer processors. Predicted times hold for devices with processors of
// their own, so measured times are longer.
type SharedProcessors struct {
	Devices    int    `json:"devices"`
	Processors int    `json:"processors"`
	Kind       string `json:"kind"` // of the processors: "core" or "GPU"
}

// String returns the sentence that stands beside a predicted and a measured time.
func (s *SharedProcessors) String() string {
	return fmt.Sprintf("%d devices share %s: the prediction is for devices of their own", s.Devices, s.processors())
}

// processors returns "2 cores".
func (s *SharedProcessors) processors() string { return units.Count(s.Processors, s.Kind) }

// On returns the devices with the processors that they share: "cpu*4 on 2 cores"; s may be nil.
func (s *SharedProcessors) On(devices string) string {
	if s == nil {
		return devices
	}
	return devices + " on " + s.processors()
}

// SharedProcessors returns how the spec's devices share processors where so many processes with such devices run on this machine; nil
// where each device has its own.
func (s *Spec) SharedProcessors(processes int) *SharedProcessors {
	threads := cmp.Or(s.Kernels.Threads, cores.Count())
	if s.Kernels.Reference {
		threads = 1
	}
	items, _ := devices.Parse(s.Devices) // jobs are opened with it
	for _, item := range items {
		if x := shared(item, threads, processes, cores.Count()); x != nil {
			return x
		}
	}
	return nil
}

// shared returns how the devices of one item share processors; nil where they do not. Cores are shared where all devices' threads are
// more. Parts share a GPU, and so do processes that name the same one.
func shared(item devices.Item, threads, processes, cores int) *SharedProcessors {
	parts := max(item.Parts, 1)
	switch {
	case item.Kind == "cpu" && parts*processes > 1 && parts*processes*threads > cores:
		return &SharedProcessors{parts * processes, cores, "core"}
	case item.Kind == "cuda" && item.Index >= 0 && parts*processes > 1:
		return &SharedProcessors{parts * processes, 1, "GPU"}
	case item.Kind == "cuda" && parts > 1:
		return &SharedProcessors{parts, 1, "GPU"}
	}
	return nil
}
