package residency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// brute finds the least period over a stated space of sequences of one microbatch, for chains of a few layers. These are the rules:
//
//   - Forwards and backwards come in every order with at most `again` forwards more than layers, whose in-order peak is within the limit.
//   - Every layer with weights is updated by U, at any place behind its backward up to its next forward, or by H.
//   - Weights are dropped and fetched between any two uses. Weights that U writes are written back once, before the first fetch behind U.
//   - The state of a layer that the device updates stays, or comes and goes once a step. Gradients stay, activations are not offloaded.
//   - Copies and host updates stand at any place and in any order on each stream. Drops stand as early as they may.
//
// It shares no code with the planner: package cycle judges and times. Modes are taken by a bound on their period, and those at or above
// the best period so far are left out: so are orders whose computation is.
type brute struct {
	c       *chain.Chain
	n       int
	link    cycle.Link
	limits  cycle.Limits
	sim     *cycle.Simulator
	owners  []int
	best    float64
	seq     cycle.Sequence
	tried   int // nodes and sequences
	most    int
	tooMany bool
}

const again = 2

// mode holds the chains of ops of one layer, at places.
type mode struct {
	chains [][]link
}

// link is an op in front of a turn, counted on into the next step.
type link struct {
	kind schedule.Kind
	at   int
}

func newBrute(t *testing.T, r Request, most int) *brute {
	t.Helper()
	sim, err := cycle.NewSimulator(r.Chain, r.Link)
	if err != nil {
		t.Fatal(err)
	}
	b := &brute{c: r.Chain, n: r.Chain.Len(), link: r.Link, limits: r.Limits, sim: sim, most: most}
	for l := 1; l <= b.n; l++ {
		if r.Chain.Layer(l).WeightBytes > 0 {
			b.owners = append(b.owners, l)
		}
	}
	return b
}

// solve looks for sequences below a period.
func (b *brute) solve(below float64) {
	b.best = below
	b.orders(nil, 0, 0)
}

// orders extends an order of forwards and backwards by every op, and takes those that are complete.
func (b *brute) orders(prefix []cycle.Op, seconds float64, forwards int) {
	if b.count(); b.tooMany || seconds+b.left(prefix) >= b.best*(1-1e-9) || forwards > b.n+again {
		return
	}
	f := schedule.Follow(b.c)
	used := b.c.InputBytes
	for _, op := range prefix {
		e, err := f.Do(schedule.Op{Kind: op.Kind, Layer: op.Layer})
		if err != nil || used+e.Takes > b.limits.Memory {
			return
		}
		used += e.Leaves
	}
	if f.End() == nil {
		if f.Left() < 0 {
			b.updates(prefix, seconds, 0)
		}
		return
	}
	for l := 1; l <= b.n; l++ {
		for _, kind := range []schedule.Kind{schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard, schedule.Backward} {
			op := cycle.Op{Kind: kind, Layer: l}
			cost, forward := b.c.Layer(l).ForwardS, 1
			if kind == schedule.Backward {
				cost, forward = b.c.Layer(l).BackwardS, 0
			}
			b.orders(append(slices.Clip(prefix), op), seconds+cost, forwards+forward)
		}
	}
}

// left returns the least seconds of compute ops that are still to come: backwards, first forwards, and updates that the host cannot make.
func (b *brute) left(prefix []cycle.Op) (seconds float64) {
	for l := 1; l <= b.n; l++ {
		layer := b.c.Layer(l)
		backward, forward := layer.BackwardS, layer.ForwardS
		for _, op := range prefix {
			switch {
			case op.Layer != l:
			case op.Kind == schedule.Backward:
				backward, forward = 0, 0
			default:
				forward = 0
			}
		}
		seconds += backward + forward
		if layer.Update.HostS == nil && layer.WeightBytes > 0 {
			seconds += layer.Update.DeviceS
		}
	}
	return seconds
}

// updates puts the updates of owners k.. on the device anywhere, or on the host.
func (b *brute) updates(turns []cycle.Op, seconds float64, k int) {
	if b.count(); b.tooMany || seconds >= b.best*(1-1e-9) {
		return
	}
	if k == len(b.owners) {
		b.modes(turns, seconds)
		return
	}
	o := b.owners[k]
	if b.c.Layer(o).Update.HostS != nil {
		b.updates(turns, seconds, k+1)
	}
	first, last, final := span(turns, o)
	for at := 0; at <= len(turns); at++ {
		early, late := at <= first, at > last && (!b.limits.UpdatesLast || at > final)
		if !early && !late || early && at == 0 {
			continue // in front of everything is behind everything
		}
		u := cycle.Op{Kind: schedule.Update, Layer: o, Prime: early}
		b.updates(slices.Insert(slices.Clone(turns), at, u), seconds+b.c.Layer(o).Update.DeviceS, k+1)
	}
}

// span returns the first forward and the last backward of a layer, and the last backward of all.
func span(turns []cycle.Op, layer int) (first, last, final int) {
	first = -1
	for i, op := range turns {
		if op.Kind == schedule.Backward {
			final = i
		}
		if op.Kind == schedule.Update || op.Layer != layer {
			continue
		}
		if first < 0 {
			first = i
		}
		if op.Kind == schedule.Backward {
			last = i
		}
	}
	return first, last, final
}

// modes takes every combination of what the layers do whose bound is below the best.
func (b *brute) modes(turns []cycle.Op, seconds float64) {
	all := make([][]setting, len(b.owners))
	for k, o := range b.owners {
		all[k] = b.options(turns, o)
	}
	var pick func(k int, chosen []setting)
	var list [][]setting
	pick = func(k int, chosen []setting) {
		b.count()
		if k == len(all) {
			list = append(list, chosen)
			return
		}
		for _, x := range all[k] {
			pick(k+1, append(slices.Clip(chosen), x))
		}
	}
	pick(0, nil)
	bounds := make([]float64, len(list))
	index := make([]int, len(list))
	for i, chosen := range list {
		bounds[i], index[i] = b.bound(chosen, seconds), i
	}
	slices.SortStableFunc(index, func(i, j int) int { return cmp.Compare(bounds[i], bounds[j]) })
	for _, i := range index {
		if bounds[i] >= b.best*(1-1e-9) || b.tooMany {
			return
		}
		if b.needs(turns, list[i]) <= b.limits.Memory {
			b.place(turns, list[i], 0, nil)
		}
	}
}

// setting holds one layer's uses, update and moves in a step, with its copies in seconds.
type setting struct {
	owner          int
	uses           []int // turns, rising
	update         int   // turn of the device's update; -1: the host's
	away           []bool
	moves          bool
	up, down, host float64
	circle         float64 // the longest of its circles of waits
}

func (b *brute) options(turns []cycle.Op, o int) (list []setting) {
	x := setting{owner: o, update: -1}
	for i, op := range turns {
		if op.Layer == o {
			x.uses = append(x.uses, i)
			if op.Kind == schedule.Update {
				x.update = i
			}
		}
	}
	layer := b.c.Layer(o)
	_, last, _ := span(turns, o)
	for set := range 1 << len(x.uses) {
		b.count()
		y := x
		y.away = make([]bool, len(x.uses))
		legal := true
		for i, from := range x.uses {
			y.away[i] = set>>i&1 == 1
			to := b.next(x.uses, i, len(turns))
			must := x.update < 0 && from == last
			if must != y.away[i] && (must || to == from+1) {
				legal = false
			}
			if y.away[i] {
				y.up += float64(layer.WeightBytes) / b.link.ToDevice
			}
		}
		if !legal {
			continue
		}
		if x.update < 0 {
			y.down, y.host = float64(layer.WeightGradient())/b.link.ToHost, *layer.Update.HostS
		} else if set > 0 {
			y.down = float64(layer.WeightBytes) / b.link.ToHost
		}
		y.circle = b.circle(turns, &y)
		list = append(list, y)
		if state := float64(layer.Update.StateBytes); x.update >= 0 && state > 0 {
			y.moves = true
			y.up += state / b.link.ToDevice
			y.down += state / b.link.ToHost
			y.circle = max(y.circle, layer.Update.DeviceS+state/b.link.ToDevice+state/b.link.ToHost)
			list = append(list, y)
		}
	}
	return list
}

// circle returns the seconds of a layer's circle of waits. Its turns compute one after the other, with all the turns between. Copies and
// the update lie in the gaps in which the weights are away.
func (b *brute) circle(turns []cycle.Op, x *setting) (seconds float64) {
	layer := b.c.Layer(x.owner)
	_, last, _ := span(turns, x.owner)
	written := false
	for i, from := range x.uses {
		to := b.next(x.uses, i, len(turns))
		inside := 0.0
		for t := from + 1; t < to; t++ {
			inside += b.seconds(turns[t%len(turns)])
		}
		gap := 0.0
		if x.away[i] {
			gap = float64(layer.WeightBytes) / b.link.ToDevice
		}
		switch {
		case !x.away[i]:
		case x.update < 0 && from == last:
			gap += float64(layer.WeightGradient())/b.link.ToHost + *layer.Update.HostS
		case from == x.update && !written:
			gap += float64(layer.WeightBytes) / b.link.ToHost
			written = true
		}
		seconds += b.seconds(turns[from]) + max(inside, gap)
	}
	return seconds
}

func (b *brute) seconds(op cycle.Op) float64 {
	layer := b.c.Layer(op.Layer)
	switch op.Kind {
	case schedule.Backward:
		return layer.BackwardS
	case schedule.Update:
		return layer.Update.DeviceS
	}
	return layer.ForwardS
}

func (b *brute) next(uses []int, i, turns int) int {
	if i+1 < len(uses) {
		return uses[i+1]
	}
	return uses[0] + turns
}

func (b *brute) bound(chosen []setting, seconds float64) float64 {
	up, down, host, circle := 0.0, 0.0, 0.0, 0.0
	for _, x := range chosen {
		up, down, host, circle = up+x.up, down+x.down, host+x.host, max(circle, x.circle)
	}
	if !b.link.Duplex {
		up += down
	}
	return max(seconds, up, down, host, circle)
}

// needs returns bytes that every sequence of a mode has in use during some turn.
func (b *brute) needs(turns []cycle.Op, chosen []setting) (top int64) {
	t := len(turns)
	used := make([]int64, t)
	f, now := schedule.Follow(b.c), b.c.InputBytes
	for i, op := range turns {
		used[i] = now
		if op.Kind != schedule.Update {
			e, _ := f.Do(schedule.Op{Kind: op.Kind, Layer: op.Layer})
			used[i] += e.Takes
			now += e.Leaves
		}
	}
	fill := func(from, to int, bytes int64) {
		for i := from; i < to; i++ {
			used[i%t] += bytes
		}
	}
	for _, x := range chosen {
		layer := b.c.Layer(x.owner)
		_, last, _ := span(turns, x.owner)
		for i, from := range x.uses {
			end := b.next(x.uses, i, t)
			if x.away[i] {
				end = from + 1
			}
			fill(from, end, layer.WeightBytes)
		}
		whole := last + 1
		if x.update >= 0 {
			whole = (x.update-last+t)%t + last + 1
			fill(x.update, x.update+1, layer.Update.StateBytes)
		}
		if x.update >= 0 && !x.moves {
			fill(x.update+1, x.update+t, layer.Update.StateBytes)
		}
		fill(last, whole, layer.WeightGradient())
	}
	return slices.Max(used)
}

// place tries every place of the ops of layer k.. .
func (b *brute) place(turns []cycle.Op, chosen []setting, k int, modes []mode) {
	if b.tooMany {
		return
	}
	if k == len(chosen) {
		b.arrange(turns, chosen, modes)
		return
	}
	x := &chosen[k]
	if x.update < 0 {
		b.placeHost(turns, x, func(m mode) { b.place(turns, chosen, k+1, append(slices.Clip(modes), m)) })
		return
	}
	b.placeDevice(turns, x, func(m mode) { b.place(turns, chosen, k+1, append(slices.Clip(modes), m)) })
}

// placeHost: Dw and Pw in each gap; behind the last backward Og, H, Pw.
func (b *brute) placeHost(turns []cycle.Op, x *setting, yield func(mode)) {
	t := len(turns)
	_, last, final := span(turns, x.owner)
	var gaps func(i int, chains [][]link)
	gaps = func(i int, chains [][]link) {
		if i == len(x.uses) {
			yield(mode{chains})
			return
		}
		if !x.away[i] {
			gaps(i+1, chains)
			return
		}
		from, to := x.uses[i], b.next(x.uses, i, t)
		for p := from + 1; p <= to; p++ {
			weights := []link{{schedule.DropWeights, from + 1}, {schedule.FetchWeights, p}}
			if from != last {
				gaps(i+1, append(slices.Clip(chains), weights))
				continue
			}
			for og := from + 1; og <= p; og++ {
				for h := og; h <= p; h++ {
					if b.limits.UpdatesLast && h <= final {
						continue
					}
					gradient := []link{{schedule.OffloadGradient, og}, {schedule.HostUpdate, h}, {schedule.FetchWeights, p}}
					gaps(i+1, append(slices.Clip(chains), weights, gradient))
				}
			}
		}
	}
	gaps(0, nil)
}

// placeDevice: the gaps in the order behind the update, Ow before the first fetch; the state's copies.
func (b *brute) placeDevice(turns []cycle.Op, x *setting, yield func(mode)) {
	t := len(turns)
	start := slices.Index(x.uses, x.update)
	var gaps func(k int, weights []link)
	gaps = func(k int, weights []link) {
		if k == len(x.uses) {
			b.placeState(t, x, weights, yield)
			return
		}
		i := (start + k) % len(x.uses)
		if !x.away[i] {
			gaps(k+1, weights)
			return
		}
		from := x.uses[i]
		to := from + b.next(x.uses, i, t) - x.uses[i]
		if i < start {
			from, to = from+t, to+t
		}
		for p := from + 1; p <= to; p++ {
			if len(weights) > 0 {
				gaps(k+1, append(slices.Clip(weights), link{schedule.DropWeights, from + 1}, link{schedule.FetchWeights, p}))
				continue
			}
			for ow := x.update + 1; ow <= p; ow++ {
				gaps(k+1, []link{{schedule.WriteWeights, ow}, {schedule.DropWeights, max(ow, from+1)}, {schedule.FetchWeights, p}})
			}
		}
	}
	gaps(0, nil)
}

func (b *brute) placeState(t int, x *setting, weights []link, yield func(mode)) {
	var chains [][]link
	if len(weights) > 0 {
		chains = append(chains, weights)
	}
	if !x.moves {
		yield(mode{chains})
		return
	}
	for o := x.update + 1; o <= x.update+t; o++ {
		for p := o; p <= x.update+t; p++ {
			yield(mode{append(slices.Clip(chains), []link{{schedule.WriteState, o}, {schedule.DropState, o}, {schedule.FetchState, p}})})
		}
	}
}

// entry is an op in a gap with its places in chains.
type entry struct {
	op    cycle.Op
	where [][2]int // chain, place
}

// arrange tries all orders of the ops in each gap.
func (b *brute) arrange(turns []cycle.Op, chosen []setting, modes []mode) {
	t := len(turns)
	gaps := make([][]entry, t+1) // 1..t
	chainNumber := 0
	for k, m := range modes {
		seen := map[link][2]int{} // an op that stands in two chains
		for _, c := range m.chains {
			for place, x := range c {
				gap := (x.at-1)%t + 1
				if at, double := seen[x]; double && x.kind == schedule.FetchWeights {
					e := &gaps[at[0]][at[1]]
					e.where = append(e.where, [2]int{chainNumber, place})
					continue
				}
				op := cycle.Op{Kind: x.kind, Layer: chosen[k].owner}
				if x.kind == schedule.HostUpdate || x.kind == schedule.OffloadGradient {
					op.Prime = x.at > t
				}
				seen[x] = [2]int{gap, len(gaps[gap])}
				gaps[gap] = append(gaps[gap], entry{op, [][2]int{{chainNumber, place}}})
			}
			chainNumber++
		}
	}
	choices := make([][][]cycle.Op, t+1)
	for g := 1; g <= t; g++ {
		choices[g] = b.permutations(gaps[g])
	}
	b.words(turns, choices, 1, nil)
}

// permutations returns the orders of a gap that differ on some stream; drops come as early as they may.
func (b *brute) permutations(gap []entry) (all [][]cycle.Op) {
	before := func(x, y entry) bool {
		for _, p := range x.where {
			for _, q := range y.where {
				if p[0] == q[0] && p[1] < q[1] {
					return true
				}
			}
		}
		return false
	}
	seen := map[string]bool{}
	var extend func(left []entry, done []cycle.Op)
	extend = func(left []entry, done []cycle.Op) {
		if len(left) == 0 {
			if key := b.streams(done); !seen[key] {
				seen[key] = true
				all = append(all, done)
			}
			return
		}
		var free []int
		for i, x := range left {
			if !slices.ContainsFunc(left, func(y entry) bool { return before(y, x) }) {
				free = append(free, i)
				if x.op.Kind == schedule.DropWeights || x.op.Kind == schedule.DropState {
					free = []int{i}
					break
				}
			}
		}
		for _, i := range free {
			extend(slices.Delete(slices.Clone(left), i, i+1), append(slices.Clip(done), left[i].op))
		}
	}
	extend(gap, nil)
	return all
}

// streams writes the order on each stream.
func (b *brute) streams(ops []cycle.Op) string {
	var text [3]string
	for _, op := range ops {
		s := 0
		switch op.Kind {
		case schedule.DropWeights, schedule.DropState:
			continue
		case schedule.HostUpdate:
			s = 2
		case schedule.WriteWeights, schedule.WriteState, schedule.OffloadGradient:
			if b.link.Duplex {
				s = 1
			}
		}
		text[s] += op.String() + " "
	}
	return text[0] + "|" + text[1] + "|" + text[2]
}

// words times every word.
func (b *brute) words(turns []cycle.Op, choices [][][]cycle.Op, g int, seq cycle.Sequence) {
	if g > len(turns) {
		b.time(seq)
		return
	}
	seq = append(slices.Clip(seq), turns[g-1])
	if len(choices[g]) == 0 {
		b.words(turns, choices, g+1, seq)
		return
	}
	for _, c := range choices[g] {
		b.words(turns, choices, g+1, append(slices.Clip(seq), c...))
	}
}

// count gives up a space that is too large.
func (b *brute) count() {
	if b.tried++; b.tried > b.most {
		b.tooMany = true
	}
}

func (b *brute) time(seq cycle.Sequence) {
	if b.count(); b.tooMany {
		return
	}
	r, err := b.sim.Run(seq, b.limits)
	if rule, is := errors.AsType[*cycle.RuleError](err); is {
		panic(fmt.Sprintf("the space holds an illegal sequence: %v: %v", seq, rule))
	}
	if err == nil && r.InOrderPeak <= b.limits.Memory && r.Period < b.best*(1-1e-9) {
		b.best, b.seq = r.Period, slices.Clone(seq)
	}
}

// smallCase makes a chain of 2 layers to a number, one or two of which have weights, a link and a limit below that of the resident plan.
func smallCase(random *rand.Rand, layers int) Request {
	n := 2 + random.IntN(layers-1)
	c := &chain.Chain{Name: "small", InputBytes: int64(random.IntN(3))}
	weighted := random.Perm(n)[:min(1+random.IntN(2), n)]
	for l := range n {
		x := chain.Layer{Name: "l" + strconv.Itoa(l+1), ForwardS: float64(1 + random.IntN(4)), BackwardS: float64(1 + random.IntN(6)),
			OutputBytes: int64(random.IntN(4))}
		x.SavedBytes = x.OutputBytes + int64(random.IntN(2)*random.IntN(4))
		x.GradientBytes = x.OutputBytes
		x.BackwardOverheadBytes = int64(random.IntN(2) * random.IntN(4))
		if slices.Contains(weighted, l) {
			x.WeightBytes = int64(1 + random.IntN(6))
			if random.IntN(3) == 0 {
				g := int64(1 + random.IntN(6))
				x.Update.GradientBytes = &g
			}
			x.Update.StateBytes = x.WeightBytes * int64([]int{0, 1, 2, 2, 3}[random.IntN(5)])
			x.Update.DeviceS = float64(random.IntN(3))
			if random.IntN(2) == 0 {
				h := float64(1 + random.IntN(6))
				x.Update.HostS = &h
			}
		}
		c.Layers = append(c.Layers, x)
	}
	link := cycle.Link{ToDevice: float64(1 + random.IntN(3)), Duplex: random.IntN(5) < 3}
	link.ToHost = link.ToDevice
	limits := cycle.Limits{Memory: smallLimit(random, c), Host: cycle.NoLimit, UpdatesLast: random.IntN(4) == 0}
	return Request{Chain: c, Link: link, Limits: limits}
}

// smallLimit is between what the resident plan takes without its weights, and what it takes.
func smallLimit(random *rand.Rand, c *chain.Chain) int64 {
	none := cycle.Limits{Memory: cycle.NoLimit, Host: cycle.NoLimit}
	plan, err := Solve(context.Background(), Request{Chain: c, Limits: none, Strategy: "resident"})
	if err != nil {
		panic(err)
	}
	low := plan.Result.InOrderPeak
	for _, l := range c.Layers {
		low -= l.WeightBytes + l.WeightGradient() + l.Update.StateBytes
	}
	low = max(low, 0)
	return low + random.Int64N(max(plan.Result.InOrderPeak-low, 1))
}

// The brute force, which leaves out what its bounds exclude, is as fast as the least periods of another brute force, whose space has no
// recomputation. Where it is faster it recomputes.
func TestBruteForceBesideLeastPeriods(t *testing.T) {
	t.Parallel()
	most, equal, faster := mostWords/4, 0, 0
	if testing.Short() {
		most /= 5
	}
	for _, v := range readVectors(t) {
		if v.Period == nil {
			continue
		}
		b := newBrute(t, v.request(t), most)
		b.solve(math.Inf(1))
		switch least := v.least(); {
		case b.tooMany:
		case b.best > least*(1+1e-9):
			t.Errorf("%s: %g: %v; known: %g %s", v.Name, b.best, b.seq, least, v.Seq)
		case b.best < least*(1-1e-9):
			faster++
			wantOtherMeans(t, v.Name, b.seq)
		default:
			equal++
		}
	}
	if t.Logf("%d periods are equal, %d shorter", equal, faster); equal < 10 || !testing.Short() && equal < 20 {
		t.Error("too few periods were compared")
	}
}

// mostWords bounds the sequences, and the parts of sequences, of a case; cases with more are left out.
const mostWords = 200_000

// The plans of auto are as fast as the best of the brute force. PLIMSOLL_STATES sets the number of cases, of which short tests take few.
func TestAutoBesideBruteForce(t *testing.T) {
	t.Parallel()
	cases, most, layers := 12, mostWords, 5
	if testing.Short() {
		cases, most, layers = 8, mostWords/10, 2
	}
	if s := os.Getenv("PLIMSOLL_STATES"); s != "" {
		cases, _ = strconv.Atoi(s)
	}
	tables := map[[2]int]*comparison{}
	all := &comparison{}
	for number := uint64(0); all.cases < cases; number++ {
		r := smallCase(rand.New(rand.NewPCG(7, number)), layers)
		key := [2]int{r.Chain.Len(), weightedLayers(r.Chain)}
		if tables[key] == nil {
			tables[key] = &comparison{}
		}
		ratio, known := besideBrute(t, r, most)
		for _, k := range []*comparison{tables[key], all} {
			k.add(ratio, known)
		}
		if known && ratio > 0 && all.cases%25 == 0 {
			t.Logf("after %d chains: %v", number+1, all)
		}
	}
	for n := 2; n <= layers; n++ {
		for w := 1; w <= 2; w++ {
			if k := tables[[2]int{n, w}]; k != nil {
				t.Logf("| %d | %d %v", n, w, k)
			}
		}
	}
	t.Logf("| all | %v", all)
	if 20*all.equal < 19*all.cases || all.mean() > 1.01 {
		t.Errorf("auto is as fast as brute force in %d of %d cases, mean ratio %.4f; want 95 %% and 1.01", all.equal, all.cases, all.mean())
	}
}

func weightedLayers(c *chain.Chain) (n int) {
	for _, l := range c.Layers {
		if l.WeightBytes > 0 {
			n++
		}
	}
	return n
}

// comparison counts cases.
type comparison struct {
	cases, equal, unfit, large int
	sum, worst                 float64
}

// add counts a case by the ratio of auto's period to the least; 0: nothing fits; not known: the space is too large.
func (k *comparison) add(ratio float64, known bool) {
	switch {
	case !known:
		k.large++
	case ratio == 0:
		k.unfit++
	default:
		k.cases++
		k.sum, k.worst = k.sum+ratio, max(k.worst, ratio)
		if ratio <= 1+1e-9 {
			k.equal++
		}
	}
}

func (k *comparison) mean() float64 { return k.sum / float64(max(k.cases, 1)) }

// String returns cells of a table: cases, as fast as brute force, mean and worst ratio, chains that nothing fits and with too large spaces.
func (k *comparison) String() string {
	return fmt.Sprintf("| %d | %d | %.4f | %.4f | %d | %d |", k.cases, k.equal, k.mean(), k.worst, k.unfit, k.large)
}

// besideBrute returns auto's period over the least; 0: nothing fits; false: the space is too large.
func besideBrute(t *testing.T, r Request, most int) (ratio float64, known bool) {
	plan, err := Solve(context.Background(), r)
	b := newBrute(t, r, most)
	below := math.MaxFloat64
	if err == nil {
		below = plan.Result.Period
	}
	b.solve(below)
	switch {
	case b.tooMany:
		return 0, false
	case err != nil && b.seq == nil:
		return 0, true
	case err != nil:
		t.Errorf("auto finds nothing (%v), and %v fits: %+v", err, b.seq, r.Chain)
		return 2, true
	}
	if b.seq != nil {
		t.Logf("auto %g: %v; brute force %g: %v; %+v", plan.Result.Period, plan.Sequence, b.best, b.seq, r)
	}
	wantBound(t, fmt.Sprintf("%+v", r), r, min(plan.Result.Period, b.best))
	return plan.Result.Period / b.best, true
}
