package flush

import (
	"encoding/json"
	"math/big"
	"os"
	"slices"
	"testing"
)

// size of a schedule and what its stages cost, seconds.
type setting struct {
	P, v, m int
	F, B, W float64 // of one stage; B + W is the whole backward
}

// published holds a paper's claims about a schedule. Formulas are the same as in the doc comments, with F, B and W of one stage.
type published struct {
	name      string
	schedules []setting // costs and chunks to try; P and m are filled in
	least     func(P int) int
	makespan  func(s setting) float64
	live      func(s setting, d int) int
	own       func(s setting, d int) float64 // span of a device; nil: not said
}

var (
	whole = []setting{{F: 1, B: 2}, {F: 1, B: 1}, {F: 3, B: 1}, {F: 0.25, B: 1.75}}
	split = []setting{{F: 1, B: 1, W: 1}, {F: 2.5, B: 2.5, W: 2.5}}
	// The zero bubble paper's formulas need W to be the shortest and F no longer than B.
	unequal = append(slices.Clone(split), setting{F: 2, B: 2, W: 1}, setting{F: 1, B: 2, W: 1}, setting{F: 2, B: 3, W: 2}, setting{F: 4, B: 5, W: 3})
)

func in(v int, all []setting) []setting {
	all = slices.Clone(all)
	for i := range all {
		all[i].v = v
	}
	return all
}

func work(s setting) float64 { return float64(s.m*s.v) * (s.F + s.B + s.W) }

var formulas = []published{
	{
		name: "gpipe", schedules: in(1, whole), least: func(int) int { return 1 },
		makespan: func(s setting) float64 { return float64(s.m+s.P-1) * (s.F + s.B) },
		live:     func(s setting, _ int) int { return s.m },
	}, {
		name: "1f1b-flush", schedules: in(1, whole), least: func(int) int { return 1 },
		makespan: func(s setting) float64 { return float64(s.m+s.P-1) * (s.F + s.B) },
		live:     func(s setting, d int) int { return min(s.m, s.P-d) },
	}, {
		name: "interleaved", schedules: slices.Concat(in(1, whole), in(2, whole), in(3, whole)), least: func(P int) int { return P },
		makespan: func(s setting) float64 { return work(s) + float64(s.P-1)*(s.F+s.B) },
		live:     func(s setting, d int) int { return min(s.m*s.v, 2*(s.P-d-1)+(s.v-1)*s.P+1) },
	}, {
		name: "looped-bfs", schedules: slices.Concat(in(1, whole), in(2, whole), in(3, whole)), least: func(P int) int { return P },
		makespan: func(s setting) float64 { return work(s) + float64(s.P-1)*(s.F+s.B) },
		live:     func(s setting, _ int) int { return s.m * s.v },
	}, {
		name: "chimera", schedules: in(1, []setting{{F: 1, B: 1}, {F: 2.5, B: 2.5}}), least: func(P int) int { return P },
		makespan: func(s setting) float64 { return float64(2*s.m+s.P-2) * s.F },
		live:     func(s setting, d int) int { return s.P/2 + 1 + min(d, s.P-1-d) },
	}, {
		name: "zb-h1", schedules: in(1, unequal), least: func(P int) int { return P },
		makespan: func(s setting) float64 { return work(s) + float64(s.P-1)*(s.F+s.B-s.W) },
		live:     func(s setting, _ int) int { return s.P },
	}, {
		name: "zb-h2", schedules: in(1, split), least: func(P int) int { return 2*P - 1 },
		makespan: func(s setting) float64 { return work(s) + float64(s.P-1)*s.F },
		live:     func(s setting, _ int) int { return 2*s.P - 1 },
		own:      func(s setting, _ int) float64 { return work(s) + float64(s.P-1)*(s.F+s.B-2*s.W) },
	}, {
		name: "zb-v", schedules: in(2, split), least: func(P int) int { return P },
		makespan: func(s setting) float64 { return work(s) + float64(s.P-1)*s.F },
		live:     func(s setting, _ int) int { return 2 * s.P },
	}, {
		name: "dualpipe-v", schedules: in(2, split), least: func(P int) int { return 2 * P },
		makespan: func(s setting) float64 { return work(s) + float64(s.P-1)*s.F },
		live:     func(s setting, _ int) int { return 2*s.P + 1 },
	},
}

// Every schedule has exactly the makespan and the activations of its formula, over a grid of sizes and costs.
func TestFormulas(t *testing.T) {
	t.Parallel()
	compared := map[string]int{}
	for _, f := range formulas {
		for _, s := range f.schedules {
			for _, P := range []int{1, 2, 3, 4, 8} {
				if f.name == "chimera" && P%2 != 0 || P > 4 && testing.Short() {
					continue
				}
				for _, m := range microbatches(f, P) {
					s.P, s.m = P, m
					expect(t, f, s)
					compared[f.name]++
				}
			}
		}
	}
	for _, f := range formulas {
		if compared[f.name] < 12 {
			t.Errorf("%s: only %d sizes", f.name, compared[f.name])
		}
	}
	t.Log(compared)
}

// microbatches returns numbers at and above the least for which a formula holds; multiples of P where the schedule asks.
func microbatches(f published, P int) []int {
	least := f.least(P)
	if f.name == "interleaved" || f.name == "chimera" {
		return []int{P, 2 * P, 5 * P}
	}
	return []int{least, least + 1, 2*least + 3, 4 * P}
}

func expect(t *testing.T, f published, s setting) {
	t.Helper()
	got := planned(t, f.name, s.P, s.v, s.m, s.F, s.B, s.W)
	if want := f.makespan(s); !near(got.makespan, want) {
		t.Errorf("%s %+v: makespan %g, the formula says %g", f.name, s, got.makespan, want)
	}
	if want := 1 - work(s)/f.makespan(s); !near(got.bubble, want) {
		t.Errorf("%s %+v: bubble %g, the formula says %g", f.name, s, got.bubble, want)
	}
	for d, live := range got.live {
		if want := f.live(s, d); live != want {
			t.Errorf("%s %+v: %d activations on device %d, the formula says %d", f.name, s, live, d, want)
		}
		if f.own != nil && !near(got.own[d], f.own(s, d)) {
			t.Errorf("%s %+v: device %d works for %g, the formula says %g", f.name, s, d, got.own[d], f.own(s, d))
		}
	}
}

// Zero Bubble, table 1: the bubble of zb-h2 is (P-1)(F+B-2W), that of the first device within its own span.
func TestZeroBubbleH2OfUnequalHalves(t *testing.T) {
	t.Parallel()
	for _, s := range in(1, unequal) {
		for _, P := range []int{2, 4, 8} {
			got := planned(t, "zb-h2", P, 1, 4*P, s.F, s.B, s.W)
			s.P, s.m = P, 4*P
			if want := work(s) + float64(P-1)*(s.F+s.B-2*s.W); !near(got.own[0], want) {
				t.Errorf("%+v: the first device works for %g, the paper says %g", s, got.own[0], want)
			}
		}
	}
}

// Controllable Memory: with F = B = W, v-min holds (P+4)/3 and v-half (P+2)/2 activations of a device, rounded down; their
// bubble rates are about 2P/3m and P/2m. Ours hold exactly that and have no larger bubble.
func TestControllableMemory(t *testing.T) {
	t.Parallel()
	compared := 0
	for _, s := range in(2, split) {
		for _, P := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9} {
			for _, m := range []int{P + 1, 2 * P, 3*P + 1} {
				s.P, s.m = P, m
				atMost(t, "v-half", s, 2*((P+2)/2), float64(P)/2)
				atMost(t, "v-min", s, 2*((P+4)/3), 2*float64(P)/3)
				compared++
			}
		}
	}
	if compared != 54 {
		t.Errorf("%d sizes", compared)
	}
}

// atMost: exactly so many activations; a bubble of at most so many microbatches.
func atMost(t *testing.T, name string, s setting, live int, bubble float64) {
	t.Helper()
	got := planned(t, name, s.P, s.v, s.m, s.F, s.B, s.W)
	if top := slices.Max(got.live); top != live {
		t.Errorf("%s %+v: %d activations, the paper says %d", name, s, top, live)
	}
	idle, microbatch := got.makespan-work(s), work(s)/float64(s.m)
	if idle > bubble*microbatch+1e-9 {
		t.Errorf("%s %+v: a bubble of %g s, the paper says %g", name, s, idle, bubble*microbatch)
	}
}

// DualPipe's table gives a bubble of (PP/2-1)(F&B+B-3W) for PP = 2P stages, with B the whole backward and F&B a forward
// and a backward at once. One after the other, F&B = F+B, ours is never longer.
func TestDualPipeBubble(t *testing.T) {
	t.Parallel()
	for _, s := range in(2, unequal) {
		for _, P := range []int{1, 2, 4, 8} {
			for _, m := range []int{2 * P, 2*P + 1, 6 * P} {
				s.P, s.m = P, m
				got := planned(t, "dualpipe-v", P, 2, m, s.F, s.B, s.W)
				back := s.B + s.W
				if bubble := float64(P-1) * (s.F + back + back - 3*s.W); got.makespan > work(s)+bubble+1e-9 {
					t.Errorf("%+v: makespan %g, the table says %g", s, got.makespan, work(s)+bubble)
				}
			}
		}
	}
}

// The rows of published figures that were derived and judged independently.
func TestVectors(t *testing.T) {
	t.Parallel()
	var file struct {
		Rows []vector `json:"rows"`
	}
	readJSON(t, "testdata/flush.json", &file)
	for _, r := range file.Rows {
		r.compare(t)
	}
	if len(file.Rows) != 51 {
		t.Errorf("%d rows", len(file.Rows))
	}
}

type vector struct {
	Schedule     string   `json:"schedule"`
	Devices      int      `json:"devices"`
	Chunks       int      `json:"chunks_per_device"`
	Microbatches int      `json:"microbatches"`
	Forward      float64  `json:"forward_s"`
	Backward     float64  `json:"backward_s"`
	Input        float64  `json:"backward_input_s"`
	Weight       float64  `json:"backward_weight_s"`
	Makespan     float64  `json:"makespan_s"`
	Span         float64  `json:"busy_span_s"`
	Bubble       string   `json:"bubble_fraction"`
	Live         []int    `json:"live_microbatches"`
	ChunkLive    []int    `json:"live_chunk_activations"`
	Most         int      `json:"live_microbatches_max"`
	Source       string   `json:"source"`
	_            struct{} // rows have more fields
}

func (r vector) compare(t *testing.T) {
	t.Helper()
	name := r.Schedule
	if name == "1f1b" {
		name = "1f1b-flush"
	}
	v := float64(max(r.Chunks, 1))
	got := planned(t, name, r.Devices, max(r.Chunks, 1), r.Microbatches, r.Forward/v, (r.Backward+r.Input)/v, r.Weight/v)
	bubble, ok := new(big.Rat).SetString(r.Bubble)
	if !ok {
		t.Fatalf("bubble %q", r.Bubble)
	}
	want, _ := bubble.Float64()
	if !near(got.makespan, r.Makespan) || !near(got.bubble, want) {
		t.Errorf("%+v: makespan %g, bubble %g", r, got.makespan, got.bubble)
	}
	if live := slices.Concat(r.Live, r.ChunkLive); len(live) > 0 && !slices.Equal(live, got.live) {
		t.Errorf("%+v: %v activations", r, got.live)
	}
	if r.Most > 0 && slices.Max(got.live) != r.Most {
		t.Errorf("%+v: at most %d activations", r, slices.Max(got.live))
	}
	if r.Span > 0 && !near(slices.Max(got.own), r.Span) {
		t.Errorf("%+v: spans %v", r, got.own)
	}
}

// Ours is never slower than PyTorch's schedule of the same name.
func TestPyTorch(t *testing.T) {
	t.Parallel()
	names := map[string]string{
		"gpipe": "gpipe", "interleaved1f1b": "interleaved", "loopedbfs": "looped-bfs", "zbvzerobubble": "zb-v", "dualpipev": "dualpipe-v",
		"interleavedzerobubble": "", // we have none of that name
	}
	var file struct {
		Rows []struct {
			File, Schedule              string
			Ranks, Stages, Microbatches int
			Makespan                    float64
			Live                        []int `json:"peak_live_activations"`
		} `json:"rows"`
	}
	readJSON(t, "testdata/pytorch.json", &file)
	compared := 0
	for _, r := range file.Rows {
		name, known := names[r.Schedule]
		if !known {
			t.Errorf("no schedule like %s", r.Schedule)
		}
		if name == "" {
			continue
		}
		got := planned(t, name, r.Ranks, r.Stages/r.Ranks, r.Microbatches, 1, 1, 1)
		if got.makespan > r.Makespan {
			t.Errorf("%s: makespan %g, PyTorch's %g", r.File, got.makespan, r.Makespan)
		}
		if slices.Max(got.live) > slices.Max(r.Live) {
			t.Errorf("%s: %v activations, PyTorch's %v", r.File, got.live, r.Live)
		}
		compared++
	}
	if compared != 25 {
		t.Errorf("%d schedules compared", compared)
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}
