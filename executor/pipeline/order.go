package pipeline

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

// instruction is work of a plan as the driver that issues it sees it. In period j it works on minibatch j*R + shift.
type instruction struct {
	kind  pipeline.Kind
	stage int
	shift int
	// to is the device that receives, of a communication.
	to     int
	far    int // the other stage of a communication through a portal; 0: the next one
	layer  int // of a transfer: O of a forward, P of a backward; the first one of a bucket; 0: it is neither
	bucket int // of a message between replicas: of those of the stage
	part   int // of the bucket, counted from 1; 0: all of it
	place  pipeline.Place
	op     cycle.Op // of a cyclic plan, at its place
}

// name returns what the instruction does, in the notation of plans, without the minibatch; of a transfer as in sequences.
func (t instruction) name() string {
	switch {
	case t.kind == pipeline.CycleOp:
		return t.op.String()
	case t.kind == pipeline.Update:
		return fmt.Sprintf("update %d", t.stage)
	case t.kind == pipeline.Reducing:
		return fmt.Sprintf("reduce%d[%d-]", t.stage, t.layer)
	case t.kind == pipeline.Owning:
		return fmt.Sprintf("sum%d[%d-]", t.stage, t.layer)
	case t.kind == pipeline.Joining:
		return fmt.Sprintf("sum of all%d[%d-]", t.stage, t.layer)
	case t.kind == pipeline.Completing:
		return fmt.Sprintf("new weights of stage %d", t.stage)
	case t.synchronized():
		return fmt.Sprintf("gather%d[%d-]", t.stage, t.layer)
	case t.layer > 0 && t.kind == pipeline.F:
		return fmt.Sprintf("O%d of stage %d", t.layer, t.stage)
	case t.layer > 0:
		return fmt.Sprintf("P%d of stage %d", t.layer, t.stage)
	case t.far > 0:
		return fmt.Sprintf("%v%d-%d", t.kind, t.stage, t.far)
	}
	return fmt.Sprintf("%v%d", t.kind, t.stage)
}

// String returns the instruction in the notation of plans, with its shift.
func (t instruction) String() string {
	return fmt.Sprintf("%s(%d)", t.name(), t.shift)
}

// order is what every device does in one period, in the order of the plan. A flush plan is a pattern of one step.
type order struct {
	plan         *pipeline.Plan
	work         *pipeline.WorkOrder
	repeats      int                // R
	split        []bool             // stages whose backward is B and W
	on           [][]int            // on[s][r]: the device of stage s for minibatches of residue r
	instructions [][]instruction    // by device
	late         []bool             // by stage: the last task of a minibatch reads δ of the output
	readers      [][]int            // by stage: those that read what it makes, the next one and those that its skips go to
	sums         []*synchronization // by stage; nil where the plan has none
	speaks       []int              // by stage: for how many minibatches one end speaks
	updates      []int              // by stage: minibatches of an update; nil: not known yet
}

// newOrder reads the order of a plan on so many devices, with batches that come so many seconds ahead of their forward. Errors: ErrPlan,
// those of pipeline.Order.
func newOrder(c *chain.Chain, platform *pipeline.Platform, p *pipeline.Plan, devices int, ahead float64) (*order, error) {
	work, err := pipeline.Order(c, platform, p, ahead)
	if err != nil {
		return nil, err
	}
	o := &order{plan: p, work: work, repeats: p.Repeats(), split: p.Split(), on: make([][]int, len(p.Stages)), instructions: make([][]instruction, devices)}
	for s := range o.on {
		o.on[s] = slices.Repeat([]int{none}, o.repeats)
	}
	for i, t := range p.Tasks {
		if !t.Kind.Communication() && t.Device >= devices {
			return nil, fmt.Errorf("%w: task %d, %v, is on device %d, there are %d devices", ErrPlan, i, t, t.Device, devices)
		}
		if t.Kind == pipeline.F {
			o.on[t.Stage][o.residue(t.Shift)] = t.Device
		}
	}
	o.findReaders()
	o.findRounds()
	for d, list := range work.Devices {
		for _, w := range list {
			o.instructions[d] = append(o.instructions[d], o.instruction(w))
		}
	}
	return o, nil
}

// instruction returns the instruction of work.
func (o *order) instruction(w pipeline.Work) instruction {
	t := instruction{kind: w.Kind, stage: w.Stage, shift: w.Shift, to: w.To, far: w.Far, layer: w.First, part: w.Part, place: w.Place, op: w.Op}
	x := o.sums[t.stage]
	if t.layer > 0 {
		t.bucket = slices.Index(x.buckets, bucket{w.First, w.Last, w.Part})
	}
	if w.Closes {
		x.closing[taskKey{t.kind, t.stage, o.residue(t.shift)}] = true
	}
	return t
}

// findReaders finds the stages that read what others make.
func (o *order) findReaders() {
	o.readers = make([][]int, len(o.on))
	for s := range len(o.on) - 1 {
		o.readers[s] = []int{s + 1}
	}
	for _, p := range o.plan.Portals {
		o.readers[p.From] = append(o.readers[p.From], p.To)
	}
}

// findRounds finds for how many minibatches the end of one speaks: the last of a step for all, and that of a round where the plan says
// when its gradients are added up.
func (o *order) findRounds() {
	o.sums, o.speaks = synchronizations(o), make([]int, len(o.on))
	for s := range o.speaks {
		switch {
		case o.plan.IsFlush():
			o.speaks[s] = o.repeats
		case o.sums[s] != nil:
			o.speaks[s] = o.sums[s].round
		default:
			o.speaks[s] = 1
		}
	}
}

// sort puts instructions in the order in which they begin.
func (o *order) sort(instructions []instruction) {
	slices.SortStableFunc(instructions, func(a, b instruction) int { return a.place.Compare(b.place) })
}

// residue returns which of the R minibatches of a period a shift is about.
func (o *order) residue(shift int) int { return ((shift % o.repeats) + o.repeats) % o.repeats }

// taskKey is the tasks of a kind of a stage, for minibatches of a residue.
type taskKey struct {
	kind           pipeline.Kind
	stage, residue int
}

// ends returns the devices that send and receive over the boundary behind a stage.
func (o *order) ends(kind pipeline.Kind, s, r int) (from, to int) {
	if kind == pipeline.CF {
		return o.on[s][r], o.on[s+1][r]
	}
	return o.on[s+1][r], o.on[s][r]
}

// crosses reports whether the boundary behind a stage, if there is one, joins two devices for a residue.
func (o *order) crosses(s, r int) bool {
	return s >= 0 && s+1 < len(o.on) && o.on[s][r] != o.on[s+1][r]
}

// last reports whether an instruction is the last one that a minibatch has in a stage.
func (o *order) last(t instruction) bool {
	return t.kind == pipeline.W || t.kind == pipeline.B && !o.split[t.stage]
}

// hosts returns the devices of a stage that work, in the order of the plan.
func (o *order) hosts(s int) []int { return o.plan.Line(s) }

// instance is an instruction in one period.
type instance struct {
	instruction
	minibatch int // counted from 0
}

// instances calls do for every instruction of a device, in order, when minibatches 0 to n-1 pass through an empty pipeline. It
// stops at the first error.
func (o *order) instances(device, n int, do func(instance) error) error {
	return o.within(o.instructions[device], newBound(n), do)
}

// ofStage returns the instructions of a stage on all its devices, in order, the endings once.
func (o *order) ofStage(s int) (all []instruction) {
	for d, instructions := range o.instructions {
		for _, t := range instructions {
			if t.stage == s && (t.computes() || t.kind == pipeline.Update && d == o.on[s][0]) {
				all = append(all, t)
			}
		}
	}
	o.sort(all)
	return all
}

// within is instances for any instructions that are in order, in a run whose bound may be lowered meanwhile.
func (o *order) within(instructions []instruction, run *bound, do func(instance) error) error {
	least, most := shifts(instructions)
	for j := floorDiv(-most, o.repeats); len(instructions) > 0 && j*o.repeats+least < run.end(); j++ {
		for _, t := range instructions {
			m := j*o.repeats + t.shift
			if m < 0 || !run.in(m) || o.idle(t, m) {
				continue
			}
			if err := do(instance{t, m}); err != nil {
				return err
			}
		}
	}
	return nil
}

// shifts returns the least and the largest shift of some instructions.
func shifts(instructions []instruction) (least, most int) {
	for i, t := range instructions {
		if i == 0 {
			least, most = t.shift, t.shift
		}
		least, most = min(least, t.shift), max(most, t.shift)
	}
	return least, most
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
