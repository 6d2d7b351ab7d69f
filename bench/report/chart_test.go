package report

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// element is an SVG element with what the tests look at.
type element struct {
	name  string
	attrs map[string]string
}

// parse reads an SVG strictly as XML.
func parse(t testing.TB, svg string) (elements []element, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, text
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{token.Name.Local, map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			elements = append(elements, e)
		case xml.CharData:
			text += string(token) + "\n"
		}
	}
}

// curve returns the path of the chart's only series.
func curve(t testing.TB, elements []element) string {
	t.Helper()
	for _, e := range elements {
		if strings.HasPrefix(e.attrs["class"], "curve") {
			return e.attrs["d"]
		}
	}
	t.Fatal("the chart has no curve")
	return ""
}

// In the frame of a card 0 is at x 52 and y 226, and the top of the data at 1/1.08 of 196 pixels.
func TestPaths(t *testing.T) {
	t.Parallel()
	points := []Point{{0, 0}, {1, 54}, {2, 108}}
	for shape, want := range map[Shape]string{
		Line: "M52.0 226.0L280.0 135.3L508.0 44.5",
		Step: "M52.0 226.0H280.0V135.3H508.0V44.5",
	} {
		c := Chart{Series: []Series{{Name: "s", Shape: shape, Points: points}}}
		elements, _ := parse(t, string(c.SVG()))
		if got := curve(t, elements); got != want {
			t.Errorf("shape %d is drawn %s, want %s", shape, got, want)
		}
	}
}

// Whatever the data, the picture is XML, holds no NaN, and every coordinate is inside it.
func TestEverythingInside(t *testing.T) {
	t.Parallel()
	coordinates := 0
	rapid.Check(t, func(rt *rapid.T) {
		number := rapid.OneOf(rapid.Float64Range(-1e3, 1e3), rapid.Float64(), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), 1e18, 1e-12}))
		c := Chart{
			Title: rapid.String().Draw(rt, "title"), Wide: rapid.Bool().Draw(rt, "wide"),
			X: Axis{Unit: Unit(rapid.IntRange(0, 3).Draw(rt, "xunit")), Tight: rapid.Bool().Draw(rt, "xtight")},
			Y: Axis{Unit: Unit(rapid.IntRange(0, 3).Draw(rt, "yunit")), Tight: rapid.Bool().Draw(rt, "ytight")},
		}
		for i := range rapid.IntRange(0, 20).Draw(rt, "series") {
			s := Series{Name: rapid.SampledFrom([]string{"", "s", "offload-dynprog, simulated"}).Draw(rt, "name"), Color: i*5 - 3, Shape: Shape(rapid.IntRange(0, 2).Draw(rt, "shape"))}
			for range rapid.IntRange(0, 20).Draw(rt, "points") {
				s.Points = append(s.Points, Point{number.Draw(rt, "x"), number.Draw(rt, "y")})
			}
			c.Series = append(c.Series, s)
		}
		if rapid.Bool().Draw(rt, "mark") {
			c.Marks = []Mark{{"limit", number.Draw(rt, "limit")}}
		}
		svg := c.SVG()
		elements, _ := parse(t, string(svg))
		f := c.frame()
		for _, e := range elements {
			for name, edge := range map[string]float64{"x": f.width, "cx": f.width, "y": f.height, "cy": f.height} {
				value, err := strconv.ParseFloat(e.attrs[name], 64)
				if e.attrs[name] == "" {
					continue
				}
				coordinates++
				if err != nil || !(value >= -0.1 && value <= edge+0.1) {
					rt.Fatalf("%s of <%s> is %s: outside", name, e.name, e.attrs[name])
				}
			}
			if d := e.attrs["d"]; strings.Contains(d, "NaN") || strings.Contains(d, "Inf") {
				rt.Fatalf("path %s", d)
			}
		}
	})
	if coordinates < 100 {
		t.Errorf("only %d coordinates were looked at", coordinates)
	}
}

// Axes: ticks are evenly spaced, inside the range, and neither too few nor too many.
func TestTicks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := Unit(rapid.IntRange(0, 3).Draw(t, "unit"))
		lo := rapid.Float64Range(-1, 1).Draw(t, "lo") * math.Pow(10, float64(rapid.IntRange(-9, 12).Draw(t, "power")))
		hi := lo + math.Abs(lo)*rapid.Float64Range(1e-6, 10).Draw(t, "length") + 1e-12
		a := Axis{Unit: unit, Tight: rapid.Bool().Draw(t, "tight")}.fit(lo, hi, 500, 100, 0.08, 5)
		if len(a.ticks) < 2 || len(a.ticks) > 7 {
			t.Fatalf("%d ticks from %g to %g", len(a.ticks), a.lo, a.hi)
		}
		seen := map[string]bool{}
		for i, x := range a.ticks {
			if y := a.at(x); y > 500.01 || y < 99.99 {
				t.Fatalf("tick %g of %g to %g is at pixel %g", x, a.lo, a.hi, y)
			}
			if i > 1 && math.Abs(a.ticks[i]-2*a.ticks[i-1]+a.ticks[i-2]) > 1e-6*(a.hi-a.lo) {
				t.Fatalf("ticks %v are not even", a.ticks)
			}
			if seen[a.tick(x)] {
				t.Fatalf("two ticks are printed %s", a.tick(x))
			}
			seen[a.tick(x)] = true
		}
	})
}

func TestAxisTitles(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]axis{
		"memory (MiB)": Axis{Label: "memory", Unit: Bytes}.fit(0, 300<<20, 0, 1, 0, 5),
		"memory (GiB)": Axis{Label: "memory", Unit: Bytes}.fit(0, 1<<30, 0, 1, 0, 5),
		"time (ms)":    Axis{Label: "time", Unit: Seconds}.fit(0, 0.31, 0, 1, 0, 5),
		"accuracy (%)": Axis{Label: "accuracy", Unit: Share}.fit(0, 0.97, 0, 1, 0, 5),
		"loss":         Axis{Label: "loss", Unit: Plain}.fit(0, 2.3, 0, 1, 0, 5),
	} {
		if got := a.title(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	a := Axis{Label: "time", Unit: Seconds}.fit(0, 0.31, 0, 1, 0, 5)
	var ticks []string
	for _, x := range a.ticks {
		ticks = append(ticks, a.tick(x))
	}
	if got := strings.Join(ticks, " "); got != "0 100 200 300" {
		t.Errorf("ticks %q", got)
	}
}

// A logarithmic axis has ticks at 1, 2 and 5 times powers of ten, and equal ratios are equally long.
func TestLogAxis(t *testing.T) {
	t.Parallel()
	a := Axis{Label: "time", Unit: Seconds, Log: true}.fit(0.04, 0.8, 0, 300, 0.1, 5)
	var ticks []string
	for _, x := range a.ticks {
		ticks = append(ticks, a.tick(x))
	}
	if got := strings.Join(ticks, " "); got != "50 100 200 500" {
		t.Errorf("ticks %q", got)
	}
	if one, two := a.at(0.2)-a.at(0.1), a.at(0.8)-a.at(0.4); math.Abs(one-two) > 1e-9 || math.Abs(a.value(a.at(0.3)/300)-0.3) > 1e-9 {
		t.Errorf("doubling takes %v and %v pixels", one, two)
	}
	if a := (Axis{Log: true}).fit(0, 1, 0, 1, 0, 5); a.Log {
		t.Error("an axis with zero is logarithmic")
	}
}

// A curve of many points keeps what can be seen: in each column of pixels the first, lowest, highest and last.
func TestThin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var points []Point
		x := 0.0
		for range rapid.IntRange(0, 200).Draw(t, "n") {
			x += rapid.Float64Range(0, 0.7).Draw(t, "dx")
			points = append(points, Point{x, rapid.Float64Range(0, 100).Draw(t, "y")})
		}
		kept := thin(points)
		i := 0
		for _, p := range kept {
			for i < len(points) && points[i] != p {
				i++
			}
			if i == len(points) {
				t.Fatalf("%v is no point of the curve, or not in its place", p)
			}
			i++
		}
		want, got := columns(points), columns(kept)
		for x, w := range want {
			g := got[x]
			if g.lo != w.lo || g.hi != w.hi || g.first != w.first || g.last != w.last || g.n > 4 {
				t.Fatalf("column %g has %+v, want %+v", x, g, w)
			}
		}
	})
}

type column struct {
	first, last, lo, hi float64
	n                   int
}

func columns(points []Point) map[float64]column {
	all := map[float64]column{}
	for _, p := range points {
		x := math.Floor(p.X)
		c, ok := all[x]
		if !ok {
			c = column{p.Y, p.Y, p.Y, p.Y, 0}
		}
		all[x] = column{c.first, p.Y, min(c.lo, p.Y), max(c.hi, p.Y), c.n + 1}
	}
	return all
}

// The pointer is told the value that a step holds, and nothing outside the curve.
func TestValueAt(t *testing.T) {
	t.Parallel()
	s := Series{Shape: Step, Points: []Point{{1, 10}, {2, 20}, {2, 30}, {4, 5}}}
	for x, want := range map[float64]float64{1: 10, 1.9: 10, 2: 30, 3.9: 30, 4: 5} {
		if got, ok := s.at(x); !ok || got != want {
			t.Errorf("at %g: %g, %v; want %g", x, got, ok, want)
		}
	}
	for _, x := range []float64{0.9, 4.1} {
		if got, ok := s.at(x); ok {
			t.Errorf("at %g, outside: %g", x, got)
		}
	}
}

// A picture of its own is XML with the title, and a style that nothing is missing from.
func TestPicture(t *testing.T) {
	t.Parallel()
	c := Chart{Title: "<a title>", Wide: true, Series: []Series{{Name: "s", Shape: Dots, Dashed: true, Points: []Point{{0, 1}, {1, 2}}}}}
	var b strings.Builder
	if err := c.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	elements, text := parse(t, b.String())
	if elements[0].name != "svg" || !strings.Contains(b.String(), `<svg xmlns="http://www.w3.org/2000/svg" `) || elements[0].attrs["viewBox"] != "0 -24 500 334" {
		t.Errorf("the picture begins with %+v", elements[0])
	}
	for _, want := range []string{"<a title>", ".dashed{", "--card:", "prefers-color-scheme:dark"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture does not have %q", want)
		}
	}
}

func TestHostileText(t *testing.T) {
	t.Parallel()
	const evil = `<script>alert("x")</script>&'`
	c := Chart{
		Title: evil, X: Axis{Label: evil}, Y: Axis{Label: evil}, Marks: []Mark{{evil, 1}},
		Series: []Series{{Name: evil, Points: []Point{{0, 1}, {1, 2}}}, {Name: evil, Shape: Dots, Points: []Point{{0, 1}}}},
	}
	elements, text := parse(t, string(c.SVG()))
	for _, e := range elements {
		if e.name == "script" {
			t.Error("text became an element")
		}
	}
	if n := strings.Count(text, evil); n < 6 {
		t.Errorf("the text shows %d times, want at least 6", n)
	}
}

func TestChartGolden(t *testing.T) {
	t.Parallel()
	r := sampleRow("periodic", 0.5, 1, 150<<20, nil)
	got := string(r.chart().SVG())
	path := filepath.Join("testdata", "memory.svg")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Error("the picture differs from testdata/memory.svg; look at it, then run with -update")
	}
}
