package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

func samplePeak() *Peak {
	p := &Peak{At: "op 3, B4 (<four>)", Parts: []Part{{"weights", "1, stem", 100}, {"weights", "2, <two>", 300}, {"workspace", "", 400}}}
	for i := range 30 {
		p.Parts = append(p.Parts, Part{"saved set", fmt.Sprint(i), int64(40 + i)})
	}
	return p
}

// The parts of a peak fill its picture, by role, each told; the table has the largest, and the rest in one line.
func TestPeakPicture(t *testing.T) {
	t.Parallel()
	p := samplePeak()
	elements, text := parse(t, string(p.SVG()))
	at, parts := 0.0, 0
	for _, e := range elements {
		if e.name != "rect" {
			continue
		}
		parts++
		x, _ := strconv.ParseFloat(e.attrs["x"], 64)
		width, _ := strconv.ParseFloat(e.attrs["width"], 64)
		if math.Abs(x-at) > 0.02*float64(parts) || width <= 0 {
			t.Errorf("part %d begins at %v, the one before ends at %v", parts, x, at)
		}
		at = x + width
	}
	if parts != len(p.Parts) || math.Abs(at-pageWidth) > 0.1 || !strings.Contains(text, "weights of 2, <two>: 300 B, ") {
		t.Errorf("%d parts up to %v:\n%s", parts, at, text)
	}
	rows, sum := p.Table().Rows, p.Bytes()
	if len(rows) != mostParts+1 || rows[0][0] != "workspace" || rows[mostParts][0] != "8 smaller ones" || sum != 100+300+400+30*40+29*15 {
		t.Errorf("%d rows of %d bytes, %v to %v", len(rows), sum, rows[0], rows[len(rows)-1])
	}
	if roles := p.Roles(); len(roles) != 3 || roles[0].Bytes != 400 {
		t.Errorf("roles %v", roles)
	}
}
