package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/planner/pipeline"
)

// turn is one task of a plan as the driver that issues it sees it. In period j it works on minibatch j*R + shift.
type turn struct {
	kind  pipeline.Kind
	stage int
	shift int
	// to is the device that receives, of a communication.
	to    int
	far   int     // the other stage of a communication through a portal; 0: the next one
	layer int     // of a transfer: O of a forward, P of a backward; 0: it is none
	start float64 // seconds, within the period
	// instant says that it takes no time.
	instant bool
	// at orders turns: the start, a moment earlier for those that take no time, so that they come before what starts when they
	// do, whatever was rounded.
	at float64
}

// String returns the turn in the notation of plans.
func (t turn) String() string {
	return pipeline.Task{Kind: t.kind, Stage: t.stage, To: t.far, Shift: t.shift}.String()
}

// order is what every device does in one period, in the order of the plan. A flush plan is a pattern of one step.
type order struct {
	plan    *pipeline.Plan
	repeats int      // R
	split   []bool   // stages whose backward is B and W
	on      [][]int  // on[s][r]: the device of stage s for minibatches of residue r
	turns   [][]turn // by device
	late    []bool   // by stage: the last task of a minibatch reads δ of the output
	// held is, by stage, for how many seconds a minibatch holds the input of the stage when that goes to the host; 0: until its
	// last task.
	held []float64
}

// newOrder sorts a plan's tasks by device. Of tasks that start at one instant those that take no time come first, and then
// they follow each other as the data flows. A communication is issued by the device that sends; one that takes no time, and
// that the plan leaves out, stands at the end of the task whose result it carries. The plan is one that clock accepts. Errors:
// ErrPlan.
func newOrder(p *pipeline.Plan, devices int, k *clock) (*order, error) {
	o := &order{plan: p, repeats: p.Repeats(), split: p.Split(), on: make([][]int, len(p.Stages)), turns: make([][]turn, devices)}
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
	o.assign(k)
	for d := range o.turns {
		for i := range o.turns[d] {
			t := &o.turns[d][i]
			if t.at = t.start; t.instant {
				t.at -= k.eps
			}
		}
		o.sort(o.turns[d])
		o.yield(o.turns[d], k)
	}
	return o, nil
}

// sort puts turns in the order in which they begin.
func (o *order) sort(turns []turn) {
	slices.SortStableFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank(len(o.on)), b.rank(len(o.on))))
	})
}

// yield lets messages that start before a backward needs its gradient go before it, when it recomputes until then: its driver
// waits for the gradient, and others may wait for the messages until they send it.
func (o *order) yield(turns []turn, k *clock) {
	for i := len(turns) - 1; i >= 0; i-- {
		b := turns[i]
		needs := b.start + k.early[moment{b.kind, b.stage, o.residue(b.shift)}]
		for j := i + 1; j < len(turns); j++ {
			m := &turns[j]
			own := m.kind == pipeline.CB && m.shift == b.shift && (m.stage == b.stage-1 || m.far == b.stage)
			if !m.kind.Communication() || own || m.start >= needs {
				break
			}
			turns[j-1], turns[j] = turns[j], turns[j-1]
		}
	}
}

// residue returns which of the R minibatches of a period a shift is about.
func (o *order) residue(shift int) int { return ((shift % o.repeats) + o.repeats) % o.repeats }

// rank orders what happens at one instant: forwards down the chain, then backwards up.
func (t turn) rank(stages int) int {
	switch t.kind {
	case pipeline.F:
		return 2 * t.stage
	case pipeline.CF:
		return 2*t.stage + 1
	case pipeline.B:
		return 2*stages + 2*(stages-t.stage)
	case pipeline.CB: // from the stage behind the boundary
		return 2*stages + 2*(stages-t.stage) - 1
	}
	return 5 * stages
}

// assign gives every task to the device that issues it, with the communications that the plan leaves out.
func (o *order) assign(k *clock) {
	said := map[moment]bool{}
	for _, t := range o.plan.Tasks {
		r := o.residue(t.Shift)
		of := turn{kind: t.Kind, stage: t.Stage, shift: t.Shift, start: t.Start, to: none, far: t.To}
		of.instant = k.length(t.Kind, t.Stage, r) <= k.eps
		device := t.Device
		if t.To > 0 {
			g := gate{t.Kind, t.Stage, t.To, r}
			of.instant = k.gates[g].End-k.gates[g].Start <= k.eps
			device, of.to = o.through(g)
		} else if t.Kind.Communication() {
			said[moment{t.Kind, t.Stage, r}] = true
			device, of.to = o.ends(t.Kind, t.Stage, r)
		}
		o.turns[device] = append(o.turns[device], of)
	}
	for d := range o.turns {
		for _, t := range slices.Clone(o.turns[d]) {
			kind, boundary := pipeline.CF, t.stage
			if t.kind == pipeline.B {
				kind, boundary = pipeline.CB, t.stage-1
			}
			r := o.residue(t.shift)
			if t.kind.Communication() || t.kind == pipeline.W || !o.crosses(boundary, r) || said[moment{kind, boundary, r}] {
				continue
			}
			o.turns[d] = append(o.turns[d], o.leftOut(k, t, kind, boundary))
		}
	}
}

// leftOut returns the communication of no length behind a task. At the end of the period it belongs to the next one.
func (o *order) leftOut(k *clock, behind turn, kind pipeline.Kind, boundary int) turn {
	r := o.residue(behind.shift)
	t := turn{kind: kind, stage: boundary, shift: behind.shift, start: behind.start + k.length(behind.kind, behind.stage, r), instant: true}
	_, t.to = o.ends(kind, boundary, r)
	if k.period > 0 && t.start >= k.period*(1-1e-12) {
		t.start, t.shift = max(0, t.start-k.period), t.shift-o.repeats
	}
	return t
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

// last reports whether a turn is the last one that a minibatch has in a stage.
func (o *order) last(t turn) bool {
	return t.kind == pipeline.W || t.kind == pipeline.B && !o.split[t.stage]
}

// hosts returns the devices of a stage in the order of the plan.
func (o *order) hosts(s int) []int { return o.plan.Stages[s].Devices }

// visit is a turn in one period.
type visit struct {
	turn
	minibatch int // counted from 0
}

// visits calls do for every turn of a device, in order, when minibatches 0 to n-1 pass through an empty pipeline; period
// is called behind each period. They stop at the first error.
func (o *order) visits(device, n int, do func(visit) error, period func() error) error {
	return o.within(device, newBound(n), do, period)
}

// within is visits of a run whose bound may be lowered meanwhile.
func (o *order) within(device int, run *bound, do func(visit) error, period func() error) error {
	turns := o.turns[device]
	least, most := shifts(turns)
	for j := floorDiv(-most, o.repeats); len(turns) > 0 && j*o.repeats+least < run.end(); j++ {
		for _, t := range turns {
			m := j*o.repeats + t.shift
			if m < 0 || !run.in(m) {
				continue
			}
			if err := do(visit{t, m}); err != nil {
				return err
			}
		}
		if err := period(); err != nil {
			return err
		}
	}
	return nil
}

// shifts returns the least and the largest shift of some turns.
func shifts(turns []turn) (least, most int) {
	for i, t := range turns {
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
