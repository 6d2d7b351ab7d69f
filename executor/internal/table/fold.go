package table

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/cycle"
	"plimsoll/executor/internal/order"
)

// folder makes a row of a table of what a recording has of an instruction, period by period.
//
// Commands of two periods that differ only in what they work in have one template, and periods with the same templates in the same order
// have one shape. The operands of a copy are its source and its target. The operands of an op are its input, its output, the version of
// the weights and the sum of gradients. Each operand goes round by itself: a slab after as many periods as there are slabs, a version of
// the weights after some updates. So a recording shows a table when it shows each operand's cycle, however long all of them together are.
type folder struct {
	*Recording
	plays   []int32   // by period: the number of a list among those that are here
	here    [][]int32 // lists of the row, in the order in which they come first
	shapes  []int32   // by list
	row     *Row
	known   map[string]int // cycles, by what was seen of them
	cycles  []cycle.Cycle  // of operands
	joined  map[string]int // axes of the row, by their cycles
	members [][]int        // by axis: its cycles
	tuples  [][][]int32    // by axis and number: the numbers of its cycles
}

// movingOperand is an operand of a cell that moves from period to period.
type movingOperand struct {
	operand int     // of the command
	cycle   int     // that it goes through
	values  []int64 // by number in the cycle
}

const (
	// longestJoined is how many periods may pass until operands that are looked up together all come back. A longer table of them would
	// save no time, and lists what more tables would list together.
	longestJoined = 1 << 10
	// mostCommands is how many different commands a device may have: what they launch would take a gigabyte.
	mostCommands = 1 << 20
)

// FoldRow makes a row of an instruction, of which periods have lists; false: it does not repeat itself in what was recorded. Errors:
// ErrPlan.
func (r *Recording) FoldRow(x order.Instruction, periods []int32, flush bool) (w Row, ok bool, err error) {
	w.Instruction = x
	f := &folder{Recording: r, row: &w, known: map[string]int{}, joined: map[string]int{}}
	f.findLists(periods)
	first, ok := f.findShapes(flush)
	if !ok {
		return w, false, nil
	}
	for shape, list := range first {
		cells, moving := make([]Cell, len(list)), []movingOperand(nil)
		for at := range list {
			if at == 0 || !f.follows(int32(shape), at) {
				if moving, ok = f.moving(int32(shape), at, list[at]); !ok {
					return w, false, nil
				}
			}
			if ok, err := f.cell(&cells[at], int32(shape), at, list[at], moving); err != nil || !ok {
				return w, false, err
			}
		}
		w.Lists = append(w.Lists, cells)
	}
	for c := range w.Commands() {
		w.outside = w.outside || c.Played == Always || c.Ahead != 0
	}
	return w, true, nil
}

// findLists finds the lists that a row plays.
func (f *folder) findLists(periods []int32) {
	known := map[int32]int32{}
	for _, list := range periods {
		n, have := known[list]
		if !have {
			n = int32(len(f.here))
			known[list], f.here = n, append(f.here, f.Lists[list])
		}
		f.plays = append(f.plays, n)
	}
}

// findShapes finds the shape of each list, and when shapes come back, and returns the first list of each shape.
func (f *folder) findShapes(flush bool) (first [][]int32, ok bool) {
	byText := map[string]int32{}
	for _, list := range f.here {
		templates := make([]int32, len(list))
		for i, n := range list {
			templates[i] = f.templates[n]
		}
		text := cycle.Text(templates)
		shape, known := byText[text]
		if !known {
			shape = int32(len(first))
			byText[text], first = shape, append(first, list)
		}
		f.shapes = append(f.shapes, shape)
	}
	if flush {
		f.row.Shapes = cycle.Always(0)
		return append(first, nil)[:1], true
	}
	f.row.Shapes, ok = cycle.Fold(f.byPeriod(f.shapes))
	return first, ok
}

// byPeriod returns, by period, the values that are given by list.
func (f *folder) byPeriod(byList []int32) (all []int32) {
	all = make([]int32, len(f.plays))
	for k, n := range f.plays {
		all[k] = byList[n]
	}
	return all
}

// follows reports whether a command of a shape has the operands of the one before it, in all periods: that of the next step of an op has.
func (f *folder) follows(shape int32, at int) bool {
	for n, list := range f.here {
		if f.shapes[n] != shape {
			continue
		}
		if x, y := f.operands[list[at-1]], f.operands[list[at]]; len(x) == 0 || len(x) != len(y) || &x[0] != &y[0] {
			return false
		}
	}
	return true
}

// moving finds the operands of a command of a shape that move, and their cycles; false: one does not repeat itself.
func (f *folder) moving(shape int32, at int, number int32) (all []movingOperand, ok bool) {
	for i := range f.operands[number] {
		numbers, values := f.values(shape, at, i)
		if len(values) < 2 {
			continue
		}
		c, ok := f.cycleOf(shape, numbers)
		if !ok {
			return nil, false
		}
		all = append(all, movingOperand{i, c, values})
	}
	return all, true
}

// values returns the values that an operand of a command of a shape has, and which of them it has by list; cycle.None where a list has
// another shape.
func (f *folder) values(shape int32, at, operand int) (numbers []int32, values []int64) {
	numbers = make([]int32, len(f.here))
	known := map[int64]int32{}
	for n, list := range f.here {
		if numbers[n] = cycle.None; f.shapes[n] != shape {
			continue
		}
		v := f.operands[list[at]][operand]
		number, have := known[v]
		if !have {
			number = int32(len(values))
			known[v], values = number, append(values, v)
		}
		numbers[n] = number
	}
	return numbers, values
}

// cycleOf returns the number of the cycle that an operand of a shape goes through, by its numbers in lists; false: it does not come back
// often enough.
func (f *folder) cycleOf(shape int32, numbers []int32) (number int, ok bool) {
	text := cycle.Text(numbers)
	if number, ok = f.known[text]; ok {
		return number, true
	}
	c, ok := cycle.FoldWhere(f.byPeriod(numbers), &f.row.Shapes, shape)
	if !ok {
		return 0, false
	}
	number = len(f.cycles)
	f.known[text], f.cycles = number, append(f.cycles, c)
	f.row.Turn = max(f.row.Turn, len(c.Round))
	return number, true
}

// axes returns the axes of the row that some cycles make together: one, or several if they come back together only after too many
// periods.
func (f *folder) axes(cycles []int) (all []int) {
	length, from := 1, 0
	for i, c := range cycles {
		n := len(f.cycles[c].Round)
		if joined := cycle.Together(length, n); joined <= longestJoined {
			length = joined
			continue
		}
		if i > from {
			all = append(all, f.axis(cycles[from:i]))
		}
		length, from = n, i
	}
	return append(all, f.axis(cycles[from:]))
}

// axis returns the axis of the row that some cycles make together.
func (f *folder) axis(numbers []int) int {
	text := fmt.Sprint(numbers)
	if i, ok := f.joined[text]; ok {
		return i
	}
	var cycles []*cycle.Cycle
	for _, n := range numbers {
		cycles = append(cycles, &f.cycles[n])
	}
	axis, tuples := cycle.Join(cycles)
	f.joined[text] = len(f.row.Axes)
	f.row.Axes, f.members, f.tuples = append(f.row.Axes, axis), append(f.members, numbers), append(f.tuples, tuples)
	return len(f.row.Axes) - 1
}

// cell makes a cell of a shape from the operands of its command that move; false: it is not what was recorded. Errors: ErrPlan.
func (f *folder) cell(p *Cell, shape int32, at int, first int32, moving []movingOperand) (ok bool, err error) {
	var cycles []int
	for _, m := range moving {
		if !slices.Contains(cycles, m.cycle) {
			cycles = append(cycles, m.cycle)
		}
	}
	count := 1
	if len(cycles) > 0 {
		slices.Sort(cycles)
		for _, a := range f.axes(cycles) {
			p.axes = append(p.axes, axisRef{a, count})
			if count *= len(f.tuples[a]); count+len(f.Commands) > mostCommands {
				return false, fmt.Errorf("%w: its devices would have more than %d different commands, in %s: take a plan with fewer minibatches in flight", order.ErrPlan, mostCommands, f.row.Name())
			}
		}
	}
	p.Variants = make([]*Command, count)
	for k, n := range f.plays {
		if f.shapes[n] != shape {
			continue
		}
		i := 0
		for _, a := range p.axes {
			i += int(f.row.Axes[a.axis].Entry(k)) * a.stride
		}
		c, have := f.Commands[f.here[n][at]], &p.Variants[i]
		if *have != nil && *have != c {
			return false, nil
		}
		*have = c
	}
	return true, f.complete(p, first, moving)
}

// complete makes the commands of a cell that nobody has seen yet: their operands come together later than what was recorded.
func (f *folder) complete(p *Cell, like int32, moving []movingOperand) (err error) {
	for i := range p.Variants {
		if p.Variants[i] != nil {
			continue
		}
		operands := slices.Clone(f.operands[like])
		for _, m := range moving {
			operands[m.operand] = m.values[f.numberIn(p, i, m.cycle)]
		}
		if p.Variants[i], err = f.make(f.Commands[like], operands); err != nil {
			return err
		}
	}
	return nil
}

// numberIn returns the number that a cycle has in a variant of a cell.
func (f *folder) numberIn(p *Cell, variant, cycle int) int32 {
	for _, a := range p.axes {
		if i := slices.Index(f.members[a.axis], cycle); i >= 0 {
			tuples := f.tuples[a.axis]
			return tuples[variant/a.stride%len(tuples)][i]
		}
	}
	panic("BUG: an operand moves and its cell has no axis for it")
}
