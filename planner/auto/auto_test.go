package auto

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"plimsoll/internal/shared"
	"plimsoll/planner/bound"
	"plimsoll/planner/chain"
	"plimsoll/planner/multichain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/pofo"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// vectors is a file of known answers; nil means infeasible.
type vectors struct {
	Cases []struct {
		Name   string       `json:"name"`
		Chain  *chain.Chain `json:"chain"`
		Limits []struct {
			Memory    int64    `json:"memory"`
			Bandwidth float64  `json:"bandwidth_bytes_per_s"`
			Optimum   *float64 `json:"makespan_s"`
		} `json:"limits"`
	} `json:"cases"`
}

// expectCombined compares auto with the optimum over all sequences of all ops, found by exhaustive search. Auto is never below it, equals
// it at nine tenths of the points, and is within 5 % on the mean.
func expectCombined(t *testing.T, path string, want int) {
	t.Helper()
	var file vectors
	readJSON(t, path, &file)
	j := &judge{t: t}
	points, feasible, planned, optimal, ratios := 0, 0, 0, 0, 0.0
	unknown := 0
	for _, c := range file.Cases {
		for _, l := range c.Limits {
			points++
			best := orInfinite(l.Optimum)
			if !math.IsInf(best, 1) {
				feasible++
			}
			p := strategy.Problem{Chain: c.Chain, Memory: l.Memory, Link: schedule.Link{Bandwidth: l.Bandwidth}}
			r := j.plan(p)
			if r == nil {
				_, err := Plan(context.Background(), p, Options{})
				refusal, ok := errors.AsType[*pipeline.InfeasibleError](err)
				if !ok || !math.IsInf(best, 1) && !refusal.Found {
					t.Errorf("%s at %d, %g: %v, but there is a sequence of %v", c.Name, l.Memory, l.Bandwidth, err, best)
				}
				if !math.IsInf(best, 1) {
					unknown++
				}
				continue
			}
			planned++
			ratios += r.Makespan / best
			if r.Makespan < best*(1-1e-9) {
				t.Errorf("%s at %d, %g: makespan %v, the optimum is %v", c.Name, l.Memory, l.Bandwidth, r.Makespan, best)
			}
			if plantest.Near(r.Makespan, best) {
				optimal++
			}
		}
	}
	if feasible-planned != unknown {
		t.Errorf("%d refusals of feasible limits, %d of them say that a smaller one may work", feasible-planned, unknown)
	}
	t.Logf("%d points, %d feasible: %d planned, %d optimal, mean ratio %.4f", points, feasible, planned, optimal, ratios/float64(planned))
	if points < want || 10*optimal < 9*feasible || ratios > 1.05*float64(planned) {
		t.Errorf("want %d points, 90 %% of the feasible ones optimal, and 5 %% on the mean", want)
	}
	j.oracle()
}

func TestCombined(t *testing.T) {
	t.Parallel()
	expectCombined(t, filepath.Join("..", "pofo", "testdata", "combined_small.json"), 100)
}

func TestCombinedShared(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("TestCombined has a quarter of these points")
	}
	expectCombined(t, shared.Path(t, "vectors", "combined_small.json"), 433)
}

// Real chains: never above the best known makespan by more than 1 %, for pure offloading, pofo and rematerialization.
func TestProfiles(t *testing.T) {
	t.Parallel()
	var file struct {
		Cases []struct {
			Name   string `json:"name"`
			Limits []struct {
				Memory    int64    `json:"memory"`
				Bandwidth float64  `json:"bandwidth_bytes_per_s"`
				Dynprog   *float64 `json:"dynprog_makespan_s"`
				Greedy    *float64 `json:"greedy_makespan_s"`
				Pofo      *float64 `json:"pofo_makespan_s"`
			} `json:"limits"`
		} `json:"cases"`
	}
	readJSON(t, shared.Path(t, "vectors", "profile_offload.json"), &file)
	j := &judge{t: t}
	points, planned := 0, 0
	for _, k := range file.Cases {
		c, err := chain.Read(shared.Chains(t, k.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range k.Limits {
			if testing.Short() && i%6 != 0 {
				continue
			}
			points++
			known := min(orInfinite(l.Dynprog), orInfinite(l.Greedy), orInfinite(l.Pofo))
			r := j.plan(strategy.Problem{Chain: c, Memory: l.Memory, Link: schedule.Link{Bandwidth: l.Bandwidth}})
			switch {
			case r != nil && r.Makespan > known*1.01:
				t.Errorf("%s at %d, %g: makespan %v, known is %v", k.Name, l.Memory, l.Bandwidth, r.Makespan, known)
			case r == nil && !math.IsInf(known, 1):
				t.Errorf("%s at %d, %g: refused, known is %v", k.Name, l.Memory, l.Bandwidth, known)
			case r != nil:
				planned++
			}
		}
	}
	t.Logf("%d points, %d planned", points, planned)
	if !testing.Short() && (points != 72 || planned != 48) {
		t.Errorf("%d points, want 72", points)
	}
	j.oracle()
}

// On random chains, with no link, one link and a duplex link, auto is never slower than any strategy on its own. If no strategy solves a
// problem, auto refuses it with the least limit of any, at which it works. The same problem gives the same report.
func TestNeverWorseThanAnyMember(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	j := &judge{t: t}
	planned, refused, chains := 0, 0, 60
	if testing.Short() {
		chains = 10
	}
	for range chains {
		c := plantest.Chain(rnd, 1+rnd.IntN(7))
		for _, link := range []schedule.Link{{}, {Bandwidth: 1}, {Bandwidth: 2, Duplex: true}} {
			p := strategy.Problem{Chain: c, Memory: rnd.Int64N(2 * storeAllPeak(t, c)), Link: link}
			r := j.plan(p)
			best, least := alone(t, p)
			if r == nil {
				refused++
				expectRefusal(t, p, least)
				continue
			}
			planned++
			if r.Makespan > best {
				t.Errorf("%d bytes, %+v: auto takes %v, the best member %v", p.Memory, link, r.Makespan, best)
			}
			if again := j.plan(p); !reflect.DeepEqual(r, again) {
				t.Errorf("two reports for one problem:\n%+v\n%+v", r, again)
			}
		}
	}
	if planned < chains || refused < chains/3 {
		t.Errorf("only %d planned, %d refused", planned, refused)
	}
	j.oracle()
}

func storeAllPeak(t testing.TB, c *chain.Chain) int64 {
	t.Helper()
	r, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		t.Fatal(err)
	}
	return r.Peak
}

// alone runs the members one by one: the best makespan, and the smallest limit of those that refuse.
func alone(t *testing.T, p strategy.Problem) (best float64, least int64) {
	t.Helper()
	best, least = math.Inf(1), math.MaxInt64
	for _, s := range Members(p.Link) {
		seq, err := s.Solve(context.Background(), p)
		if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
			least = min(least, small.Smallest)
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: p.Memory, Link: p.Link})
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		best = min(best, r.Makespan)
	}
	return best, least
}

func expectRefusal(t *testing.T, p strategy.Problem, least int64) {
	t.Helper()
	_, err := Strategy().Solve(context.Background(), p)
	refusal, ok := errors.AsType[*pipeline.InfeasibleError](err)
	if !ok || refusal.Smallest != least || refusal.Found != (least > bound.Memory(p.Chain, p.Link.Bandwidth > 0)) {
		t.Fatalf("refusal %v, the smallest limit of any member is %d", err, least)
	}
	p.Memory = least
	seq, err := Strategy().Solve(context.Background(), p)
	if err != nil {
		t.Fatalf("at its smallest limit: %v", err)
	}
	if r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: least, Link: p.Link}); err != nil || r.Peak > least {
		t.Fatalf("at its smallest limit: %+v, %v", r, err)
	}
}

// A chain that is too long for some members is planned by all of them, groups of layers by these.
func TestLongChain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("nightly: TestSmallestLimitOfGroups plans groups, too")
	}
	c := plantest.Chain(rand.New(rand.NewPCG(3, 4)), 131)
	p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c) / 2, Link: schedule.Link{Bandwidth: 0.05}}
	r, err := Plan(context.Background(), p, Options{Steps: -1})
	if err != nil {
		t.Fatal(err)
	}
	grouped, planned := 0, 0
	for _, x := range r.Candidates {
		if want := (131 + reaches[x.Strategy].groups - 3) / max(1, reaches[x.Strategy].groups-1); x.Group > 1 {
			grouped++
			if x.Group != want || reaches[x.Strategy].whole >= 131 {
				t.Errorf("%s planned %d layers as one, want %d", x.Strategy, x.Group, want)
			}
		}
		if x.Sequence != nil {
			planned++
		} else if !strings.Contains(x.Reason, "does not fit") {
			t.Errorf("%s: %s", x.Strategy, x.Reason)
		}
	}
	if grouped < 3 || planned < 10 || r.Makespan < r.Bound || r.Steps != 0 {
		t.Errorf("%d of %d planned groups, report %s", grouped, planned, r.Why())
	}
}

// A refusal names the smallest limit, also where members plan groups of layers as one.
func TestSmallestLimitOfGroups(t *testing.T) {
	t.Parallel()
	layers := 61
	if testing.Short() {
		layers = 31
	}
	c := plantest.Chain(rand.New(rand.NewPCG(3, 4)), layers)
	p := strategy.Problem{Chain: c, Memory: 1, Link: schedule.Link{Bandwidth: 0.05}}
	_, err := Plan(context.Background(), p, Options{Steps: -1})
	small, ok := errors.AsType[*pipeline.InfeasibleError](err)
	if !ok {
		t.Fatal(err)
	}
	p.Memory = small.Smallest
	if _, err := Plan(context.Background(), p, Options{Steps: -1}); err != nil {
		t.Errorf("at its smallest limit: %v", err)
	}
}

// Every member has at most its own number of groups. For each time that a long chain is twice as long, that number halves. No group is
// larger than need be.
func TestGroups(t *testing.T) {
	t.Parallel()
	for name, r := range reaches {
		for n := 1; n <= remat.MaxLayers; n++ {
			k, most := group(name, n), r.groups
			for length := long; length < n; length *= 2 {
				most = max(most/2, fewest)
			}
			groups := (n-1+k-1)/k + 1
			if k == 1 && groups > max(r.whole, most) || k > 1 && groups > most || k > 1 && (n-1+k-2)/(k-1)+1 <= most {
				t.Fatalf("%s: %d layers in groups of %d", name, n, k)
			}
		}
	}
	if few, many := group("rotor", 1601), group("rotor", 3201); few != 3 || many != 11 {
		t.Errorf("groups of %d and %d", few, many)
	}
}

// A chain longer than any table of the members is for is refused before anything is planned.
func TestChainsTooLong(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "endless", Layers: make([]chain.Layer, 100_000)}
	_, err := Plan(t.Context(), strategy.Problem{Chain: c, Memory: 1}, Options{})
	if !errors.Is(err, remat.ErrTooLarge) || !strings.Contains(err.Error(), "auto: chain too large: 100000 layers with the loss, the limit is 4096") {
		t.Error(err)
	}
}

// Where branches meet, the plan is the faster one of multichain's; without a limit it runs every op once.
func TestBranches(t *testing.T) {
	t.Parallel()
	rng, planned, refused := rand.New(rand.NewPCG(28, 23)), 0, 0
	for range 60 {
		c := plantest.Chain(rng, 7)
		c.Branches = []int{3, 3}
		p := strategy.Problem{Chain: c, Memory: 20 + rng.Int64N(60)}
		best := math.Inf(1)
		for _, s := range multichain.Strategies() {
			seq, err := s.Solve(t.Context(), p)
			if err != nil {
				continue
			}
			r, err := schedule.Simulate(c, seq, p.Limits())
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, r.Makespan)
		}
		r, err := Plan(t.Context(), p, Options{})
		if small := (*pipeline.InfeasibleError)(nil); errors.As(err, &small) {
			if refused++; !math.IsInf(best, 1) || !small.Found {
				t.Errorf("%v, a member takes %v", err, best)
			}
			continue
		}
		if err != nil || r.Makespan != best || r.Bound > best {
			t.Fatalf("%+v, %v; a member takes %v", r, err, best)
		}
		planned++
	}
	if planned < 20 || refused < 5 {
		t.Errorf("%d planned, %d refused", planned, refused)
	}
}

func TestTheReportSaysWhy(t *testing.T) {
	t.Parallel()
	c := plantest.Chain(rand.New(rand.NewPCG(5, 6)), 6)
	all := storeAllPeak(t, c)
	r, err := Plan(context.Background(), strategy.Problem{Chain: c, Memory: all}, Options{})
	if err != nil || r.Winner != "store-all" || !strings.Contains(r.Why(), "no plan is faster") || !strings.Contains(r.Candidates[1].Reason, "bound") {
		t.Errorf("%v: %s, %+v", err, r.Why(), r.Candidates)
	}
	r, err = Plan(context.Background(), strategy.Problem{Chain: c, Memory: all - 1}, Options{})
	if err != nil || !strings.Contains(r.Candidates[0].Reason, "does not fit") || !strings.Contains(r.Why(), r.Winner) {
		t.Errorf("%v: %s, %+v", err, r.Why(), r.Candidates)
	}
}

// A deadline ends the search with the best so far; a canceled context is an error.
func TestContext(t *testing.T) {
	t.Parallel()
	c := plantest.Chain(rand.New(rand.NewPCG(7, 8)), 40)
	p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c) * 2 / 3, Link: schedule.Link{Bandwidth: 0.05}}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	r, err := Plan(ctx, p, Options{Steps: math.MaxInt})
	switch {
	case err == nil:
		(&judge{t: t}).judge(p, r)
	case !errors.Is(err, context.DeadlineExceeded): // a busy machine may have no plan by then
		t.Fatal(err)
	}
	past, end := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer end()
	if r, err = Plan(past, p, Options{}); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline that has passed: %v", err)
	} else if err == nil && !strings.Contains(r.Candidates[len(r.Candidates)-1].Reason, "time given") {
		t.Errorf("pofo ran after the deadline: %+v", r.Candidates)
	}
	gone, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Plan(gone, p, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestBadProblems(t *testing.T) {
	t.Parallel()
	good := plantest.Chain(rand.New(rand.NewPCG(9, 10)), 3)
	for _, b := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := Plan(context.Background(), strategy.Problem{Chain: good, Memory: 100, Link: schedule.Link{Bandwidth: b}}, Options{}); !errors.Is(err, offload.ErrLink) {
			t.Errorf("bandwidth %v: %v", b, err)
		}
	}
	if _, err := Plan(context.Background(), strategy.Problem{Chain: &chain.Chain{}, Memory: 100}, Options{}); !errors.Is(err, chain.ErrFormat) {
		t.Errorf("no layers: %v", err)
	}
}

// A sequence that a kick returns runs, differs from its argument, and is the same for the same seed.
func TestKicks(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(11, 12))
	kicked := 0
	for seed := range uint64(200) {
		c := plantest.Chain(rnd, 2+rnd.IntN(6))
		limits := schedule.Limits{Memory: storeAllPeak(t, c), Link: schedule.Link{Bandwidth: float64(rnd.IntN(3))}}
		seq := remat.StoreAll(c)
		var first schedule.Sequence
		for range 2 {
			k, err := newKicker(c, limits, seed)
			if err != nil {
				t.Fatal(err)
			}
			got, used := k.kick(seq, 1e9)
			if used < 1 || used > tries {
				t.Fatalf("%d simulations", used)
			}
			if first != nil && !reflect.DeepEqual(first, got) {
				t.Fatalf("%v and %v", first, got)
			}
			if first = got; got == nil {
				continue
			}
			kicked++
			if _, err := schedule.Simulate(c, got, limits); err != nil || reflect.DeepEqual(got, seq) {
				t.Fatalf("%v, %v", got, err)
			}
		}
	}
	if kicked < 300 {
		t.Errorf("only %d kicks", kicked)
	}
}

func TestSwallows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Fck1 O2 Fck2 Fall3 B3 P2 Fall1 Fall2 B2 B1":    true,
		"Fck1 O2 Fck2 Fall3 B3 P2 Fall2 B2 Fall1 B1":    false,
		"Fall1 O2 Fall2 Fall3 B3 P2 B2 B1":              false,
		"Fall1 Fall2 Fall3 B3 B2 B1":                    false,
		"Fck1 O2 Fck2 Fall3 B3 P2 Fall2 Fall1 B2 B1":    false,
		"Fck1 O2 Fck2 P2 O2 Fall3 B3 Fall1 P2 Fall2 B2": true,
	} {
		seq, err := schedule.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := swallows(seq); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// Whatever the problem: a plan that keeps the rules and the bound, or a refusal.
func FuzzPlan(f *testing.F) {
	f.Add(uint64(1), uint8(5), uint16(40), uint8(4), false)
	f.Add(uint64(2), uint8(8), uint16(25), uint8(0), false)
	f.Add(uint64(3), uint8(7), uint16(30), uint8(9), true)
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, memory uint16, bandwidth uint8, duplex bool) {
		c := plantest.Chain(rand.New(rand.NewPCG(seed, 0)), 1+int(n%10))
		link := schedule.Link{Bandwidth: float64(bandwidth) / 4, Duplex: duplex}
		(&judge{t: t}).plan(strategy.Problem{Chain: c, Memory: int64(memory % 200), Link: link})
	})
}

// Where rotor-exact plans groups of layers, and there is no link, a refusal still says the smallest limit of any strategy, and auto has a
// plan there.
func TestSmallestOfGroups(t *testing.T) {
	// Serial: it replaces reaches.
	defer maps.Copy(reaches, maps.Clone(reaches))
	reaches["rotor-exact"], reaches["revolve"] = reach{12, 8}, reach{12, 8}
	reaches[remat.BranchAndBound] = reach{12, 8}
	rnd := rand.New(rand.NewPCG(15, 16))
	lower := 0
	for range 20 {
		c := plantest.Chain(rnd, 41) // too long for rotor-floating, which is no persistent strategy
		want, _, err := pofo.Smallest(c)
		if err != nil {
			t.Fatal(err)
		}
		p := strategy.Problem{Chain: c, Memory: 1, Options: strategy.Options{Slots: 20}}
		_, err = Plan(t.Context(), p, Options{Steps: -1})
		small, ok := errors.AsType[*pipeline.InfeasibleError](err)
		if !ok || small.Smallest > want {
			t.Fatalf("%v, the smallest is %d", err, want)
		}
		p.Memory = small.Smallest
		r, err := Plan(t.Context(), p, Options{Steps: -1})
		if err != nil {
			t.Fatalf("at %d, the smallest limit: %v", p.Memory, err)
		}
		if r.Winner == "least-memory" {
			lower++
		}
	}
	if lower < 5 {
		t.Errorf("least-memory alone plans at %d of 20", lower)
	}
}

// lemma3 is the chain of the slip in Lemma 3 of A. Shilova's thesis: no persistent or floating sequence takes less than 31, one takes 22.
func lemma3() *chain.Chain {
	return &chain.Chain{Name: "lemma3", InputBytes: 1, Layers: []chain.Layer{
		{Name: "l1", ForwardS: 1, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1, ForwardOverheadBytes: 18},
		{Name: "l2", ForwardS: 10, OutputBytes: 3, SavedBytes: 3, GradientBytes: 3},
		{Name: "l3", OutputBytes: 8, SavedBytes: 8, GradientBytes: 8},
		{Name: "l4", OutputBytes: 1, SavedBytes: 5, GradientBytes: 1},
		{Name: "loss", OutputBytes: 18, SavedBytes: 18, GradientBytes: 18},
	}}
}

// Without a link auto has the optimum of all sequences and says so; with one, or where the search ended early, it says nothing of the kind.
func TestOptimalOnlyWhereProved(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		p      strategy.Problem
		proved bool
	}{
		{strategy.Problem{Memory: 24}, true},
		{strategy.Problem{Memory: 24, Options: strategy.Options{States: 1}}, false},
		{strategy.Problem{Memory: 24, Link: schedule.Link{Bandwidth: 0.01}}, false},
	} {
		k.p.Chain = lemma3()
		bound := 0.0
		k.p.Proved = func(b float64) { bound = b }
		r, err := Plan(t.Context(), k.p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Contains(r.Why(), "no plan is faster")
		if r.Makespan != 22 && k.p.States == 0 || said != k.proved || (r.Bound == 22) != k.proved || bound != r.Bound {
			t.Errorf("%+v: %v s, bound %v, told %v: %s", k.p, r.Makespan, r.Bound, bound, r.Why())
		}
	}
}

// A proof for groups of layers says nothing of the chain.
func TestNothingIsProvedOfGroups(t *testing.T) {
	// Serial: it replaces reaches.
	defer maps.Copy(reaches, maps.Clone(reaches))
	reaches[remat.BranchAndBound] = reach{4, 4}
	rnd := rand.New(rand.NewPCG(17, 18))
	for range 20 {
		c := plantest.Chain(rnd, 8)
		p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c) * 3 / 4}
		r, err := Plan(t.Context(), p, Options{})
		if errors.As(err, new(*pipeline.InfeasibleError)) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if least, err := bound.Seconds(c, p.Limits()); err != nil || r.Bound != least {
			t.Errorf("bound %v, without proof it is %v (%v)", r.Bound, least, err)
		}
	}
}
