package timeline

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"plimsoll/bench/report"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// layered is a chain whose layers have weights and state, and of which every number differs.
func layered(layers int) *chain.Chain {
	rng := rand.New(rand.NewPCG(3, 3))
	c := &chain.Chain{Name: "layered", InputBytes: 7}
	for range layers {
		host := 2 + rng.Float64()
		l := chain.Layer{Name: "l", ForwardS: 1 + rng.Float64(), BackwardS: 2 + rng.Float64(), OutputBytes: 11, SavedBytes: 31, GradientBytes: 11,
			WeightBytes: 101, BackwardOverheadBytes: 5}
		l.Update = chain.Update{StateBytes: 211, DeviceS: 0.5, HostS: &host}
		c.Layers = append(c.Layers, l)
	}
	return c
}

const (
	hostUpdates   = "Pw1 Fall1 Pw2 Fall2 B2 Og2 Dw2 H2 B1 Og1 Dw1 H1"
	deviceUpdates = "Ps1 U1' Os1 Ds1 Fall1 Fall2 O2 Fall3 B3 U3 P2 B2 U2 B1"
	microbatches  = "H2' Pw1 Fall1.1 Fall1.2 Dw1 Pw2 Fall2.1 Fall2.2 B2.1 B2.2 Og2 Dw2 Pw1 B1.1 B1.2 Og1 Dw1 H1"
)

func newTestCycle(t *testing.T, layers int, text string) *Cycle {
	t.Helper()
	seq, err := cycle.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c, p := layered(layers), &pipeline.Platform{Devices: 1, Memory: []int64{2000}, Host: 97, Duplex: true, HostMemory: 5000}
	plan, err := pipeline.PlanCycle(c, "given", seq, p)
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewCycle(c, plan, p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A panel has a lane for each stream, in which the ops of a step take the time that they take, and no two at once. The bands add up to what
// the simulation has in use, and the peak's parts to the peak.
func TestCyclicPictures(t *testing.T) {
	t.Parallel()
	for text, layers := range map[string]int{hostUpdates: 2, deviceUpdates: 3, microbatches: 2} {
		c := newTestCycle(t, layers, text)
		picture := c.Picture()
		lanes := picture.Panels[0].Lanes
		if len(picture.Panels) != 1 || len(lanes) < 3 {
			t.Fatalf("%s: %d panels, %d lanes", text, len(picture.Panels), len(lanes))
		}
		seconds := 0.0
		for _, l := range lanes {
			end := 0.0
			for _, b := range l.Bars {
				if seconds += b.End - b.Start; b.Start < end {
					t.Errorf("%s: %s overlaps the bar before", text, b.Name)
				}
				end = b.End
				if (b.Kind == report.Update) != strings.ContainsAny(b.Label[:1], "UH") || strings.HasPrefix(b.Label, "H") != (l.Name == "host updates") {
					t.Errorf("%s: %s is of kind %v on %s", text, b.Name, b.Kind, l.Name)
				}
			}
		}
		busy := 0.0
		for _, s := range c.result.Busy {
			busy += s * float64(c.result.Repeats)
		}
		if math.Abs(seconds-busy) > 1e-9 {
			t.Errorf("%s: bars of %v s, the streams are busy for %v s", text, seconds, busy)
		}
		wantBands(t, text, c)
		sum := int64(0)
		for _, p := range c.Peak().Parts {
			sum += p.Bytes
		}
		if sum != max(c.result.Peak, c.result.InOrderPeak) {
			t.Errorf("%s: parts of %d bytes, %+v", text, sum, c.result)
		}
		var svg, trace strings.Builder
		if err := picture.WriteSVG(&svg); err != nil || strings.Count(svg.String(), `class="band`) < 4 {
			t.Errorf("%s: %v, %s", text, err, svg.String())
		}
		if err := c.Trace("device").Write(&trace); err != nil || !strings.Contains(trace.String(), `"optimizer state"`) {
			t.Errorf("%s: %v, %s", text, err, trace.String())
		}
	}
}

// wantBands wants the bands to add up to the bytes in use between two starts.
func wantBands(t *testing.T, text string, c *Cycle) {
	t.Helper()
	bands, compared := c.bands(), 0
	for i, x := range c.result.Starts {
		if x.Start < c.from || x.Start >= c.until || x.End == x.Start || i+1 < len(c.result.Starts) && c.result.Starts[i+1].Start == x.Start {
			continue
		}
		sum := 0.0
		for _, points := range bands {
			for k, p := range points {
				if p.X <= x.Start-c.from && (k+1 == len(points) || points[k+1].X > x.Start-c.from) {
					sum += p.Y
				}
			}
		}
		if compared++; int64(sum) != x.Used {
			t.Errorf("%s: bands of %v bytes at %v s, %d are in use", text, sum, x.Start, x.Used)
		}
	}
	if compared < 5 {
		t.Errorf("%s: %d instants were compared", text, compared)
	}
}

// The measured picture starts at the first compute op of the middle step and lasts as long as that step took. An op with a prime belongs to
// the step that issues it. The parts of the receipt add up to the gap, to the nanosecond.
func TestCyclicPicturesAsTheyRan(t *testing.T) {
	t.Parallel()
	c := newTestCycle(t, 2, microbatches)
	for step := range 3 {
		for i, op := range c.Plan.Cycle {
			if op.Kind == schedule.DropWeights || step == 0 && op.Prime {
				continue
			}
			t := pipe.Timing{Kind: pipeline.CycleOp, Op: i + 1, Minibatch: 2*step + max(op.Microbatch, 1) - 1, Start: float64(100*step + 5*i)}
			switch {
			case op.Prime:
				t.Minibatch = 2*step - 1
			case op.Kind.OfState():
				t.Minibatch = 2*step + 1
			}
			t.End = t.Start + 4
			c.Ran = append(c.Ran, t)
		}
	}
	if c.Receipt() != nil || len(c.Picture().Panels) != 1 {
		t.Error("no step was measured, and one is shown")
	}
	c.Window = c.sim.Windows(pipe.CycleSpans(c.Plan, c.Ran), 1, 1)[0]
	r, sum := c.Receipt(), time.Duration(0)
	for _, d := range r.By {
		sum += d
	}
	if r.Measured != 100*time.Second || math.Abs(r.Predicted.Seconds()-c.result.Period) > 1e-8 || sum != r.Gap() || r.Steps != 1 {
		t.Errorf("%+v comes to %v of %v", r, sum, r.Gap())
	}
	panels := c.Picture().Panels
	if len(panels) != 2 || panels[1].Name != "measured" {
		t.Fatalf("%d panels", len(panels))
	}
	bars := 0
	for _, l := range panels[1].Lanes {
		for _, b := range l.Bars {
			if bars++; b.Start < 0 || b.End > 100 || math.Abs(b.End-b.Start-4) > 1e-6 {
				t.Errorf("%+v", b)
			}
		}
	}
	if want := len(c.Plan.Cycle) - 3; bars != want {
		t.Errorf("%d bars, want %d", bars, want)
	}
	if p := c.Trace("x").Processes; len(p) != 2 || p[1].Name != "x measured" {
		t.Errorf("%d processes", len(p))
	}
}
