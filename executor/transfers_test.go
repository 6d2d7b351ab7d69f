package executor

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

// withTransfer sends a_1 away while the loss is computed, and brings it back.
func withTransfer(storeAll schedule.Sequence) schedule.Sequence {
	n := len(storeAll) / 2
	seq := append(schedule.Sequence(nil), storeAll[:2]...)
	seq = append(seq, schedule.Op{Kind: schedule.Offload, Layer: 2})
	seq = append(seq, storeAll[2:n]...)
	seq = append(seq, schedule.Op{Kind: schedule.Prefetch, Layer: 2})
	return append(seq, storeAll[n:]...)
}

// sprinkle inserts offloads and prefetches, single ones and pairs, at random places of a sequence, as long as it keeps
// the rules.
func sprinkle(r *rand.Rand, c *chain.Chain, seq schedule.Sequence, tries int) schedule.Sequence {
	for range tries {
		l := 1 + r.IntN(c.Len())
		i := r.IntN(len(seq) + 1)
		j := i + r.IntN(len(seq)+1-i)
		next := append(schedule.Sequence(nil), seq[:i]...)
		next = append(next, schedule.Op{Kind: schedule.Offload, Layer: l})
		next = append(next, seq[i:j]...)
		if r.IntN(8) > 0 {
			next = append(next, schedule.Op{Kind: schedule.Prefetch, Layer: l})
		}
		next = append(next, seq[j:]...)
		if schedule.Verify(c, next) == nil {
			seq = next
		}
	}
	return seq
}

// randomCase is a random sequence with transfers, with what it is simulated with: the least memory at which it runs, or
// more.
type randomCase struct {
	seq schedule.Sequence
	sim Sim
	*schedule.Result
}

func randomTransfers(t testing.TB, r *rand.Rand, w *Workload) randomCase {
	t.Helper()
	c := costs(w.Chain())
	for {
		base := w.StoreAll()
		if r.IntN(2) == 0 {
			base = randomSequence(r, c.Len())
		}
		seq := sprinkle(r, c, base, 60)
		if !transfers(seq) {
			continue
		}
		// A link that moves the largest activation in 1/4 to 8 times a forward.
		link := schedule.Link{Bandwidth: float64(c.Saved(2)) * []float64{0.125, 0.5, 2, 1e6}[r.IntN(4)], Duplex: r.IntN(2) == 0}
		limits := schedule.Limits{Memory: schedule.NoLimit, Link: link}
		res, err := schedule.Simulate(c, seq, limits)
		must(t, err)
		if r.IntN(4) > 0 {
			limits.Memory = res.Peak
			for {
				tight := limits
				tight.Memory -= max(1, res.Peak/50)
				if _, err := schedule.Simulate(c, seq, tight); err != nil {
					break
				}
				limits = tight
			}
		}
		res, err = schedule.Simulate(c, seq, limits)
		must(t, err)
		return randomCase{seq, Sim{c, limits}, res}
	}
}

// Invariants 2 to 4 with transfers: the bits of store-all, at the peak of the simulation, in an arena that ends with the
// layout, whatever the streams do.
func TestRandomTransfersGiveTheBitsOfStoreAllAtTheSimulatedPeak(t *testing.T) {
	t.Parallel()
	const steps = 2
	cases := 100
	if testing.Short() {
		cases = 25
	}
	want := reference(t, steps)
	rnd := rand.New(rand.NewPCG(21, 22))
	ran, moved, waited, duplex := 0, 0, 0, 0
	for k := range cases {
		r := newRig(t, testModel(t), host.Config{}, nil)
		x := randomTransfers(t, rnd, r.Workload)
		at, err := r.Layout(x.seq, testMemory, x.sim)
		if unused := (*UnusedPrefetchError)(nil); errors.As(err, &unused) {
			continue
		}
		must(t, err)
		opt := Options{Seed: 7, Sim: x.sim, Audit: true, Limit: max(at.Extent, r.evalExtent(t))}
		e := r.executor(t, x.seq, opt)
		if d := firstDifference(want, train(t, e, steps)); d != "" {
			t.Fatalf("case %d: %s differs from store-all's (%v)", k, d, x.seq)
		}
		if want := r.StaticBytes() + x.Peak; e.result.PeakBytes != want || at.Peak != want {
			t.Fatalf("case %d: measured peak %d, laid out %d, simulated %d (%v)", k, e.result.PeakBytes, at.Peak, want, x.seq)
		}
		opt.Audit = false
		chaos := newRig(t, testModel(t), host.Config{Memory: testMemory, HostMemory: testMemory, Chaos: uint64(k + 1)}, nil)
		if d := firstDifference(want, train(t, chaos.executor(t, x.seq, opt), steps)); d != "" {
			t.Fatalf("case %d: with chaos %s differs from store-all's (%v)", k, d, x.seq)
		}
		for p, op := range x.seq {
			moved += count(op.Kind.Transfer())
			waited += len(e.waits[p])
		}
		ran++
		duplex += count(x.sim.Limits.Link.Duplex)
	}
	t.Logf("%d cases ran, %d of them duplex, with %d transfers and %d waits", ran, duplex, moved, waited)
	if ran < cases*9/10 || duplex < cases/4 || moved < 10*ran || waited < 10*ran {
		t.Errorf("only %d of %d cases ran, %d of them duplex, with %d transfers and %d waits", ran, cases, duplex, moved, waited)
	}
}

// evalExtent returns the arena that an evaluation needs.
func (r rig) evalExtent(t testing.TB) int64 {
	t.Helper()
	b, err := r.layoutEval(testMemory)
	must(t, err)
	return b.extent
}

// check checks the order of two rounds of a script.
func (s *script) check() error { return ordered(slices.Repeat(s.list, 2), s.events) }

// The order check must miss every wait that memory needs, and no wait may be without a reason: what is not for memory is
// the rule that a transfer follows the compute ops before it.
func TestEveryWaitIsNeeded(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(31, 32))
	missed, rules := 0, 0
	for range 25 {
		r := newRig(t, testModel(t), host.Config{}, nil)
		x := randomTransfers(t, rnd, r.Workload)
		e, err := New(r.Workload, r.on, x.seq, Options{Sim: x.sim, Limit: testMemory})
		if unused := (*UnusedPrefetchError)(nil); errors.As(err, &unused) {
			continue
		}
		must(t, err)
		must(t, e.script.check())
		for i, c := range e.script.list {
			if c.Wait < eventOps {
				continue
			}
			e.script.list[i].Wait = none
			if e.script.check() != nil {
				missed++
			} else if e.isRule(c) {
				rules++
			} else {
				t.Errorf("a wait of stream %d (command %d) orders nothing (%v)", c.Stream, i, x.seq)
			}
			e.script.list[i].Wait = c.Wait
		}
	}
	if missed < 300 || rules < 10 {
		t.Errorf("%d missing waits were found, %d were the rule's", missed, rules)
	}
}

// isRule reports whether a wait is for the compute op before a transfer, or for a prefetched operand, which the kernels
// of some layers do not look at.
func (e *Executor) isRule(c command) bool {
	t := e.step.layout
	for p, op := range t.seq {
		for _, q := range e.waits[p] {
			if e.step.stream[p] != c.Stream || e.script.mark[q] != c.Wait {
				continue
			}
			if op.Kind.Transfer() && q < p && !transfers(t.seq[q:q+1]) && !slices.ContainsFunc(t.seq[q+1:p], func(o schedule.Op) bool { return !o.Kind.Transfer() }) {
				return true
			}
			if !op.Kind.Transfer() && t.seq[q].Kind == schedule.Prefetch && (t.ops[p].input == t.ops[q].output || t.ops[p].output == t.ops[q].output) {
				return true
			}
		}
	}
	return false
}

// Timed steps say when every op ran, and the rules show in that; the link's speed shows in what the steps take.
func TestIntervalsKeepTheRules(t *testing.T) {
	t.Parallel()
	const bandwidth = 50e6
	for _, duplex := range []bool{false, true} {
		r := newRig(t, testModel(t), host.Config{Memory: testMemory, HostMemory: testMemory, Bandwidth: bandwidth}, nil)
		seq, err := schedule.Parse("Fall1 O1 Fall2 O2 Fall3 O3 Fall4 Fall5 Fall6 Fall7 P3 Fall8 O6 Fall9 O7 Fall10 P7 B10 B9 P6 B8 B7 B6 B5 B4 P2 B3 P1 B2 B1")
		must(t, err)
		sim := Sim{costs(r.Chain()), schedule.Limits{Link: schedule.Link{Bandwidth: bandwidth, Duplex: duplex}}}
		e := r.executor(t, seq, Options{Seed: 7, Timed: true, Sim: sim})
		fillBatch(t, e, 1)
		const steps = 3
		var res *Result
		began := time.Now()
		for step := range steps {
			res, err = e.Step(uint64(step), 0.1)
			must(t, err)
		}
		took := time.Since(began).Seconds()
		compute, link, bytes := 0.0, [2]float64{}, [2]int64{}
		for p, op := range seq {
			at := res.Intervals[p]
			if !op.Kind.Transfer() {
				if at.Start < compute || at.End < at.Start {
					t.Errorf("op %d (%v) ran in %v, the one before ended at %v", p, op, at, compute)
				}
				compute = at.End
				continue
			}
			lane := count(duplex && op.Kind == schedule.Prefetch)
			_, src := e.step.transfer(p)
			bytes[count(op.Kind == schedule.Prefetch)] += src.Bytes
			if at.Start < compute || at.Start < link[lane] || at.End < at.Start {
				t.Errorf("op %d (%v) of %d bytes ran in %v; compute ended at %v, the transfer before at %v", p, op, src.Bytes, at, compute, link[lane])
			}
			link[lane] = at.End
		}
		// A copy makes up for the lateness of the one before it: the link's speed shows in all of them together.
		for way, n := range bytes {
			if least := 0.99 * steps * float64(n) / bandwidth; took < least {
				t.Errorf("%d steps took %v s; what they copy in direction %d takes %v s", steps, took, way, least)
			}
		}
		if b1 := res.Intervals[len(seq)-1]; b1.Start < link[count(duplex)] {
			t.Errorf("the last backward started at %v, before its prefetch ended at %v", b1.Start, link[count(duplex)])
		}
		if res.Sequence < compute || res.CopiesBytes == 0 || res.HostBytes < res.CopiesBytes {
			t.Errorf("sequence %v, last op %v, %d bytes for copies of %d", res.Sequence, compute, res.CopiesBytes, res.HostBytes)
		}
	}
}

// Invariant 1 with transfers.
func TestStepsWithTransfersAllocateNothing(t *testing.T) {
	// Serial: it counts allocations.
	r := newRig(t, testModel(t), host.Config{}, nil)
	sim := Sim{Limits: schedule.Limits{Link: schedule.Link{Bandwidth: 1e9, Duplex: true}}}
	e := r.executor(t, withTransfer(r.StoreAll()), Options{Seed: 7, Timed: true, Sim: sim})
	fillBatch(t, e, 1)
	step := uint64(0)
	allocs := testing.AllocsPerRun(20, func() {
		if _, err := e.Step(step, 0.1); err != nil {
			t.Fatal(err)
		}
		step++
	})
	if allocs != 0 {
		t.Errorf("%v heap allocations a step, want 0", allocs)
	}
}

func TestHostLimitIsExact(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	seq := withTransfer(r.StoreAll())
	opt := Options{Limit: testMemory, HostLimit: 1, Sim: Sim{Limits: schedule.Limits{Link: schedule.Link{Bandwidth: 1e9}}}}
	var refused *HostLimitError
	if _, err := New(r.Workload, r.on, seq, opt); !errors.As(err, &refused) {
		t.Fatalf("a limit of one byte: %v", err)
	}
	if want := r.Chain().Saved(1); refused.Copies != want || refused.Needed <= want {
		t.Errorf("%+v, want copies of %d bytes", refused, want)
	}
	opt.HostLimit = refused.Needed - 1
	if _, err := New(r.Workload, r.on, seq, opt); !errors.As(err, &refused) {
		t.Errorf("one byte too few: %v", err)
	}
	opt.HostLimit = refused.Needed
	e := r.executor(t, seq, opt)
	fillBatch(t, e, 1)
	if res, err := e.Step(0, 0.1); err != nil || res.HostBytes != refused.Needed {
		t.Errorf("at the limit: %v, %+v", err, res)
	}
}

// The host slab is used again: two activations that are away at different times share it.
func TestHostCopiesShareMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	c := costs(r.Chain())
	sim := Sim{c, schedule.Limits{Link: schedule.Link{Bandwidth: 1e9}}}
	for text, want := range map[string]int64{
		"Fall1 O1 Fall2 Fall3 P1 O3 Fall4 Fall5 Fall6 Fall7 Fall8 Fall9 Fall10 B10 B9 B8 B7 B6 B5 B4 P3 B3 B2 B1":       c.Saved(2),
		"Fall1 O1 Fall2 O2 Fall3 Fall4 Fall5 Fall6 Fall7 Fall8 Fall9 Fall10 B10 B9 B8 B7 B6 B5 B4 B3 P2 P1 B2 B1":       c.Activation(0) + c.Saved(1),
		"Fall1 Fall2 Fall3 Fall4 Fall5 Fall6 Fall7 Fall8 Fall9 Fall10 B10 B9 B8 B7 B6 B5 B4 O2 B3 P2 B2 B1":             c.Saved(1),
		"Fall1 Fall2 O3 Fall3 P3 O2 Fall4 O3 Fall5 P2 Fall6 Fall7 Fall8 Fall9 Fall10 B10 B9 B8 B7 B6 B5 B4 P3 B3 B2 B1": c.Saved(1) + c.Saved(2),
	} {
		seq, err := schedule.Parse(text)
		must(t, err)
		at, err := r.Layout(seq, testMemory, sim)
		must(t, err)
		if at.Copies != want {
			t.Errorf("%s: %d bytes of host memory, want %d", text, at.Copies, want)
		}
	}
}

// A prefetch whose copy is replaced before it starts has no memory that anybody counts.
func TestAnUnusedPrefetchIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	seq, err := schedule.Parse("Fall1 Fck2 O3 O1 P3 Fall2 Fall3 Fall4 Fall5 Fall6 Fall7 Fall8 Fall9 Fall10 B10 B9 B8 B7 B6 B5 B4 B3 B2 P1 B1")
	must(t, err)
	c := costs(r.Chain())
	_, err = r.Layout(seq, testMemory, Sim{c, schedule.Limits{Link: schedule.Link{Bandwidth: float64(c.Saved(1)) / 100}}})
	var unused *UnusedPrefetchError
	if !errors.As(err, &unused) || unused.Prefetch != 4 || unused.Index != 5 {
		t.Errorf("a prefetch that starts too late: %v", err)
	}
	if _, err = r.Layout(seq, testMemory, Sim{c, schedule.Limits{Link: schedule.Link{Bandwidth: 1e12}}}); err != nil {
		t.Errorf("a prefetch in time: %v", err)
	}
}

func TestSimulationsOfOtherChainsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	c := r.Chain()
	c.Layers = c.Layers[1:]
	sim := Sim{c, schedule.Limits{Link: schedule.Link{Bandwidth: 1}}}
	if _, err := r.Layout(withTransfer(r.StoreAll()), testMemory, sim); err == nil {
		t.Error("a chain of 9 layers was taken for one of 10")
	}
}
