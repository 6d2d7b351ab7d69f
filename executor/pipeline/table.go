package pipeline

import (
	"slices"
)

// table is what a driver does in a run: one period of commands. A row is an instruction of the period; where its operands move from
// period to period it has variants, and period by period plays one after the other, round and round. A step of a plan with a flush is a
// period, and has one variant of everything.
//
// Invariant: which commands a row plays for a minibatch depends on the minibatch alone, never on how many follow. So a run whose bound
// is lowered plays what it would have played with that bound from its beginning.
type table struct {
	repeats int // minibatches of a period
	rows    []row
	before  []*command // what comes before the first period of a segment
	ends    []ending   // by stage that is here: what comes behind the last one
}

// row is an instruction of a period.
type row struct {
	instruction
	cycle
	variants [][]*command
	outside  bool // some of its commands are played for minibatches that are not in the run
}

// ending is what comes behind a segment of a stage: replicas share statistics, and the latest weights move into slot 0.
type ending struct {
	stage  int
	shares []*command
	cycle               // by update: the slot of the weights behind it
	group  int          // minibatches of an update
	moves  [][]*command // by slot; none: the weights are there
}

// cycle is a sequence of numbers that goes round and round behind its beginning.
type cycle struct{ begins, round []int32 }

// entry returns a number of the sequence; before its beginning the round is taken to have gone on for ever.
func (c *cycle) entry(k int) int32 {
	if k >= 0 && k < len(c.begins) {
		return c.begins[k]
	}
	return c.round[mod(k-len(c.begins), len(c.round))]
}

// timesSeen is how often a round must be seen to follow itself.
const timesSeen = 3

// foldCycle finds the shortest round of a sequence that is seen often enough; false: there is none.
func foldCycle(all []int32) (c cycle, ok bool) {
	for n := 1; timesSeen*n <= len(all); n++ {
		begin := len(all) - n
		for begin > 0 && all[begin-1] == all[begin-1+n] {
			begin--
		}
		if begin <= len(all)/2 && begin+timesSeen*n <= len(all) {
			return cycle{slices.Clone(all[:begin]), slices.Clone(all[begin : begin+n])}, true
		}
	}
	return c, false
}

// commands returns those of a row for a minibatch.
func (r *row) commands(minibatch, repeats int) []*command {
	return r.variants[r.entry(floorDiv(minibatch, repeats))]
}

// play calls do for every command of a segment, in order.
func (t *table) play(run *bound, do func(c *command, v *instance) error) error {
	least, most := t.shifts()
	v := new(instance)
	for j := floorDiv(-most, t.repeats); j*t.repeats+least < run.end(); j++ {
		for i := range t.rows {
			r := &t.rows[i]
			v.instruction, v.minibatch = r.instruction, j*t.repeats+r.shift
			in := v.minibatch >= 0 && run.in(v.minibatch)
			if !in && !r.outside {
				continue
			}
			for _, c := range r.commands(v.minibatch, t.repeats) {
				if !c.plays(run, v, in) {
					continue
				}
				if err := do(c, v); err != nil {
					return err
				}
			}
		}
	}
	return nil
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
	case c.always:
		return true
	case c.ahead != 0:
		return v.minibatch >= 0 && run.in(v.minibatch+c.ahead)
	case !in:
		return false
	}
	return c.link == nil || c.link.changes(run, *v, c.step)
}

// settle returns what puts the latest weights into slot 0 behind so many minibatches; none: they are there.
func (s *ending) settle(minibatches int) []*command { return s.moves[s.entry(minibatches/s.group)] }
