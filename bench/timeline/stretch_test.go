package timeline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/pipeline"
)

// Idle shares, beside a count of many small intervals.
func TestIdleByCounting(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		s := Stretch{From: 3, To: 3 + 10*rnd.Float64() + 1}
		var at [2]float64
		for range 30 {
			d := rnd.IntN(2)
			start := at[d] + rnd.Float64()
			at[d] = start + rnd.Float64()
			kind := []pipeline.Kind{pipeline.F, pipeline.B, pipeline.W, pipeline.CF}[rnd.IntN(4)]
			s.Tasks = append(s.Tasks, pipe.Timing{Device: d, Kind: kind, Start: start, End: at[d]})
		}
		const parts = 20000
		got := s.Idle(2)
		for d := range 2 {
			idle := 0
			for i := range parts {
				x := s.From + (float64(i)+0.5)*(s.To-s.From)/parts
				busy := slices.ContainsFunc(s.Tasks, func(t pipe.Timing) bool {
					return t.Device == d && t.Kind != pipeline.CF && t.Start <= x && x < t.End
				})
				if !busy {
					idle++
				}
			}
			if want := float64(idle) / parts; math.Abs(got[d]-want) > 0.01 {
				t.Fatalf("device %d: %v, counted %v", d, got[d], want)
			}
		}
	}
}

// A picture of a run without a flush shows a few periods of its steady state: not what fills and drains the pipeline.
func TestPicturesShowTheSteadyState(t *testing.T) {
	t.Parallel()
	p := &Pipeline{Flat: &Flat{Depth: 3}, Plan: &pipeline.Plan{}}
	at := 0.0
	for m := range 16 {
		length := 1.0
		if m < 3 || m >= 13 {
			length = 100
		}
		p.Ran.Tasks = append(p.Ran.Tasks, pipe.Timing{Device: m % 2, Kind: pipeline.F, Minibatch: m, Start: at, End: at + length})
		at += length
	}
	if tasks, shown := p.measured(); shown.seconds != ShownPeriods || len(tasks) != 10 {
		t.Errorf("%v seconds of %d tasks", shown.seconds, len(tasks))
	}
}
