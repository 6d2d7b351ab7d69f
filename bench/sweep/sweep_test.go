package sweep

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/internal/folder"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sample is a chain of six layers in which memory, recomputation and transfers all matter.
func sample() *chain.Chain {
	c := &chain.Chain{Name: "six", InputBytes: 100, Batch: 4, Device: "none"}
	for i := range 6 {
		size := int64(300 - 40*i)
		c.Layers = append(c.Layers, chain.Layer{
			Name: fmt.Sprint("l", i+1), ForwardS: 1, BackwardS: 2, OutputBytes: size, SavedBytes: 2 * size, GradientBytes: size,
		})
	}
	return c
}

func strategiesOf(t testing.TB, names ...string) (all []pipeline.Strategy) {
	t.Helper()
	for _, name := range names {
		s, err := planner.Lookup(name)
		must(t, err)
		all = append(all, s)
	}
	return all
}

func simulation(t testing.TB) *Simulation {
	return &Simulation{
		Chain: sample(), Alphas: []float64{0, 0.25, 0.5, 0.75, 1}, Links: []schedule.Link{{Bandwidth: 100}, {Bandwidth: 400}},
		Strategies: strategiesOf(t, "store-all", "periodic", "rotor", "rotor-exact", "offload-dynprog", "vdnn", "opportunist", "autocapper", "pofo"),
	}
}

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(folder.At(filepath.Dir(path)))
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A sweep that stopped halfway goes on: what is in the file is not planned again, and a line that was cut off is.
func TestASweepGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "points.jsonl")
	s := simulation(t)
	store, done := open(t, path), 0
	must(t, s.Run(t.Context(), store, func(int, int) { done++ }))
	if want := 5*4 + 2*5*5; done != want || s.Count() != want || len(store.Points) != want {
		t.Fatalf("%d points done, %d counted, %d kept, want %d", done, s.Count(), len(store.Points), want)
	}
	whole, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, whole[:len(whole)/2], 0o644))
	planned := 0
	for i, one := range s.Strategies {
		solve := one.Solve
		s.Strategies[i].Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			planned++
			return solve(ctx, r)
		}
	}
	again := open(t, path)
	known := len(again.Points)
	must(t, s.Run(t.Context(), again, nil))
	if planned != done-known || known < done/3 || len(again.Points) != done {
		t.Errorf("%d planned of %d, %d known", planned, done, known)
	}
	now, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(now, whole) {
		t.Error("the file differs from that of a sweep in one go")
	}
}

// A chain that was measured again takes the place of what it was, in either order; what nobody asks for again stays.
func TestAnotherInputTakesThePlace(t *testing.T) {
	t.Parallel()
	store := open(t, filepath.Join(t.TempDir(), "points.jsonl"))
	first, second := simulation(t), simulation(t)
	second.Chain.Layer(1).ForwardS *= 2
	second.Strategies = second.Strategies[:len(second.Strategies)-1]
	for _, s := range []*Simulation{first, second, first} {
		must(t, s.Run(t.Context(), store, nil))
		base, err := s.base(t.Context())
		must(t, err)
		own, all := 0, store.Current()
		for _, p := range all {
			if p.Input == base.Input {
				own++
			}
		}
		if own != s.Count() || len(all) != first.Count() {
			t.Errorf("%d points of %d, %d in all, want %d", own, s.Count(), len(all), first.Count())
		}
	}
	if want := first.Count() + second.Count(); len(store.Points) != want {
		t.Errorf("%d points are kept, want %d", len(store.Points), want)
	}
}

// Plans that are given stand beside the strategies: at every limit in which they fit, with every link if they move anything, and in
// the pictures. Another plan under the same name is another point.
func TestGivenPlansStandBeside(t *testing.T) {
	t.Parallel()
	s := simulation(t)
	s.Strategies = s.Strategies[:4]
	parse := func(text string) *pipeline.Plan {
		seq, err := schedule.Parse(text)
		must(t, err)
		return pipeline.NewSequence(s.Chain.Name, "", seq, schedule.Limits{})
	}
	recomputes, moves := "Fck1 F2 F3 Fall4 Fall5 Fall6 B6 B5 B4 Fall1 Fall2 Fall3 B3 B2 B1", "Fall1 O1 Fall2 O2 Fall3 Fall4 Fall5 Fall6 B6 B5 B4 B3 P2 B2 P1 B1"
	s.Given = []Given{{"mine.json", parse(recomputes)}, {"moves.json", parse(moves)}}
	store := open(t, filepath.Join(t.TempDir(), "p"))
	must(t, s.Run(t.Context(), store, nil))
	ran, moved := map[string]int{}, false
	for _, p := range store.Points {
		if p.Ran() {
			ran[p.Strategy]++
		}
		moved = moved || p.Strategy == "moves.json" && p.MovedBytes == 700
	}
	if len(store.Points) != s.Count() || ran["mine.json"] < 2 || ran["mine.json"] > 5 || ran["moves.json"] < 4 || !moved {
		t.Errorf("%d points of %d, those that ran: %v", len(store.Points), s.Count(), ran)
	}
	for _, f := range Figures(store.Points) {
		if number, _, _ := strings.Cut(f.Name, "-six"); number == "fig4.2" && len(f.Curves) < 3 {
			t.Errorf("%s has %d curves", f.Name, len(f.Curves))
		}
		for _, series := range f.chart().Series {
			if own := series.Color >= ownMarks; own != strings.HasSuffix(series.Name, ".json") {
				t.Errorf("%s: %s has color %d", f.Name, series.Name, series.Color)
			}
		}
	}
	s.Given[0].Plan = parse(moves)
	before := len(store.Points)
	must(t, s.Run(t.Context(), store, nil))
	if got := len(store.Points) - before; got != 2*len(s.Alphas) {
		t.Errorf("%d points of the new plan", got)
	}
}

// A chain of two or three layers has few numbers of segments to compare, or none. If a strategy does not plan such a chain, its cells say
// that it did not run, not that it does not fit.
func TestShortChainsAndLongOnes(t *testing.T) {
	t.Parallel()
	for layers, want := range map[int]int{1: 0, 2: 0, 3: 1, 4: 2, 6: 3} {
		c := sample()
		c.Layers = c.Layers[:layers]
		p, err := ComparePeriodic(t.Context(), c)
		must(t, err)
		if (p == nil) != (want == 0) || p != nil && p.Limits != want {
			t.Errorf("%d layers: compared %+v, want %d numbers of segments", layers, p, want)
		}
	}
	s := simulation(t)
	s.Strategies = strategiesOf(t, "store-all", "rotor")
	s.Strategies[1].Solve = func(context.Context, pipeline.Request) (*pipeline.Plan, error) { return nil, remat.ErrTooLarge }
	store := open(t, filepath.Join(t.TempDir(), "p"))
	must(t, s.Run(t.Context(), store, nil))
	cells := map[string]int{}
	for _, row := range pointTable(store.Points).Rows {
		cells[row[2]+" "+row[6]]++
	}
	if cells["rotor not run"] != 5 || cells["store-all does not fit"] < 1 {
		t.Errorf("cells: %v", cells)
	}
}

func TestABadStoreIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "points.jsonl")
	must(t, os.WriteFile(path, []byte("{}\nnonsense\n"), 0o644))
	if _, err := Open(folder.At(filepath.Dir(path))); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v", err)
	}
}

// Every point agrees with a simulation of its own, made here.
func TestPointsAreWhatPlansAre(t *testing.T) {
	t.Parallel()
	s := simulation(t)
	store := open(t, filepath.Join(t.TempDir(), "p"))
	must(t, s.Run(t.Context(), store, nil))
	all, err := schedule.Simulate(s.Chain, remat.StoreAll(s.Chain), schedule.Limits{Memory: schedule.NoLimit})
	must(t, err)
	ran, refused, moved := 0, 0, 0
	for _, p := range store.Points {
		if p.StoreAllS != all.Makespan || p.StoreAllBytes != all.Peak || p.MemoryBytes > all.Peak || p.MemoryBytes < p.LowBytes {
			t.Fatalf("%+v", p)
		}
		if !p.Ran() {
			refused++
			continue
		}
		ran++
		if p.PeakBytes > p.MemoryBytes || p.Seconds < p.BoundS*(1-1e-9) || p.Seconds < all.Makespan-1e-9 {
			t.Errorf("%+v", p)
		}
		if p.MovedBytes > 0 {
			moved++
		}
	}
	if ran < 40 || refused < 1 || moved < 10 {
		t.Errorf("%d ran, %d refused, %d moved something", ran, refused, moved)
	}
}

func TestMovedCountsSavedSetsOnce(t *testing.T) {
	t.Parallel()
	seq, err := schedule.Parse("Fall1 O1 Fall2 O2 Fall3 Fall4 Fall5 Fall6 B6 B5 B4 B3 P2 B2 P1 B1")
	must(t, err)
	n, err := Moved(sample(), seq)
	if must(t, err); n != 100+600 {
		t.Errorf("%d bytes", n)
	}
}

// Every panel is drawn, simulated ones hollow and dashed, measured ones with their prediction; the pictures are XML.
func TestFigures(t *testing.T) {
	t.Parallel()
	s := simulation(t)
	store := open(t, filepath.Join(t.TempDir(), "p"))
	must(t, s.Run(t.Context(), store, nil))
	points := slices.Clone(store.Points)
	for _, p := range store.Points {
		p.Source, p.Seconds = Measured, p.Seconds*1.1
		if p.Bandwidth == 0 {
			p.Bandwidth = 100
		}
		points = append(points, p)
	}
	out := t.TempDir()
	figures, err := WriteFolder(folder.At(out), points, Claims(points))
	must(t, err)
	hollow := map[Source][2]int{}
	kinds := map[string]bool{}
	for _, f := range figures {
		number, _, _ := strings.Cut(f.Name, "-six")
		kinds[number+" "+string(f.Source)] = true
		for _, c := range f.Curves {
			n := hollow[f.Source]
			if c.Hollow {
				n[1]++
			} else {
				n[0]++
			}
			hollow[f.Source] = n
			if !slices.IsSorted(c.X) || len(c.X) != len(c.Y) || math.IsNaN(slices.Max(c.Y)) {
				t.Errorf("%s: %+v", f.Name, c)
			}
		}
		checkPictures(t, out, &f)
	}
	if len(kinds) != 2*len(panels) {
		t.Errorf("only %v", kinds)
	}
	if hollow[Simulated][0] > 0 || hollow[Simulated][1] < 10 || hollow[Measured][0] < 10 || hollow[Measured][1] < 10 {
		t.Errorf("full and hollow curves: %v", hollow)
	}
	page, err := os.ReadFile(filepath.Join(out, "index.html"))
	must(t, err)
	if n := bytes.Count(page, []byte(`<svg `)); n != 2*len(figures) || bytes.Contains(page, []byte(`src=`)) {
		t.Errorf("%d pictures in the page, %d figures", n, len(figures))
	}
	lines, err := os.ReadFile(filepath.Join(out, "points.csv"))
	must(t, err)
	if n := bytes.Count(lines, []byte("\n")); n != len(points)+1 {
		t.Errorf("%d lines of CSV for %d points", n, len(points))
	}
}

func checkPictures(t *testing.T, folder string, f *Figure) {
	t.Helper()
	svg, err := os.ReadFile(filepath.Join(folder, "figures", f.Name+".svg"))
	must(t, err)
	if xml.Unmarshal(svg, new(struct{})) != nil || !bytes.Contains(svg, []byte(f.Source)) ||
		bytes.Contains(svg, []byte(` dashed"`)) != slices.ContainsFunc(f.Curves, func(c Curve) bool { return c.Hollow }) {
		t.Errorf("%s: not a picture that says %s", f.Name, f.Source)
	}
}

// Claims are judged by the points: made ones break each of them.
func TestClaims(t *testing.T) {
	t.Parallel()
	point := func(strategy string, seconds float64) Point {
		return Point{
			Key: Key{Source: Simulated, Chain: "c", Strategy: strategy, MemoryBytes: 25, Bandwidth: 1e9}, Seconds: seconds, PeakBytes: 25,
			StoreAllS: 10, StoreAllBytes: 100, LowBytes: 20, OffloadBoundS: 10,
		}
	}
	for name, x := range map[string]struct {
		dynprog, rotor, pofo float64
		holds                []bool
	}{
		"all hold":        {11, 12, 11, []bool{true, true, true}},
		"dynprog is slow": {13, 12, 11, []bool{false, true, true}},
		"pofo is slower":  {11, 12, 11.5, []bool{true, false, true}},
		"rotor is faster": {12, 10.5, 11, []bool{true, false, true}},
	} {
		found := Claims([]Point{point("offload-dynprog", x.dynprog), point("rotor", x.rotor), point("pofo", x.pofo)})
		var holds []bool
		for _, c := range found {
			holds = append(holds, c.Holds)
		}
		if !slices.Equal(holds, x.holds) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	slow := Claims([]Point{point("pofo", 13)})
	if len(slow) != 0 {
		t.Errorf("13 s of 10 is over 20 %%: %+v", slow)
	}
	if table := ClaimTable(Claims([]Point{point("pofo", 11)})); len(table.Rows) != 1 || table.Rows[0][3] != "yes" {
		t.Errorf("%+v", table)
	}
}

func TestPeriodicIsComparedAtItsPeak(t *testing.T) {
	t.Parallel()
	p, err := ComparePeriodic(t.Context(), sample())
	must(t, err)
	if p.Limits != 3 || p.Gain() < 0 || p.Least > p.MeanGain || p.MeanGain > p.Greatest || p.PeriodicS < p.RotorS {
		t.Errorf("%+v", p)
	}
}
