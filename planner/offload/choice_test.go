package offload

import (
	"context"
	"reflect"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
)

// four is a chain of three layers and the loss with simple numbers: ā = 4, 2, 8, 1 after an input of 4 bytes.
func four() *chain.Chain {
	layer := func(forward, backward float64, bytes int64) chain.Layer {
		return chain.Layer{ForwardS: forward, BackwardS: backward, OutputBytes: bytes, SavedBytes: bytes}
	}
	return &chain.Chain{Name: "four", InputBytes: 4, Layers: []chain.Layer{layer(2, 4, 4), layer(4, 8, 2), layer(1, 2, 8), layer(1, 1, 1)}}
}

func costsOf(t *testing.T, c *chain.Chain, memory int64, bandwidth float64) *costs {
	t.Helper()
	k, err := newCosts(problem(c, memory, bandwidth, false))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func expectSelection(t *testing.T, what string, got []bool, want string) {
	t.Helper()
	text := ""
	for _, away := range got {
		text += map[bool]string{false: "-", true: "x"}[away]
	}
	if text != want {
		t.Errorf("%s: %s, want %s", what, text, want)
	}
}

// Thesis, equations 3.1 to 3.3, by hand. δ has the size of the output: B_3 needs ā_3 + δ_2 beside its input, and so on.
func TestNeedsByHand(t *testing.T) {
	t.Parallel()
	k := costsOf(t, four(), 20, 1)
	if want := []float64{0, 4, 2, 8, 1}; !reflect.DeepEqual(k.needF, want) {
		t.Errorf("𝓜_F %v, want %v", k.needF, want)
	}
	// needs ā_l + δ_l + δ_{l-1}; no layer sets its gradient, δ_0 has the size of the input
	if want := []float64{0, 8, 2, 8, 1}; !reflect.DeepEqual(k.needB, want) {
		t.Errorf("𝓜_B %v, want %v", k.needB, want)
	}
	if k.peak() != 4+4+2+8+1 {
		t.Errorf("M_peak %v, want 19", k.peak())
	}
	if bytes, l := k.smallest(); bytes != 8+4 || l != 1 {
		t.Errorf("smallest %v at layer %d, want 12 at layer 1", bytes, l)
	}
}

// Thesis, section 3.2.2: as many first activations as hold what is over the limit, the last one rounded up.
func TestGreedyByHand(t *testing.T) {
	t.Parallel()
	for memory, want := range map[int64]string{19: "----", 18: "x---", 15: "x---", 14: "xx--", 12: "xx--"} {
		expectSelection(t, "greedy", costsOf(t, four(), memory, 1).greedySelection(), want)
	}
}

// Thesis, section 3.4.1: u_F per byte of the input is 0.5, 1, 0.5 and 0.125.
func TestVDNNByHand(t *testing.T) {
	t.Parallel()
	k := costsOf(t, four(), 12, 1)
	if got, want := k.ratios(), []float64{1, 0.5, 0.125}; !reflect.DeepEqual(got, want) {
		t.Errorf("thresholds %v, want %v", got, want)
	}
	expectSelection(t, "at least 1", k.slow(1), "-x--")
	expectSelection(t, "at least 0.5", k.slow(0.5), "xxx-")
	expectSelection(t, "every other", everyOther(k.slow(0.5)), "x-x-")
}

// The scores of autoswap at 2 bytes/s. Between F_1 and B_1 the other ops take 18 s, between F_2 and B_2 6 s, F_3 and B_3
// 2 s, F_4 and B_4 none.
func TestAutoSwapScoresByHand(t *testing.T) {
	t.Parallel()
	k := costsOf(t, four(), 12, 2)
	s := newScores(k)
	if want := []float64{17, 5, 2, 0}; !reflect.DeepEqual(s.absence, want) {
		t.Errorf("absences %v, want %v", s.absence, want)
	}
	if want := []float64{13, 1, 0, -8}; !reflect.DeepEqual(s.doa, want) {
		t.Errorf("DOA %v, want %v", s.doa, want)
	}
	if want := []float64{13 * 4, 1 * 4, 0, -8.0 / 8}; !reflect.DeepEqual(s.aoa, want) {
		t.Errorf("AOA %v, want %v", s.aoa, want)
	}
	// F_4 and B_4 run with 19 bytes, F_3 and B_3 with 18, F_2 and B_2 with 10
	if want := []float64{2*19 + 3*18 + 12*10, 2*19 + 3*18, 2 * 19, 0}; !reflect.DeepEqual(s.wdoa, want) {
		t.Errorf("WDOA %v, want %v", s.wdoa, want)
	}
	left := []float64{212, 92, 38, 0} // SWDOA when activation 1, 4 bytes, is away
	if s.relieve(left, 1); !reflect.DeepEqual(left, []float64{212 - 4*5, 92 - 4*5, 38 - 4*2, 0}) {
		t.Errorf("SWDOA %v", left)
	}
	search, err := newSearch(k, problem(four(), 12, 2, false))
	if err != nil {
		t.Fatal(err)
	}
	expectSelection(t, "by DOA", search.byScore(s, weights{1, 0, 0, 0}), "xx--")
	if n := len(quarters()); n != 35 {
		t.Errorf("%d weights, want 35", n)
	}
}

// Thesis, section 3.3.3.2, and erratum 8: of the states in a cell the cheapest stays and the one that keeps the least; too
// many cells grow.
func TestMergeByHand(t *testing.T) {
	t.Parallel()
	at := func(kept, forward, idle float64) entry {
		return entry{state: state{kept: kept, forward: forward, idle: idle}}
	}
	all := []entry{at(11, 3, 2), at(12, 4, 1), at(13, 1, 3), at(12, -1, 9), at(27, 1, 0)}
	var g grid
	got, side := g.merge(nil, all, 10)
	if want := []entry{all[0], all[1], all[3], all[4]}; side != 10 || !reflect.DeepEqual(got, want) {
		t.Errorf("%v with side %v, want %v", got, side, want)
	}
	if got, _ := g.merge(nil, append(all, all...), 0); len(got) != len(all) {
		t.Errorf("%d states of %d different ones", len(got), len(all))
	}
	var many []entry
	for i := range maxStates + 2 {
		many = append(many, at(float64(i), 0, 0))
	}
	if got, side := g.merge(nil, many, 1); side != 2 || len(got) != len(many)/2 {
		t.Errorf("%d states with side %v, want %d with side 2", len(got), side, len(many)/2)
	}
}

// tflms delays nothing. If the link is slow, it refuses limits that the others reach by waiting. If it plans, every
// compute op starts when the one before ends or its operand arrives, whatever the limit.
func TestTFLMSWaitsForNoMemory(t *testing.T) {
	t.Parallel()
	planned, refused := 0, 0
	c := deepChain(12)
	smallest, peak := limitsOf(t, c)
	for _, bandwidth := range []float64{5e7, 2e8, 1e9, 3e9} {
		for share := range int64(10) {
			p := problem(c, smallest+(peak-smallest)*share/10, bandwidth, share%2 == 0)
			seq, err := named(t, "tflms").Solve(context.Background(), p)
			if err != nil {
				refused++
				continue
			}
			planned++
			with, err := schedule.Simulate(c, seq, schedule.Limits{Memory: p.Memory, Link: p.Link})
			if err != nil {
				t.Fatal(err)
			}
			without, err := schedule.Simulate(c, seq, schedule.Limits{Memory: schedule.NoLimit, Link: p.Link})
			if err != nil || !reflect.DeepEqual(with.Start, without.Start) {
				t.Errorf("with %d bytes and %v bytes/s ops wait for memory (%v)", p.Memory, bandwidth, err)
			}
		}
	}
	if planned < 8 || refused < 8 {
		t.Errorf("%d planned and %d refused", planned, refused)
	}
}

// The example of section 3.3.1: a selection that halves a set exactly needs no idle time, and a program that offloads
// whole activations finds it. The data are x = 3, 1, 2, 2, a link of V = 4 bytes/s, and M = 2V. Nothing else takes
// memory or time.
func TestTwoPartitionByHand(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "2-partition", InputBytes: 3}
	for _, x := range []int64{1, 2, 2, 0} {
		c.Layers = append(c.Layers, chain.Layer{OutputBytes: x, SavedBytes: x})
	}
	c.Layers = append(c.Layers, chain.Layer{ForwardS: 1, BackwardS: 1}, chain.Layer{}, chain.Layer{OutputBytes: 4, SavedBytes: 4})
	p := problem(c, 8, 4, false)
	got, err := exactAlgorithm5(p)
	if err != nil || got != 2 {
		t.Errorf("Algorithm 5 takes %v s (%v), want 2", got, err)
	}
	(&judge{t: t}).expectMakespan("offload-dynprog", c, p.Memory, 4, 2)
}

func (j *judge) expectMakespan(name string, c *chain.Chain, memory int64, bandwidth, want float64) {
	j.t.Helper()
	if got := j.makespan(name, problem(c, memory, bandwidth, false)); !plantest.Near(got, want) {
		j.t.Errorf("%s takes %v s, want %v", name, got, want)
	}
}
