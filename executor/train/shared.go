package train

import (
	"cmp"
	"fmt"
	"math"

	"plimsoll/internal/cores"
	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/devices"
)

// SharedProcessors counts devices of a machine that compete for fewer processors.
type SharedProcessors struct {
	Devices    int    `json:"devices"`
	Processors int    `json:"processors"`
	Kind       string `json:"kind"` // of the processors: "core" or "GPU"
	// OpsAtOnce is how many ops the processors run at once at full speed, as the plan counts (pipeline.Platform). If it is 0, predicted times hold
	// for devices with processors of their own, and measured times are longer.
	OpsAtOnce float64 `json:"ops_at_once,omitempty"`
	// OwnS is the predicted time of a step on devices with processors of their own, seconds; 0: not known.
	OwnS    float64 `json:"own_predicted_s_per_step,omitempty"`
	threads int     // of an op
}

// String returns the sentence that stands beside a predicted and a measured time.
func (s *SharedProcessors) String() string {
	out := fmt.Sprintf("%d devices share %s", s.Devices, s.processors())
	switch {
	case s.OpsAtOnce == 0:
		return out + ": the prediction is for devices of their own"
	case s.Kind == "GPU":
		return out + fmt.Sprintf(": predicted with %s at once; small ones overlap more", s.ops())
	}
	return out + ", which run " + s.ops() + " at once"
}

// ops returns "1 op" or "1.83 ops".
func (s *SharedProcessors) ops() string {
	if s.OpsAtOnce == 1 {
		return "1 op"
	}
	return fmt.Sprintf("%.3g ops", s.OpsAtOnce)
}

// processors returns "2 cores".
func (s *SharedProcessors) processors() string { return units.Count(s.Processors, s.Kind) }

// SharedProcessors returns how the job's devices share processors, and how far the plan counts that; nil where each device has its own. So many
// processes with such devices run on this machine.
func (p *JobPlan) SharedProcessors(j *Job, processes int) *SharedProcessors {
	s := j.SharedProcessors(processes)
	if s != nil && p.IsPipeline() {
		s.predict(p)
	}
	return s
}

// predict fills in how many ops run at once in a plan, and the time of its step on processors of their own.
func (s *SharedProcessors) predict(p *JobPlan) {
	n := p.Costs.Platform.OpsAtOnce
	if n == 0 || p.IsCycle() || p.RunsSequence() {
		return
	}
	own := *p.Costs.Platform
	own.OpsAtOnce = 0
	o, err := pipeline.Simulate(p.Costs.Chain, &own, p.Plan, pipeline.Noise{})
	if err != nil {
		return // it would not have run
	}
	s.OpsAtOnce, s.OwnS = n, o.PerMinibatch
	if p.IsFlush() {
		s.OwnS = o.Makespan + pipeline.UpdateSeconds(p.Costs.Chain, &own, p.Plan)
	}
}

// OnProcessors fills in how many ops the devices of a job's platform run at once at full speed. It leaves a platform alone that says it, and one
// whose devices do not all share the processors of this machine. Parts of a GPU count as one op. On cores, measure measures the chain while so many
// copies of it run at once: one, and as many as keep all cores busy. So threads that wait for each other, caches and memory count. If measure is
// nil, ops count as if they kept all their threads busy. Errors: those of measure.
func OnProcessors(j *Job, p *pipeline.Platform, measure func(copies int) (*chain.Chain, error)) (*pipeline.Platform, error) {
	shared := j.SharedProcessors(1)
	if shared == nil || p.OpsAtOnce > 0 || j.Processes > 1 || shared.Devices != p.Devices {
		return p, nil
	}
	q := *p
	if shared.Kind == "GPU" {
		q.OpsAtOnce = 1
		return &q, nil
	}
	room := float64(shared.Processors) / float64(shared.threads)
	if q.OpsAtOnce = max(1, room); measure == nil {
		return &q, nil
	}
	copies := min(shared.Devices, max(2, int(math.Ceil(room))))
	together, err := measure(copies)
	if err != nil {
		return nil, err
	}
	alone, err := measure(1)
	if err != nil {
		return nil, err
	}
	n := float64(copies)
	q.OpsAtOnce = min(max(1, n*computeSeconds(alone)/computeSeconds(together)), n)
	return &q, nil
}

// computeSeconds returns the time of all forwards and backwards of a chain.
func computeSeconds(c *chain.Chain) (seconds float64) {
	for i := range c.Layers {
		seconds += c.Layers[i].ForwardS + c.Layers[i].BackwardS
	}
	return seconds
}

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
// more, or keep all of them busy in one process. Parts share a GPU, and so do processes that name the same one.
func shared(item devices.Item, threads, processes, cores int) *SharedProcessors {
	parts := max(item.Parts, 1)
	switch {
	case item.Kind == "cpu" && parts*processes > 1 && (parts*processes*threads > cores || parts*threads == cores && processes == 1):
		return &SharedProcessors{Devices: parts * processes, Processors: cores, Kind: "core", threads: threads}
	case item.Kind == "cuda" && item.Index >= 0 && parts*processes > 1:
		return &SharedProcessors{Devices: parts * processes, Processors: 1, Kind: "GPU"}
	case item.Kind == "cuda" && parts > 1:
		return &SharedProcessors{Devices: parts, Processors: 1, Kind: "GPU"}
	}
	return nil
}
