package pipeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
)

// instruction is one task of a plan as the driver that issues it sees it. In period j it works on minibatch j*R + shift.
type instruction struct {
	kind  pipeline.Kind
	stage int
	shift int
	// to is the device that receives, of a communication.
	to     int
	far    int     // the other stage of a communication through a portal; 0: the next one
	layer  int     // of a transfer: O of a forward, P of a backward; the first one of a bucket; 0: it is neither
	bucket int     // of a message between replicas: of those of the stage
	start  float64 // seconds, within the period
	// instant says that it takes no time.
	instant bool
	// at orders instructions: the start, a moment earlier for those that take no time, so that they come before what starts when they
	// do, whatever was rounded.
	at   float64
	rank int // of those at one instant
}

// minibatchEnd is the kind of instructions that are no tasks of the plan: a minibatch has ended in a stage, and the updates
// that are due then follow. It stands where the last task of the minibatch ends; with messages between replicas where the last of a round
// ends, and the last minibatch speaks for all; with a flush at the end of the step, likewise.
//
// All devices of a stage have these instructions, at one place in one order of all instructions of all devices. In this order
// each instruction waits for earlier ones alone, and replicas meet in the sum of their gradients: drivers, each in its part of
// the order, do not wait for each other in a circle.
const minibatchEnd = pipeline.Update

// name returns what the instruction does, in the notation of plans, without the minibatch; of a transfer as in sequences.
func (t instruction) name() string {
	switch {
	case t.kind == minibatchEnd:
		return fmt.Sprintf("update %d", t.stage)
	case t.kind == reducing:
		return fmt.Sprintf("reduce%d[%d-]", t.stage, t.layer)
	case t.kind == owning:
		return fmt.Sprintf("sum%d[%d-]", t.stage, t.layer)
	case t.kind == joining:
		return fmt.Sprintf("sum of all%d[%d-]", t.stage, t.layer)
	case t.kind == completing:
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
	repeats      int             // R
	split        []bool          // stages whose backward is B and W
	on           [][]int         // on[s][r]: the device of stage s for minibatches of residue r
	instructions [][]instruction // by device
	late         []bool          // by stage: the last task of a minibatch reads δ of the output
	readers      [][]int         // by stage: those that read what it makes, the next one and those that its skips go to
	// held is, by stage, for how many seconds a minibatch holds the input of the stage when that goes to the host; 0: until its
	// last task.
	held    []float64
	sums    []*synchronization // by stage; nil where the plan has none
	speaks  []int              // by stage: for how many minibatches one end speaks
	updates []int              // by stage: minibatches of an update; nil: not known yet
}

// newOrder sorts a plan's tasks by device. Of tasks that start at one instant those that take no time come first, and then
// they follow each other as the data flows. A communication is issued by the device that sends; one that takes no time, and
// that the plan leaves out, stands at the end of the task whose result it carries. The plan is one that clock accepts. Errors:
// ErrPlan.
func newOrder(p *pipeline.Plan, devices int, k *clock) (*order, error) {
	o := &order{plan: p, repeats: p.Repeats(), split: p.Split(), on: make([][]int, len(p.Stages)), instructions: make([][]instruction, devices)}
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
	o.assign(k)
	for d := range o.instructions {
		for i := range o.instructions[d] {
			t := &o.instructions[d][i]
			if t.at = t.start; t.instant {
				t.at -= k.eps
			}
			t.rank = o.rank(t)
		}
		o.sort(o.instructions[d])
	}
	o.addMinibatchEnds(k)
	o.addSynchronization(k)
	for d := range o.instructions {
		o.sort(o.instructions[d])
		o.yield(o.instructions[d], k)
	}
	return o, nil
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

// addMinibatchEnds gives every stage's devices the instructions behind its minibatches.
func (o *order) addMinibatchEnds(k *clock) {
	var all []instruction
	for d := range o.instructions {
		for i, t := range o.instructions[d] {
			if !o.plan.IsFlush() && o.last(t) && o.sums[t.stage] == nil {
				all = append(all, o.minibatchEnd(k, d, i))
			}
		}
	}
	for s := range o.on {
		if o.plan.IsFlush() {
			all = append(all, instruction{kind: minibatchEnd, stage: s, shift: o.repeats - 1, to: none, at: math.Inf(1), rank: s})
		}
		for _, d := range o.hosts(s) {
			for _, t := range all {
				if t.stage == s {
					o.instructions[d] = append(o.instructions[d], t)
				}
			}
		}
	}
}

// minibatchEnd returns the instruction behind a last task, number i of a device: when it ends, and before the next task of the
// device.
func (o *order) minibatchEnd(k *clock, device, i int) instruction {
	behind := o.instructions[device][i]
	t := instruction{kind: minibatchEnd, stage: behind.stage, shift: behind.shift, to: none, rank: o.rank(&instruction{kind: minibatchEnd})}
	t.start = behind.start + k.length(behind.kind, behind.stage, o.residue(behind.shift))
	next, periods := o.after(device, i)
	if next.at+float64(periods)*k.period <= t.start-k.eps {
		t.start, t.at, t.rank, t.shift = next.start, next.at, next.rank-1, t.shift-periods*o.repeats
		if periods == 0 && next.at == behind.at {
			t.rank = max(behind.rank, t.rank)
		}
		return t
	}
	o.wrap(k, &t)
	t.at = t.start - k.eps
	return t
}

// after returns the next instruction of a device that is a task for its kernels, and how many periods later that is.
func (o *order) after(device, i int) (next instruction, periods int) {
	instructions := o.instructions[device]
	for i++; instructions[i%len(instructions)].kind.Communication(); i++ {
	}
	return instructions[i%len(instructions)], i / len(instructions)
}

// sort puts instructions in the order in which they begin.
func (o *order) sort(instructions []instruction) {
	slices.SortStableFunc(instructions, func(a, b instruction) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank))
	})
}

// yield lets messages that start before a backward needs its gradient go before it, when it recomputes until then: its driver
// waits for the gradient, and others may wait for the messages until they send it.
func (o *order) yield(instructions []instruction, k *clock) {
	for i := len(instructions) - 1; i >= 0; i-- {
		b := instructions[i]
		needs := b.start + k.early[taskKey{b.kind, b.stage, o.residue(b.shift)}]
		for j := i + 1; j < len(instructions); j++ {
			m := &instructions[j]
			own := m.kind == pipeline.CB && m.shift == b.shift && (m.stage == b.stage-1 || m.far == b.stage)
			if !m.message() && m.kind != admitting && m.kind != owning || own || m.start >= needs {
				break
			}
			instructions[j-1], instructions[j] = instructions[j], instructions[j-1]
		}
	}
}

// residue returns which of the R minibatches of a period a shift is about.
func (o *order) residue(shift int) int { return ((shift % o.repeats) + o.repeats) % o.repeats }

// rank orders what happens at one instant: forwards down the chain, then backwards up. The next rank is two more.
func (o *order) rank(t *instruction) int {
	stages := 2 * len(o.on)
	switch t.kind {
	case pipeline.F:
		return 4 * t.stage
	case pipeline.CF:
		return 4*t.stage + 2
	case pipeline.B:
		return 2*stages + 2*stages - 4*t.stage
	case pipeline.CB: // from the stage behind the boundary
		return 2*stages + 2*stages - 4*t.stage - 2
	case pipeline.W:
		return 5 * stages
	}
	return 6 * stages
}

// assign gives every task to the device that issues it, with the communications that the plan leaves out.
func (o *order) assign(k *clock) {
	said := map[taskKey]bool{}
	for _, t := range o.plan.Tasks {
		r := o.residue(t.Shift)
		of := instruction{kind: t.Kind, stage: t.Stage, shift: t.Shift, start: t.Start, to: none, far: t.To}
		of.instant = k.length(t.Kind, t.Stage, r) <= k.eps
		device := t.Device
		if t.To > 0 {
			g := portalTask{t.Kind, t.Stage, t.To, r}
			of.instant = k.portals[g].End-k.portals[g].Start <= k.eps
			device, of.to = o.through(g)
		} else if t.Kind.Communication() {
			said[taskKey{t.Kind, t.Stage, r}] = true
			device, of.to = o.ends(t.Kind, t.Stage, r)
		}
		o.instructions[device] = append(o.instructions[device], of)
	}
	for d := range o.instructions {
		for _, t := range slices.Clone(o.instructions[d]) {
			kind, boundary := pipeline.CF, t.stage
			if t.kind == pipeline.B {
				kind, boundary = pipeline.CB, t.stage-1
			}
			r := o.residue(t.shift)
			if t.kind.Communication() || t.kind == pipeline.W || !o.crosses(boundary, r) || said[taskKey{kind, boundary, r}] {
				continue
			}
			o.instructions[d] = append(o.instructions[d], o.leftOut(k, t, kind, boundary))
		}
	}
}

// leftOut returns the communication of no length behind a task.
func (o *order) leftOut(k *clock, behind instruction, kind pipeline.Kind, boundary int) instruction {
	r := o.residue(behind.shift)
	t := instruction{kind: kind, stage: boundary, shift: behind.shift, start: behind.start + k.length(behind.kind, behind.stage, r), instant: true}
	_, t.to = o.ends(kind, boundary, r)
	o.wrap(k, &t)
	return t
}

// wrap lets an instruction at the end of the period, or behind it, belong to the next one.
func (o *order) wrap(k *clock, t *instruction) {
	if k.period > 0 && t.start >= k.period*(1-1e-12) {
		t.start, t.shift = max(0, t.start-k.period), t.shift-o.repeats
	}
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
func (o *order) hosts(s int) (all []int) {
	for _, d := range o.plan.Stages[s].Devices {
		if slices.Contains(o.on[s], d) {
			all = append(all, d)
		}
	}
	return all
}

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
			if t.stage == s && (t.computes() || t.kind == minibatchEnd && d == o.on[s][0]) {
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
