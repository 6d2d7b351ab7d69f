// Package table holds what the devices of a plan play: commands by row and period, recorded once and folded, with those that begin and end
// a run. Its prover plays a table as streams and events allow, and refuses one in which two commands can meet in memory out of turn.
package table

import (
	"iter"
	"math"
	"slices"

	"plimsoll/executor/internal/cycle"
	"plimsoll/executor/internal/order"
	"plimsoll/planner/pipeline"
)

// Table holds the commands of a driver in a run: one period of them. A row is an instruction of the period; where operands of its commands move
// from period to period these have variants, and play one after the other, round and round. A step of a plan with a flush is a period, and
// has one variant of everything.
//
// Invariant: which commands a row plays for a minibatch depends on the minibatch alone, never on how many follow. So a run whose bound
// is lowered plays what it would have played with that bound from its beginning.
type Table struct {
	Repeats int // minibatches of a period
	Rows    []Row
	Before  []*Command // what comes before the first period of a segment
	Opens   []Opening  // by stage whose next batch waits on the device
	Ends    []Ending   // by stage that is here: what comes behind the last one
}

// Opening lists the commands that stage the first batch which a device has of a stage in a step, of an instance of its forward. They are
// played before the first step, and behind each for the next.
type Opening struct {
	order.Instance
	List []*Command
}

// Row is an instruction of a period.
//
// An axis is the numbers that one operand of its commands, or several, go through from period to period. A cell is a command of which some
// operands go along axes: it has a variant for each combination of their numbers. Each operand goes round by itself. So a row has as many
// commands as its operands have places together, however many periods pass until all are where they were.
type Row struct {
	order.Instruction
	Shapes  cycle.Cycle // by period: which list of commands it plays
	Lists   [][]Cell    // by shape
	Axes    []cycle.Cycle
	Turn    int  // periods of the longest cycle of an operand
	outside bool // some of its commands are played for minibatches that are not in the run
}

// Cell is a command in a row.
type Cell struct {
	axes     []axisRef
	Variants []*Command
}

// axisRef is an axis of the row, and how many variants apart its numbers are.
type axisRef struct{ axis, stride int }

// Command returns the variant of a cell for some numbers of the axes.
func (p *Cell) Command(now []int32) *Command {
	i := 0
	for _, a := range p.axes {
		i += int(now[a.axis]) * a.stride
	}
	return p.Variants[i]
}

// List returns the commands of a row in a period, and writes the numbers of its axes.
func (r *Row) List(period int, now []int32) []Cell {
	list := r.Lists[r.Shapes.Entry(period)]
	for i := 0; i < len(r.Axes) && len(list) > 0; i++ {
		now[i] = r.Axes[i].Entry(period)
	}
	return list
}

// Fixed returns cells of commands that have one variant each.
func Fixed(list []*Command) (cells []Cell) {
	for _, c := range list {
		cells = append(cells, Cell{Variants: []*Command{c}})
	}
	return cells
}

// Commands goes through all variants of all commands.
func (r *Row) Commands() iter.Seq[*Command] {
	return func(yield func(*Command) bool) {
		for _, list := range r.Lists {
			for i := range list {
				for _, c := range list[i].Variants {
					if !yield(c) {
						return
					}
				}
			}
		}
	}
}

// Ending lists the commands behind a segment of a stage: replicas share statistics, and the latest weights move into slot 0.
type Ending struct {
	Stage       int
	Shares      []*Command
	cycle.Cycle              // by update: the slot of the weights behind it
	Group       int          // minibatches of an update
	Moves       [][]*Command // by slot; none: the weights are there
}

// Lengths adds the shortest segments, of whole updates of so many minibatches, that leave the latest weights in each slot.
func (s *Ending) Lengths(group int, all map[int]bool) {
	seen := map[int32]bool{}
	for n := group; n <= (len(s.Begins)+len(s.Round))*group; n += group {
		if slot := s.Entry(n / s.Group); !seen[slot] {
			seen[slot], all[n] = true, true
		}
	}
}

// Play calls do for every command of a segment, in order. Behind a step that of the next one is staged, whether it is in the run or not.
func (t *Table) Play(run *order.Bound, do func(c *Command, v *order.Instance) error) error {
	least, most := t.shifts()
	v, now := new(order.Instance), make([]int32, t.mostAxes())
	for j := order.FloorDiv(-most, t.Repeats); j*t.Repeats+least < run.End(); j++ {
		for i := range t.Rows {
			r := &t.Rows[i]
			v.Instruction, v.Minibatch = r.Instruction, j*t.Repeats+r.Shift
			in := v.Minibatch >= 0 && run.In(v.Minibatch)
			if !in && !r.outside {
				continue
			}
			list := r.List(order.FloorDiv(v.Minibatch, t.Repeats), now)
			for k := range list {
				c := list[k].Command(now)
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
		if err := t.stage((j+1)*t.Repeats, v, do); err != nil {
			return err
		}
	}
	return nil
}

// stage calls do for what stages the first batches behind so many minibatches. It writes whose they are to v.
func (t *Table) stage(minibatches int, v *order.Instance, do func(c *Command, v *order.Instance) error) error {
	for i := range t.Opens {
		*v = t.Opens[i].Instance
		v.Minibatch += minibatches
		for _, c := range t.Opens[i].List {
			if err := do(c, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Commands goes through all commands.
func (t *Table) Commands() iter.Seq[*Command] {
	return func(yield func(*Command) bool) {
		lists := [][]*Command{t.Before}
		for i := range t.Opens {
			lists = append(lists, t.Opens[i].List)
		}
		for i := range t.Ends {
			lists = append(append(lists, t.Ends[i].Shares), t.Ends[i].Moves...)
		}
		for _, c := range slices.Concat(lists...) {
			if !yield(c) {
				return
			}
		}
		for i := range t.Rows {
			for c := range t.Rows[i].Commands() {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// mostAxes returns how many axes a row has at most.
func (t *Table) mostAxes() (most int) {
	for i := range t.Rows {
		most = max(most, len(t.Rows[i].Axes))
	}
	return most
}

func (t *Table) shifts() (least, most int) {
	for i := range t.Rows {
		if i == 0 {
			least, most = t.Rows[i].Shift, t.Rows[i].Shift
		}
		least, most = min(least, t.Rows[i].Shift), max(most, t.Rows[i].Shift)
	}
	return least, most
}

// plays reports whether a command of a row is played for a minibatch, which is or is not in the run.
func (c *Command) plays(run *order.Bound, v *order.Instance, in bool) bool {
	switch {
	case c.Played == Never:
		return false
	case c.Played == Always:
		return true
	case c.Played == OrBehind:
		return in || v.Minibatch >= c.Ahead && run.In(v.Minibatch-c.Ahead)
	case c.Ahead != 0:
		return v.Minibatch >= 0 && run.In(v.Minibatch+c.Ahead)
	case !in:
		return false
	}
	return c.Link == nil || c.Link.Changes(run, *v, c.Step)
}

// Settle returns the commands that put the latest weights into slot 0 behind so many minibatches; none where they are there.
func (s *Ending) Settle(minibatches int) []*Command { return s.Moves[s.Entry(minibatches/s.Group)] }

// Segment calls do for every command of a segment, what comes before and behind it included. Commands before it are those of its first
// minibatch's forward, commands behind it those of the last update of their stage. The batch that it begins with may be staged; it stages
// that of the segment behind it.
func (t *Table) Segment(run *order.Bound, staged bool, do func(c *Command, v *order.Instance) error) error {
	if !staged {
		if err := t.stage(0, new(order.Instance), do); err != nil {
			return err
		}
	}
	v := &order.Instance{Instruction: order.Instruction{Kind: pipeline.F, To: none}}
	if len(t.Ends) > 0 {
		v.Stage = t.Ends[0].Stage
	}
	for _, c := range t.Before {
		if !c.plays(run, v, true) {
			continue
		}
		if err := do(c, v); err != nil {
			return err
		}
	}
	if err := t.Play(run, do); err != nil {
		return err
	}
	for i := range t.Ends {
		if err := t.Ends[i].Play(t.Ends[i].Shares, run.End(), do); err != nil {
			return err
		}
	}
	for i := range t.Ends {
		if err := t.Ends[i].Play(t.Ends[i].Settle(run.End()), run.End(), do); err != nil {
			return err
		}
	}
	return nil
}

// IsStaged reports whether the first batches of a segment behind so many minibatches wait on the device. Behind an audit others do. waiting
// says which minibatch's batch waits for a stage.
func (t *Table) IsStaged(waiting func(stage int) int, done int) bool {
	return !slices.ContainsFunc(t.Opens, func(o Opening) bool { return waiting(o.Stage) != done+o.Minibatch })
}

// Play calls do for commands behind a segment of so many minibatches.
func (s *Ending) Play(list []*Command, minibatches int, do func(c *Command, v *order.Instance) error) error {
	v := &order.Instance{Instruction: order.Instruction{Kind: pipeline.Update, Stage: s.Stage, To: none}, Minibatch: minibatches - 1}
	for _, c := range list {
		if err := do(c, v); err != nil {
			return err
		}
	}
	return nil
}

// DropAudits leaves what is for audits out of a table.
func (t *Table) DropAudits() {
	for i := range t.Rows {
		for k := range t.Rows[i].Lists {
			list := &t.Rows[i].Lists[k]
			*list = slices.DeleteFunc(*list, func(c Cell) bool { return c.Variants[0].Verb == DoAudit })
		}
	}
}

// Lengths returns in how many periods a row begins, and after how many more all of its operands are where they were.
func (r *Row) Lengths() (begins, round int) {
	round = 1
	for _, c := range append(slices.Clone(r.Axes), r.Shapes) {
		begins = max(begins, len(c.Begins))
		round = min(round/order.GCD(round, len(c.Round))*len(c.Round), math.MaxInt32)
	}
	return begins, round
}
