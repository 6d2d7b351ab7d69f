package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor/internal/cycle"
	"plimsoll/planner/pipeline"
)

// compiler makes the table of a driver: in a dry run it goes through all that the driver is to do, and notes it. What it knows of the
// minibatches in flight, and which blocks of memory they have, lives in a dry run alone.
type compiler struct {
	*driver
	bound     *bound
	recording *recording
	unused    []*inFlight // that are not in use
	ahead     int         // what it notes is of a minibatch so many behind that of its task
}

// sumCompiler notes what adds up gradients over replicas, taskCompiler what tasks do with their minibatches, ringCompiler the steps of rings.
type (
	sumCompiler  struct{ *compiler }
	taskCompiler struct{ sumCompiler }
	ringCompiler struct{ taskCompiler }
)

func (d *compiler) sums() sumCompiler   { return sumCompiler{d} }
func (d *compiler) tasks() taskCompiler { return taskCompiler{d.sums()} }
func (d *compiler) ring() ringCompiler  { return ringCompiler{d.tasks()} }

// recording is what a driver does in a dry run, row by row and period by period.
type recording struct {
	*binder
	known     map[commandKey]int32
	alike     map[commandKey]int32 // templates
	commands  []*command           // by number
	templates []int32              // by number
	operands  [][]int64            // by number: what may differ in commands of one template
	lists     [][]int32            // of numbers of commands, each once; the first one is empty
	byText    map[string]int32     // numbers of lists
	done      [][]int32            // by row and period: the number of a list
	before    []int32
	opens     []recordedOpening
	behind    [][]int32 // by stage
	slots     [][]int32 // by stage that is here: the slots of its latest weights, version by version
	at        *[]int32  // where commands are noted
	open      *int32    // in done: what is noted now, of which current is the list; nil: it is elsewhere
	current   []int32
}

// recordedOpening is what stages the first batch of a stage, of an instance of its forward.
type recordedOpening struct {
	instance
	list []int32
}

// newRecording returns one of so many rows and stages, for what a binder prepares.
func newRecording(b *binder, rows, stages int) *recording {
	return &recording{
		binder: b, known: map[commandKey]int32{}, alike: map[commandKey]int32{}, lists: [][]int32{nil}, byText: map[string]int32{"": 0},
		done: make([][]int32, rows), behind: make([][]int32, stages), slots: make([][]int32, stages),
	}
}

// number returns that of a command, the same for all that do the same.
func (r *recording) number(c command) int32 {
	k := c.key()
	n, ok := r.known[k]
	if !ok {
		own := c
		n = int32(len(r.commands))
		r.known[k], r.commands = n, append(r.commands, &own)
		like, operands := r.split(&own, n)
		template, ok := r.alike[like]
		if !ok {
			template = int32(len(r.alike))
			r.alike[like] = template
		}
		r.templates, r.operands = append(r.templates, template), append(r.operands, operands)
	}
	return n
}

// split returns what a command has in common with those of its template, and its operands. Where these are not known one by one, the
// command is its own operand.
func (r *recording) split(c *command, number int32) (like commandKey, operands []int64) {
	like = c.key()
	use, isOp := r.uses[c.id]
	switch {
	case c.verb == doLaunch && isOp:
		like.id, like.launch = 0, opTemplate{use.stage, use.op, use.step}
		return like, use.operands
	case c.verb == doCopy:
		operands = []int64{like.dst.Offset, like.src.Offset, int64(like.played)}
		like.dst.Offset, like.src.Offset, like.played = 0, 0, inRun
		return like, operands
	}
	return commandKey{verb: c.verb, on: c.on.number}, []int64{int64(number)}
}

// make returns a command of the template of another one, with other operands.
func (r *recording) make(like *command, operands []int64) (*command, error) {
	c := *like
	switch use, isOp := r.uses[c.id]; {
	case c.verb == doLaunch && isOp:
		list, err := r.again(&use, operands)
		if err != nil {
			return nil, err
		}
		c.prepared = list[use.step]
	case c.verb == doCopy:
		c.dst.Offset, c.src.Offset, c.played = operands[0], operands[1], occasion(operands[2])
	default:
		return nil, fmt.Errorf("BUG: a command that is known as a whole is to be made of parts")
	}
	return r.commands[r.number(c)], nil
}

// row lets what follows be noted in a row, for a minibatch of a period. Nobody plays what is before the first minibatch.
func (r *recording) row(i, period int) {
	r.close()
	if period < 0 {
		r.at = new([]int32)
		return
	}
	for len(r.done[i]) <= period {
		r.done[i] = append(r.done[i], 0)
	}
	r.open = &r.done[i][period]
	r.current = append(r.current[:0], r.lists[*r.open]...)
	r.at = &r.current
}

// close ends what is noted in a row.
func (r *recording) close() {
	if r.open == nil {
		return
	}
	text := cycle.Text(r.current)
	n, have := r.byText[text]
	if !have {
		n = int32(len(r.lists))
		r.byText[text], r.lists = n, append(r.lists, slices.Clone(r.current))
	}
	*r.open, r.open = n, nil
}

// note adds a command to what the driver does.
func (d *compiler) note(c command) error {
	if d.ahead > 0 {
		c.ahead = d.ahead
	}
	*d.recording.at = append(*d.recording.at, d.recording.number(c))
	return nil
}

// noteIf adds a command that a row has in some periods only. In others it holds the command's place, so that all are of one shape.
func (d *compiler) noteIf(plays bool, c command) error {
	if !plays && d.e.order.plan.IsFlush() {
		return nil
	}
	if !plays {
		c.played = never
	}
	return d.note(c)
}

// noteTurn notes that the driver gives a turn to another one, or takes one.
func (d *compiler) noteTurn(v verb, turn chan struct{}) { _ = d.note(command{verb: v, turn: turn}) }

// host lets the host work for a stage, or for what is issued to a queue.
func (d *compiler) host(c command) error {
	c.verb = doWork
	if c.on.of == nil {
		c.on = d.compute
	}
	return d.note(c)
}

// instructions returns what the driver does in a period, in order.
func (d *driver) instructions() []instruction {
	t := d.ringed()
	if t == nil {
		return d.e.order.instructions[d.device]
	}
	all := make([]instruction, len(t.ring.steps))
	for i := range t.ring.steps {
		all[i] = t.ring.steps[i].instruction
	}
	return all
}

// issue notes what a task does.
func (d *compiler) issue(ctx context.Context, v instance) error {
	if v.far > 0 {
		return d.tasks().sendThrough(ctx, v)
	}
	switch v.kind {
	case pipeline.F:
		return d.tasks().forward(ctx, d.stages[v.stage], v)
	case pipeline.CF:
		return d.tasks().sendOutput(ctx, d.stages[v.stage], v)
	case pipeline.CB:
		t := d.stages[v.stage+1]
		return d.tasks().sendFrom(ctx, &t.deltas, t.away[v.to], v, 0, 0)
	case pipeline.Joining:
		return d.sums().sumBuckets(ctx, d.stages[v.stage], v)
	case pipeline.Reducing, pipeline.Gathering, pipeline.Admitting, pipeline.Owning, pipeline.Completing:
		return d.sums().synchronize(ctx, d.stages[v.stage], v)
	case pipeline.Update:
		return d.updates(ctx, d.stages[v.stage], v.minibatch)
	}
	return d.tasks().backward(ctx, d.stages[v.stage], v)
}

// openBooks empties the books before a dry run.
func (d *compiler) openBooks(in *bound) {
	d.begin()
	d.bound = in
	for s, t := range d.stages {
		if t == nil {
			continue
		}
		t.rounds, t.shared, d.staging[s].uploads, d.staging[s].arrivals = 0, 0, 0, 0
		t.stash.forget()
		t.stash.begin(in)
		d.recording.slots[s] = append(d.recording.slots[s], 0)
		t.sums.begin()
		d.unused = append(d.unused, t.inFlight...)
		t.inFlight = t.inFlight[:0]
		t.free, t.freeReturns = numbers(t.free, len(t.slabs)), numbers(t.freeReturns, len(t.returns))
		t.outputs.begin()
		t.deltas.begin()
		t.beginPortals()
	}
}

// record notes all that the driver does in a run.
func (d *compiler) record(ctx context.Context, run *bound) error {
	rows, t := d.instructions(), d.ringed()
	d.recording = newRecording(d.binder, len(rows), len(d.stages))
	d.openBooks(run)
	d.recording.at = &d.recording.before
	if err := d.forget(); err != nil {
		return err
	}
	if c := d.cyclicStage(); c != nil {
		t = c
	}
	if err := d.ring().join(t); err != nil {
		return err
	}
	t = d.ringed()
	repeats := d.e.order.repeats
	least, most := shifts(rows)
	for j := floorDiv(-most, repeats); len(rows) > 0 && j*repeats+least < run.end(); j++ {
		for i, r := range rows {
			v := instance{r, j*repeats + r.shift}
			d.recording.row(i, floorDiv(v.minibatch, repeats))
			if err := d.recordTask(ctx, t, i, v, run); err != nil {
				return d.failed(v, err)
			}
		}
	}
	d.recording.close()
	return d.shareAll(ctx)
}

// recordTask notes what a task does for a minibatch.
func (d *compiler) recordTask(ctx context.Context, t *localStage, i int, v instance, run *bound) error {
	in := v.minibatch >= 0 && run.in(v.minibatch) && !d.e.order.idle(v.instruction, v.minibatch)
	if in {
		d.starts(v)
		defer d.progress.end()
	}
	if t != nil {
		return d.ring().step(ctx, t, &t.ring.steps[i], v, in)
	}
	if v.kind == pipeline.CycleOp {
		return d.cyclic().op(ctx, v, in)
	}
	if !in {
		return nil
	}
	return d.issueRecorded(ctx, v)
}

// issueRecorded notes a task and an event behind it.
func (d *compiler) issueRecorded(ctx context.Context, v instance) error {
	_ = d.note(command{verb: doBegin})
	if err := d.issue(ctx, v); err != nil {
		return err
	}
	return d.note(command{verb: doEnd, on: d.queueFor(v)})
}

// shareAll notes what replicas tell each other behind a segment.
func (d *compiler) shareAll(ctx context.Context) error {
	for _, t := range d.stages {
		if t != nil && t.cyclic != nil {
			return d.joinBehind(t)
		}
		if t == nil || d.e.order.plan.IsFlush() || d.e.reducers[t.stage] == nil {
			continue
		}
		d.recording.at = &d.recording.behind[t.stage]
		_ = d.note(command{verb: doBegin})
		if err := d.sums().share(ctx, t); err != nil {
			return err
		}
		_ = d.note(command{verb: doEnd, on: d.compute})
	}
	return nil
}

// joinBehind notes that all streams wait for each other behind a segment of a cyclic plan: what is saved then is whole.
func (d *compiler) joinBehind(t *localStage) error {
	d.recording.at = &d.recording.behind[t.stage]
	_ = d.note(command{verb: doBegin})
	if err := d.ring().join(t); err != nil {
		return err
	}
	return d.note(command{verb: doEnd, on: d.compute})
}

// seen is how many periods of a recording are as in any longer run: those before the end of a run may differ.
func (e *Executor) seen(minibatches int) int {
	if e.order.plan.IsFlush() {
		return 1
	}
	return (minibatches-2*e.order.filling()-2*e.group)/e.order.repeats - 1
}

// folder makes a row of a table of what a recording has of an instruction, period by period.
//
// Commands of two periods that differ only in what they work in have one template, and periods with the same templates in the same order
// have one shape. What a command works in is some operands: where bytes are copied from and to, the input, the output, the version of the
// weights and the sum of gradients of an op. Each operand goes round by itself: a slab after as many periods as there are slabs, a version
// of the weights after some updates. So a recording shows a table when it shows each operand's cycle, however long all of them together are.
type folder struct {
	*recording
	plays   []int32   // by period: the number of a list among those that are here
	here    [][]int32 // lists of the row, in the order in which they come first
	shapes  []int32   // by list
	row     *row
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
	// longestJoined is how many periods may pass until operands that are looked up together all come back: a longer table of them would
	// save no time, and lists what more tables would list together.
	longestJoined = 1 << 10
	// mostCommands is how many different commands a device may have: what they launch would take a gigabyte.
	mostCommands = 1 << 20
)

// foldRow makes a row of an instruction, of which periods have lists; false: it does not repeat itself in what was recorded. Errors:
// ErrPlan.
func (r *recording) foldRow(x instruction, periods []int32, flush bool) (w row, ok bool, err error) {
	w.instruction = x
	f := &folder{recording: r, row: &w, known: map[string]int{}, joined: map[string]int{}}
	f.findLists(periods)
	first, ok := f.findShapes(flush)
	if !ok {
		return w, false, nil
	}
	for shape, list := range first {
		cells, moving := make([]cell, len(list)), []movingOperand(nil)
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
		w.lists = append(w.lists, cells)
	}
	for c := range w.commands() {
		w.outside = w.outside || c.played == always || c.ahead != 0
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
			known[list], f.here = n, append(f.here, f.lists[list])
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
		f.row.shapes = cycle.Always(0)
		return append(first, nil)[:1], true
	}
	f.row.shapes, ok = cycle.Fold(f.byPeriod(f.shapes))
	return first, ok
}

// byPeriod returns what periods have of what lists have.
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
	c, ok := cycle.FoldWhere(f.byPeriod(numbers), &f.row.shapes, shape)
	if !ok {
		return 0, false
	}
	number = len(f.cycles)
	f.known[text], f.cycles = number, append(f.cycles, c)
	f.row.turn = max(f.row.turn, len(c.Round))
	return number, true
}

// axes returns those of the row that some cycles make together: one, or several where they come back together after too many periods.
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

// axis returns that of the row that some cycles make together.
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
	f.joined[text] = len(f.row.axes)
	f.row.axes, f.members, f.tuples = append(f.row.axes, axis), append(f.members, numbers), append(f.tuples, tuples)
	return len(f.row.axes) - 1
}

// cell makes a cell of a shape from the operands of its command that move; false: it is not what was recorded. Errors: ErrPlan.
func (f *folder) cell(p *cell, shape int32, at int, first int32, moving []movingOperand) (ok bool, err error) {
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
			if count *= len(f.tuples[a]); count+len(f.commands) > mostCommands {
				return false, fmt.Errorf("%w: its devices would have more than %d different commands, in %s: take a plan with fewer minibatches in flight", ErrPlan, mostCommands, f.row.name())
			}
		}
	}
	p.variants = make([]*command, count)
	for k, n := range f.plays {
		if f.shapes[n] != shape {
			continue
		}
		i := 0
		for _, a := range p.axes {
			i += int(f.row.axes[a.axis].Entry(k)) * a.stride
		}
		c, have := f.commands[f.here[n][at]], &p.variants[i]
		if *have != nil && *have != c {
			return false, nil
		}
		*have = c
	}
	return true, f.complete(p, first, moving)
}

// complete makes the commands of a cell that nobody has seen yet: their operands come together later than what was recorded.
func (f *folder) complete(p *cell, like int32, moving []movingOperand) (err error) {
	for i := range p.variants {
		if p.variants[i] != nil {
			continue
		}
		operands := slices.Clone(f.operands[like])
		for _, m := range moving {
			operands[m.operand] = m.values[f.numberIn(p, i, m.cycle)]
		}
		if p.variants[i], err = f.make(f.commands[like], operands); err != nil {
			return err
		}
	}
	return nil
}

// numberIn returns the number that a cycle has in a variant of a cell.
func (f *folder) numberIn(p *cell, variant, cycle int) int32 {
	for _, a := range p.axes {
		if i := slices.Index(f.members[a.axis], cycle); i >= 0 {
			tuples := f.tuples[a.axis]
			return tuples[variant/a.stride%len(tuples)][i]
		}
	}
	panic("BUG: an operand moves and its cell has no axis for it")
}

// fold makes the driver's table of its recording of so many periods; false: some row does not repeat itself in them. Errors: ErrPlan.
func (d *compiler) fold(periods int) (ok bool, err error) {
	r, t := d.recording, &table{repeats: d.e.order.repeats}
	flush := d.e.order.plan.IsFlush()
	for i, x := range d.instructions() {
		w, ok, err := r.foldRow(x, r.done[i][:min(periods, len(r.done[i]))], flush)
		if err != nil || !ok {
			return false, err
		}
		t.rows = append(t.rows, w)
	}
	t.before = r.list(r.before)
	for _, o := range r.opens {
		t.opens = append(t.opens, opening{o.instance, r.list(o.list)})
	}
	for s, x := range d.stages {
		if x == nil {
			continue
		}
		v := ending{stage: s, shares: r.list(r.behind[s]), group: x.stash.group, moves: make([][]*command, max(1, len(x.weights)))}
		for slot := 1; slot < len(x.weights); slot++ {
			v.moves[slot] = []*command{{verb: doBegin}, {verb: doCopy, on: d.compute, to: d.driver, dst: x.weights[0], src: x.weights[slot]}, {verb: doEnd, on: d.compute}}
		}
		var ok bool
		if v.Cycle, ok = cycle.Fold(r.slots[s][:min(len(r.slots[s]), max(1, periods*t.repeats/v.group))]); flush {
			v.Cycle, ok = cycle.Always(0), true
		}
		if !ok {
			return false, nil
		}
		t.ends = append(t.ends, v)
	}
	d.table = t
	return true, nil
}

// list returns commands by their numbers.
func (r *recording) list(numbers []int32) []*command {
	list := make([]*command, len(numbers))
	for i, n := range numbers {
		list[i] = r.commands[n]
	}
	return list
}

const (
	// firstDryRun and longestDryRun are how many minibatches drivers go through in dry runs: twice as many as long as some operand has not gone
	// round. An operand has some dozens of places at most, so that one which does not come back by then never does.
	firstDryRun, longestDryRun = 128, 1 << 14
	// firstUpdates and longestUpdates are likewise for how many updates: versions of the weights and sums of gradients go round in updates,
	// however many minibatches make one.
	firstUpdates, longestUpdates = 12, 1 << 6
)

// compile lets the drivers go through a run without issuing it, and makes their tables of what they do: with a flush a step, else a run
// that is long enough to see everything repeat itself. Errors: ErrPlan when the drivers wait for each other, or repeat nothing.
func (e *Executor) compile() error {
	if e.order.plan.IsFlush() {
		if err := e.dryRun(e.group); err != nil {
			return err
		}
		e.recorded = e.group
		_, err := e.fold(e.group)
		return err
	}
	for n := max(firstDryRun, e.order.long(), firstUpdates*e.group); n <= max(longestDryRun, longestUpdates*e.group); n *= 2 {
		length := (n + e.group - 1) / e.group * e.group
		if err := e.dryRun(length); err != nil {
			return err
		}
		e.recorded = length
		if ok, err := e.fold(length); err != nil || ok {
			return err
		}
	}
	return fmt.Errorf("%w: with updates of %d minibatches, what its devices do does not repeat itself within %d minibatches: take updates of fewer minibatches, or weight versions stash", ErrPlan, e.group, e.recorded)
}

// fold makes the tables of all drivers of their recordings of so many minibatches; false: they do not repeat themselves. Errors: ErrPlan.
func (e *Executor) fold(minibatches int) (ok bool, err error) {
	for _, d := range e.drivers {
		if ok, err := d.compiler.fold(e.seen(minibatches)); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}
