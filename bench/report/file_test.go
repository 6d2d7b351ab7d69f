package report

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fullPage has every part that a page can have.
func fullPage() *Page {
	p := samplePage()
	p.Rows[0].Peak, p.Rows[0].Plain = samplePeak(), p.Rows[0].Predicted
	p.Timelines = []Timeline{sampleTimeline()}
	p.Figures = []Figure{{"accuracy <x>", 0.5, Share}, {"peak", 1 << 20, Bytes}}
	p.Charts = []Chart{{Title: "Loss", Series: []Series{{Name: "loss", Points: []Point{{0, 2}, {1, math.NaN()}, {2, 1}}}}, Marks: []Mark{{"m", 1}}}}
	p.Sections = []Section{{Title: "s", Note: "n", Table: &Table{Columns: []Column{{"a", true}}, Rows: [][]string{{"<cell>"}}}}}
	return p
}

// A written page can be read, and is drawn as it was, to the byte.
func TestFilesKeepThePage(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a", "b")
	p := fullPage()
	if err := p.WriteFolder(folder, "index.html"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, filepath.Join(folder, FileName)} {
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if render(t, got) != render(t, p) {
			t.Error("the page that was read is another one")
		}
	}
	page, err := os.ReadFile(filepath.Join(folder, "index.html"))
	if err != nil || string(page) != render(t, p) {
		t.Errorf("the page is not what was drawn: %v", err)
	}
	for _, want := range []string{"what the peak is made of, at op 3, B4 (&lt;four&gt;)", "<dt>accuracy &lt;x&gt;</dt>", "gpipe &amp; &lt;co&gt;", "&lt;cell&gt;", "store-all, predicted", "1.000 MiB"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

// A long history is thinned in the file, and looks the same.
func TestLongCurvesAreThinned(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 1))
	s := Series{Name: "loss"}
	for i := range 200000 {
		s.Points = append(s.Points, Point{float64(i), rnd.Float64()})
	}
	p := &Page{Title: "t", Charts: []Chart{{Title: "Loss", Series: []Series{s}}}}
	var b strings.Builder
	if err := p.Encode(&b); err != nil {
		t.Fatal(err)
	}
	kept := thinned(p.Charts)[0].Series[0].Points
	if b.Len() > 1<<18 || len(kept) > manyPoints || len(p.Charts[0].Series[0].Points) != 200000 {
		t.Errorf("%d bytes, %d points", b.Len(), len(kept))
	}
	if kept[0] != s.Points[0] || kept[len(kept)-1] != s.Points[len(s.Points)-1] {
		t.Errorf("from %v to %v", kept[0], kept[len(kept)-1])
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	for want, text := range map[string]string{
		"invalid character":     "nonsense",
		`"format" is ""`:        `{}`,
		"not \"plimsoll.report": `{"format":"plimsoll.plan/v1"}`,
		"has no table":          `{"format":"plimsoll.report/v1","sections":[{"title":"x"}]}`,
		"there are 1 columns":   `{"format":"plimsoll.report/v1","sections":[{"title":"x","table":{"columns":[{"name":"a"}],"rows":[["1","2"]]}}]}`,
		`"teleport" is none of`: `{"format":"plimsoll.report/v1","timelines":[{"panels":[{"lanes":[{"bars":[{"kind":"teleport"}]}]}]}]}`,
		`"spiral" is none of`:   `{"format":"plimsoll.report/v1","charts":[{"series":[{"shape":"spiral"}]}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Read(filepath.Join(filepath.Dir(path), "none")); err == nil {
		t.Error("no file, and no error")
	}
}

// Whatever a file says: it is refused, or drawn as XML without markup of its own.
func FuzzRead(f *testing.F) {
	p := fullPage()
	p.Rows, p.Timelines[0].Panels[0].Lanes = p.Rows[:1], p.Timelines[0].Panels[0].Lanes[:1]
	p.Rows[0].Predicted, p.Rows[0].Measured, p.Rows[0].Plain, p.Rows[0].Peak.Parts = nil, p.Rows[0].Measured[:2], nil, samplePeak().Parts[:2]
	var b strings.Builder
	if err := p.Encode(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.String())
	f.Add(`{"format":"plimsoll.report/v1","title":"<script>","rows":[{"limit_bytes":-1,"peak":{"parts":[]}},{"peak":{"parts":[{"bytes":-5}]},"predicted_memory":[[1e308,1]]}],"charts":[{"series":[{"color":-9,"points":[[null,1]]}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := Read(path)
		if err != nil {
			return
		}
		if page := render(t, p); strings.Contains(page, "<script") {
			t.Error("the page has a script")
		}
	})
}
