// Package order gives the work of every device of a plan, in order. It has its instructions with their minibatches, the versions of weights
// that they meet, and how the gradients of replicas are added up.
package order

import (
	"errors"
	"fmt"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
)

// ErrPlan says that a plan cannot be run here; the message names what.
var ErrPlan = errors.New("this plan cannot be run")

// Instruction is work of a plan as the driver that issues it sees it. In period j it works on minibatch j*R + shift.
type Instruction struct {
	Kind  pipeline.Kind
	Stage int
	Shift int
	// To is the device that receives, of a communication.
	To     int
	Far    int           // the other stage of a communication through a portal; 0: the next one
	Layer  int           // of a transfer: O of a forward, P of a backward; the first one of a bucket; 0: it is neither
	Bucket int           // of a message between replicas: of those of the stage
	Renews bool          // the message carries new weights: it stands behind the updates of its step
	Before pipeline.Kind // of weights for a turn: its first task; else 0
	Place  pipeline.Place
	Op     cycle.Op // of a cyclic plan, at its place
}

// Name returns the instruction in the notation of plans, without the minibatch; a transfer as in sequences.
func (t Instruction) Name() string {
	switch {
	case t.Kind == pipeline.CycleOp:
		return t.Op.String()
	case t.Kind == pipeline.Update:
		return fmt.Sprintf("update %d", t.Stage)
	case t.Kind == pipeline.Reducing:
		return fmt.Sprintf("reduce%d[%d-]", t.Stage, t.Layer)
	case t.Kind == pipeline.Owning:
		return fmt.Sprintf("sum%d[%d-]", t.Stage, t.Layer)
	case t.Kind == pipeline.Joining:
		return fmt.Sprintf("sum of all%d[%d-]", t.Stage, t.Layer)
	case t.Kind == pipeline.Completing:
		return fmt.Sprintf("new weights of stage %d", t.Stage)
	case t.Synchronized():
		return fmt.Sprintf("gather%d[%d-]", t.Stage, t.Layer)
	case t.Layer > 0 && t.Kind == pipeline.F:
		return fmt.Sprintf("O%d of stage %d", t.Layer, t.Stage)
	case t.Layer > 0:
		return fmt.Sprintf("P%d of stage %d", t.Layer, t.Stage)
	case t.Far > 0:
		return fmt.Sprintf("%v%d-%d", t.Kind, t.Stage, t.Far)
	}
	return fmt.Sprintf("%v%d", t.Kind, t.Stage)
}

// String returns the instruction in the notation of plans, with its shift.
func (t Instruction) String() string {
	return fmt.Sprintf("%s(%d)", t.Name(), t.Shift)
}

// Order lists the instructions of every device in one period, in the order of the plan. A flush plan is a pattern of one step.
type Order struct {
	Plan         *pipeline.Plan
	Work         *pipeline.WorkOrder
	Repeats      int                // R
	Split        []bool             // stages whose backward is B and W
	On           [][]int            // on[s][r]: the device of stage s for minibatches of residue r
	Instructions [][]Instruction    // by device
	Late         []bool             // by stage: the last task of a minibatch reads δ of the output
	Readers      [][]int            // by stage: those that read what it makes, the next one and those that its skips go to
	Sums         []*Synchronization // by stage; nil where the plan has none
	speaks       []int              // by stage: for how many minibatches one end speaks
	updates      []int              // by stage: minibatches of an update; nil: not known yet
}

// New reads the order of a plan on so many devices, with batches that come so many seconds ahead of their forward. Errors: ErrPlan,
// those of pipeline.Order.
func New(c *chain.Chain, platform *pipeline.Platform, p *pipeline.Plan, devices int, ahead float64) (*Order, error) {
	work, err := pipeline.Order(c, platform, p, ahead)
	if err != nil {
		return nil, err
	}
	o := &Order{Plan: p, Work: work, Repeats: p.Repeats(), Split: p.Split(), On: make([][]int, len(p.Stages)), Instructions: make([][]Instruction, devices)}
	for s := range o.On {
		o.On[s] = slices.Repeat([]int{none}, o.Repeats)
	}
	for i, t := range p.Tasks {
		if !t.Kind.Communication() && t.Device >= devices {
			return nil, fmt.Errorf("%w: task %d, %v, is on device %d, there are %d devices", ErrPlan, i, t, t.Device, devices)
		}
		if t.Kind == pipeline.F {
			o.On[t.Stage][o.Residue(t.Shift)] = t.Device
		}
	}
	o.findReaders()
	o.findRounds()
	for d, list := range work.Devices {
		for _, w := range list {
			o.Instructions[d] = append(o.Instructions[d], o.instruction(w))
		}
	}
	return o, nil
}

// instruction returns the instruction of work.
func (o *Order) instruction(w pipeline.Work) Instruction {
	t := Instruction{Kind: w.Kind, Stage: w.Stage, Shift: w.Shift, To: w.To, Far: w.Far, Layer: w.First, Before: w.Before, Place: w.Place, Op: w.Op}
	x := o.Sums[t.Stage]
	if t.Layer > 0 {
		t.Bucket, t.Renews = slices.Index(x.Buckets, Bucket{w.First, w.Last, w.Part}), x.Shards && !x.Fetches() && w.Kind == pipeline.Gathering
	}
	if w.Closes {
		x.closing[TaskKey{t.Kind, t.Stage, o.Residue(t.Shift)}] = true
	}
	return t
}

// findReaders finds the stages that read what others make.
func (o *Order) findReaders() {
	o.Readers = make([][]int, len(o.On))
	for s := range len(o.On) - 1 {
		o.Readers[s] = []int{s + 1}
	}
	for _, p := range o.Plan.Portals {
		o.Readers[p.From] = append(o.Readers[p.From], p.To)
	}
}

// findRounds finds how many minibatches have ended when one has: all of a step when its last has ended. If the plan says when
// gradients of a round are added up, it is all of the round.
func (o *Order) findRounds() {
	o.Sums, o.speaks = synchronizations(o), make([]int, len(o.On))
	for s := range o.speaks {
		switch {
		case o.Plan.IsFlush():
			o.speaks[s] = o.Repeats
		case o.Sums[s] != nil:
			o.speaks[s] = o.Sums[s].round
		default:
			o.speaks[s] = 1
		}
	}
}

// Sort puts instructions in the order in which they begin.
func Sort(instructions []Instruction) {
	slices.SortStableFunc(instructions, func(a, b Instruction) int { return a.Place.Compare(b.Place) })
}

// Residue returns which of the R minibatches of a period a shift is about.
func (o *Order) Residue(shift int) int { return ((shift % o.Repeats) + o.Repeats) % o.Repeats }

// TaskKey is the tasks of a kind of a stage, for minibatches of a residue.
type TaskKey struct {
	Kind           pipeline.Kind
	Stage, Residue int
}

// Ends returns the devices that send and receive over the boundary behind a stage.
func (o *Order) Ends(kind pipeline.Kind, s, r int) (from, to int) {
	if kind == pipeline.CF {
		return o.On[s][r], o.On[s+1][r]
	}
	return o.On[s+1][r], o.On[s][r]
}

// Crosses reports whether the boundary behind a stage, if there is one, joins two devices for a residue.
func (o *Order) Crosses(s, r int) bool {
	return s >= 0 && s+1 < len(o.On) && o.On[s][r] != o.On[s+1][r]
}

// Last reports whether an instruction is the last one that a minibatch has in a stage.
func (o *Order) Last(t Instruction) bool {
	return t.Kind == pipeline.W || t.Kind == pipeline.B && !o.Split[t.Stage]
}

// Hosts returns the devices of a stage that work, in the order of the plan.
func (o *Order) Hosts(s int) []int { return o.Plan.Line(s) }

// Instance is an instruction in one period.
type Instance struct {
	Instruction
	Minibatch int // counted from 0
}

// Instances calls do for every instruction of a device, in order, when minibatches 0 to n-1 pass through an empty pipeline. It
// stops at the first error.
func (o *Order) Instances(device, n int, do func(Instance) error) error {
	return o.within(o.Instructions[device], NewBound(n), do)
}

// ofStage returns the instructions of a stage on all its devices, in order, the endings once.
func (o *Order) ofStage(s int) (all []Instruction) {
	for d, instructions := range o.Instructions {
		for _, t := range instructions {
			if t.Stage == s && (t.Computes() || t.Kind == pipeline.Update && d == o.On[s][0]) {
				all = append(all, t)
			}
		}
	}
	Sort(all)
	return all
}

// within is instances for any instructions that are in order, in a run whose bound may be lowered meanwhile.
func (o *Order) within(instructions []Instruction, run *Bound, do func(Instance) error) error {
	least, most := Shifts(instructions)
	for j := FloorDiv(-most, o.Repeats); len(instructions) > 0 && j*o.Repeats+least < run.End(); j++ {
		for _, t := range instructions {
			m := j*o.Repeats + t.Shift
			if m < 0 || !run.In(m) || o.Idle(t, m) {
				continue
			}
			if err := do(Instance{t, m}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Shifts returns the least and the largest shift of some instructions.
func Shifts(instructions []Instruction) (least, most int) {
	for i, t := range instructions {
		if i == 0 {
			least, most = t.Shift, t.Shift
		}
		least, most = min(least, t.Shift), max(most, t.Shift)
	}
	return least, most
}

func FloorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
