package main

import (
	"bytes"
	"encoding/csv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// TestLeast: against all divisions.
func TestLeast(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	cases := 0
	for n := 1; n <= 7; n++ {
		for k := 1; k <= n; k++ {
			table := make([][]int64, n+1)
			for i := range table {
				for range n + 1 {
					table[i] = append(table[i], rnd.Int64N(100))
				}
			}
			cost := func(first, last int) int64 { return table[first][last] }
			want := brute(1, n, k, cost)
			got, first := int64(0), 1
			ends := least(n, k, cost)
			for _, last := range ends {
				if last < first {
					t.Fatalf("%d layers in %d: %v", n, k, ends)
				}
				got, first = max(got, cost(first, last)), last+1
			}
			if got != want || first != n+1 || len(ends) != k {
				t.Errorf("%d layers in %d: %v costs %d, want %d", n, k, ends, got, want)
			}
			cases++
		}
	}
	if cases != 28 {
		t.Errorf("%d cases", cases)
	}
}

// brute returns the least largest cost of first..n in k ranges.
func brute(first, n, k int, cost func(first, last int) int64) int64 {
	if k == 1 {
		return cost(first, n)
	}
	best := int64(math.MaxInt64)
	for last := first; last <= n-k+1; last++ {
		best = min(best, max(cost(first, last), brute(last+1, n, k-1, cost)))
	}
	return best
}

// TestParameters: the models have the parameters that torchgpipe counts.
func TestParameters(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, c := range collections() {
		for _, row := range c.rows {
			m, err := models.New(modelName(c.family, row.size), models.Config{Batch: 1, Image: c.image, Classes: c.classes})
			if err != nil {
				t.Fatal(err)
			}
			if got := count(m.ParamCount()); got != row.parameters {
				t.Errorf("%s %v has %s parameters, theirs has %s", c.family, row.size, got, row.parameters)
			}
			seen++
		}
	}
	if seen != 10 {
		t.Errorf("%d models", seen)
	}
}

// TestSkips: those of a U-Net, whose level i has 8·2^i channels of (32/2^i)² pixels.
func TestSkips(t *testing.T) {
	t.Parallel()
	w, err := compiled(wanted{"unet-2-8", 32, 3, 10, 0})
	if err != nil {
		t.Fatal(err)
	}
	all := skips(w.Model)
	if len(all) != 5 {
		t.Fatalf("%d skips", len(all))
	}
	for i, level := range []int{4, 3, 2, 1, 0} { // the latest first
		side := 32 >> level
		name := string(rune('1' + level))
		from, to := w.Model.Layers[all[i].from-1].Name, w.Model.Layers[all[i].to-1].Name
		if want := int64(4 * 3 * side * side * 8 << level); all[i].bytes != want || !strings.HasPrefix(from, "down"+name) || to != "up"+name+".1" {
			t.Errorf("%+v from %s to %s, want %d bytes of level %s", all[i], from, to, want, name)
		}
	}
}

// TestStraight: a skip of 3 bytes from layer 1 to 4, and one of 2 from layer 2 to 3, whose stages are neighbours.
func TestStraight(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Layers: []chain.Layer{{OutputBytes: 10}, {OutputBytes: 20}, {OutputBytes: 30}, {OutputBytes: 40}}}
	var stages []pipeline.Stage
	for l := 1; l <= 4; l++ {
		stages = append(stages, pipeline.Stage{First: l, Last: l})
	}
	boundaries, total := straight(c, stages, []skip{{2, 2, 3}, {3, 1, 4}})
	if !slices.Equal(boundaries, []int64{7, 17, 27}) || total != 7+17+27+3 {
		t.Errorf("%v, %d", boundaries, total)
	}
}

// TestVariants: makespans by hand. Two layers with a forward of 1 s, a backward of 2 s and messages of 1 s, two microbatches:
//
//	all of it        device 0  F0 F1 .  .  .  .  .  B1 B1 R0 B0 B0
//	                 device 1  .  .  F0 F1 B1 B1 R0 B0 B0 .  .  .
//	not while it waits         R0 begins at 10 s, when the gradient is there
//	last one recomputed too    both devices work 1 s more, device 0 waits 1 s less
func TestVariants(t *testing.T) {
	t.Parallel()
	layer := chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1}
	c := &chain.Chain{Name: "two", InputBytes: 1, Layers: []chain.Layer{layer, layer}}
	links := pipeline.NewPlatform(2, pipeline.NoLimit, 1)
	s, err := planner.LookupPipeline("gpipe-checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: links, Options: pipeline.Options{Microbatches: 2}})
	if err != nil {
		t.Fatal(err)
	}
	p := &problem{costs: pipeline.NewCosts(c), devices: 2, micros: 2}
	for name, x := range map[string]struct {
		v    variant
		want float64
	}{
		"all":                 {variant{last: true, early: true, overlap: true}, 12},
		"not while it waits":  {variant{last: true, overlap: true}, 13},
		"last one recomputed": {variant{early: true, overlap: true}, 13},
		"neither":             {variant{overlap: true}, 14},
		"nothing":             {variant{}, 16},
		"no messages":         {variant{last: true, early: true, overlap: true, straight: []int64{0}}, 10},
	} {
		x.v.p, x.v.plan, x.v.links = p, plan, links
		o, err := x.v.run()
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(o.Makespan-x.want) > 1e-9 {
			t.Errorf("%s: %g s, want %g", name, o.Makespan, x.want)
		}
	}
	if c.Layers[0].OutputBytes != 1 || len(plan.Stages[0].LastOps) == 0 {
		t.Error("a variant changed its chain or its plan")
	}
}

// small is a table whose models are tiny.
func small() collection {
	return collection{family: "unet", title: "small", image: 64, batch: 4, classes: 3, rows: []giant{
		{"naive-1", 1, 1, size{1, 2}, "", ""},
		{"pipeline-2", 2, 4, size{2, 4}, "", ""},
	}}
}

// TestGiants: every way is tried, a model fits to the byte, and recomputing takes less than keeping.
func TestGiants(t *testing.T) {
	t.Parallel()
	c := small()
	points, dims, err := c.giants(t.Context(), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	if len(points) != 2*(1+len(holders())) || len(dims) != 2 {
		t.Fatalf("%d points of %d models", len(points), len(dims))
	}
	r := &results{giants: points}
	kept := r.giant("unet", size{2, 4}, "pipeline-2", "gpipe")
	again := r.giant("unet", size{2, 4}, "pipeline-2", "gpipe-checkpoint")
	if !kept.Fits || !again.Fits || again.Total >= kept.Total || again.Largest < dims[size{2, 4}].layer {
		t.Errorf("%+v, %+v", kept, again)
	}
	for limit, fits := range map[int64]bool{kept.Largest: true, kept.Largest - 1: false} {
		points, _, err := c.giants(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		if g := (&results{giants: points}).giant("unet", size{2, 4}, "pipeline-2", "gpipe"); g.Fits != fits || g.Largest != kept.Largest {
			t.Errorf("in %d bytes: %+v", limit, g)
		}
		for _, g := range points {
			if g.Fits && g.Largest > limit {
				t.Errorf("%+v fits in %d bytes", g, limit)
			}
		}
	}
}

// tableOf is a speed table of a tiny U-Net, and a chain that was measured for it.
func tableOf(t *testing.T, always bool) (*speeds, *chain.Chain) {
	w, err := compiled(wanted{"unet-1-4", 32, 2, 10, 0})
	if err != nil {
		t.Fatal(err)
	}
	s := &speeds{model: "unet-1-4", title: "small", image: 32, baseline: 50, always: always, races: []race{{1, 1, 4, 1}, {2, 4, 8, 1}}}
	if always {
		s.races[0] = race{2, 1, 4, 1}
	}
	return s, counted(w)
}

// TestSpeeds: the baseline has its own speed, nothing beats one device times the devices, and what has no plan has a reason.
func TestSpeeds(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{false, true} {
		s, measured := tableOf(t, always)
		points, err := s.run(t.Context(), measured, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		if len(points) != 2*len(racers()) || math.Abs(points[0].speedup-1) > 1e-5 {
			t.Fatalf("%d points, the first one %+v", len(points), points[0])
		}
		most := 2.0
		if always {
			most *= 4.0 / 3
		}
		seen := 0
		for _, x := range points[len(racers()):] {
			if x.plan == (x.reason != "") || x.plan && !(x.speedup > 0 && x.speedup <= most*(1+1e-9)) {
				t.Errorf("%+v", x)
			}
			if x.plan {
				seen++
			}
		}
		if seen < 4 {
			t.Errorf("%d plans", seen)
		}
	}
}

// TestOtherChains: times of other layers are refused.
func TestOtherChains(t *testing.T) {
	t.Parallel()
	s, measured := tableOf(t, false)
	measured.Layers[1].Name = "else"
	if _, err := s.run(t.Context(), measured, 1<<40); err == nil || !strings.Contains(err.Error(), `layer 2 of the measured chain "unet-1-4" is "else"`) {
		t.Error(err)
	}
	measured.Layers = measured.Layers[1:]
	if _, err := s.run(t.Context(), measured, 1<<40); err == nil || !strings.Contains(err.Error(), "layers") {
		t.Error(err)
	}
}

// TestAblation: what is added makes it faster, what is taken away slower, and skips that are sent straight save bytes.
func TestAblation(t *testing.T) {
	t.Parallel()
	s, measured := tableOf(t, false)
	rows, err := ablation(t.Context(), s, measured, race{devices: 4, micros: 8, batch: 16})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 5 || rows[2].bytes >= rows[1].bytes || rows[1].bytes != rows[0].bytes {
		t.Fatalf("%+v", rows)
	}
	for _, pair := range [][2]int{{0, 1}, {1, 2}, {3, 2}, {4, 2}} {
		if slow, fast := rows[pair[0]], rows[pair[1]]; fast.rate <= slow.rate {
			t.Errorf("%+v is not faster than %+v", fast, slow)
		}
	}
}

// TestMeanRatio: of two races, in the second of which one strategy has no plan.
func TestMeanRatio(t *testing.T) {
	t.Parallel()
	points := []speedPoint{
		{holder: "gpipe-checkpoint", plan: true, speedup: 2}, {holder: "zb-h1", plan: true, speedup: 4}, {holder: "loadline", plan: true, speedup: 4},
		{holder: "gpipe-checkpoint", plan: true, speedup: 1}, {holder: "zb-h1", plan: true, speedup: 8}, {holder: "loadline"},
	}
	for holder, want := range map[string]struct {
		mean float64
		n    int
	}{"gpipe-checkpoint": {1, 2}, "zb-h1": {4, 2}, "loadline": {2, 1}} {
		if mean, n := meanRatio(points, holder); math.Abs(mean-want.mean) > 1e-12 || n != want.n {
			t.Errorf("%s: %g of %d", holder, mean, n)
		}
	}
}

// TestPages: every point is in the files, and a model that fits nowhere is said to.
func TestPages(t *testing.T) {
	t.Parallel()
	r := &results{models: map[string]map[size]dimensions{}}
	for i, s := range allSpeeds() {
		points := make([]speedPoint, 0)
		for _, x := range s.races {
			for _, h := range racers() {
				points = append(points, speedPoint{race: x, holder: h.title, plan: true, speedup: float64(i + 2), need: need{Fits: i == 0}})
			}
		}
		r.speeds, r.measured = append(r.speeds, points), append(r.measured, &chain.Chain{Batch: 1})
	}
	r.giants = []giantPoint{{"unet", size{11, 128}, "pipeline-1", 1, "gpipe", need{Largest: 2 << 30, Total: 2 << 30, Planned: 1 << 30}, ""}}
	r.ablation = []ablationRow{{"first", "streams", -1, 10, 0.5, 1 << 20}, {"second", "", 0, 15, 0.25, 1 << 20}, {"third", "portals", 0, 5, 0, 1}}
	var text, table bytes.Buffer
	if err := r.writePage(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.writeCSV(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| pipeline-1 | 32 | (11, 128) 20.5 GiB | none | not run | not run | not run |", "2.000 GiB (2.000 GiB; 1.000 GiB)",
		"| 8 | 40 | 640 | 3.10 | 2.00 | 2.00 (1.00) |", "| 3.00* | 3.00 (1.00)* |",
		"| 1 | first | streams | 55.191 |  | 10.00 |  | 50.0 % | 1.000 MiB |", "| 2 | second | in all rows of theirs |  |  | 15.00 | 1.500 of row 1 | 25.0 % |",
		"| 3 | third | portals | 58.477 | 1.060 of row 1 | 5.00 | 0.500 of row 1 | 0.0 % |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the page:\n%s", want, &text)
		}
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if want := 1 + 1 + 13*len(racers()) + 3; err != nil || len(rows) != want {
		t.Errorf("%d rows, want %d; %v", len(rows), want, err)
	}
}
