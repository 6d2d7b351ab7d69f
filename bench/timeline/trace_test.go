package timeline

import (
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// Traces of random plans, planned and simulated, are valid and have a slice for each span, on the process of its device.
func TestTrace(t *testing.T) {
	rnd := rand.New(rand.NewPCG(6, 6))
	slices := 0
	for range 60 {
		c := pipelinetest.Chain(rnd, 1+rnd.IntN(6), true)
		p := pipelinetest.Platform(rnd, 1+rnd.IntN(4))
		plan := pipelinetest.Plan(rnd, c, p)
		planned, err := pipeline.Planned(c, p, plan, 4)
		if err != nil {
			t.Fatal(err)
		}
		o, err := pipeline.Simulate(c, p, plan, pipeline.Noise{Fraction: 0.1, Periods: 4})
		if err != nil {
			t.Fatal(err)
		}
		for _, spans := range [][]pipeline.Span{planned, o.Spans} {
			line, err := pipeline.NewTimeline(c, p, plan, spans)
			if err != nil {
				t.Fatal(err)
			}
			out, n := Trace(line), 0
			var b strings.Builder
			if err := out.Write(&b); err != nil {
				t.Fatal(err)
			}
			for i, process := range out.Processes {
				if process.Name != line.Lanes[i].Name || line.Lanes[i].Link != (process.Tracks[0].Name == "communication") {
					t.Errorf("process %d is %q, lane %q", i, process.Name, line.Lanes[i].Name)
				}
				n += len(process.Tracks[0].Slices)
			}
			if n != len(spans) {
				t.Errorf("%d slices of %d spans", n, len(spans))
			}
			slices += n
		}
	}
	if slices < 2000 {
		t.Errorf("%d slices", slices)
	}
}
