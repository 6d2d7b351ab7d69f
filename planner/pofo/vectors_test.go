package pofo

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/plantest"
	"plimsoll/planner/strategy"
)

// vectors is a file of known answers; nil means infeasible.
type vectors struct {
	Cases []struct {
		Name   string       `json:"name"`
		Chain  *chain.Chain `json:"chain"`
		Limits []struct {
			Memory       int64    `json:"memory"`
			Bandwidth    float64  `json:"bandwidth_bytes_per_s"`
			Optimum      *float64 `json:"makespan_s"`
			PofoCost     *float64 `json:"pofo_cost_s"`
			PofoMakespan *float64 `json:"pofo_makespan_s"`
		} `json:"limits"`
	} `json:"cases"`
}

func orInfinite(x *float64) float64 {
	if x == nil {
		return math.Inf(1)
	}
	return *x
}

// program returns the value of the dynamic program, seconds; infinite when nothing fits. That the value is known changes nothing,
// and below it nothing is found.
func program(t testing.TB, p strategy.Problem, whole bool) float64 {
	t.Helper()
	k, err := newCosts(p)
	if err != nil {
		t.Fatal(err)
	}
	best := within(t, k, p.Memory, math.Inf(1), whole)
	if math.IsInf(best, 1) {
		return best
	}
	if again := within(t, k, p.Memory, best*(1+1e-9), whole); again != best {
		t.Errorf("%d bytes, %g bytes/s: %v when %v is known", p.Memory, k.bandwidth, again, best)
	}
	if less := within(t, k, p.Memory, best*(1-1e-9), whole); !math.IsInf(less, 1) {
		t.Errorf("%d bytes, %g bytes/s: %v, the best is %v", p.Memory, k.bandwidth, less, best)
	}
	return best / k.bandwidth
}

// within returns the value of the program in bytes when plans that take more than longest are of no use.
func within(t testing.TB, k *costs, memory int64, longest float64, whole bool) float64 {
	t.Helper()
	g := &segments{costs: k, limit: float64(memory), excess: longest - k.must(1, k.n), cells: DefaultCells}
	if err := g.solve(context.Background()); err != nil {
		t.Fatal(err)
	}
	f := &forward{costs: k, segments: g, limit: g.limit, longest: longest, cells: DefaultCells, most: maxStates, whole: whole}
	if !math.IsInf(longest, 1) {
		f.tails = g.tails()
	}
	ends, err := f.solve(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(ends) == 0 {
		return math.Inf(1)
	}
	return ends[0].cost
}

// expectProgram compares every value of a file with the program's, and its smallest limit with where it begins to be
// feasible. It returns the number of points.
func expectProgram(t *testing.T, path string) (points int) {
	t.Helper()
	var file vectors
	readJSON(t, path, &file)
	for _, c := range file.Cases {
		for _, l := range c.Limits {
			p := problem(c.Chain, l.Memory, l.Bandwidth)
			if got, want := program(t, p, false), orInfinite(l.PofoCost); !plantest.Near(got, want) {
				t.Errorf("%s at %d, %g: the program says %v, want %v", c.Name, l.Memory, l.Bandwidth, got, want)
			}
			k, err := newCosts(p)
			if err != nil {
				t.Fatal(err)
			}
			if feasible := l.Memory >= k.newLeast(t.Context()).memory(); feasible != (l.PofoCost != nil) {
				t.Errorf("%s at %d: feasible is %v, least is %d", c.Name, l.Memory, feasible, k.newLeast(t.Context()).memory())
			}
			points++
		}
	}
	return points
}

// Thesis, Theorem 12, repaired: the optimum under assumptions OR.1 to OR.5, one state per exact value.
func TestProgram(t *testing.T) {
	t.Parallel()
	points := expectProgram(t, filepath.Join("testdata", "pofo_small.json")) + expectProgram(t, filepath.Join("testdata", "combined_small.json"))
	if want := 318 + 116; points != want {
		t.Errorf("%d points, want %d", points, want)
	}
}

func TestProgramShared(t *testing.T) {
	t.Parallel()
	points := expectProgram(t, shared.Path(t, "vectors", "pofo_small.json")) + expectProgram(t, shared.Path(t, "vectors", "combined_small.json"))
	if want := 1362 + 433; points != want {
		t.Errorf("%d points, want %d", points, want)
	}
}

// tally counts how a strategy does against known optima.
type tally struct {
	points, feasible, optimal, refused int
	ratios                             float64 // sum over the points with a sequence
}

// expectCombined compares every strategy with the optimum over all sequences. It returns pofo's tally.
func (j *judge) expectCombined(path string) (pofo tally) {
	j.t.Helper()
	var file vectors
	readJSON(j.t, path, &file)
	for _, s := range Strategies() {
		var n tally
		for _, c := range file.Cases {
			for _, l := range c.Limits {
				got, best := j.makespan(s, problem(c.Chain, l.Memory, l.Bandwidth)), orInfinite(l.Optimum)
				if got < best*(1-1e-9) {
					j.t.Errorf("%s %s at %d, %g: makespan %v, the optimum is %v", s.Name, c.Name, l.Memory, l.Bandwidth, got, best)
				}
				if s.Name == "pofo" && got > orInfinite(l.PofoMakespan)*(1+1e-9) {
					j.t.Errorf("pofo %s at %d, %g: makespan %v, known is %v", c.Name, l.Memory, l.Bandwidth, got, *l.PofoMakespan)
				}
				n.count(got, best)
			}
		}
		j.t.Logf("%s: %d points, %d feasible: %d optimal, %d refused, mean ratio %.4f", s.Name,
			n.points, n.feasible, n.optimal, n.refused, n.ratios/float64(n.feasible-n.refused))
		pofo = n
	}
	return pofo
}

func (n *tally) count(got, best float64) {
	n.points++
	if math.IsInf(best, 1) {
		return
	}
	n.feasible++
	switch {
	case math.IsInf(got, 1):
		n.refused++
		return
	case plantest.Near(got, best):
		n.optimal++
	}
	n.ratios += got / best
}

func (n *tally) expect(t *testing.T, points int) {
	t.Helper()
	if n.points != points || 10*n.optimal < 9*n.feasible || n.ratios > 1.05*float64(n.feasible-n.refused) {
		t.Errorf("%+v: want %d points, 90 %% optimal, and 5 %% on the mean", *n, points)
	}
}

// The optimum over all sequences of all ops: pofo reaches it at nine tenths of the points.
func TestCombined(t *testing.T) {
	t.Parallel()
	j := &judge{t: t}
	n := j.expectCombined(filepath.Join("testdata", "combined_small.json"))
	n.expect(t, 116)
	j.oracle()
}

func TestCombinedShared(t *testing.T) {
	t.Parallel()
	j := &judge{t: t}
	n := j.expectCombined(shared.Path(t, "vectors", "combined_small.json"))
	n.expect(t, 433)
	j.oracle()
}

// profileVectors is vectors of real chains.
type profileVectors struct {
	Cases []struct {
		Name   string `json:"name"`
		Limits []struct {
			Memory       int64    `json:"memory"`
			Bandwidth    float64  `json:"bandwidth_bytes_per_s"`
			NoIdle       float64  `json:"no_idle_s"`
			Dynprog      *float64 `json:"dynprog_makespan_s"`
			PofoMakespan *float64 `json:"pofo_makespan_s"`
		} `json:"limits"`
	} `json:"cases"`
}

// Real chains: pofo is never above the best known makespan by more than 1 %, and refuses what is known to be infeasible.
func TestProfiles(t *testing.T) {
	t.Parallel()
	var file profileVectors
	readJSON(t, shared.Path(t, "vectors", "profile_offload.json"), &file)
	j := &judge{t: t}
	points, better := 0, 0
	for _, k := range file.Cases {
		c := readChain(t, k.Name)
		for i, l := range k.Limits {
			if testing.Short() && i%5 != 0 {
				continue
			}
			points++
			known := min(orInfinite(l.PofoMakespan), orInfinite(l.Dynprog))
			for _, s := range Strategies() {
				got := j.makespan(s, problem(c, l.Memory, l.Bandwidth))
				if got < l.NoIdle*(1-1e-9) {
					t.Errorf("%s %s at %d, %g: makespan %v is below what no sequence avoids, %v", s.Name, c.Name, l.Memory, l.Bandwidth, got, l.NoIdle)
				}
				if s.Name == "pofo" && got > known*1.01 {
					t.Errorf("pofo %s at %d, %g: makespan %v, known is %v", c.Name, l.Memory, l.Bandwidth, got, known)
				}
				if s.Name == "pofo" && got < known*0.999 {
					better++
				}
			}
		}
	}
	t.Logf("%d points, pofo is better than known at %d", points, better)
	if !testing.Short() && points != 72 {
		t.Errorf("%d points, want 72", points)
	}
	j.oracle()
}
