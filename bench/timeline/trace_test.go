package timeline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// Traces of random plans, planned and simulated, are valid and have a slice for each span, on the process of its device.
func TestTrace(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(6, 6))
	slices := 0
	for range 60 {
		c := pipelinetest.Chain(rnd, 1+rnd.IntN(6), true)
		p := pipelinetest.Platform(rnd, 1+rnd.IntN(4))
		plan, err := pipeline.Synchronize(c, p, pipelinetest.Plan(rnd, c, p))
		if err != nil {
			t.Fatal(err)
		}
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

// A run that goes as planned has the plan's timeline, messages between replicas included.
func TestRunsAsPlanned(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 6))
	sums := 0
	for range 120 {
		c := pipelinetest.Chain(rnd, 1+rnd.IntN(6), true)
		p := pipelinetest.Platform(rnd, 1+rnd.IntN(4))
		plan, err := pipeline.Synchronize(c, p, pipelinetest.Plan(rnd, c, p))
		if err != nil {
			t.Fatal(err)
		}
		line, err := NewPipeline(pipe.Costs{Chain: c, Platform: p}, plan, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		spans, err := pipeline.Planned(c, p, plan, max(1, line.Flat.Depth))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range spans {
			x := line.timing(s.Task)
			x.Minibatch, x.Start, x.End = s.Minibatch, s.Start, s.End
			line.Ran.Tasks = append(line.Ran.Tasks, x)
		}
		want, err := line.Planned()
		if err != nil {
			t.Fatal(err)
		}
		got, err := line.Run()
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Lanes) != len(want.Lanes) {
			t.Fatalf("%d lanes, planned are %d", len(got.Lanes), len(want.Lanes))
		}
		for i, lane := range want.Lanes {
			if fmt.Sprint(got.Lanes[i].Slices) != fmt.Sprint(lane.Slices) {
				t.Errorf("%s: %v, planned %v", lane.Name, got.Lanes[i].Slices, lane.Slices)
			}
			for _, s := range lane.Slices {
				if s.Sync != nil {
					sums++
				}
			}
		}
	}
	if sums < 100 {
		t.Errorf("%d messages between replicas", sums)
	}
}

// Messages that were under way at once lie on tracks of their own, each the first one that is free.
func TestTraceOfOverlappingMessages(t *testing.T) {
	t.Parallel()
	var messages []pipeline.Slice
	for i, at := range [][2]float64{{0, 2}, {1, 3}, {1.5, 1.75}, {2, 4}, {3, 5}} {
		messages = append(messages, pipeline.Slice{Span: pipeline.Span{Task: i, Start: at[0], End: at[1]}})
	}
	line := &pipeline.Timeline{End: 5, Lanes: []pipeline.Lane{{Name: "link 0-1", Link: true, Slices: messages}}}
	out := Trace(line)
	var b strings.Builder
	if err := out.Write(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, track := range out.Processes[0].Tracks {
		for _, s := range track.Slices {
			got = append(got, fmt.Sprintf("%s %g", track.Name, s.Start))
		}
	}
	want := []string{"communication 0", "communication 2", "communication 2 1", "communication 2 3", "communication 3 1.5"}
	if !slices.Equal(got, want) {
		t.Errorf("slices are on %q, want %q", got, want)
	}
}
