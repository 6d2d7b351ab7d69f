package cycle

import (
	"cmp"
	"math"
	"slices"
	"time"

	"plimsoll/planner/schedule"
)

// Span is when an op of a step ran, simulated or measured, from the start of a run.
type Span struct {
	Step, Position int
	schedule.Span
}

// Spans returns when the ops of a simulation ran, rounded to nanoseconds.
func (r *Result) Spans() (all []Span) {
	for _, x := range r.Starts {
		all = append(all, Span{x.Step, x.Position, schedule.Span{Start: schedule.Duration(x.Start), End: schedule.Duration(x.End)}})
	}
	return all
}

// Window is some steps of a run, from the start of the first compute op of one to that of a later one.
type Window struct {
	Step, Steps int
	From, Until time.Duration
}

// Length returns how long the steps took.
func (w Window) Length() time.Duration { return w.Until - w.From }

// Windows lists all runs of so many steps whose compute ops are among the spans, by their first step. The steps before begin, which fill the
// pipeline of copies, are left out where others follow.
func (s *Simulator) Windows(all []Span, begin, steps int) (list []Window) {
	computed, starts := map[int]int{}, map[int]time.Duration{}
	ops := s.player.queues[Compute].ops
	for _, x := range all {
		if on, _ := StreamOf(s.ledger.seq[x.Position].Kind); on != Compute {
			continue
		}
		computed[x.Step]++
		if x.Position == int(ops[0]) {
			starts[x.Step] = x.Start
		}
	}
	for step := range starts {
		until, whole := starts[step+steps]
		for k := range steps {
			whole = whole && computed[step+k] == len(ops)
		}
		if whole {
			list = append(list, Window{step, steps, starts[step], until})
		}
	}
	slices.SortFunc(list, func(a, b Window) int { return cmp.Compare(a.Step, b.Step) })
	if n := len(list); n > 0 && list[n-1].Step >= begin {
		list = slices.DeleteFunc(list, func(w Window) bool { return w.Step < begin })
	}
	return list
}

// Steady returns the first repetition of the latest simulation.
func (s *Simulator) Steady() Window {
	first, last := s.player.repetition()
	return s.Windows(s.player.result.Spans(), first.step, last.step-first.step)[0]
}

// Replayed is an op of a window, or of the step before or behind it.
type Replayed struct {
	Op     Op
	Stream Stream
	Ran    bool // false: it did not, or is a drop
	Inside bool // the window has all of it
	// Waits reports whether the window has the time between the compute op before and this one.
	Waits bool
	schedule.Span
	Cost time.Duration // of the chain, with nothing beside it
	// Wait says for which op a compute op waited. By and Freed are indices of ops, as After.
	Wait schedule.Wait
	// After is the op that ended last of those that a copy, or an update on the host, waits for; -1 where that is the compute op before it.
	After int
}

// Replay lists the ops of the step before a window, of the window, and of the step behind it, by step and position. It tells for which op each
// waited, by the rules of the sequence that was simulated last. The spans may be those of a device.
func (s *Simulator) Replay(all []Span, w Window) []Replayed {
	n := len(s.ledger.seq)
	r := &replay{s: s, n: n, ops: make([]Replayed, (w.Steps+2)*n)}
	for i := range r.ops {
		x := &r.ops[i]
		x.Op, x.After, x.Wait.By, x.Wait.Freed = s.ledger.seq[i%n], -1, -1, -1
		x.Stream, _ = StreamOf(x.Op.Kind)
		x.Cost = schedule.Duration(s.costs.clock.seconds(s.ledger.tasks[i%n].ticks))
	}
	for _, span := range all {
		if i := r.index(span, w); i >= 0 {
			r.ops[i].Span, r.ops[i].Ran = span.Span, true
		}
	}
	r.usage = r.use(all, w)
	r.attribute(w)
	return r.ops
}

// replay is a Replay in the making.
type replay struct {
	s     *Simulator
	n     int
	ops   []Replayed
	usage *schedule.Usage
}

// index returns where a span is in the list; -1: in none of its steps.
func (r *replay) index(x Span, w Window) int {
	if i := (x.Step-w.Step+1)*r.n + x.Position; i >= 0 && i < len(r.ops) {
		return i
	}
	return -1
}

// depends returns the index of the op that one at an index names; -1: there is none, or it did not run.
func (r *replay) depends(i int, on ref) int {
	k := i - i%r.n - r.n + int(on)
	if on == none || k < 0 || !r.ops[k].Ran {
		return -1
	}
	return k
}

// attribute finds what all ops that ran waited for.
func (r *replay) attribute(w Window) {
	last := -1 // compute op
	var latest [streams]int
	for s := range latest {
		latest[s] = -1
	}
	for i := range r.ops {
		x := &r.ops[i]
		if !x.Ran {
			continue
		}
		s := x.Stream
		if s == ToHost && !r.s.link.Duplex {
			s = ToDevice
		}
		if s == Compute {
			x.Inside = i >= r.n && i < (w.Steps+1)*r.n
			if last >= 0 { // instants that are nearly the same may be out of order
				r.ops[last].End = min(r.ops[last].End, x.Start)
			}
			if x.Waits = x.Start > w.From && x.Start <= w.Until; x.Waits && last >= 0 {
				x.Wait = r.wait(i, r.ops[last].End, x.Start)
			}
			last = i
			continue
		}
		x.After = r.after(i, last, latest[s])
		latest[s] = i
	}
}

// after returns the op that a copy or an update on the host followed, given a compute op and one of its stream.
func (r *replay) after(i, compute, before int) int {
	end, at := time.Duration(-1), -1
	if compute >= 0 {
		end = r.ops[compute].End
	}
	for _, k := range append(r.waits(i), before) {
		if k >= 0 && r.ops[k].End >= end {
			end, at = r.ops[k].End, k
		}
	}
	return at
}

// waits lists what an op waits for, by index.
func (r *replay) waits(i int) (all []int) {
	l := &r.s.ledger
	t := &l.tasks[i%r.n]
	for _, on := range l.waits[t.waits:t.waitsEnd] {
		all = append(all, r.depends(i, on))
	}
	return all
}

// wait splits the time from the end of the compute op before an op to its start.
func (r *replay) wait(i int, from, to time.Duration) schedule.Wait {
	arrived, by := from, -1
	for _, k := range r.waits(i) {
		if k >= 0 && r.ops[k].End > arrived {
			arrived, by = min(r.ops[k].End, to), k
		}
	}
	most := int64(math.MaxInt64)
	if takes := r.s.ledger.tasks[i%r.n].takes; takes > 0 {
		most = r.s.player.limit - takes
	}
	return r.usage.Wait(from, arrived, to, by, most)
}

// use returns the bytes in use, with their changes by the index of the op; -1: of another step. Steps before the first one of the spans have ended.
func (r *replay) use(all []Span, w Window) *schedule.Usage {
	l, ends, first := &r.s.ledger, map[[2]int]time.Duration{}, 0
	used, _ := l.residentBytes()
	var changes []schedule.Change
	for i, x := range all {
		if i == 0 || x.Step < first {
			first = x.Step
		}
		ends[[2]int{x.Step, x.Position}] = x.End
		by, t := r.index(x, w), &l.tasks[x.Position]
		changes = append(changes, schedule.Change{At: x.Start, Bytes: t.takes, By: by}, schedule.Change{At: x.End, Bytes: t.leaves, By: by})
	}
	for p := range l.tasks { // that the first step leaves out, as it has a prime
		if _, ran := ends[[2]int{first, p}]; !ran {
			used += l.tasks[p].takes + l.tasks[p].leaves
		}
	}
	for step := first; step <= w.Step+w.Steps; step++ {
		for _, f := range l.frees {
			if x, over := r.freed(f, first, step, ends, w); over {
				changes = append(changes, x)
			}
		}
	}
	return schedule.NewUsage(used, changes)
}

// freed returns when the bytes are free that an op of a step frees behind others; false: some of these have not ended.
func (r *replay) freed(f free, first, step int, ends map[[2]int]time.Duration, w Window) (x schedule.Change, over bool) {
	x = schedule.Change{At: -1, Bytes: -f.bytes, By: -1}
	for _, hold := range f.holds {
		of := Span{Step: step - 1 + int(hold)/r.n, Position: int(hold) % r.n}
		end, ran := ends[[2]int{of.Step, of.Position}]
		switch {
		case hold == none:
		case ran && end > x.At:
			x.At, x.By = end, r.index(of, w)
		case !ran && of.Step > first:
			return x, false
		}
	}
	return x, true
}
