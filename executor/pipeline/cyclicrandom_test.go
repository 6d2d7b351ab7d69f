package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

// cycleWalk writes random cyclic plans of a chain. It places the ops of activations first. Then, around the cycle of a step, it puts the
// ops of each layer's weights, state and gradients into the gaps between them. Gap g is before op g.
type cycleWalk struct {
	r    *rand.Rand
	c    *chain.Chain
	base cycle.Sequence
	gaps []cycle.Sequence
	lazy int // how seldom something moves; at 1 it never rests

	updatesLast bool // updates are behind the last backward, and gradients of shared weights meet on the device
}

// randomCycle returns a plan of so many microbatches that is valid by its making.
func randomCycle(r *rand.Rand, c *chain.Chain, microbatches int) cycle.Sequence {
	return (&cycleWalk{r: r, c: c, lazy: 2 + r.IntN(12)}).write(microbatches)
}

// write writes a plan.
func (w *cycleWalk) write(microbatches int) cycle.Sequence {
	w.interleave(microbatches)
	w.gaps = make([]cycle.Sequence, len(w.base))
	for _, l := range w.r.Perm(w.c.Len()) {
		if l++; w.c.Owner(l) == l {
			w.state(l)
		}
	}
	var seq, offloads cycle.Sequence
	for g, ops := range w.gaps {
		seq = append(seq, ops...)
		if op := w.base[g]; op.Kind == schedule.Offload { // no update comes between it and the forward that reads the same
			offloads = append(offloads, op)
			continue
		} else if s, _ := cycle.StreamOf(op.Kind); s == cycle.Compute {
			seq, offloads = append(seq, offloads...), nil
		}
		seq = append(seq, w.base[g])
	}
	return seq
}

// activations returns the ops of a microbatch: segments that are kept, or recomputed from their input, which may go to the host.
func (w *cycleWalk) activations() (seq cycle.Sequence) {
	var backward cycle.Sequence
	n := w.c.Len()
	for first := 1; first <= n; {
		last := min(n, first+w.r.IntN(4))
		away, recomputed := w.r.IntN(3) == 0, last < n && w.r.IntN(3) == 0
		var back cycle.Sequence
		late := away && !recomputed && first < last && w.r.IntN(2) == 0 // the input comes back as late as it may
		if away {
			seq = append(seq, cycle.Op{Kind: schedule.Offload, Layer: first})
			if !late {
				back = append(back, cycle.Op{Kind: schedule.Prefetch, Layer: first})
			}
		}
		for l := first; l <= last; l++ {
			kind := schedule.ForwardAll
			if recomputed {
				back = append(back, cycle.Op{Kind: kind, Layer: l})
				if kind = schedule.ForwardDiscard; l == first {
					kind = schedule.ForwardCheckpoint
				}
			}
			seq = append(seq, cycle.Op{Kind: kind, Layer: l})
		}
		for l := last; l >= first; l-- {
			if late && l == first {
				back = append(back, cycle.Op{Kind: schedule.Prefetch, Layer: first})
			}
			back = append(back, cycle.Op{Kind: schedule.Backward, Layer: l})
		}
		backward = append(back, backward...)
		first = last + 1
	}
	return append(seq, backward...)
}

// interleave merges microbatches, in random runs, such that none overtakes the one before in a backward.
func (w *cycleWalk) interleave(count int) {
	all, most := make([]cycle.Sequence, count), 1+w.r.IntN(12)
	back := make([]int, count+1)    // backwards that are done
	forward := make([]int, count+1) // forwards, the first of each layer: running statistics follow their order
	left := 0
	for m := range all {
		all[m] = w.activations()
		left += len(all[m])
	}
	back[0], forward[0] = w.c.Len(), w.c.Len()
	for left > 0 {
		m := w.r.IntN(count)
		for run := 1 + w.r.IntN(most); run > 0 && len(all[m]) > 0; run-- {
			op := all[m][0]
			if op.Kind == schedule.Backward {
				if back[m] <= back[m+1] {
					break
				}
				back[m+1]++
			} else if op.Kind != schedule.Prefetch && forward[m+1] < w.c.Len() {
				if forward[m] <= forward[m+1] {
					break
				}
				if op.Kind == schedule.Offload { // the forward that reads it follows, before anything else computes
					run++
				} else {
					forward[m+1]++
				}
			}
			if count > 1 {
				op.Microbatch = m + 1
			}
			w.base, all[m] = append(w.base, op), all[m][1:]
			left--
		}
	}
}

// copyStatus says what the device has of weights or state, beside the host.
type copyStatus uint8

const (
	isAway copyStatus = iota
	isSame
	isNewer
	isStale
)

// moves gives the op that moves an item out of each status: false for the weights, true for the state.
var moves = map[bool][4]schedule.Kind{
	false: {schedule.FetchWeights, schedule.DropWeights, schedule.WriteWeights, schedule.DropWeights},
	true:  {schedule.FetchState, schedule.DropState, schedule.WriteState, schedule.DropState},
}

// layerWalk is a walk around the circle, from behind the update of a layer to its next one.
type layerWalk struct {
	*cycleWalk
	layer     int
	onHost    bool
	primed    bool                // the update is in the step behind that of its gradient
	items     map[bool]copyStatus // the weights, and, if there is one, the state (true)
	gradients map[int]bool        // by layer: whether it is on the host; absent: there is none
	gap       int
	meet      int            // up to this gap gradients stay on the device
	ops       cycle.Sequence // in the gap
}

// state writes the ops of a layer's weights and state, and of the gradients of all layers that read these weights.
func (w *cycleWalk) state(layer int) {
	n, first, last, shared := len(w.base), -1, 0, false
	for p, op := range w.base {
		if w.c.Owner(op.Layer) == layer && !op.Kind.Transfer() {
			shared = shared || op.Layer != layer
			if last = p; first < 0 {
				first = p
			}
		}
	}
	update := last + 1 + w.r.IntN(n+first-last)*w.r.IntN(2)
	meet := -1
	if w.updatesLast {
		if update = n + w.r.IntN(first+1)*w.r.IntN(2); shared {
			meet = last
		}
	}
	x := layerWalk{cycleWalk: w, meet: meet, layer: layer, onHost: w.r.IntN(2) == 0, primed: update >= n, items: map[bool]copyStatus{}, gradients: map[int]bool{}}
	begin := map[bool]copyStatus{}
	for _, item := range []bool{false, true}[:min(2, 1+int(w.c.Layer(layer).Update.StateBytes))] {
		if begin[item] = isNewer; x.onHost {
			begin[item] = []copyStatus{isAway, isStale}[w.r.IntN(2)]
		}
		x.items[item] = begin[item]
	}
	update %= n
	var behind cycle.Sequence
	for x.gap = update; x.gap < update+n; x.gap++ {
		x.ops = nil
		x.wander()
		x.pass(w.base[x.gap%n])
		if x.gap == update {
			behind = x.ops
		} else {
			x.into(x.gap % n)
		}
	}
	x.ops = nil
	x.wander()
	x.update(begin)
	x.ops = append(x.ops, behind...)
	x.into(update)
}

// into merges the ops into those of a gap.
func (x *layerWalk) into(gap int) {
	var all cycle.Sequence
	for a, b := x.gaps[gap], x.ops; len(a)+len(b) > 0; {
		if len(b) == 0 || len(a) > 0 && x.r.IntN(2) == 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	x.gaps[gap] = all
}

// sometimes is true as often as things are to move in the plan.
func (x *layerWalk) sometimes() bool { return x.r.IntN(x.lazy) == 0 }

// wander moves what may move.
func (x *layerWalk) wander() {
	for _, item := range []bool{false, true} {
		for _, there := x.items[item]; there && x.sometimes(); {
			x.move(item)
		}
	}
	for l := range x.c.Len() {
		for _, there := x.gradients[l+1]; there && x.gap > x.meet && x.sometimes(); {
			x.moveGradient(l + 1)
		}
	}
}

// move moves the weights or the state one step on.
func (x *layerWalk) move(item bool) {
	status := x.items[item]
	x.ops = append(x.ops, cycle.Op{Kind: moves[item][status], Layer: x.layer})
	x.items[item] = [...]copyStatus{isAway: isSame, isSame: isAway, isNewer: isSame, isStale: isAway}[status]
}

// moveGradient moves a gradient to the other side.
func (x *layerWalk) moveGradient(layer int) {
	kind := schedule.OffloadGradient
	if x.gradients[layer] {
		kind = schedule.FetchGradient
	}
	x.ops = append(x.ops, cycle.Op{Kind: kind, Layer: layer, Prime: x.primed && x.gap >= len(x.base)})
	x.gradients[layer] = !x.gradients[layer]
}

// need has the weights or the state on the device.
func (x *layerWalk) need(item bool) {
	for x.items[item] == isAway || x.items[item] == isStale {
		x.move(item)
	}
}

// pass lets an op of the base have what it needs.
func (x *layerWalk) pass(op cycle.Op) {
	if op.Kind.Transfer() || x.c.Owner(op.Layer) != x.layer {
		return
	}
	x.need(false)
	if op.Kind != schedule.Backward {
		return
	}
	if x.gradients[op.Layer] {
		x.moveGradient(op.Layer)
	}
	x.gradients[op.Layer] = false
}

// update writes the update, which leaves everything as the walk began.
func (x *layerWalk) update(begin map[bool]copyStatus) {
	for l, onHost := range x.gradients {
		if onHost != x.onHost {
			x.moveGradient(l)
		}
	}
	kind := schedule.Update
	for _, item := range []bool{false, true}[:len(begin)] {
		if !x.onHost {
			x.need(item)
			continue
		}
		kind = schedule.HostUpdate
		for is := (begin[item] == isStale); x.items[item] == isStale || (x.items[item] == isSame) != is; {
			x.move(item)
		}
	}
	x.ops = append(x.ops, cycle.Op{Kind: kind, Layer: x.layer, Prime: x.primed})
}

// shuffled moves ops of a plan to other places, where the rules allow that.
func shuffled(r *rand.Rand, s *cycle.Simulator, seq cycle.Sequence, tries int) cycle.Sequence {
	for range tries {
		i, j := r.IntN(len(seq)), r.IntN(len(seq))
		op := seq[i]
		moved := slices.Insert(slices.Delete(slices.Clone(seq), i, i+1), j, op)
		if s.Verify(moved, cycle.Limits{}) == nil {
			seq = moved
		}
	}
	return seq
}

// Random cyclic plans, in segments, train as the resident plan.
func TestRandomCyclicPlans(t *testing.T) {
	t.Parallel()
	trials := 20
	cases := cyclicCases
	if testing.Short() {
		trials, cases = 2, cases[:2]
	}
	bad, seen := 0, map[string]int{}
	for i, z := range cases {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workloadOf(t, m, z.rule)
		c := withState(w)
		for n := 1; n <= 3; n++ {
			want := segmentsOf(t, w, counted(w, 1), nil, n, []int{1, 1, 1, 1, 1}, host.Config{})
			for k := range trials {
				r := rand.New(rand.NewPCG(uint64(k), uint64(10*i+n)))
				p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: r.IntN(2) == 0, HostMemory: 1 << 40}
				link, _ := p.CycleLimits()
				s, err := cycle.NewSimulator(c, link)
				must(t, err)
				seq := randomCycle(r, c, n)
				if err := s.Verify(seq, cycle.Limits{}); err != nil {
					bad++
					t.Logf("%v\n%v", err, seq)
					continue
				}
				if n == 1 { // others may change the order of forwards
					seq = shuffled(r, s, seq, r.IntN(100))
				}
				what := fmt.Sprintf("%s, %d microbatches, trial %d, %v", z.name, n, k, seq)
				plan, err := pipeline.PlanCycle(c, "random", seq, p)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				count(seen, seq)
				var segments []int
				for left := 5; left > 0; {
					segments = append(segments, 1+r.IntN(left))
					left -= segments[len(segments)-1]
				}
				t.Run(fmt.Sprintf("%s-%d-%d", z.name, n, k), func(t *testing.T) { // its devices are closed behind it
					got := segmentsOf(t, w, Costs{c, p}, plan, n, segments, host.Config{Chaos: r.Uint64()})
					if d := want.difference(got); d != "" {
						t.Errorf("%s: %v %s", what, segments, d)
					}
				})
			}
		}
	}
	if t.Log(bad, seen); seen["plan"] <= bad || seen["prime"] == 0 {
		t.Errorf("%d plans are valid, %d are not", seen["plan"], bad)
	}
}

// stepwise is the result of a run in segments.
type stepwise struct {
	audit  string
	losses []float64
	states map[int][]pipelinetest.Tensor // behind so many steps
	logits map[int][][]float32
}

func (s *stepwise) difference(got *stepwise) string {
	if got.audit != "" {
		return got.audit
	}
	if !slices.Equal(s.losses, got.losses) {
		return fmt.Sprint(got.losses, s.losses)
	}
	for k, state := range got.states {
		if d := pipelinetest.FirstDifference(s.states[k], state); d != "" {
			return fmt.Sprintf("behind %d: %s", k, d)
		}
	}
	for k, x := range got.logits {
		if !reflect.DeepEqual(x, s.logits[k]) {
			return fmt.Sprintf("predictions behind %d", k)
		}
	}
	return ""
}

func segmentsOf(t *testing.T, w *Workload, c Costs, plan *pipeline.Plan, n int, segments []int, config host.Config) *stepwise {
	t.Helper()
	if plan == nil {
		plan = planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: n})
	}
	out := &stepwise{losses: make([]float64, 5*n), states: map[int][]pipelinetest.Tensor{}, logits: map[int][][]float32{}}
	book := album{all: map[[2]int][]pipelinetest.Tensor{}}
	e, err := New(w, targets(t, 1, config), c, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, Save: book.save, Audit: true,
		Done: func(r Result) { out.losses[r.Minibatch] = r.Loss }})
	if err != nil {
		out.audit = err.Error()
		if plan.Cycle == nil {
			t.Fatal(err)
		}
		return out
	}
	if plan.Cycle != nil {
		if a, m := e.Audited()[0], e.memory[0]; a.PeakBytes != m.Peak || a.ExtentBytes > m.Extent {
			out.audit = fmt.Sprintf("audited %+v, planned %+v", a, m)
		}
	}
	done := 0
	for i := 0; i < len(segments); i++ {
		list := []Segment{{segments[i] * n, true}}
		done += segments[i]
		if i+1 < len(segments) && segments[i]%2 == 0 { // two in one run
			i++
			list = append(list, Segment{segments[i] * n, true})
			done += segments[i]
		}
		if err := e.RunUntil(context.Background(), nil, list...); err != nil {
			out.audit = err.Error()
			return out
		}
		x := tensors(t, e)
		must(t, e.Evaluate(t.Context(), feedOf(w.Model), 2, func(_ int, x []float32) error {
			out.logits[done] = append(out.logits[done], slices.Clone(x))
			return nil
		}))
		e.Saved()
		must(t, book.err)
		out.states[100+done] = x
	}
	for k, list := range book.all {
		out.states[k[0]/n] = list
	}
	return out
}
