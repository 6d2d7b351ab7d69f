package interop

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// expected holds the values that shared vectors give for a table.
type expected struct {
	Ranks        int     `json:"ranks"`
	Stages       int     `json:"stages"`
	Microbatches int     `json:"microbatches"`
	Makespan     float64 `json:"makespan"`
	Bubble       float64 `json:"bubble_fraction"`
	Peak         []int   `json:"peak_live_activations"`
	Deadlock     bool    `json:"deadlock"`
}

func readExpected(t *testing.T) map[string]expected {
	t.Helper()
	data, err := os.ReadFile("testdata/pytorch/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]expected{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPyTorch: every table that PyTorch printed costs exactly what expected.json says, deadlocks included; the lowered ones
// cost what they cost before.
func TestPyTorch(t *testing.T) {
	t.Parallel()
	all := readExpected(t)
	files, _ := filepath.Glob("testdata/pytorch/*.csv")
	if len(files) != 39 || len(all) != 36 {
		t.Fatalf("%d tables, %d expectations", len(files), len(all))
	}
	stuck := 0
	for _, file := range files {
		want, ok := all[strings.Replace(filepath.Base(file), ".comms", "", 1)]
		if !ok {
			t.Fatalf("nothing is expected of %s", file)
		}
		s, err := ReadSchedule(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(unitCosts(s.Stages), false)
		if err != nil {
			t.Fatal(err)
		}
		got := expected{len(s.Rows), s.Stages, s.Microbatches, r.Makespan, r.Bubble, r.PeakLive, r.Deadlock()}
		if got.Ranks != want.Ranks || got.Stages != want.Stages || got.Microbatches != want.Microbatches || got.Makespan != want.Makespan ||
			got.Bubble != want.Bubble || got.Deadlock != want.Deadlock || !slices.Equal(got.Peak, want.Peak) {
			t.Errorf("%s: %+v, want %+v", file, got, want)
		}
		if s.Lowered != strings.Contains(file, ".comms") {
			t.Errorf("%s: lowered %v", file, s.Lowered)
		}
		if legal := len(s.Violations()) == 0; legal == want.Deadlock {
			t.Errorf("%s: violations %v, deadlock %v", file, s.Violations(), want.Deadlock)
		}
		if r.Deadlock() {
			stuck++
			continue
		}
		comparePlan(t, s, r)
	}
	if stuck != 4 {
		t.Errorf("%d tables deadlock, 4 do", stuck)
	}
}

// comparePlan: the plan of a table is valid for the checker of pipelines, which finds the same figures.
func comparePlan(t *testing.T, s *Schedule, r *Run) {
	t.Helper()
	p, err := s.Place(UnitChain(s.Stages), nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	report, err := pipeline.Check(p.Chain, p.Platform, plan)
	if err != nil {
		t.Fatalf("%s: %v", s.File, err)
	}
	if report.Makespan != r.Makespan || math.Abs(report.Bubble-r.Bubble) > 1e-12 {
		t.Errorf("%s: the checker finds makespan %v and bubble %v, the run %v and %v", s.File, report.Makespan, report.Bubble, r.Makespan, r.Bubble)
	}
}

// TestIllegal: the message names the first op that cannot run, what it waits for, and where that is.
func TestIllegal(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"1f1b_2ranks_1stages_2mb": "rank 1 cannot run 1B0 (op 1, cell 1): it waits for 1F0, which no rank runs",
		"1f1b_4ranks_1stages_8mb": "rank 3 cannot run 3B0 (op 1, cell 1): it waits for 3F0, which no rank runs",
	} {
		s, err := ReadSchedule("testdata/pytorch/" + file + ".csv")
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(unitCosts(s.Stages), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Stuck[0].String(); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

func TestStuck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0B0,0F0":                          "rank 0 cannot run 0B0 (op 0, cell 0): it waits for 0F0, which comes later in the same row",
		"0F0,0W0,0I0":                      "rank 0 cannot run 0W0 (op 1, cell 1): it waits for 0I0, which comes later in the same row",
		"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0": "rank 1 cannot run 1F1 (op 0, cell 0): it waits for 0F1, op 2 of rank 0, which is stuck too",
		"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0": "rank 1 cannot run 1F0 (op 0, cell 0): it waits for 1RECV_F0, which comes later in the same row",
		"0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0":          "rank 1 cannot run 1F0 (op 1, cell 1): it waits for 0SEND_F0, which no rank runs",
	} {
		s, err := ParseSchedule("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(unitCosts(s.Stages), false)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Stuck) == 0 || r.Stuck[0].String() != want {
			t.Errorf("%q: %v, want %s", text, r.Stuck, want)
		}
	}
}

func TestViolations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0F0,0B0":                  "",
		"0F0,0I0,0W0":              "",
		"0F0,0F0,0B0":              "rank 0: 0F0 is there twice",
		"0F0":                      "rank 0: 0B0 is missing",
		"0F0,0I0":                  "rank 0: 0W0 is missing",
		"0F0,0W0":                  "rank 0: 0I0 is missing",
		"0F0,0I0,0W0,0B0":          "rank 0: 0B0 is there beside a half of it",
		"0B0":                      "rank 0: 0F0 is missing",
		"1F0,1B0":                  "0F0 is missing",
		"0F0,0B0,0SEND_F0":         "rank 0: 0SEND_F0 has no stage at the other end",
		"0F0,0SEND_F0,1F0,1B0,0B0": "rank 0: 0SEND_F0 goes to stage 1 of the same rank",
		"0F0,0SEND_F0,0B0\n1F0,1B0,1RECV_F0,0RECV_B0":                                                              "rank 1: 0RECV_B0 is in the row of rank 1, stage 0 is not there",
		"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1": "rank 1: 1RECV_F1 takes what rank 0 sends next, 0SEND_F0",
		"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1": "",
		"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1RECV_F0":                                                              "rank 1: 1SEND_B0 is missing, 0RECV_B0 is there",
	} {
		s, err := ParseSchedule("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if v := s.Violations(); len(v) > 0 {
			got = v[0].String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestScheduleErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    `x: field "op" is missing`,
		"0F0\n0F1":            `x:2: field "op 0" is "0F1", which puts stage 0 on rank 1, line 1 has it on rank 0`,
		"0F0,F1":              `x:1: field "op 1" is "F1", which does not begin with a stage`,
		"0F0,\r\n1X1":         `x:2: field "op 0" is "1X1", which is no op`,
		"0F":                  `x:1: field "op 0" is "0F", which does not end with a microbatch`,
		"(0F0;0B)OVERLAP_F_B": `x:1: field "op 0" is "0B", which does not end with a microbatch`,
		"(0F0;0B0":            `x:1: field "op 0" is "(0F0;0B0", which does not begin with a stage`,
		"99999F0":             `x:1: field "op 0" is "99999F0", which does not begin with a stage, 0 to 4095`,
		"0UNSHARD":            `x: field "op" is missing`,
	} {
		var e *fields.FileError
		if _, err := ParseSchedule("x", []byte(text)); !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestLowered: in a lowered table a transfer waits for its receive, in another one for its data only. By hand, with 4 s for a
// forward communication.
func TestLowered(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1": 17,
		"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1": 14,
	} {
		s, err := ParseSchedule("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c := unitCosts(2)
		c.Forward[0] = 4
		r, err := s.Run(c, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Violations()) > 0 || r.Makespan != want {
			t.Errorf("%q: %v s, want %v; %v", text, r.Makespan, want, s.Violations())
		}
	}
}

// randomChain is a chain of n layers with halves of backwards.
func randomChain(rng *rand.Rand, n int) *chain.Chain {
	c := &chain.Chain{Name: "random", InputBytes: rng.Int64N(20)}
	for range n {
		i, w := float64(rng.IntN(5)), float64(rng.IntN(5))
		a := rng.Int64N(20)
		c.Layers = append(c.Layers, chain.Layer{ForwardS: float64(rng.IntN(5)), BackwardS: i + w, BackwardInputS: &i, BackwardWeightS: &w,
			OutputBytes: a, SavedBytes: a, GradientBytes: rng.Int64N(20), WeightBytes: rng.Int64N(20)})
	}
	return c
}

// TestPlaced: on random chains and links every legal table becomes a plan that the checker accepts with the run's makespan.
func TestPlaced(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("testdata/pytorch/*.csv")
	rng := rand.New(rand.NewPCG(7, 1))
	count, transfers := 0, 0
	for _, file := range files {
		s, err := ReadSchedule(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Violations()) > 0 {
			continue
		}
		for range 4 {
			p := pipeline.NewPlatform(len(s.Rows), pipeline.NoLimit, float64(1+rng.IntN(30)))
			p.Duplex = rng.IntN(2) == 0
			placed, err := s.Place(randomChain(rng, s.Stages+rng.IntN(6)), p)
			if err != nil {
				t.Fatal(err)
			}
			r, err := placed.Run()
			if err != nil {
				t.Fatal(err)
			}
			plan, err := placed.Plan(r)
			if err != nil {
				t.Fatal(err)
			}
			report, err := pipeline.Check(placed.Chain, p, plan)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if math.Abs(report.Makespan-r.Makespan) > 1e-9*r.Makespan {
				t.Errorf("%s: makespan %v, the checker finds %v", file, r.Makespan, report.Makespan)
			}
			count++
			transfers += len(r.Transfers)
		}
	}
	if count != 35*4 || transfers < 1000 {
		t.Errorf("%d plans with %d transfers", count, transfers)
	}
}

// TestSpread: the cut is the best of all.
func TestSpread(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 2))
	for range 300 {
		n := 1 + rng.IntN(7)
		stages := 1 + rng.IntN(n)
		k := pipeline.NewCosts(randomChain(rng, n))
		longest := func(cut []pipeline.Stage) (most float64) {
			for _, st := range cut {
				most = max(most, k.U(st.First, st.Last))
			}
			return most
		}
		got := spread(k, stages)
		if got[0].First != 1 || got[stages-1].Last != n {
			t.Fatalf("%v of %d layers", got, n)
		}
		for s := range stages {
			if got[s].Len() < 1 || s > 0 && got[s].First != got[s-1].Last+1 {
				t.Fatalf("%v of %d layers", got, n)
			}
		}
		best := math.Inf(1)
		var all func(cut []pipeline.Stage, first int)
		all = func(cut []pipeline.Stage, first int) {
			if len(cut) == stages {
				if first == n+1 {
					best = min(best, longest(cut))
				}
				return
			}
			for last := first; last <= n; last++ {
				all(append(slices.Clone(cut), pipeline.Stage{First: first, Last: last}), last+1)
			}
		}
		all(nil, 1)
		if longest(got) != best {
			t.Fatalf("%v takes %v, the best %v", got, longest(got), best)
		}
	}
}

// TestManyStages: as many stages as layers are one layer each, whatever a short table names, and cost no table of all ranges.
func TestManyStages(t *testing.T) {
	// Serial: it counts allocations.
	s, err := ParseSchedule("x", []byte("4095F0"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Place(UnitChain(s.Stages), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Stages) != maxStages {
		t.Fatalf("%d stages, want %d", len(p.Stages), maxStages)
	}
	for i, st := range p.Stages {
		if st.First != i+1 || st.Last != i+1 {
			t.Fatalf("stage %d has layers %d to %d", i, st.First, st.Last)
		}
	}
	k := pipeline.NewCosts(p.Chain)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	spread(k, maxStages)
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > 4<<20 {
		t.Errorf("%d bytes for %d stages", made, maxStages)
	}
}

func TestPlaceErrors(t *testing.T) {
	t.Parallel()
	s, err := ParseSchedule("x", []byte("0F0,0I0,0W0\n1F0,1I0,1W0"))
	if err != nil {
		t.Fatal(err)
	}
	whole := &chain.Chain{Name: "c", Layers: []chain.Layer{{Name: "one"}, {Name: "two"}}}
	apart := pipeline.NewPlatform(3, pipeline.NoLimit, 1)
	apart.Pairs = map[[2]int]float64{{0, 1}: 0}
	for _, c := range []struct {
		chain    *chain.Chain
		platform *pipeline.Platform
		want     error
		text     string
	}{
		{whole, nil, ErrChain, "layer 1 (one) lacks backward_input_s"},
		{UnitChain(1), nil, ErrChain, "it has 1 layers with the loss, the schedule 2 stages"},
		{UnitChain(2), pipeline.NewPlatform(1, 1, 1), pipeline.ErrPlatform, `field "devices" is 1, the schedule has 2 ranks`},
		{&chain.Chain{}, nil, chain.ErrFormat, "layers"},
		{&chain.Chain{Name: "c", Layers: make([]chain.Layer, 3), Branches: []int{1, 1}}, nil, pipeline.ErrBranches, "single chains"},
	} {
		if _, err := s.Place(c.chain, c.platform); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %v: %s", err, c.want, c.text)
		}
	}
	c := randomChain(rand.New(rand.NewPCG(1, 1)), 2)
	c.Layers[0].OutputBytes, c.Layers[0].SavedBytes = 5, 5
	if _, err := s.Place(c, apart); !errors.Is(err, pipeline.ErrPlatform) {
		t.Errorf("%v for stages that no link joins", err)
	}
	if _, err := s.Run(&Costs{}, false); !errors.Is(err, ErrCosts) {
		t.Errorf("%v for costs of no stage", err)
	}
}

// FuzzSchedule: whatever the text, reading, placing and running end; a table without violations that ends is a valid plan.
func FuzzSchedule(f *testing.F) {
	files, _ := filepath.Glob("testdata/pytorch/*.csv")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("0F0,0F1,(0B0;0B1)OVERLAP,\n\n1F0"))
	f.Add([]byte("3RECV_B0,3B0"))
	f.Add([]byte("0RECV_F0,0F0,0B0,0SEND_B0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSchedule("x", data)
		if err != nil {
			return
		}
		if _, err := s.Place(UnitChain(s.Stages), nil); err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(unitCosts(s.Stages), false)
		if err != nil {
			t.Fatal(err)
		}
		violations := s.Violations()
		if len(violations) > 0 || r.Deadlock() {
			return
		}
		if len(s.Rows) > len(slices.Compact(slices.Sorted(slices.Values(s.Rank)))) {
			return // rows without ops: the checker does not count them
		}
		comparePlan(t, s, r)
	})
}

// unitCosts is F = I = W = 1 s, B = 2 s and no time for communication.
func unitCosts(stages int) *Costs {
	c := &Costs{Forward: make([]float64, stages), Backward: make([]float64, stages)}
	for a, seconds := range [...]float64{Forward: 1, Backward: 2, BackwardInput: 1, BackwardWeight: 1} {
		c.Compute[a] = slices.Repeat([]float64{seconds}, stages)
	}
	return c
}
