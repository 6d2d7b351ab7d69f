package remat

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// smallVectors is a file of known optima of small chains.
type smallVectors struct {
	Cases []struct {
		Name   string       `json:"name"`
		Chain  *chain.Chain `json:"chain"`
		Limits []struct {
			Memory     int64    `json:"memory"`
			Persistent *float64 `json:"persistent_makespan_s"`
			Floating   *float64 `json:"floating_makespan_s"`
		} `json:"limits"`
		// of remat_errata.json
		Memory   int64    `json:"memory"`
		Theorem6 *float64 `json:"theorem6"`
		Theorem5 *float64 `json:"theorem5_repaired"`
	} `json:"cases"`
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// expectSmall runs every limit of a file through both exact strategies, and rotor with slots of one byte. It
// returns the number of limits.
func (j *judge) expectSmall(path string) (limits int) {
	j.t.Helper()
	var file smallVectors
	readJSON(j.t, path, &file)
	for _, k := range file.Cases {
		for _, l := range k.Limits {
			j.expectBoth(strategy.Problem{Chain: k.Chain, Memory: l.Memory}, l.Persistent, l.Floating)
			limits++
		}
		if k.Theorem6 != nil {
			j.expectBoth(strategy.Problem{Chain: k.Chain, Memory: k.Memory}, k.Theorem6, k.Theorem5)
			limits++
		}
	}
	return limits
}

func (j *judge) expectBoth(p strategy.Problem, persistent, floating *float64) {
	j.t.Helper()
	j.expect("rotor-exact", p, persistent)
	j.expect("rotor-floating", p, floating)
	if p.Memory > 0 {
		p.Slots = int(p.Memory)
		j.expect("rotor", p, persistent)
	}
}

// Thesis, Theorems 5 (repaired) and 6: the optima of small chains, of figure 2.3 and of the counterexamples to
// statements of the thesis.
func TestVectors(t *testing.T) {
	t.Parallel()
	j := &judge{t: t}
	limits := 0
	for _, name := range []string{"remat_small.json", "remat_errata.json", "fig23.json"} {
		limits += j.expectSmall(filepath.Join("testdata", name))
	}
	if want := 172 + 4 + 20; limits != want {
		t.Errorf("%d limits, want %d", limits, want)
	}
	j.oracle()
}

// Only this test finds a makespan that is wrong at one of 1374 known optima, of which TestVectors has 196.
func TestSharedVectors(t *testing.T) {
	t.Parallel()
	j := &judge{t: t}
	limits := 0
	for _, name := range []string{"remat_small.json", "remat_errata.json", "fig23.json"} {
		limits += j.expectSmall(shared.Path(t, "vectors", name))
	}
	if want := 1320 + 4 + 50; limits != want {
		t.Errorf("%d limits, want %d", limits, want)
	}
	j.oracle()
}

// knownRun is a sequence as the vectors know it.
type knownRun struct {
	Segments int     `json:"segments"`
	Makespan float64 `json:"makespan_s"`
	Peak     int64   `json:"peak_bytes"`
}

type profileVectors struct {
	Cases []struct {
		Chain    string       `json:"chain"`
		Smallest int64        `json:"smallest_feasible_bytes"`
		StoreAll knownRun     `json:"store_all"`
		Steps    [][2]float64 `json:"steps"`
		Periodic []knownRun   `json:"periodic"`
		Limits   []struct {
			Memory   int64     `json:"memory"`
			Exact    *float64  `json:"exact_makespan_s"`
			Slots    *float64  `json:"slots_makespan_s"`
			Floating *float64  `json:"floating_makespan_s"`
			Peak     int64     `json:"exact_peak_bytes"`
			Periodic *knownRun `json:"periodic_best"`
		} `json:"limits"`
	} `json:"cases"`
}

// Real chains: every strategy but revolve at every limit of the vectors.
func TestProfiles(t *testing.T) {
	t.Parallel()
	var file profileVectors
	readJSON(t, shared.Path(t, "vectors", "profile_remat.json"), &file)
	j := &judge{t: t}
	limits := 0
	for _, k := range file.Cases {
		c, err := chain.Read(shared.Path(t, filepath.FromSlash(k.Chain)))
		if err != nil {
			t.Fatal(err)
		}
		j.expectStoreAll(c, k.StoreAll)
		j.expectPeriodic(c, k.Periodic)
		j.expectSteps(c, k.Steps)
		for _, l := range k.Limits {
			p := strategy.Problem{Chain: c, Memory: l.Memory}
			j.expect("rotor-exact", p, l.Exact)
			if peak := j.verdicts[len(j.verdicts)-1].Peak; peak > l.Peak {
				t.Errorf("%s at %d: peak %d, the vector's sequence takes %d", c.Name, l.Memory, peak, l.Peak)
			}
			j.expect("rotor", p, l.Slots)
			j.expect("rotor-floating", p, l.Floating)
			j.expectBestPeriodic(p, l.Periodic, k.Periodic)
			limits++
		}
		if got := j.makespan("rotor-exact", strategy.Problem{Chain: c, Memory: k.Smallest - 1}); !math.IsNaN(got) {
			t.Errorf("%s: feasible one byte below the smallest limit", c.Name)
		}
	}
	if limits != 40 {
		t.Errorf("%d limits, want 40", limits)
	}
	j.oracle()
}

func (j *judge) expectStoreAll(c *chain.Chain, want knownRun) {
	j.t.Helper()
	p := strategy.Problem{Chain: c, Memory: want.Peak}
	j.expect("store-all", p, &want.Makespan)
	p.Memory--
	j.expect("store-all", p, nil)
}

func (j *judge) expectPeriodic(c *chain.Chain, want []knownRun) {
	j.t.Helper()
	for _, r := range want {
		p := strategy.Problem{Chain: c, Memory: r.Peak, Options: strategy.Options{Segments: r.Segments}}
		j.expect("periodic", p, &r.Makespan)
		p.Memory--
		j.expect("periodic", p, nil)
	}
	if len(want) != c.Len()-1 {
		j.t.Errorf("%s: %d numbers of segments, want %d", c.Name, len(want), c.Len()-1)
	}
}

// expectBestPeriodic compares with the fastest known run that fits; of equally fast ones the lowest peak counts.
func (j *judge) expectBestPeriodic(p strategy.Problem, fastest *knownRun, runs []knownRun) {
	j.t.Helper()
	if fastest == nil {
		j.expect("periodic", p, nil)
		return
	}
	j.expect("periodic", p, &fastest.Makespan)
	lowest := fastest.Peak
	for _, r := range runs {
		if plantest.Near(r.Makespan, fastest.Makespan) {
			lowest = min(lowest, r.Peak)
		}
	}
	if got := j.verdicts[len(j.verdicts)-1].Peak; got != lowest {
		j.t.Errorf("periodic %s at %d: peak %d, want %d", p.Chain.Name, p.Memory, got, lowest)
	}
}

// expectSteps compares whole frontiers: the persistent one with the vectors', the floating one with the same, which
// holds for these chains.
func (j *judge) expectSteps(c *chain.Chain, want [][2]float64) {
	j.t.Helper()
	for name, frontier := range map[string]func(context.Context, *chain.Chain) (*Frontier, error){"exact": Exact, "floating": Floating} {
		f, err := frontier(context.Background(), c)
		if err != nil {
			j.t.Fatal(err)
		}
		got := f.Breakpoints()
		if len(got) != len(want) {
			j.t.Errorf("%s %s: %d steps, want %d", c.Name, name, len(got), len(want))
			continue
		}
		for i, s := range got {
			if s.Memory != int64(want[i][0]) || !plantest.Near(s.Makespan, want[i][1]) {
				j.t.Errorf("%s %s: step %d is %v, want %v", c.Name, name, i, s, want[i])
			}
			j.expectStep(f, c, s)
		}
	}
}

// expectStep runs a step's sequence: its peak is the step's memory to the byte, so no limit below it would do.
func (j *judge) expectStep(f *Frontier, c *chain.Chain, s Breakpoint) {
	j.t.Helper()
	seq, err := f.Sequence(s.Memory)
	if err != nil {
		j.t.Fatal(err)
	}
	r, err := schedule.Simulate(c, seq, schedule.Limits{Memory: s.Memory})
	if err != nil {
		j.t.Fatal(err)
	}
	if r.Peak != s.Memory || !plantest.Near(r.Makespan, s.Makespan) {
		j.t.Errorf("%s: the sequence of step %v has peak %d and makespan %v", c.Name, s, r.Peak, r.Makespan)
	}
}
