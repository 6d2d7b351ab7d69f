package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/internal/order"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// life is how long one of the users of some slots holds one: from an instruction, or a time, up to one. Taken in turn, its slot is its
// number mod slots.
type life struct {
	number   int
	from, to float64
}

func (a life) overlaps(b life, eps float64) bool { return a.from < b.to-eps && b.from < a.to-eps }

// atOnce returns the most lives that hold at one instant: the slots of a free list.
func atOnce(lives []life, eps float64) (most int) {
	for _, a := range lives {
		n := 0
		for _, b := range lives {
			if b == a || b.from <= a.from && a.from < b.to-eps {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// inTurn returns the fewest slots, at least as many as a free list has, with which no two lives that overlap have one slot.
func inTurn(lives []life, eps float64) int {
	apart := map[int]bool{} // by how many turns lives are apart that overlap
	for i, a := range lives {
		for _, b := range lives[:i] {
			if a.number != b.number && a.overlaps(b, eps) {
				apart[max(a.number-b.number, b.number-a.number)] = true
			}
		}
	}
	for n := max(1, atOnce(lives, eps)); ; n++ {
		meet := false
		for d := range apart {
			meet = meet || d%n == 0
		}
		if !meet {
			return n
		}
	}
}

// overtaken returns how many lives end behind one that began later.
func overtaken(lives []life, eps float64) (n int) {
	for _, a := range lives {
		if slices.ContainsFunc(lives, func(b life) bool { return b.from > a.from && b.to < a.to-eps }) {
			n++
		}
	}
	return n
}

// turns is one set of slots: how many a free list has, and how many when they are taken in turn.
type turns struct {
	free, inTurn    int
	perPeriod       int // users of a period
	users, overtook int
	bytes           int64 // of a slot
}

func (x *turns) measure(lives []life, eps float64) {
	x.free, x.inTurn = atOnce(lives, eps), inTurn(lives, eps)
	x.users, x.overtook = len(lives), overtaken(lives, eps)
}

// cycle returns after how many periods the turns are as before.
func (x turns) cycle() int {
	if x.inTurn == 0 {
		return 1
	}
	return x.inTurn / order.GCD(x.inTurn, max(x.perPeriod, 1))
}

// version is how long a version of the weights is in use.
type version struct {
	life
	period int // in which it is made
}

// rotation holds the slots that a plan without a flush needs when it takes all slots in turn.
type rotation struct {
	*layout
	costs Costs
	clock *clock
	held  []float64               // by stage: for how many seconds a minibatch holds the input that goes to the host; 0: it does not
	sets  map[string][]turns      // all of a kind
	by    map[slotSet]turns       // each of them
	seen  map[[2]int]int          // by stage and device: periods after which a task sees the slot of the weights that it saw
	more  []int64                 // by device: bytes that turns take beyond free lists
	all   []int                   // cycles of the commands of all devices
	walks map[int][]timedInstance // by device
}

// slotSet names a set of slots.
type slotSet struct {
	what            string
	stage, from, to int
}

// timedInstance is an instruction of a run, the one at a position, in the period that issues it.
type timedInstance struct {
	order.Instance
	at, period int
}

// newRotation analyses a plan. The chain stands for a model: all layers with weights have gradients, and the second half of a backward
// reads the gradient of the output.
func newRotation(c Costs, plan *pipeline.Plan) (x *rotation, err error) {
	x = &rotation{layout: &layout{}, costs: c, sets: map[string][]turns{}, by: map[slotSet]turns{}, seen: map[[2]int]int{}, more: make([]int64, c.Platform.Devices), walks: map[int][]timedInstance{}}
	if x.clock, err = newClock(c, plan); err != nil {
		return nil, err
	}
	if x.order, err = order.New(c.Chain, c.Platform, plan, c.Platform.Devices, 0); err != nil {
		return nil, err
	}
	if err := x.findHeld(plan); err != nil {
		return nil, err
	}
	x.order.Late = x.order.Split
	if n := x.order.Long(); n > mostMinibatches {
		return nil, fmt.Errorf("it repeats itself after %d minibatches", n)
	}
	if x.rules, x.group, err = x.order.NewRules(x.opt.Group); err != nil {
		return nil, err
	}
	for s := range x.order.On {
		for _, device := range x.order.Hosts(s) {
			x.ofStage(s, device)
			if err := x.weights(s, device); err != nil {
				return nil, err
			}
		}
	}
	for s := range len(x.order.On) - 1 {
		x.messages(pipeline.CF, s)
		x.messages(pipeline.CB, s)
	}
	x.commands()
	return x, nil
}

// findHeld finds for how long each stage holds its input. The hold ends when the input has gone to the host and the ops before the first
// prefetch or backward have read it.
func (x *rotation) findHeld(plan *pipeline.Plan) error {
	swaps, err := pipeline.Swaps(x.costs.Chain, x.costs.Platform, plan)
	x.held = make([]float64, len(plan.Stages))
	for s, list := range swaps {
		st, now, last := plan.Stages[s], 0.0, 0.0
		for _, o := range st.Ops {
			if o.Kind == schedule.Prefetch || o.Kind == schedule.Backward {
				break
			}
			if o.Kind == schedule.Offload {
				continue
			}
			if now += o.Seconds(x.costs.Chain); o.Layer == st.First {
				last = now
			}
		}
		for _, m := range list {
			if m.Activation == st.First-1 {
				x.held[s] = max(m.Out+m.Seconds, last)
			}
		}
	}
	return err
}

// add notes a set of slots in the memory of a device.
func (x *rotation) add(set slotSet, device int, t turns) {
	x.by[set], x.sets[set.what] = t, append(x.sets[set.what], t)
	x.more[device] += int64(t.inTurn-t.free) * t.bytes
}

// walk returns the instructions of a device in a run that shows everything.
func (x *rotation) walk(device int) []timedInstance {
	if have := x.walks[device]; have != nil {
		return have
	}
	var all []timedInstance
	n := (x.order.Long()/x.group + 4) * x.group
	_ = x.order.Instances(device, n, func(v order.Instance) error {
		all = append(all, timedInstance{v, len(all), order.FloorDiv(v.Minibatch-v.Shift, x.order.Repeats)})
		return nil
	})
	x.walks[device] = all
	return all
}

// turn returns how many tasks of a kind a device has in a period of a stage, and numbers them in order.
func (x *rotation) turn(kind pipeline.Kind, s, device int) (perPeriod int, number func(timedInstance) int) {
	at := map[int]int{}
	for _, t := range x.order.Instructions[device] {
		if t.Kind == kind && t.Stage == s {
			at[t.Shift] = perPeriod
			perPeriod++
		}
	}
	return perPeriod, func(v timedInstance) int { return v.period*perPeriod + at[v.Shift] }
}

// is returns whether an instruction is a task.
func is(kind pipeline.Kind, s int) func(timedInstance) bool {
	return func(v timedInstance) bool { return v.Kind == kind && v.Stage == s && v.Far == 0 }
}

// lives returns how long minibatches hold a slot that they take with one task of a device and give back with the last that gives.
func (x *rotation) lives(device int, takes, gives func(timedInstance) bool, number func(timedInstance) int) (all []life) {
	open, last := map[int]life{}, map[int]int{}
	for _, v := range x.walk(device) {
		if takes(v) {
			open[v.Minibatch] = life{number(v), float64(v.at), 0}
		}
		if _, have := open[v.Minibatch]; have && gives(v) {
			last[v.Minibatch] = v.at + 1
		}
	}
	for m, a := range open {
		if a.to = float64(last[m]); a.to > 0 {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b life) int { return cmp.Compare(a.from, b.from) })
	return all
}

// ofStage measures the slots of activations of a stage, of gradients that the stage behind it leaves there, and of what it sends.
func (x *rotation) ofStage(s, device int) {
	o, c, st := x.order, x.costs.Chain, x.order.Plan.Stages[s]
	if !o.Rings(s) { // there slots are taken in turn already
		n, number := x.turn(pipeline.F, s, device)
		t := turns{perPeriod: n, bytes: sumOf(c, st, func(l chain.Layer) int64 { return l.SavedBytes })}
		t.measure(x.lives(device, is(pipeline.F, s), func(v timedInstance) bool {
			return v.Stage == s && o.Last(v.Instruction) || v.Stage == s+1 && o.Last(v.Instruction) && o.Split[s+1]
		}, number), 0)
		x.add(slotSet{"activations", s, device, device}, device, t)
	}
	if s+1 < len(o.On) && slices.Contains(o.On[s+1], device) {
		n, number := x.turn(pipeline.B, s+1, device)
		t := turns{perPeriod: n, bytes: c.Layers[st.Last-1].GradientBytes}
		if lives := x.lives(device, is(pipeline.B, s+1), is(o.Reads(s), s), number); len(lives) > 0 {
			t.measure(lives, 0)
			x.add(slotSet{"returns", s, device, device}, device, t)
		}
	}
	if s+1 < len(o.On) {
		x.sends(pipeline.F, pipeline.CF, s, s, device)
	}
	if s > 0 {
		x.sends(pipeline.B, pipeline.CB, s, s-1, device)
	}
}

// sends measures the slots of what a task sends over a boundary: until its message is issued, and by time until it has arrived.
func (x *rotation) sends(kind, carries pipeline.Kind, s, boundary, device int) {
	o := x.order
	n, number := x.turn(kind, s, device)
	lives := x.lives(device, func(v timedInstance) bool { return is(kind, s)(v) && o.Crosses(boundary, o.Residue(v.Minibatch)) }, is(carries, boundary), number)
	if len(lives) == 0 {
		return
	}
	t := turns{perPeriod: n, bytes: x.costs.Chain.Layers[x.order.Plan.Stages[boundary].Last-1].GradientBytes}
	t.measure(lives, 0)
	timed := x.periods(func(r int) (from, to float64, ok bool) {
		return x.clock.span(kind, s, r).Start, x.clock.span(carries, boundary, r).End, o.OnDevice(s, r, device) && o.Crosses(boundary, r)
	})
	t.free, t.inTurn = max(t.free, atOnce(timed, x.clock.eps)), max(t.inTurn, inTurn(timed, x.clock.eps))
	x.add(slotSet{"sends " + kind.String(), s, device, device}, device, t)
}

// periods repeats the times of residues over periods, in order.
func (x *rotation) periods(of func(residue int) (from, to float64, ok bool)) (all []life) {
	var one []life
	longest := 0.0
	for r := range x.order.Repeats {
		if from, to, ok := of(r); ok {
			first := from - float64(int(from/x.clock.period))*x.clock.period
			one = append(one, life{0, first, first + to - from})
			longest = max(longest, to-from)
		}
	}
	slices.SortFunc(one, func(a, b life) int { return cmp.Compare(a.from, b.from) })
	for j := range 2*int(longest/x.clock.period) + 3 {
		for i, a := range one {
			later := float64(j) * x.clock.period
			all = append(all, life{j*len(one) + i, a.from + later, a.to + later})
		}
	}
	return all
}

// messages measures the blocks of the messages over a boundary, of each pair of devices, by time.
func (x *rotation) messages(kind pipeline.Kind, s int) {
	o := x.order
	for r := range o.Repeats {
		from, to := o.Ends(kind, s, r)
		set := slotSet{"blocks " + kind.String(), s, from, to}
		if _, have := x.by[set]; have || from == to {
			continue
		}
		lives := x.periods(func(r int) (float64, float64, bool) {
			f, t := o.Ends(kind, s, r)
			end := x.clock.span(o.Reads(s), s, r).End
			if kind == pipeline.CF {
				end = x.clock.span(o.Leaves(s+1), s+1, r).End
				if held := x.held[s+1]; held > 0 {
					end = x.clock.span(pipeline.F, s+1, r).Start + held
				}
			}
			return x.clock.span(kind, s, r).Start, end, f == from && t == to
		})
		t := turns{bytes: x.costs.Chain.Layers[o.Plan.Stages[s].Last-1].GradientBytes}
		for r := range o.Repeats {
			if f, g := o.Ends(kind, s, r); f == from && g == to {
				t.perPeriod++
			}
		}
		t.measure(lives, x.clock.eps)
		x.add(set, to, t)
	}
}

// weights measures the slots of versions of the weights, of those that are kept, and of sums of gradients. A version is kept when
// somebody still reads it once the next one is made; else the next one takes its place.
func (x *rotation) weights(s, device int) error {
	o, rule := x.order, x.rules[s]
	k := order.NewWeightStash(rule, o.Here(s, device), 1, 1)
	walk := x.walk(device)
	last := 0
	for _, v := range walk {
		last = max(last, v.Minibatch)
	}
	k.Begin(order.NewBound(last + 1))
	made, sums := []version{{life: life{to: 1}}}, map[int]life{}
	for _, v := range walk {
		switch {
		case v.Stage != s || !v.Computes() && v.Kind != pipeline.Update:
			continue
		case v.Kind == pipeline.Update:
			for k.End(v.Minibatch); k.Due(); k.Update() {
				old := &made[k.Latest]
				old.to = max(old.to, float64(v.at))
				if a, have := sums[k.Latest]; have {
					sums[k.Latest] = life{a.number, a.from, float64(v.at) + 1}
				}
				made = append(made, version{life{k.Latest + 1, float64(v.at), float64(v.at) + 1}, v.period})
			}
			continue
		case v.Kind == pipeline.F:
			if _, err := k.Enter(v.Minibatch); err != nil {
				return err
			}
		default:
			if _, have := sums[v.Minibatch/rule.Group]; !have && (v.Kind == pipeline.W || !o.Split[s]) {
				sums[v.Minibatch/rule.Group] = life{v.Minibatch / rule.Group, float64(v.at), 0}
			}
			k.Sum(v.Minibatch / rule.Group)
		}
		read := k.Latest
		if i := slices.IndexFunc(k.Flying, func(f order.StashedUse) bool { return f.Minibatch == v.Minibatch }); rule.Mode != pipeline.Latest {
			read = k.Flying[i].Version
		}
		made[read].to = max(made[read].to, float64(v.at)+1)
		if o.Last(v.Instruction) {
			k.Leave(v.Minibatch)
		}
	}
	x.addWeights(s, device, k, made[:len(made)-1], sums)
	return nil
}

func (x *rotation) addWeights(s, device int, k *order.WeightStash, made []version, sums map[int]life) {
	bytes := sumOf(x.costs.Chain, x.order.Plan.Stages[s], func(l chain.Layer) int64 { return l.WeightBytes })
	var all, kept, growing []life
	var periods []int // in which what is kept is made
	from := 0.0
	for i, v := range made[:len(made)-1] {
		all = append(all, v.life)
		if next := made[i+1].from; v.to > next {
			kept, periods = append(kept, life{len(kept), from, v.to}), append(periods, v.period)
			from = next
		}
	}
	for _, a := range sums {
		if a.to > 0 {
			growing = append(growing, a)
		}
	}
	slices.SortFunc(growing, func(a, b life) int { return cmp.Compare(a.from, b.from) })
	group := k.Group / order.GCD(k.Group, x.order.Repeats) // periods of whole updates
	middle := made[len(made)/2].period
	perGroup := 0
	for _, p := range periods {
		if middle <= p && p < middle+group {
			perGroup++
		}
	}
	for what, lives := range map[string][]life{"versions": all, "kept versions": kept, "sums": growing} {
		t := turns{bytes: bytes}
		t.measure(lives, 0)
		t.free = len(k.Slots)
		if what == "sums" {
			t.free = len(k.Sums)
		}
		if what == "versions" { // which nobody proposes
			t.bytes = 0
		}
		x.add(slotSet{what, s, device, device}, device, t)
	}
	n := x.by[slotSet{"kept versions", s, device, device}].inTurn
	x.seen[[2]int{s, device}] = group * (n / order.GCD(n, max(perGroup, 1)))
}

// commands finds the cycles of all commands: a forward and a backward of each layer, messages, updates. A backward of a layer with
// weights writes the first gradients of an update and adds the others.
func (x *rotation) commands() {
	o := x.order
	for device, instructions := range o.Instructions {
		for _, t := range instructions {
			r := o.Residue(t.Shift)
			if t.Kind == pipeline.CF || t.Kind == pipeline.CB {
				from, to := o.Ends(t.Kind, t.Stage, r)
				sent := slotSet{"sends F", t.Stage, from, from}
				if t.Kind == pipeline.CB {
					sent = slotSet{"sends B", t.Stage + 1, from, from}
				}
				x.command(slotSet{"blocks " + t.Kind.String(), t.Stage, from, to}, sent)
				continue
			}
			st := o.Plan.Stages[t.Stage]
			if !t.Computes() {
				x.all = append(x.all, lcm(x.seen[[2]int{t.Stage, device}], x.summing(t.Stage, device)))
				continue
			}
			for l := st.First; l <= st.Last; l++ {
				x.layer(t, l, device, r)
			}
		}
	}
}

// command adds the cycle of a command that uses some sets of slots.
func (x *rotation) command(sets ...slotSet) {
	n := 1
	for _, set := range sets {
		n = lcm(n, x.by[set].cycle())
	}
	x.all = append(x.all, n)
}

// layer adds the command of a layer of a task.
func (x *rotation) layer(t order.Instruction, l, device, r int) {
	o, s, st := x.order, t.Stage, x.order.Plan.Stages[t.Stage]
	sets := []slotSet{{"activations", s, device, device}}
	first, last := l == st.First && s > 0, l == st.Last && s+1 < len(o.On)
	if first {
		sets = append(sets, slotSet{"blocks CF", s - 1, o.On[s-1][r], device})
	}
	if first && t.Kind == pipeline.B {
		sets = append(sets, slotSet{"sends B", s, device, device}, slotSet{"returns", s - 1, device, device})
	}
	if last && t.Kind == pipeline.F {
		sets = append(sets, slotSet{"sends F", s, device, device})
	} else if last {
		sets = append(sets, slotSet{"blocks CB", s, o.On[s+1][r], device}, slotSet{"returns", s, device, device})
	}
	x.command(sets...)
	n := &x.all[len(x.all)-1]
	if x.costs.Chain.Layers[l-1].WeightBytes == 0 {
		return
	}
	*n = lcm(*n, x.seen[[2]int{s, device}])
	if t.Kind == pipeline.W || t.Kind == pipeline.B && !o.Split[s] {
		*n = lcm(*n, x.summing(s, device))
	}
}

// summing returns after how many periods a task adds to the sum to which it added, as it did.
func (x *rotation) summing(s, device int) int {
	group, n := x.rules[s].Group, x.by[slotSet{"sums", s, device, device}].inTurn
	for p := 1; ; p++ {
		if p*x.order.Repeats%(group*n) == 0 {
			return p
		}
	}
}

func sumOf(c *chain.Chain, st pipeline.Stage, of func(chain.Layer) int64) (bytes int64) {
	for l := st.First; l <= st.Last; l++ {
		bytes += of(c.Layers[l-1])
	}
	return bytes
}

func lcm(a, b int) int { return a / order.GCD(a, b) * b }

// Lives of a free list's two slots need three in turn where one of them is overtaken.
func TestTurnsOfLives(t *testing.T) {
	t.Parallel()
	for want, lives := range map[turns][]life{
		{free: 2, inTurn: 2, users: 3}:              {{0, 0, 2}, {1, 1, 3}, {2, 2, 4}},
		{free: 2, inTurn: 3, users: 3, overtook: 1}: {{0, 0, 9}, {1, 1, 2}, {2, 3, 4}},
		{free: 2, inTurn: 3, users: 2}:              {{0, 0, 3}, {2, 1, 4}},
	} {
		got := turns{}
		if got.measure(lives, 0); got != want {
			t.Errorf("%v: %+v, want %+v", lives, got, want)
		}
	}
	if x := (turns{inTurn: 6, perPeriod: 4}); x.cycle() != 3 {
		t.Errorf("6 slots, 4 taken a period: a cycle of %d periods", x.cycle())
	}
}

// variantsEnv, when set, is the file to which TestSlotsInTurn writes its figures as a table, of all chains.
const variantsEnv = "PLIMSOLL_VARIANTS"

// Plans without a flush need no more slots in turn than a free list has, and no minibatch or message overtakes another one. A table of one
// period rests on both facts. For weights, the test counts the versions that are kept.
func TestSlotsInTurn(t *testing.T) {
	t.Parallel()
	f := figures{}
	for _, name := range []string{"vgg16", "resnet50", "resnext50", "gnmt"} {
		c, err := chain.Read(filepath.Join("..", "..", "docs", "chains", name+".json"))
		must(t, err)
		for _, devices := range []int{2, 4, 8} {
			if os.Getenv(variantsEnv) == "" && (name != "vgg16" || devices != 4 && testing.Short()) {
				continue
			}
			for _, s := range planner.Pipelines() {
				for _, v := range []pipeline.Versions{pipeline.Stash, pipeline.DoubleBuffered, pipeline.VerticalSync, pipeline.Latest} {
					plans := plansOf(t, s, c, devices, v)
					for _, memory := range slices.Sorted(maps.Keys(plans)) {
						f.add(t, fmt.Sprintf("%s, %s, %d devices, %s, %s", name, s.Name, devices, v, memory), devices, v, plans[memory])
					}
				}
			}
		}
	}
	if want := 30; len(f.rotations) < want {
		t.Errorf("%d plans, want at least %d", len(f.rotations), want)
	}
	if path := os.Getenv(variantsEnv); path != "" {
		must(t, os.WriteFile(path, []byte(f.table()), 0o644))
	}
}

// plannedCosts is a plan and what it is for.
type plannedCosts struct {
	plan  *pipeline.Plan
	costs Costs
}

// plansOf returns the plans of a strategy without a flush: with all memory over fast links and over slow ones, and with little.
func plansOf(t *testing.T, s pipeline.Strategy, c *chain.Chain, devices int, v pipeline.Versions) map[string]plannedCosts {
	if s.Type == pipeline.Flushing || s.Name == "ilp" || s.Name == "milp" || (s.Name == "ampnet" || s.Name == "pipemare") != (v == pipeline.Latest) {
		return nil
	}
	all := map[string]plannedCosts{}
	solve := func(name string, memory int64, bandwidth float64) bool {
		o := pipeline.Options{Versions: v}
		if v == pipeline.VerticalSync {
			o.WeightCopies = []float64{float64(devices)}
		}
		r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(devices, memory, bandwidth), Options: o}
		plan, err := s.Solve(t.Context(), r)
		if err == nil {
			all[name] = plannedCosts{plan, Costs{c, r.Platform}}
		}
		return err == nil
	}
	if !solve("fast links", pipeline.NoLimit, 12e9) {
		return nil
	}
	solve("slow links", pipeline.NoLimit, 1e9)
	most := slices.Max(all["fast links"].plan.PerDevicePeak)
	for share := 4; share < 9 && !solve("little memory", most*int64(share)/10, 12e9); share++ {
	}
	return all
}

// figures collects the rotations of many plans and counts the refused plans.
type figures struct {
	rotations []*rotation
	names     []string
	groups    []string // of the table's rows
	refused   int
}

func (f *figures) add(t *testing.T, name string, devices int, v pipeline.Versions, p plannedCosts) {
	x, err := newRotation(p.costs, p.plan)
	if err != nil {
		f.refused++
		return
	}
	f.rotations, f.names, f.groups = append(f.rotations, x), append(f.names, name), append(f.groups, fmt.Sprintf("%d | %s", devices, v))
	for set, s := range x.by {
		if set.what != "versions" && (s.inTurn > s.free || s.overtook > 0) {
			t.Errorf("%s: %+v: %d slots in turn, %d of a free list; %d of %d overtake", name, set, s.inTurn, s.free, s.overtook, s.users)
		}
	}
}

// table returns the figures as text.
func (f *figures) table() string {
	var out strings.Builder
	rows, by := []string{}, map[string][]*rotation{}
	for i, x := range f.rotations {
		if by[f.groups[i]] == nil {
			rows = append(rows, f.groups[i])
		}
		by[f.groups[i]] = append(by[f.groups[i]], x)
	}
	slices.Sort(rows)
	fmt.Fprintf(&out, "| devices | weights | plans | activations | sends | blocks | kept versions | versions | sums | cycle, mean | of a plan, at most | of a command, at most |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, row := range rows {
		cells := []string{row, fmt.Sprint(len(by[row]))}
		for _, what := range []string{"activations", "sends", "blocks", "kept versions", "versions", "sums"} {
			var free, turn int
			for _, x := range by[row] {
				for set, s := range x.by {
					if strings.HasPrefix(set.what, what) {
						free, turn = free+s.free, turn+s.inTurn
					}
				}
			}
			cells = append(cells, fmt.Sprintf("%d / %d", free, turn))
		}
		var sum, most float64
		longest := 0
		for _, x := range by[row] {
			mean := 0.0
			for _, n := range x.all {
				mean += float64(n) / float64(len(x.all))
				longest = max(longest, n)
			}
			sum, most = sum+mean, max(most, mean)
		}
		cells = append(cells, fmt.Sprintf("%.1f", sum/float64(len(by[row]))), fmt.Sprintf("%.1f", most), fmt.Sprint(longest))
		fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Fprintf(&out, "\n%d plans, %d more are refused.\n\n| plan | versions, free list | in turn | kept, in turn |\n|---|---:|---:|---:|\n", len(f.rotations), f.refused)
	for i, x := range f.rotations {
		var free, turn, kept int
		for set, s := range x.by {
			switch set.what {
			case "versions":
				free, turn = free+s.free, turn+s.inTurn
			case "kept versions":
				kept += s.inTurn
			}
		}
		if turn > free {
			fmt.Fprintf(&out, "| %s | %d | %d | %d |\n", f.names[i], free, turn, kept)
		}
	}
	return out.String()
}
