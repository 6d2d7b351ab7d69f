package report

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func render(t *testing.T, p *Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A page opens without a network: it loads nothing and runs nothing.
func TestSelfContained(t *testing.T) {
	t.Parallel()
	page := render(t, samplePage())
	outside := regexp.MustCompile(`(?i)<(script|link|iframe|img|object|embed|base)\b|\b(src|href|srcset|on[a-z]+)=|url\(|@import|https?:|//[a-z]`)
	if found := outside.FindString(page); found != "" {
		t.Errorf("the page contains %q", found)
	}
	if !strings.Contains(page, "prefers-color-scheme:dark") {
		t.Error("the page has no dark colors")
	}
}

// Every figure of every row is on the page: rounded in the table, exact on hover, and as a picture.
func TestPageShowsRows(t *testing.T) {
	t.Parallel()
	p := samplePage()
	page := render(t, p)
	ran, refused := 0, 0
	for i := range p.Rows {
		if p.Rows[i].Refused == "" {
			ran++
		} else {
			refused++
		}
	}
	for text, want := range map[string]int{
		`<svg `: ran + 2, `the smallest limit that works is`: refused, `class="good">yes`: ran,
		`157,286,400 B`: 5, `>predicted</text>`: ran, `>limit 150.0 MiB</text>`: 5, `20 of 20`: 3, `<summary>sequence`: ran,
		`&lt;bn&gt;`: refused, `<bn>`: 0, `Hollow dots`: 1, `<dt>`: 3, `<li>`: 2,
	} {
		if got := strings.Count(page, text); got != want {
			t.Errorf("%q is on the page %d times, want %d", text, got, want)
		}
	}
	if ran != 20 || refused != 5 {
		t.Errorf("%d rows ran and %d were refused; the sample changed", ran, refused)
	}
}

// The charts of a page are XML too.
func TestPagePictures(t *testing.T) {
	t.Parallel()
	pictures := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(render(t, samplePage()), -1)
	for _, svg := range pictures {
		parse(t, svg)
	}
	if len(pictures) != 22 { // the throughput is drawn for narrow screens, too
		t.Errorf("%d pictures, want 22", len(pictures))
	}
}

// The page marks failures: a peak that was missed, a limit that was broken, a result that differs.
func TestPageShowsFailures(t *testing.T) {
	t.Parallel()
	no := false
	p := &Page{Title: "t", Rows: []Row{
		{Strategy: "rotor", Limit: 100, PredictedPeak: 90, MeasuredPeak: 91, PredictedSeconds: 1, MeasuredSeconds: 2, Identical: &no},
		{Strategy: "rotor", Limit: 80, PredictedPeak: 90, MeasuredPeak: 90, PredictedSeconds: 1, MeasuredSeconds: 1},
	}}
	page := render(t, p)
	for text, want := range map[string]int{
		`class="right bad" title="91 B"`: 1, `class="right bad" title="90 B"`: 1, `class="bad">NO`: 1,
		`<b>1 of 2</b>`: 2, `<b>0 of 1</b>`: 1, `<b>25.0 %</b>`: 1, `tile bad`: 4, `tile good`: 0, `steps/s`: 1,
	} {
		if got := strings.Count(page, text); got != want {
			t.Errorf("%q is on the page %d times, want %d", text, got, want)
		}
	}
}

// Parts that are missing leave no trace, and a plan that was not run has no measured figures.
func TestSparsePages(t *testing.T) {
	t.Parallel()
	empty := render(t, &Page{Title: "nothing"})
	for _, tag := range []string{"<h2>", "<table>", "<figure", "<dl>", "tile"} {
		if strings.Contains(strings.SplitN(empty, "</style>", 2)[1], tag) {
			t.Errorf("an empty page contains %s", tag)
		}
	}
	predicted := &Page{Title: "t", Rows: []Row{{Strategy: "rotor", Limit: 100, PredictedPeak: 90, PredictedSeconds: 1}}}
	var text bytes.Buffer
	if err := predicted.Table().Text(&text); err != nil {
		t.Fatal(err)
	}
	row := strings.Fields(strings.Split(text.String(), "\n")[2])
	if strings.Join(row, " ") != "rotor 100 B 90 B not run 1.00 s not run not run not run not compared" {
		t.Errorf("a row that was not measured is %q", row)
	}
	if strings.Contains(strings.SplitN(render(t, predicted), "</style>", 2)[1], "tile") {
		t.Error("a page without measurements has tiles")
	}
}

// A page of one run has one wide curve, and no throughput over a single limit.
func TestOneRun(t *testing.T) {
	t.Parallel()
	p := samplePage()
	p.Rows = p.Rows[:1]
	p.Charts = []Chart{{Title: "Loss", Series: []Series{{Name: "loss", Points: []Point{{0, 2}, {1, 1}}}}}}
	page := render(t, p)
	for text, want := range map[string]int{"<svg ": 3, "viewBox=\"0 0 1080 ": 1, "viewBox=\"0 0 520 ": 2, "Hollow dots": 0, "<b>Loss</b>": 1} {
		if got := strings.Count(page, text); got != want {
			t.Errorf("%q is on the page %d times, want %d", text, got, want)
		}
	}
}

func TestDeterministic(t *testing.T) {
	t.Parallel()
	first, second := render(t, samplePage()), render(t, samplePage())
	if first != second {
		t.Error("two pages of the same rows differ")
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "index.html")
	if err := samplePage().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != render(t, samplePage()) {
		t.Errorf("the file is not the page: %v", err)
	}
}

func TestMedianTimeError(t *testing.T) {
	t.Parallel()
	row := func(predicted, measured float64) Row {
		return Row{PredictedSeconds: predicted, MeasuredSeconds: measured}
	}
	for _, c := range []struct {
		rows []Row
		want float64
	}{
		{nil, math.NaN()}, {[]Row{row(1, 0)}, math.NaN()}, {[]Row{row(3, 4)}, 0.25}, {[]Row{row(5, 4), row(1, 0), row(8, 4)}, 0.625},
		{[]Row{row(4, 4), row(2, 4), row(5, 4)}, 0.25},
	} {
		if got := (&Page{Rows: c.rows}).MedianTimeError(); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("median of %v is %g, want %g", c.rows, got, c.want)
		}
	}
}
