package pipeline

import (
	"slices"
	"sort"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/pack"
	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// Items of a batch.
const (
	itemScalars = -1 - iota
	itemLabels
	itemImages // of branch 0; those of the others follow downwards
)

// layStep places what a step holds of a device, and returns that.
func layStep(o *order.Order, w *Workload, device int, stages []*localStage, g *allocator, m *Memory) (*stepLayout, []Hold) {
	l := &stepLayout{order: o, w: w, device: device, stages: map[int]*localStage{}, begins: map[stepKey]int{}, turns: 1}
	if o.Plan.RunsSequence() {
		l.turns = o.Repeats
	}
	for _, s := range stages {
		l.stages[s.stage] = s
		s.slabs = make([]slab, o.Repeats)
	}
	l.number()
	for _, t := range l.tasks {
		if t.Kind == pipeline.F {
			l.add(l.stages[t.Stage], t.Minibatch)
		}
	}
	var kept []pack.Item
	for i, it := range l.items {
		if it.kept {
			kept = append(kept, l.packed[i])
		}
	}
	live := pack.Live(l.packed, l.ops)
	m.InFlight = pack.Live(kept, l.ops)
	m.Working = live - m.InFlight
	l.pack(live)
	l.place(g.alloc(l.extent).End())
	l.layHost()
	if len(l.host) > 0 {
		m.Offloaded, l.duplex = l.locked, o.Plan.Platform.Duplex
		l.depend()
	}
	return l, l.holds()
}

// number numbers the ops of the device.
func (l *stepLayout) number() {
	_ = l.order.Instances(l.device, l.order.Repeats, func(v order.Instance) error {
		if !v.Computes() {
			return nil
		}
		begin, end := l.stages[v.Stage].opsOf(v.Minibatch).Task(v.Kind)
		l.begins[stepKey{v.Stage, v.Minibatch, v.Kind}] = l.ops
		l.tasks = append(l.tasks, stepTask{v, l.ops, l.ops + end - begin})
		l.ops += end - begin
		return nil
	})
}

// positions returns the positions in the sequence of the ops of a turn, in order; nil for a plan without a sequence.
func (l *stepLayout) positions() (all []int) {
	if l == nil || !l.order.Plan.RunsSequence() {
		return nil
	}
	for _, t := range l.tasks[:len(l.tasks)/l.turns] {
		for _, o := range l.stages[t.Stage].opsOf(t.Minibatch).Tasks[t.Kind] {
			all = append(all, o.Number-1)
		}
	}
	return all
}

// op returns the number of the op at a moment of a minibatch.
func (l *stepLayout) op(s *localStage, minibatch, moment int) int {
	t := s.opsOf(minibatch)
	kind := t.TaskAt(moment)
	begin, _ := t.Task(kind)
	return l.begins[stepKey{s.stage, minibatch, kind}] + moment - begin
}

// add adds the items of a minibatch in a stage.
func (l *stepLayout) add(s *localStage, minibatch int) {
	t := s.opsOf(minibatch)
	first, last := l.op(s, minibatch, 0), 0
	for _, kind := range []pipeline.Kind{pipeline.F, pipeline.B, pipeline.W} {
		if begin, end := t.Task(kind); end > begin {
			last = max(last, l.op(s, minibatch, end-1))
		}
	}
	batch := slab{}
	s.placeBatch(&batch, l.w, l.order, &allocator{})
	scalars := last
	if l.lastOf(s) == minibatch {
		scalars = l.ops - 1 // the update has them
	}
	type ending struct{ item, end int }
	all := []ending{{itemScalars, scalars}, {itemLabels, last}}
	for k := range batch.images {
		all = append(all, ending{itemImages - k, l.readsInput(s, minibatch, k)})
	}
	for _, x := range all {
		if bytes := batch.span(x.item).Bytes; bytes > 0 {
			l.hold(stepItem{s, minibatch, x.item, true}, pack.Item{Bytes: kernels.Align(bytes), First: first, Last: x.end})
		}
	}
	for i, it := range t.Items {
		p := pack.Item{Bytes: it.Bytes, First: l.op(s, minibatch, it.First), Last: l.op(s, minibatch, it.Last)}
		if i == t.Result {
			p.Last = max(p.Last, l.readers(s, minibatch))
		}
		l.hold(stepItem{s, minibatch, i, t.Stays(i)}, p)
	}
	for _, it := range t.Host {
		l.host = append(l.host, pack.Item{Bytes: it.Bytes, First: l.op(s, minibatch, it.First), Last: l.op(s, minibatch, it.Last)})
		l.owner = append(l.owner, &s.slabs[minibatch])
	}
}

func (l *stepLayout) hold(it stepItem, p pack.Item) {
	l.items, l.packed = append(l.items, it), append(l.packed, p)
}

// lastOf returns the minibatch whose last task in a stage is the last one.
func (l *stepLayout) lastOf(s *localStage) int {
	for _, t := range slices.Backward(l.tasks) {
		if t.Stage == s.stage {
			return t.Minibatch
		}
	}
	return none
}

// readsInput returns the last op of a minibatch in a stage that reads the stage's input, or that of a branch.
func (l *stepLayout) readsInput(s *localStage, minibatch, branch int) (last int) {
	for _, list := range s.opsOf(minibatch).Tasks {
		for i := range list {
			if list[i].Input == (stageops.Block{In: stageops.InStageInput, Item: branch}) {
				last = max(last, l.op(s, minibatch, list[i].Until))
			}
		}
	}
	return last
}

// readers returns the last op on this device, of another stage, that reads the output of a stage. The next stage has it as its input, in
// which a portal finds its skips.
func (l *stepLayout) readers(s *localStage, minibatch int) (last int) {
	o := l.order
	if o.OnDevice(s.stage, minibatch, l.device) && s.stage+1 < len(o.On) && o.OnDevice(s.stage+1, minibatch, l.device) {
		last = l.readsInput(l.stages[s.stage+1], minibatch, 0)
	}
	for _, p := range o.Plan.Portals {
		if p.From != s.stage || !o.OnDevice(p.To, minibatch, l.device) {
			continue
		}
		t := l.stages[p.To]
		for _, kind := range []pipeline.Kind{pipeline.F, pipeline.B, pipeline.W} {
			if begin, end := t.opsOf(minibatch).Task(kind); end > begin {
				last = max(last, l.op(t, minibatch, end-1))
			}
		}
	}
	return last
}

// mostPairs bounds how many pairs of items live together where all are packed at once: the time for that grows with them.
const mostPairs = 1 << 18

// pack finds the offsets of all items, from the top of the memory down, in the smaller of two layouts. One places items minibatch by
// minibatch, the other all at once, if these are not too many. Microbatches that each run a sequence have the same offsets, in the layout
// that the plan's memory was counted with (executor.Workload.Layout).
func (l *stepLayout) pack(live int64) {
	if l.order.Plan.RunsSequence() {
		one := len(l.packed) / l.turns
		l.extent = l.atOnce(l.packed[:one], l.ops/l.turns)
		for i := range l.packed {
			it := &l.packed[i]
			if it.Offset = l.packed[i%one].Offset; i < one {
				it.Offset = l.extent - it.Offset - it.Bytes // they grow upward
			}
		}
		return
	}
	l.bySlabs()
	if l.extent == live || !l.few() {
		return
	}
	all := slices.Clone(l.packed)
	if extent := l.atOnce(all, l.ops); extent < l.extent {
		l.extent, l.packed = extent, all
	}
}

// atOnce packs the first of all items at once, which live during so many ops, behind those that live throughout, and returns the extent.
func (l *stepLayout) atOnce(all []pack.Item, ops int) (extent int64) {
	var rest []pack.Item
	var index []int
	for i := range all {
		if it := &all[i]; l.items[i].item >= 0 || it.First > 0 || it.Last < ops-1 || l.items[i].item <= itemImages {
			rest, index = append(rest, *it), append(index, i)
		} else {
			it.Offset, extent = extent, extent+it.Bytes
		}
	}
	throughout := extent
	extent += pack.Pack(rest, ops)
	for k, i := range index {
		all[i].Offset = throughout + rest[k].Offset
	}
	return extent
}

// few reports whether all items can be packed at once.
func (l *stepLayout) few() bool {
	pairs, live := 0, 0
	begin, end := make([]int, l.ops), make([]int, l.ops)
	for _, it := range l.packed {
		begin[it.First]++
		end[it.Last]++
	}
	for i := range begin {
		live += begin[i]
		pairs += begin[i] * live
		live -= end[i]
	}
	return pairs <= mostPairs
}

// bySlabs packs minibatch by minibatch: what each keeps as one piece, and what each of its tasks works in as another. The first piece, of
// which the batch is a part, ends where the memory does.
func (l *stepLayout) bySlabs() {
	var pieces []pack.Item
	plans, of, number := map[*stageops.StageOps]*slabPlan{}, make([]int, len(l.items)), map[stepKey]int{}
	for i, it := range l.items {
		p := l.plan(plans, it)
		k, bytes := stepKey{it.stage.stage, it.minibatch, p.taskOf(it.item)}, p.bytes
		if k.kind != 0 {
			bytes = p.working[k.kind]
		}
		n, known := number[k]
		if !known {
			n = len(pieces)
			number[k], pieces = n, append(pieces, pack.Item{Bytes: kernels.Align(bytes), First: l.ops})
		}
		x := &pieces[n]
		x.First, x.Last = min(x.First, l.packed[i].First), max(x.Last, l.packed[i].Last)
		of[i] = n
	}
	l.extent = pack.Around(pieces[:1], pieces[1:], l.ops)
	for i, it := range l.items {
		x, at := &pieces[of[i]], l.plan(plans, it).span(it.item)
		l.packed[i].Offset = x.Offset + x.Bytes - at.Offset - l.packed[i].Bytes
	}
}

// plan returns the slab plan of an item's minibatch.
func (l *stepLayout) plan(plans map[*stageops.StageOps]*slabPlan, it stepItem) *slabPlan {
	t := it.stage.opsOf(it.minibatch)
	if plans[t] == nil {
		plans[t] = it.stage.planSlab(l.w, l.order, it.minibatch)
	}
	return plans[t]
}

// taskOf returns the task in whose own memory an item lies; 0: it lies in the slab.
func (p *slabPlan) taskOf(item int) pipeline.Kind {
	if item < 0 {
		return 0
	}
	return p.tasks[item]
}

// span returns where an item lies.
func (p *slab) span(item int) *runtime.Span {
	switch {
	case item == itemScalars:
		return &p.scalars
	case item == itemLabels:
		return &p.labels
	case item <= itemImages:
		return &p.images[itemImages-item]
	}
	return &p.items[item]
}

// place tells the slabs of the stages where their items lie, in memory that ends somewhere.
func (l *stepLayout) place(top int64) {
	for i, it := range l.items {
		s := &it.stage.slabs[it.minibatch]
		if s.items == nil {
			s.items = make([]runtime.Span, len(it.stage.opsOf(it.minibatch).Items))
			it.stage.placeBatch(s, l.w, l.order, &allocator{})
		}
		l.packed[i].Offset = top - l.packed[i].Offset - l.packed[i].Bytes
		at := s.span(it.item)
		if at.Offset = l.packed[i].Offset; it.item >= 0 {
			at.Bytes = l.packed[i].Bytes
		}
	}
	for _, s := range l.stages {
		s.scalars = []runtime.Span{s.slabs[l.lastOf(s)].scalars}
	}
}

// holds returns the memory that minibatches and tasks hold, task by task.
func (l *stepLayout) holds() (all []Hold) {
	type kept struct {
		stage, minibatch int
		behind           pipeline.Kind
		until            int // of the tasks
	}
	bytes, order := map[kept]int64{}, []kept(nil)
	own := l.most()
	for i, it := range l.items {
		from, until := l.taskOf(l.packed[i].First), l.taskOf(l.packed[i].Last)
		if from == until {
			continue
		}
		k := kept{it.stage.stage, it.minibatch, 0, until}
		if kind := l.tasks[from].Kind; kind != pipeline.F {
			k.behind = kind
			from++
		}
		if bytes[k] == 0 {
			order = append(order, k)
		}
		bytes[k] += l.packed[i].Bytes
		for j := from; j <= until; j++ {
			own[j] -= l.packed[i].Bytes
		}
	}
	for _, k := range order {
		until := l.tasks[k.until]
		all = append(all, Hold{Stage: k.stage, Minibatch: k.minibatch, Behind: k.behind, Bytes: bytes[k], Until: until.Kind, UntilStage: until.Stage})
	}
	for i, t := range l.tasks {
		all = append(all, Hold{Stage: t.Stage, Minibatch: t.Minibatch, Task: t.Kind, Bytes: own[i], Until: t.Kind, UntilStage: t.Stage})
	}
	return all
}

// taskOf returns the task of an op.
func (l *stepLayout) taskOf(op int) int {
	return sort.Search(len(l.tasks), func(i int) bool { return l.tasks[i].to > op })
}

// most returns the most bytes that live at an op of each task.
func (l *stepLayout) most() (all []int64) {
	change := make([]int64, l.ops+1)
	for _, it := range l.packed {
		change[it.First] += it.Bytes
		change[it.Last+1] -= it.Bytes
	}
	live := int64(0)
	for _, t := range l.tasks {
		most := int64(0)
		for op := t.from; op < t.to; op++ {
			live += change[op]
			most = max(most, live)
		}
		all = append(all, most)
	}
	return all
}

// layHost places what is with the host, of each turn where it is of the first.
func (l *stepLayout) layHost() {
	one := len(l.host) / l.turns
	l.locked = pack.Pack(l.host[:one], l.ops/l.turns)
	for i := range l.host {
		it := &l.host[i]
		it.Offset = l.host[i%one].Offset
		l.owner[i].hostCopies = append(l.owner[i].hostCopies, runtime.Span{Space: runtime.Host, Offset: it.Offset, Bytes: it.Bytes})
	}
}

// shiftHost moves what is with the host to where it lies in page-locked memory.
func (l *stepLayout) shiftHost(base int64) {
	l.base = base
	for _, t := range l.stages {
		for i := range t.slabs {
			for k := range t.slabs[i].hostCopies {
				t.slabs[i].hostCopies[k].Offset += base
			}
		}
	}
}

// stepOp is an op of a step as others see it.
type stepOp struct {
	on      stream
	touches []touch
	before  int // of a transfer: the compute op before it in the sequence; none
}

// touch is a piece of memory that an op reads or writes.
type touch struct {
	span  runtime.Span
	write bool
}

// list lists the ops of a turn.
func (l *stepLayout) list() []stepOp {
	all := make([]stepOp, 0, l.ops/l.turns)
	for _, task := range l.tasks[:len(l.tasks)/l.turns] {
		t := l.stages[task.Stage]
		ops, sb := t.opsOf(task.Minibatch), &t.slabs[task.Minibatch]
		list := ops.Tasks[task.Kind]
		for i := range list {
			all = append(all, l.stepOp(t, ops, sb, &list[i], task.Minibatch))
		}
	}
	return all
}

func (l *stepLayout) stepOp(t *localStage, ops *stageops.StageOps, sb *slab, o *stageops.Op, minibatch int) stepOp {
	at := &frame{}
	x := stepOp{before: none}
	add := func(b *stageops.Block, write bool) {
		if s := span(b, sb, at); s.Bytes > 0 {
			x.touches = append(x.touches, touch{s, write})
		}
	}
	if o.Program == nil {
		if x.on = toHost; o.Moves == schedule.Prefetch && l.duplex {
			x.on = fromHost
		}
		if before := ops.Before[o.At]; before != none {
			x.before = l.op(t, minibatch, before)
		}
		x.touches = append(x.touches, touch{sb.hostCopies[o.Host], o.Moves == schedule.Offload})
	}
	add(&o.Input, false)
	for _, b := range []*stageops.Block{&o.Output, &o.GradOutput, &o.GradInput, &o.Scratch, &o.Kept} {
		add(b, true)
	}
	return x
}

// meets reports whether two ops touch bytes of which one of them writes.
func (x *stepOp) meets(y *stepOp) bool {
	return slices.ContainsFunc(x.touches, func(a touch) bool {
		return slices.ContainsFunc(y.touches, func(b touch) bool { return (a.write || b.write) && a.span.Overlaps(b.span) })
	})
}

// depend finds the waits of ops, without those that streams and earlier waits already imply.
func (l *stepLayout) depend() {
	all := l.list()
	l.waits, l.ends = make([][]int, len(all)), make([]runtime.Event, len(all))
	streams := []stream{onCompute, toHost, fromHost}
	byStream, waited := map[stream][]int{}, map[[2]stream]int{}
	for i := range all {
		x := &all[i]
		for _, s := range streams {
			if s == x.on {
				continue
			}
			k := [2]stream{x.on, s}
			if q := l.latest(all, byStream[s], x, waited[k]-1); q != none {
				l.waits[i], waited[k] = append(l.waits[i], q), q+1
			}
		}
		byStream[x.on] = append(byStream[x.on], i)
	}
	for _, s := range streams[1:] {
		if n := len(byStream[s]); n > 0 {
			l.final = append(l.final, byStream[s][n-1])
		}
	}
}

// latest returns the latest of some ops behind another one that an op waits for; none.
func (l *stepLayout) latest(all []stepOp, ops []int, x *stepOp, behind int) int {
	for _, q := range slices.Backward(ops) {
		switch {
		case q <= behind:
			return none
		case q == x.before || x.meets(&all[q]):
			return q
		}
	}
	return none
}

// moves reports whether the step has transfers.
func (l *stepLayout) moves() bool { return l != nil && len(l.host) > 0 }

// span returns where a block of an op lies for a minibatch.
func span(b *stageops.Block, sb *slab, at *frame) runtime.Span {
	switch b.In {
	case stageops.InStageInput:
		if sb.images != nil {
			return sb.images[b.Item]
		}
		return at.input
	case stageops.InInputGradient:
		return at.gradInput
	case stageops.InSentOutput:
		return at.output
	case stageops.InOutputGradient:
		return at.gradOutput
	case stageops.InItem:
		return sb.items[b.Item]
	}
	return runtime.Span{}
}
