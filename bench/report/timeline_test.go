package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// sampleTimeline is a made plan of two devices and a link, and a run that is half again as slow and has updates.
func sampleTimeline() Timeline {
	panel := func(name string, slower float64, update bool) Panel {
		p := Panel{Name: name, Lanes: []Lane{{Name: "device 0"}, {Name: "device 1"}, {Name: "link 0-1"}}}
		for m := range 4 {
			at := slower * float64(m)
			add := func(lane int, kind Work, from, to float64) {
				p.Lanes[lane].Bars = append(p.Lanes[lane].Bars, Bar{
					Kind: kind, Start: at + slower*from, End: at + slower*to, Label: fmt.Sprint(m), Name: fmt.Sprintf("<%v>(%d)", kind, m),
				})
			}
			add(0, Forward, 0, 0.4)
			add(2, SendActivation, 0.4, 0.45)
			add(1, Forward, 0.45, 0.6)
			add(1, Backward, 0.6, 0.9)
		}
		if update {
			p.Lanes[1].Bars = append(p.Lanes[1].Bars, Bar{Kind: Update, Start: 6.2, End: 6.3, Name: "update"})
		}
		return p
	}
	memory := Chart{Title: "memory of device 0", Series: []Series{{Name: "planned", Shape: Step, Points: []Point{{0, 1}, {1, 2}}}}}
	return Timeline{Title: "gpipe & <co>", Note: "a note", Panels: []Panel{panel("planned", 1, false), panel("measured", 1.5, true)}, Charts: []Chart{memory}}
}

// Both panels lie on one axis: what starts at one time is at one place, and what takes as long is as wide.
func TestPanelsShareAnAxis(t *testing.T) {
	t.Parallel()
	line := sampleTimeline()
	elements, text := parse(t, string(line.SVG()))
	var bars []element
	legend := 0
	for _, e := range elements {
		switch {
		case strings.HasPrefix(e.attrs["class"], "bar w"):
			bars = append(bars, e)
		case strings.HasPrefix(e.attrs["class"], "w"):
			legend++
		}
	}
	if len(bars) != 2*16+1 || legend != 4 {
		t.Fatalf("%d bars, %d kinds in the legend", len(bars), legend)
	}
	number := func(e element, attr string) float64 {
		x, err := strconv.ParseFloat(e.attrs[attr], 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	planned, measured := bars[1], bars[17] // the forward of minibatch 1 on device 0
	from, length := number(planned, "x")-laneLeft, number(planned, "width")
	if x, width := number(measured, "x")-laneLeft, number(measured, "width"); math.Abs(x-1.5*from) > 0.02 || math.Abs(width-1.5*length) > 0.02 || from < 1 {
		t.Errorf("planned from %v, %v wide; measured from %v, %v wide", from, length, x, width)
	}
	end := 0.0
	for _, b := range bars {
		end = max(end, number(b, "x")+number(b, "width"))
	}
	if math.Abs(end-laneRight) > 0.1 {
		t.Errorf("the last bar ends at %v", end)
	}
	if !strings.Contains(text, "<forward>(1) on device 0: 400 ms, from 1.00 s to 1.40 s") || strings.Contains(text, "sent, weights") {
		t.Error("a bar does not tell what it is")
	}
}

// A timeline on its own is a picture, and one without any bar, or with times that are none, is drawn, too.
func TestTimelinePictures(t *testing.T) {
	t.Parallel()
	for _, line := range []Timeline{sampleTimeline(), {Title: "nothing"}, {Title: "odd", Panels: []Panel{{Lanes: []Lane{{Bars: []Bar{{Start: math.NaN(), End: math.Inf(1)}, {End: 1}}}}}}}} {
		var b strings.Builder
		if err := line.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		elements, _ := parse(t, b.String())
		for _, e := range elements {
			for _, a := range []string{"x", "width"} {
				if v := e.attrs[a]; strings.Contains(v, "NaN") || strings.Contains(v, "Inf") {
					t.Errorf("%s: %s of <%s> is %s", line.Title, a, e.name, v)
				}
			}
		}
	}
}
