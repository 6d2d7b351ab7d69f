package offload

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/strategy"
)

// known holds the results that the vectors give for a chain under a limit; a result is nil where nothing fits.
type known struct {
	Memory     int64    `json:"memory"`
	Bandwidth  float64  `json:"bandwidth_bytes_per_s"`
	Optimum    *float64 `json:"makespan_s"`
	NoIdle     *float64 `json:"no_idle_s"`
	Algorithm5 *float64 `json:"algorithm5_s"`
	Fractional *float64 `json:"fractional_s"`
	LowerBound *float64 `json:"lower_bound_s"`
	Dynprog    *float64 `json:"dynprog_makespan_s"`
	Greedy     *float64 `json:"greedy_makespan_s"`
}

type smallVectors struct {
	Cases []struct {
		Name      string       `json:"name"`
		Chain     *chain.Chain `json:"chain"`
		MinMemory int64        `json:"min_memory"`
		Peak      int64        `json:"peak"`
		Limits    []known      `json:"limits"`
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

// Thesis, chapter 3, on small chains: the bounds, Algorithm 5's exact value, and sequences that are as good as the
// known ones and never better than the optimum.
func TestVectors(t *testing.T) {
	t.Parallel()
	limits, refused := expectSmall(t, filepath.Join("testdata", "offload_small.json"))
	if limits != 228 || refused != 75 {
		t.Errorf("%d limits and %d refused, want 228 and 75", limits, refused)
	}
}

func TestSharedVectors(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long; TestVectors has a part of it")
	}
	limits, refused := expectSmall(t, shared.Path(t, "vectors", "offload_small.json"))
	if limits != 1695 || refused != 468 {
		t.Errorf("%d limits and %d refused, want 1695 and 468", limits, refused)
	}
}

func expectSmall(t *testing.T, path string) (limits, refused int) {
	t.Helper()
	var file smallVectors
	readJSON(t, path, &file)
	j := &judge{t: t}
	optimal := map[string]int{}
	for _, k := range file.Cases {
		if smallest, peak := limitsOf(t, k.Chain); smallest != k.MinMemory || peak != k.Peak {
			t.Errorf("%s: smallest limit %d and peak %d, want %d and %d", k.Name, smallest, peak, k.MinMemory, k.Peak)
		}
		for _, l := range k.Limits {
			p := problem(k.Chain, l.Memory, l.Bandwidth, false)
			if l.Optimum == nil {
				expectRefused(t, p, k.MinMemory)
				refused++
				continue
			}
			limits++
			expectValue(t, "LowerBound", p, LowerBound, *l.LowerBound)
			expectValue(t, "FractionalBound", p, FractionalBound, *l.Fractional)
			expectValue(t, "Algorithm 5", p, exactAlgorithm5, *l.Algorithm5)
			expectValue(t, "Algorithm 5 in cells", p, algorithm5, *l.Algorithm5)
			for _, s := range Strategies() {
				got := j.makespan(s.Name, p)
				if got < *l.Optimum*(1-1e-9) {
					t.Errorf("%s %s at %d: %v, below the optimum %v", s.Name, k.Name, l.Memory, got, *l.Optimum)
				}
				if plantest.Near(got, *l.Optimum) {
					optimal[s.Name]++
				}
				worst := map[string]*float64{"offload-greedy": l.Greedy, "offload-dynprog": l.Dynprog}[s.Name]
				if worst != nil && got > *worst*(1+1e-9) {
					t.Errorf("%s %s at %d: %v, the vector's sequence takes %v", s.Name, k.Name, l.Memory, got, *worst)
				}
			}
		}
	}
	t.Logf("optimal at so many of %d limits: %v", limits, optimal)
	if optimal["offload-dynprog"]*10 < limits*9 {
		t.Errorf("offload-dynprog is optimal at %d of %d limits only", optimal["offload-dynprog"], limits)
	}
	j.oracle(t, 3000)
	return limits, refused
}

func expectRefused(t *testing.T, p strategy.Problem, smallest int64) {
	t.Helper()
	for _, s := range Strategies() {
		_, err := s.Solve(context.Background(), p)
		e, ok := errors.AsType[*pipeline.InfeasibleError](err)
		if !ok || e.Smallest != smallest && s.Name != "tflms" {
			t.Errorf("%s %s at %d: %v, want a refusal that names %d", s.Name, p.Chain.Name, p.Memory, err, smallest)
		}
	}
	_, err := LowerBound(p)
	if _, ok := errors.AsType[*pipeline.InfeasibleError](err); !ok {
		t.Errorf("LowerBound of %s at %d: %v", p.Chain.Name, p.Memory, err)
	}
}

func expectValue(t *testing.T, what string, p strategy.Problem, of func(strategy.Problem) (float64, error), want float64) {
	t.Helper()
	if got, err := of(p); err != nil || !plantest.Near(got, want) {
		t.Errorf("%s of %s at %d with %v bytes/s: %v (%v), want %v", what, p.Chain.Name, p.Memory, p.Link.Bandwidth, got, err, want)
	}
}

// exactAlgorithm5 has a cell for every value.
func exactAlgorithm5(p strategy.Problem) (float64, error) {
	k, err := newCosts(p)
	if err != nil {
		return 0, err
	}
	d := newDynprog(newFractional(k))
	if err := d.solve(context.Background(), 0); err != nil {
		return 0, err
	}
	return least(d), nil
}

func algorithm5(p strategy.Problem) (float64, error) {
	k, err := newCosts(p)
	if err != nil {
		return 0, err
	}
	d := newDynprog(newFractional(k))
	if err := d.refine(context.Background(), DefaultCells); err != nil {
		return 0, err
	}
	return least(d), nil
}

type profileVectors struct {
	Cases []struct {
		Chain     string  `json:"chain"`
		MinMemory int64   `json:"min_offload_memory"`
		Peak      int64   `json:"peak"`
		Limits    []known `json:"limits"`
	} `json:"cases"`
}

// Real chains: the bounds, and no strategy is slower than the known sequences; Algorithm 5's value is at most the known
// one, which was computed in coarser cells.
func TestProfiles(t *testing.T) {
	t.Parallel()
	var file profileVectors
	readJSON(t, shared.Path(t, "vectors", "profile_offload.json"), &file)
	j := &judge{t: t}
	limits, refused, improved := 0, 0, 0
	ratio := 0.0 // largest of dynprog's makespan to the lower bound
	for _, k := range file.Cases {
		c, err := chain.Read(shared.Path(t, "vectors", filepath.FromSlash(k.Chain)))
		if err != nil {
			t.Fatal(err)
		}
		if smallest, peak := limitsOf(t, c); smallest != k.MinMemory || peak != k.Peak {
			t.Errorf("%s: smallest limit %d and peak %d, want %d and %d", c.Name, smallest, peak, k.MinMemory, k.Peak)
		}
		for _, l := range k.Limits {
			p := problem(c, l.Memory, l.Bandwidth, false)
			if l.LowerBound == nil {
				expectRefused(t, p, k.MinMemory)
				refused++
				continue
			}
			limits++
			expectValue(t, "LowerBound", p, LowerBound, *l.LowerBound)
			expectValue(t, "FractionalBound", p, FractionalBound, *l.Fractional)
			if got, err := algorithm5(p); err != nil || got > *l.Algorithm5*(1+1e-9) || got < *l.Fractional*(1-1e-9) {
				t.Errorf("Algorithm 5 of %s at %d: %v (%v), known %v", c.Name, l.Memory, got, err, *l.Algorithm5)
			}
			for _, s := range Strategies() {
				got := j.makespan(s.Name, p)
				if got < *l.Fractional*(1-1e-9) || got < *l.NoIdle*(1-1e-9) {
					t.Errorf("%s %s at %d: %v, below a bound", s.Name, c.Name, l.Memory, got)
				}
				worst := map[string]*float64{"offload-greedy": l.Greedy, "offload-dynprog": l.Dynprog}[s.Name]
				if worst != nil && got > *worst*(1+1e-9) {
					t.Errorf("%s %s at %d: %v, the vector's sequence takes %v", s.Name, c.Name, l.Memory, got, *worst)
				}
				if s.Name == "offload-dynprog" {
					ratio = max(ratio, got / *l.LowerBound)
					if got < *worst*(1-1e-9) {
						improved++
					}
				}
			}
		}
	}
	t.Logf("%d limits; dynprog is faster than the known sequence at %d, and at most %.3f times the lower bound", limits, improved, ratio)
	if limits != 42 || refused != 30 || math.IsNaN(ratio) {
		t.Errorf("%d limits and %d refused, want 42 and 30", limits, refused)
	}
	j.oracle(t, 3000)
}
