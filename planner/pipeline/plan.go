package pipeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// Format is the value of the "format" field of a plan file.
const Format = "plimsoll.plan/v1"

// NoDevice is the device of a communication that does not name one.
const NoDevice = -1

// Task is one piece of work of a pattern. The device of a communication is one of its two ends, or NoDevice.
type Task struct {
	Kind   Kind
	Stage  int     // counted from 0
	Device int     // counted from 0
	Start  float64 // seconds: in [0, period) of a periodic plan, from the start of the minibatch of a flush plan
	Shift  int     // the minibatch within period 0, of a periodic plan; the microbatch, of a flush plan
	// To is the other stage of a communication through a portal: CF goes there from Stage, CB comes from there; 0: the
	// next stage.
	To int
	// Duration is the file's duration, which must agree with the chain; nil: the file has none.
	Duration *float64
	Extra    map[string]json.RawMessage
}

// String returns the task in short: "F2(5)" is the forward of stage 2 for shift 5, "CF0-3(5)" goes through a portal.
func (t Task) String() string {
	if t.To > 0 {
		return fmt.Sprintf("%v%d-%d(%d)", t.Kind, t.Stage, t.To, t.Shift)
	}
	return fmt.Sprintf("%v%d(%d)", t.Kind, t.Stage, t.Shift)
}

// Stage is consecutive layers placed together. On several devices each minibatch is worked on by one of them, the
// one its tasks name (replicas, bidirectional pipelines).
type Stage struct {
	First, Last int   // layers, counted from 1
	Devices     []int // counted from 0
	// Ops is the sequence inside the stage where it recomputes or offloads; layers are those of the whole chain.
	Ops schedule.Sequence
	// LastOps replaces Ops for the last microbatch of a flush plan; nil: it runs Ops too.
	LastOps schedule.Sequence
	// OpExtra are the fields of the ops in the file that this package does not know, by position in Ops.
	OpExtra map[int]map[string]json.RawMessage
	Extra   map[string]json.RawMessage
}

// Len returns the number of layers.
func (s Stage) Len() int { return s.Last - s.First + 1 }

// Versions says which weights a minibatch sees and so how many copies are kept.
type Versions string

// The weight versions.
const (
	Latest         Versions = "latest"
	Stash          Versions = "stash"         // PipeDream: backward sees what forward saw
	VerticalSync   Versions = "vertical_sync" // all stages see the same version
	DoubleBuffered Versions = "double_buffered"
	Flush          Versions = "flush" // all microbatches of a minibatch see the same: a flush plan
)

// AllVersions returns the five, in the order of the file format.
func AllVersions() []Versions { return []Versions{Latest, Stash, VerticalSync, DoubleBuffered, Flush} }

// Copies returns how many times a stage's weights are in memory, the gradient included: 3 double buffered (thesis
// 6.3.3), nca+1 stashed (PipeDream 3.3), 2 latest and flush. With vertical_sync every stage has as many as the first one stashed,
// which its own nca does not tell: ok is false. No versions at all means double buffered.
func (v Versions) Copies(nca int) (copies float64, ok bool) {
	switch v {
	case DoubleBuffered, "":
		return 3, true
	case Stash:
		return float64(nca) + 1, true
	case Flush, Latest:
		return 2, true
	}
	return 0, false
}

// Accounting says what a live minibatch holds in a stage.
type Accounting string

// The accountings.
const (
	Inputs Accounting = "inputs" // the inputs of all layers of the stage, nothing else (thesis); the default
	Saved  Accounting = "saved"  // the input of the stage and the saved sets of all its layers: a stage without recomputation
)

// Choice says whose plan a strategy took that chooses among others.
type Choice struct {
	Winner   string    // the strategy whose plan it is; else ""
	RunnerUp *RunnerUp // the one whose plan comes next; nil: none has one, or nobody chose
}

// RunnerUp names the strategy whose plan comes next in a choice, and has the seconds of its step: the makespan and the updates.
type RunnerUp struct {
	Strategy string
	Seconds  float64
}

// CyclicOps take the place of the sequence in a cyclic plan.
type CyclicOps struct {
	// Cycle has the ops of a step, which also move weights, gradients and optimizer state; nil of all other plans.
	Cycle cycle.Sequence
	// UpdatesLast says that no update starts before the last backward of its step has ended. So
	// gradients can be clipped by their norm, and a step that is not finite skipped.
	UpdatesLast bool
	// Waits has those of a layout in memory, by position (cycle.Limits.Waits); nil of a plan that nobody laid out. Whoever lays a plan out
	// finds them anew.
	Waits [][]int
}

// Plan is stages on devices, and when every task runs. A plan for one device is one stage of all layers, whose ops are the sequence
// (NewSequence).
type Plan struct {
	Chain    string // name of the chain
	Strategy string
	Choice
	Platform *Platform // what it was made for; nil when the file does not say
	Stages   []Stage   // in the order of the chain
	CyclicOps
	// Portals are the ways of skips straight from one stage to another. The chain's activations count skips wherever they
	// would pass: the messages of the boundaries between are so much shorter. Each portal has communications of its own.
	Portals  []Portal
	Versions Versions
	Copies

	Period               float64 // T, seconds, of a periodic plan
	MinibatchesPerPeriod int     // k, of a periodic plan; 0 means 1
	Microbatches         int     // of a flush plan; for a periodic one what its maker says
	Batch                int     // samples of a minibatch, or microbatch; 0 when not said. If a chain has several sizes, it is the plan's

	Tasks []Task
	// Synchronization is when the gradients of replicas are added up. nil: that takes no time.
	Synchronization []Synchronization
	// Timings say what tasks take that do not take what the layers, or the ops, of their stage take; nil, all or one: they do. Files
	// do not have them.
	Timings []*Timing

	PerDevicePeak []int64 // bytes; nil when not said
	Predicted     Predicted
	Extra         map[string]json.RawMessage
}

// Copies says how often weights and the optimizer's state are in memory, and what of the live minibatches is.
type Copies struct {
	// WeightCopies are the copies of the weights, gradient included, for all stages (one entry) or each stage; nil: the
	// copies of the plan's Versions.
	WeightCopies []float64
	// OptimizerCopies are the copies of the weights that the optimizer's state takes beside WeightCopies: 1 of momentum, 2 of Adam.
	OptimizerCopies float64
	// Zero says what of a stage its replicas divide, of a plan with a flush.
	Zero Zero
	// HostState says that the host has the optimizer's state and updates the weights, of a plan with a flush.
	HostState  bool
	Accounting Accounting // "" means Inputs
}

// Timing holds the times of a task of a stage with ops, in seconds.
type Timing struct {
	Length float64
	// Early is by how much a B may start before its gradient is there: it recomputes first. 0 for other tasks.
	Early float64
}

// Predicted holds the costs that a plan states.
type Predicted struct {
	Makespan float64 // seconds, of a flush plan; 0 when not said
	// Period is the time that a period takes where devices share processors and it takes longer than the plan's, seconds; 0: that of the plan.
	Period float64
	// LowerBound is a time of a minibatch, seconds, that no plan of the kind that was looked for goes below; 0 when not said. The file of
	// a plan for one device does not have it.
	LowerBound float64
	Idle       float64 // seconds in which nothing computes, of a plan for one device
	Extra      map[string]json.RawMessage
}

// IsFlush reports whether the plan is one whole minibatch instead of a pattern.
func (p *Plan) IsFlush() bool { return p.Versions == Flush }

// Repeats returns R, how often each task of a stage appears: microbatches of a flush plan, minibatches per period of a
// periodic one.
func (p *Plan) Repeats() int {
	if p.IsFlush() {
		return p.Microbatches
	}
	return max(p.MinibatchesPerPeriod, 1)
}

// Split returns for each stage whether its backward is split: it has W tasks.
func (p *Plan) Split() []bool {
	split := make([]bool, len(p.Stages))
	for _, t := range p.Tasks {
		if t.Kind == W && t.Stage >= 0 && t.Stage < len(split) {
			split[t.Stage] = true
		}
	}
	return split
}

// SecondsPerMinibatch returns the time of one pass through the chain in a long run. For a periodic plan it is the
// period over k, as predicted where devices share processors, for a flush plan the predicted makespan over the microbatches.
func (p *Plan) SecondsPerMinibatch() float64 {
	if p.IsFlush() {
		return p.Predicted.Makespan / float64(p.Microbatches)
	}
	return cmp.Or(p.Predicted.Period, p.Period) / float64(p.Repeats())
}

// IsCycle reports whether the plan is a cyclic one: its ops are in Cycle, and its period is the predicted makespan.
func (p *Plan) IsCycle() bool { return p.Cycle != nil }

// loss returns the position of the op that ends the forward part of the stage: the first that computes its last layer.
func (s *Stage) loss() int {
	return slices.IndexFunc(s.Ops, func(op schedule.Op) bool { return op.Layer == s.Last && !op.Kind.Transfer() })
}

// HasOps reports whether a stage of the plan has ops of its own.
func (p *Plan) HasOps() bool {
	return slices.ContainsFunc(p.Stages, Stage.hasOps)
}

// Offloads reports whether stages of the plan have transfers.
func (p *Plan) Offloads() bool {
	return slices.ContainsFunc(p.Stages, func(st Stage) bool {
		return slices.ContainsFunc(st.Ops, func(op schedule.Op) bool { return op.Kind.Transfer() })
	})
}

// rhythm returns the rhythm of a stage of a plan with one minibatch a period.
func (p *Plan) rhythm(stage int) Rhythm {
	var f, b Task
	for _, t := range p.Tasks {
		switch {
		case t.Stage != stage:
		case t.Kind == F:
			f = t
		case t.Kind == B:
			b = t
		}
	}
	return RhythmOf(f, b, p.Period)
}

// Rhythm is when a stage runs: each period one F and one B, that of the same minibatch so much later. Seconds.
type Rhythm struct{ Period, Later float64 }

// RhythmOf returns the rhythm of a stage of a plan with one minibatch a period.
func RhythmOf(f, b Task, period float64) Rhythm {
	return Rhythm{period, b.Start - f.Start + float64(f.Shift-b.Shift)*period}
}

// near is the share of a period by which times may differ from rounding.
const near = 1e-9

// Round returns the number of minibatches, counted from number 0, that make a round of a stage. It is the smallest number that gives
// each of its working devices at least one. If devices take turns, it is the number of devices. Replicas make one update of a round.
func (p *Plan) Round(stage int) int {
	on := make([]int, p.Repeats())
	for _, t := range p.Tasks {
		if t.Kind == F && t.Stage == stage {
			on[modulus(t.Shift, len(on))] = t.Device
		}
	}
	all := slices.Compact(slices.Sorted(slices.Values(on)))
	for n := len(all); ; n++ {
		if len(on)%n == 0 && everyone(on, n, all) {
			return n
		}
	}
}

// hasOps reports whether a stage has ops of its own, if only for the last microbatch.
func (s Stage) hasOps() bool { return len(s.Ops) > 0 || len(s.LastOps) > 0 }

// everyone reports whether each chunk of n minibatches has some for all devices.
func everyone(on []int, n int, all []int) bool {
	for some := range slices.Chunk(on, n) {
		for _, d := range all {
			if !slices.Contains(some, d) {
				return false
			}
		}
	}
	return true
}

// Peak returns the largest predicted peak of all devices, bytes; 0 when the plan does not say it.
func (p *Plan) Peak() (bytes int64) {
	for _, peak := range p.PerDevicePeak {
		bytes = max(bytes, peak)
	}
	return bytes
}

// start returns the start of a task or, behind all tasks, of a message between replicas.
func (p *Plan) start(i int) *float64 {
	if n := len(p.Tasks); i >= n {
		return &p.Synchronization[i-n].Start
	}
	return &p.Tasks[i].Start
}

// nameOf names a task, or a message between replicas, for a minibatch.
func (p *Plan) nameOf(i, minibatch int) string {
	if n := len(p.Tasks); i >= n {
		return p.Synchronization[i-n].of(minibatch).String()
	}
	t := p.Tasks[i]
	t.Shift = minibatch
	return t.String()
}
