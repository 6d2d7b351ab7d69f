package report

import (
	"fmt"
	"strings"
	"testing"
)

// run is the page of a made run.
func run(seconds float64, command string, timelines ...Timeline) *Page {
	r := sampleRow("rotor", 0.5, 1, 150<<20, nil)
	r.MeasuredSeconds = seconds
	return &Page{
		Title: "a run", Batch: 8, Rows: []Row{r}, Timelines: timelines,
		Environment: []Fact{{"command", command}, {"model", "resnet <50>"}},
		Figures:     []Figure{{"step, measured", seconds, Seconds}, {"accuracy", 0.5, Share}, {"zero", 0, Plain}},
		Charts:      []Chart{{Title: "Loss", Series: []Series{{Name: "batch", Points: []Point{{0, 2}, {1, seconds}}}}}},
	}
}

// Two runs in one page: figures with differences, what the environments share and what not, curves over each other, one axis.
func TestCompareRuns(t *testing.T) {
	t.Parallel()
	a, b := run(0.2, "plimsoll train <a>", sampleTimeline()), run(0.3, "plimsoll train b", sampleTimeline())
	b.Figures = append(b.Figures, Figure{"only here", 7, Plain})
	before := render(t, a)
	p := Compare([]string{"runs/<a>", "runs/b"}, []*Page{a, b})
	var text strings.Builder
	if err := p.Sections[0].Table.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"step, measured    200 ms   300 ms    +50.00 %", "accuracy         50.00 %  50.00 %        same", "only here                       7"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if fmt.Sprint(p.Environment) != "[{model resnet <50>}]" || fmt.Sprint(p.Sections[1].Table.Rows) != "[[command plimsoll train <a> plimsoll train b]]" {
		t.Errorf("environment %v, differences %v", p.Environment, p.Sections[1].Table.Rows)
	}
	if got := fmt.Sprint(p.Sections[2].Table.Rows); got != "[[rotor 75.00 MiB 200 ms 300 ms +50.00 %]]" {
		t.Errorf("rows %v", got)
	}
	if len(p.Charts) != 2 || len(p.Charts[0].Series) != 2 || p.Charts[0].Series[1].Name != "runs/b: batch" || p.Charts[0].Series[1].Color != 1 || len(p.Charts[1].Marks) != 1 {
		t.Errorf("charts %+v", p.Charts)
	}
	if len(p.Timelines) != 1 || len(p.Timelines[0].Panels) != 4 || p.Timelines[0].Panels[3].Name != "runs/b: measured" || len(p.Timelines[0].Charts) != 1 {
		t.Errorf("timelines %+v", p.Timelines)
	}
	page := render(t, p)
	for want, n := range map[string]int{"runs/&lt;a&gt;": -1, "runs/<a>": 0, "<dt>model</dt>": 1, "Hollow dots": 0} {
		if got := strings.Count(page, want); n >= 0 && got != n || n < 0 && got < 8 {
			t.Errorf("%q is on the page %d times", want, got)
		}
	}
	if render(t, a) != before {
		t.Error("the pages that are compared have changed")
	}
	if c := p.MemoryChart(); c == nil || len(c.Series) != 2 || a.MemoryChart().Title != "a run: rotor at 50 %" || (&Page{}).MemoryChart() != nil {
		t.Errorf("memory %+v", c)
	}
}

// Grids are compared row by row; pages without anything in common still stand side by side.
func TestCompareGrids(t *testing.T) {
	t.Parallel()
	a, b := samplePage(), samplePage()
	for i := range b.Rows {
		b.Rows[i].MeasuredSeconds *= 0.9
	}
	p := Compare([]string{"a", "b"}, []*Page{a, b})
	rows := p.Sections[1].Table.Rows
	if len(rows) != 20 || rows[0][4] != "-10.00 %" || len(p.Rows) != 50 || p.Sections[1].Title != "The same strategy under the same limit" {
		t.Errorf("%d rows, the first %v; %d in all", len(rows), rows[0], len(p.Rows))
	}
	if page := render(t, p); strings.Count(page, "a: rotor-exact") < 6 || strings.Count(page, "Hollow dots") != 1 {
		t.Error("the page does not tell the grids apart")
	}
	other := Compare([]string{"a", "b", "c"}, []*Page{{Title: "x"}, run(1, "c", sampleTimeline(), sampleTimeline()), {Title: "y"}})
	if len(other.Timelines) != 2 || other.Timelines[0].Title != "b: gpipe & <co>" || other.MemoryChart() == nil {
		t.Errorf("%+v", other.Timelines)
	}
	render(t, other)
}
