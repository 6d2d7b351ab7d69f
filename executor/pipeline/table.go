package pipeline

import (
	"iter"
	"math"
	"slices"

	"plimsoll/executor/internal/cycle"
	"plimsoll/planner/pipeline"
)

// table is what a driver does in a run: one period of commands. A row is an instruction of the period; where operands of its commands move
// from period to period these have variants, and play one after the other, round and round. A step of a plan with a flush is a period, and
// has one variant of everything.
//
// Invariant: which commands a row plays for a minibatch depends on the minibatch alone, never on how many follow. So a run whose bound
// is lowered plays what it would have played with that bound from its beginning.
type table struct {
	repeats int // minibatches of a period
	rows    []row
	before  []*command // what comes before the first period of a segment
	opens   []opening  // by stage whose next batch waits on the device
	ends    []ending   // by stage that is here: what comes behind the last one
}

// opening is what stages the first batch that a device has of a stage in a step, of an instance of its forward: it is played before the first
// step, and behind each for the next.
type opening struct {
	instance
	list []*command
}

// row is an instruction of a period.
//
// An axis is the numbers that one operand of its commands, or several, go through from period to period. A cell is a command of which some
// operands go along axes: it has a variant for each combination of their numbers. So each operand goes round by itself, and a row has as many
// commands as its operands have places together, however many periods pass until all of them are where they were.
type row struct {
	instruction
	shapes  cycle.Cycle // by period: which list of commands it plays
	lists   [][]cell    // by shape
	axes    []cycle.Cycle
	turn    int  // periods of the longest cycle of an operand
	outside bool // some of its commands are played for minibatches that are not in the run
}

// cell is a command in a row.
type cell struct {
	axes     []axisRef
	variants []*command
}

// axisRef is an axis of the row, and how many variants apart its numbers are.
type axisRef struct{ axis, stride int }

// command returns the variant of a cell for some numbers of the axes.
func (p *cell) command(now []int32) *command {
	i := 0
	for _, a := range p.axes {
		i += int(now[a.axis]) * a.stride
	}
	return p.variants[i]
}

// list returns what a row plays in a period, and writes the numbers of its axes.
func (r *row) list(period int, now []int32) []cell {
	list := r.lists[r.shapes.Entry(period)]
	for i := 0; i < len(r.axes) && len(list) > 0; i++ {
		now[i] = r.axes[i].Entry(period)
	}
	return list
}

// fixed returns cells of commands that have one variant each.
func fixed(list []*command) (cells []cell) {
	for _, c := range list {
		cells = append(cells, cell{variants: []*command{c}})
	}
	return cells
}

// commands goes through all variants of all commands.
func (r *row) commands() iter.Seq[*command] {
	return func(yield func(*command) bool) {
		for _, list := range r.lists {
			for i := range list {
				for _, c := range list[i].variants {
					if !yield(c) {
						return
					}
				}
			}
		}
	}
}

// ending is what comes behind a segment of a stage: replicas share statistics, and the latest weights move into slot 0.
type ending struct {
	stage       int
	shares      []*command
	cycle.Cycle              // by update: the slot of the weights behind it
	group       int          // minibatches of an update
	moves       [][]*command // by slot; none: the weights are there
}

// lengths adds the shortest segments, of whole updates of so many minibatches, that leave the latest weights in each slot.
func (s *ending) lengths(group int, all map[int]bool) {
	seen := map[int32]bool{}
	for n := group; n <= (len(s.Begins)+len(s.Round))*group; n += group {
		if slot := s.Entry(n / s.group); !seen[slot] {
			seen[slot], all[n] = true, true
		}
	}
}

// play calls do for every command of a segment, in order. Behind a step that of the next one is staged, whether it is in the run or not.
func (t *table) play(run *bound, do func(c *command, v *instance) error) error {
	least, most := t.shifts()
	v, now := new(instance), make([]int32, t.mostAxes())
	for j := floorDiv(-most, t.repeats); j*t.repeats+least < run.end(); j++ {
		for i := range t.rows {
			r := &t.rows[i]
			v.instruction, v.minibatch = r.instruction, j*t.repeats+r.shift
			in := v.minibatch >= 0 && run.in(v.minibatch)
			if !in && !r.outside {
				continue
			}
			list := r.list(floorDiv(v.minibatch, t.repeats), now)
			for k := range list {
				c := list[k].command(now)
				if !c.plays(run, v, in) {
					continue
				}
				if err := do(c, v); err != nil {
					return err
				}
			}
		}
		if j < 0 {
			continue
		}
		if err := t.stage((j+1)*t.repeats, v, do); err != nil {
			return err
		}
	}
	return nil
}

// stage calls do for what stages the first batches behind so many minibatches. It writes whose they are to v.
func (t *table) stage(minibatches int, v *instance, do func(c *command, v *instance) error) error {
	for i := range t.opens {
		*v = t.opens[i].instance
		v.minibatch += minibatches
		for _, c := range t.opens[i].list {
			if err := do(c, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// commands goes through all commands.
func (t *table) commands() iter.Seq[*command] {
	return func(yield func(*command) bool) {
		lists := [][]*command{t.before}
		for i := range t.opens {
			lists = append(lists, t.opens[i].list)
		}
		for i := range t.ends {
			lists = append(append(lists, t.ends[i].shares), t.ends[i].moves...)
		}
		for _, c := range slices.Concat(lists...) {
			if !yield(c) {
				return
			}
		}
		for i := range t.rows {
			for c := range t.rows[i].commands() {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// mostAxes returns how many axes a row has at most.
func (t *table) mostAxes() (most int) {
	for i := range t.rows {
		most = max(most, len(t.rows[i].axes))
	}
	return most
}

func (t *table) shifts() (least, most int) {
	for i := range t.rows {
		if i == 0 {
			least, most = t.rows[i].shift, t.rows[i].shift
		}
		least, most = min(least, t.rows[i].shift), max(most, t.rows[i].shift)
	}
	return least, most
}

// plays reports whether a command of a row is played for a minibatch, which is or is not in the run.
func (c *command) plays(run *bound, v *instance, in bool) bool {
	switch {
	case c.played == never:
		return false
	case c.played == always:
		return true
	case c.played == orBehind:
		return in || v.minibatch >= c.ahead && run.in(v.minibatch-c.ahead)
	case c.ahead != 0:
		return v.minibatch >= 0 && run.in(v.minibatch+c.ahead)
	case !in:
		return false
	}
	return c.link == nil || c.link.Changes(run, *v, c.step)
}

// settle returns what puts the latest weights into slot 0 behind so many minibatches; none: they are there.
func (s *ending) settle(minibatches int) []*command { return s.moves[s.Entry(minibatches/s.group)] }

// segment calls do for every command of a segment, what comes before and behind it included. Commands before it are those of its first
// minibatch's forward, commands behind it those of the last update of their stage. The batch that it begins with may be staged; it stages
// that of the segment behind it.
func (t *table) segment(run *bound, staged bool, do func(c *command, v *instance) error) error {
	if !staged {
		if err := t.stage(0, new(instance), do); err != nil {
			return err
		}
	}
	v := &instance{instruction: instruction{kind: pipeline.F, to: none}}
	if len(t.ends) > 0 {
		v.stage = t.ends[0].stage
	}
	for _, c := range t.before {
		if !c.plays(run, v, true) {
			continue
		}
		if err := do(c, v); err != nil {
			return err
		}
	}
	if err := t.play(run, do); err != nil {
		return err
	}
	for i := range t.ends {
		if err := t.ends[i].play(t.ends[i].shares, run.end(), do); err != nil {
			return err
		}
	}
	for i := range t.ends {
		if err := t.ends[i].play(t.ends[i].settle(run.end()), run.end(), do); err != nil {
			return err
		}
	}
	return nil
}

// isStaged reports whether the first batches of a segment behind so many minibatches wait on the device, rather than others, as behind an
// audit. waiting says which minibatch's batch waits for a stage.
func (t *table) isStaged(waiting func(stage int) int, done int) bool {
	return !slices.ContainsFunc(t.opens, func(o opening) bool { return waiting(o.stage) != done+o.minibatch })
}

// play calls do for commands behind a segment of so many minibatches.
func (s *ending) play(list []*command, minibatches int, do func(c *command, v *instance) error) error {
	v := &instance{instruction{kind: pipeline.Update, stage: s.stage, to: none}, minibatches - 1}
	for _, c := range list {
		if err := do(c, v); err != nil {
			return err
		}
	}
	return nil
}

// dropAudits leaves what is for audits out of a table.
func (t *table) dropAudits() {
	for i := range t.rows {
		for k := range t.rows[i].lists {
			list := &t.rows[i].lists[k]
			*list = slices.DeleteFunc(*list, func(c cell) bool { return c.variants[0].verb == doAudit })
		}
	}
}

// lengths returns in how many periods a row begins, and after how many more all of its operands are where they were.
func (r *row) lengths() (begins, round int) {
	round = 1
	for _, c := range append(slices.Clone(r.axes), r.shapes) {
		begins = max(begins, len(c.Begins))
		round = min(round/gcd(round, len(c.Round))*len(c.Round), math.MaxInt32)
	}
	return begins, round
}
