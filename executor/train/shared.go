package train

import (
	"cmp"
	"fmt"

	"plimsoll/internal/cores"
	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/devices"
)

// SharedProcessors counts devices of a machine that compete for fewer processors. Predicted times hold for devices with processors of
// their own, so measured times are longer.
type SharedProcessors struct {
	Devices    int    `json:"devices"`
	Processors int    `json:"processors"`
	Kind       string `json:"kind"` // of the processors: "core" or "GPU"
	// LeastS and MostS are seconds of a step whose tasks take turns on the cores. An op takes one core, or as many as it has threads. Of GPUs and
	// of several processes they are 0.
	LeastS  float64 `json:"least_predicted_s_per_step,omitempty"`
	MostS   float64 `json:"most_predicted_s_per_step,omitempty"`
	threads int     // of an op
}

// Turns returns the sentence with the predicted times of a step on the cores that are shared; "" where there are none.
func (s *SharedProcessors) Turns() string {
	least, most := units.Seconds(s.LeastS), units.Seconds(s.MostS)
	switch {
	case s.LeastS == 0:
		return ""
	case least == most:
		return "in turns on these, predicted " + least
	}
	return fmt.Sprintf("in turns on these, predicted %s where an op takes one, %s where it takes %d", least, most, min(s.threads, s.Processors))
}

// predict fills in the times of a step of a plan, of which a step takes so many seconds on devices of their own. own simulates these. Errors:
// those of the simulation.
func (s *SharedProcessors) predict(p *JobPlan, step float64, own *pipeline.Outcome) error {
	for _, x := range []struct {
		seconds *float64
		at      int // ops at once
	}{{&s.LeastS, s.Processors}, {&s.MostS, max(s.Processors/s.threads, 1)}} {
		o, err := pipeline.SimulateShared(p.Costs.Chain, p.Costs.Platform, p.Plan, x.at)
		if err != nil {
			return err
		}
		*x.seconds = step * o.PerMinibatch / own.PerMinibatch
	}
	return nil
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
		return &SharedProcessors{Devices: parts * processes, Processors: cores, Kind: "core", threads: threads}
	case item.Kind == "cuda" && item.Index >= 0 && parts*processes > 1:
		return &SharedProcessors{Devices: parts * processes, Processors: 1, Kind: "GPU"}
	case item.Kind == "cuda" && parts > 1:
		return &SharedProcessors{Devices: parts, Processors: 1, Kind: "GPU"}
	}
	return nil
}
