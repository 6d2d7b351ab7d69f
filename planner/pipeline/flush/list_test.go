package flush

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
)

// earliest returns the earliest start of every op. It relaxes all edges until nothing changes: the edges of the order
// of each device, and the edges of the data. If the order deadlocks, the relaxation never stops and ok is false.
// Messages take no time.
func earliest(c costs, o order) (starts map[op]float64, ok bool) {
	starts = map[op]float64{}
	total := 0
	for _, ops := range o {
		total += len(ops)
		for _, x := range ops {
			starts[x] = 0
		}
	}
	for range total + 1 {
		if !relax(c, o, starts) {
			return starts, true
		}
	}
	return nil, false
}

func relax(c costs, o order, starts map[op]float64) (changed bool) {
	after := func(x, y op) {
		from, known := starts[x]
		if !known {
			return
		}
		if end := from + c.compute[x.kind][x.stage]; starts[y] < end {
			starts[y], changed = end, true
		}
	}
	for _, ops := range o {
		for i, x := range ops {
			if i > 0 {
				after(ops[i-1], x)
			}
			switch x.kind {
			case pipeline.F:
				after(op{pipeline.F, x.stage - 1, x.micro}, x)
			case pipeline.B:
				after(op{pipeline.F, x.stage, x.micro}, x)
				after(op{pipeline.B, x.stage + 1, x.micro}, x)
			case pipeline.W:
				after(op{pipeline.B, x.stage, x.micro}, x)
			}
		}
	}
	return changed
}

func randomCosts(rnd *rand.Rand, stages, micros int, split bool) costs {
	c := unit(stages, micros, split)
	for kind := range c.compute {
		if c.compute[kind] == nil {
			continue
		}
		c.compute[kind] = make([]float64, stages)
		for s := range stages {
			c.compute[kind][s] = float64(1 + rnd.IntN(9))
		}
	}
	return c
}

// Without links every op starts at the earliest instant that its order and its data allow.
func TestEveryOpStartsAsEarlyAsItCan(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 1))
	compared, deadlocks := 0, 0
	for range 60 {
		for _, r := range recipes() {
			n := counts{devices: 2 + 2*rnd.IntN(2), chunks: max(r.chunks, 1+rnd.IntN(2))}
			if r.chunks > 0 {
				n.chunks = r.chunks
			}
			n.micros = 2 * n.devices
			c, o := randomCosts(rnd, n.stages(), n.micros, r.split), r.order(n)
			for range rnd.IntN(4) {
				ops := o[rnd.IntN(len(o))]
				i := rnd.IntN(len(ops) - 1)
				ops[i], ops[i+1] = ops[i+1], ops[i]
			}
			got, ok := run(c, o, 0)
			want, legal := earliest(c, o)
			if ok != legal {
				t.Fatalf("%s: runs %v, should %v: %v", r.name, ok, legal, o)
			}
			if !ok {
				deadlocks++
				continue
			}
			for x, start := range want {
				if got.starts[c.cell(x)] != start {
					t.Fatalf("%s: %v starts at %g, it could at %g", r.name, x, got.starts[c.cell(x)], start)
				}
			}
			compared++
		}
	}
	if compared < 300 || deadlocks < 30 {
		t.Errorf("%d orders, %d deadlocks", compared, deadlocks)
	}
}

// A link carries one message at a time, both directions of a half-duplex one, in the order in which they are ready:
//
//	device 0   F0 F1 F2 .  .  .  .  .  .  .  .  B2 .  B1 .  B0
//	link       .  a0 a0 a1 a1 a2 a2 .  .  d2 d2 d1 d1 d0 d0 .
//	device 1   .  .  .  F0 .  F1 .  F2 B2 B1 B0 .  .  .  .  .
func TestMessagesQueue(t *testing.T) {
	t.Parallel()
	c := unit(2, 3, false)
	c.message = func(pipeline.Kind, int, int, int) float64 { return 2 }
	n := counts{devices: 2, chunks: 1, micros: 3}
	g := gpipe()
	got := must("gpipe", c, g.order(n), 0)
	want := map[op]float64{
		{pipeline.CF, 0, 0}: 1, {pipeline.CF, 0, 1}: 3, {pipeline.CF, 0, 2}: 5,
		{pipeline.CB, 0, 2}: 9, {pipeline.CB, 0, 1}: 11, {pipeline.CB, 0, 0}: 13,
	}
	for _, s := range got.sends {
		if s.start != want[s.op] {
			t.Errorf("%v at %g, want %g", s.op, s.start, want[s.op])
		}
	}
	if len(got.sends) != len(want) || got.makespan != 16 {
		t.Errorf("%d messages, makespan %g", len(got.sends), got.makespan)
	}
}

// Every order that a schedule gives holds every op once and runs to its end, for all sizes that the schedule accepts.
func TestNoOrderDeadlocks(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, r := range recipes() {
		for _, P := range []int{1, 2, 3, 4, 5, 6, 7, 12} {
			for _, m := range []int{1, 2, 3, 5, 8, 12, 24, 37} {
				for _, v := range []int{1, 3} {
					n := counts{P, v, m}
					if r.chunks > 0 {
						n.chunks = r.chunks
					}
					if r.accepts == nil || r.accepts(P, m) == nil {
						expectComplete(t, r, n)
						ran++
					}
				}
			}
		}
	}
	if ran < 1000 {
		t.Errorf("only %d orders", ran)
	}
}

func expectComplete(t *testing.T, r recipe, n counts) {
	t.Helper()
	o, seen, kinds := r.order(n), map[op]int{}, 2
	if r.split {
		kinds = 3
	}
	for _, ops := range o {
		for _, x := range ops {
			seen[x]++
		}
	}
	if len(o) != n.devices || len(seen) != kinds*n.stages()*n.micros {
		t.Fatalf("%s %+v: %d different ops on %d devices", r.name, n, len(seen), len(o))
	}
	for x, times := range seen {
		if times != 1 {
			t.Fatalf("%s %+v: %v appears %d times", r.name, n, x, times)
		}
	}
	if _, ok := run(unit(n.stages(), n.micros, r.split), o, mostOf(r, n.devices)); !ok {
		t.Fatalf("%s %+v deadlocks", r.name, n)
	}
}

// Both directions at once, or one after the other.
func TestDuplex(t *testing.T) {
	t.Parallel()
	c := unit(2, 2, false)
	c.message = func(kind pipeline.Kind, _, _, _ int) float64 {
		if kind == pipeline.CF {
			return 4
		}
		return 1
	}
	o := order{
		{{pipeline.F, 0, 0}, {pipeline.F, 0, 1}, {pipeline.B, 0, 0}, {pipeline.B, 0, 1}},
		{{pipeline.F, 1, 0}, {pipeline.B, 1, 0}, {pipeline.F, 1, 1}, {pipeline.B, 1, 1}},
	}
	// a0 1-5, a1 5-9, gradient of 0 ready at 7
	for duplex, want := range map[bool]float64{false: 9, true: 7} {
		c.duplex = duplex
		got := must("1f1b", c, o, 0)
		i := slices.IndexFunc(got.sends, func(s send) bool { return s.op == op{pipeline.CB, 0, 0} })
		if got.sends[i].start != want {
			t.Errorf("duplex %v: the gradient leaves at %g, want %g", duplex, got.sends[i].start, want)
		}
	}
}

// A device that would idle runs ahead within the cap, and only then.
func TestRunningAhead(t *testing.T) {
	t.Parallel()
	o := order{
		{{pipeline.F, 0, 0}, {pipeline.B, 0, 0}, {pipeline.F, 0, 1}, {pipeline.B, 0, 1}, {pipeline.W, 0, 0}, {pipeline.W, 0, 1}},
		{{pipeline.F, 1, 0}, {pipeline.B, 1, 0}, {pipeline.W, 1, 0}, {pipeline.F, 1, 1}, {pipeline.B, 1, 1}, {pipeline.W, 1, 1}},
	}
	for most, want := range map[int]float64{0: 10, 1: 9, 2: 8} {
		got := must("test", unit(2, 2, true), o, most)
		if got.makespan != want {
			t.Errorf("cap %d: makespan %g, want %g: %v", most, got.makespan, want, got.order)
		}
		if most == 1 && got.order[0][1].kind == pipeline.F {
			t.Errorf("a second activation: %v", got.order)
		}
	}
}

// The longest of the stages of equal is as short as in the best of all divisions.
func TestEqualDivision(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 2))
	for range 300 {
		n := 1 + rnd.IntN(8)
		c := uniform(n, 0, 0, 0)
		for i := range c.Layers {
			c.Layers[i].ForwardS, c.Layers[i].BackwardS = float64(rnd.IntN(9)), float64(rnd.IntN(9))
		}
		sums := pipeline.NewCosts(c)
		stages := 1 + rnd.IntN(n)
		got := equal(sums, stages)
		if len(got) != stages || !slices.IsSorted(got) || got[stages-1] != n || len(slices.Compact(slices.Clone(got))) != stages {
			t.Fatalf("%d layers in %d stages: %v", n, stages, got)
		}
		if best := division(sums, 1, stages); longest(sums, got) > best*(1+1e-9) {
			t.Fatalf("%v: longest %g, the best is %g", got, longest(sums, got), best)
		}
	}
}

// division returns the least longest stage of layers from first on, by trying all.
func division(sums *pipeline.Costs, first, stages int) float64 {
	if stages == 1 {
		return sums.U(first, sums.Len())
	}
	best := math.Inf(1)
	for last := first; last <= sums.Len()-stages+1; last++ {
		best = min(best, max(sums.U(first, last), division(sums, last+1, stages-1)))
	}
	return best
}
