package pipeline_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
)

// The staircase as planned, two periods: every task on its device at its time.
func TestPlannedTimeline(t *testing.T) {
	t.Parallel()
	k := staircase()
	k.Plan.Strategy = "<made up>"
	spans, err := pipeline.Planned(k.Chain, k.Platform, k.Plan, 2)
	if err != nil {
		t.Fatal(err)
	}
	line, err := pipeline.NewTimeline(k.Chain, k.Platform, k.Plan, spans)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, lane := range line.Lanes {
		row := lane.Name + ":"
		for _, s := range lane.Slices {
			row += " " + s.Name()
			if s.End != s.Start+1 {
				t.Errorf("%s lasts from %g to %g", s.Name(), s.Start, s.End)
			}
		}
		rows = append(rows, row)
	}
	want := "device 0: F0(0) F0(1) B0(0) B0(1)\ndevice 1: F1(0) F1(1) B1(0) B1(1)\ndevice 2: F2(0) B2(0) F2(1) B2(1)"
	if got := strings.Join(rows, "\n"); got != want || line.End != 8 {
		t.Errorf("%s\nuntil %g, want\n%s", got, line.End, want)
	}
	if line.Title != "three, <made up>" {
		t.Errorf("titled %q", line.Title)
	}
}

// Timelines have a slice for each span; lanes of links come last; nothing overlaps.
func TestTimelinesHaveEverySpan(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 8))
	links := 0
	for range 40 {
		k := random(rnd)
		o := simulate(t, k, pipeline.Noise{Fraction: 0.1, Periods: 3})
		line, err := pipeline.NewTimeline(k.Chain, k.Platform, k.Plan, o.Spans)
		if err != nil {
			t.Fatal(err)
		}
		boxes := 0
		for i, lane := range line.Lanes {
			if lane.Link != strings.HasPrefix(lane.Name, "link") || i > 0 && line.Lanes[i-1].Link && !lane.Link {
				t.Errorf("lane %d is %s", i, lane.Name)
			}
			if lane.Link {
				links++
			}
			for j, s := range lane.Slices {
				boxes++
				if j > 0 && lane.Slices[j-1].End > s.Start+1e-9 {
					t.Errorf("%s: %s overlaps %s", lane.Name, lane.Slices[j-1].Name(), s.Name())
				}
			}
		}
		if boxes != len(o.Spans) {
			t.Errorf("%d slices, %d spans", boxes, len(o.Spans))
		}
	}
	if links < 20 {
		t.Errorf("%d links", links)
	}
	k := staircase()
	k.Plan.Stages = k.Plan.Stages[:2]
	if _, err := pipeline.Planned(k.Chain, k.Platform, k.Plan, 1); !errors.Is(err, pipeline.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := pipeline.NewTimeline(k.Chain, k.Platform, k.Plan, nil); !errors.Is(err, pipeline.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
