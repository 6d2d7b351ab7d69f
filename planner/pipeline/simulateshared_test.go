package pipeline_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
)

// Devices that share as many processors as there are have their own. On fewer, no more tasks compute at once, none is lost, and a step or period
// takes as long as all tasks together on these, at least.
func TestSharedProcessors(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 2))
	slower := 0
	for range 60 {
		k := random(rnd)
		own := simulate(t, k, pipeline.Noise{})
		for processors := 1; processors <= k.Platform.Devices; processors++ {
			o, err := pipeline.SimulateShared(k.Chain, k.Platform, k.Plan, processors)
			if err != nil {
				t.Fatal(err)
			}
			if processors == k.Platform.Devices && !reflect.DeepEqual(o, own) {
				t.Errorf("%d processors: %g s, of their own %g s: %+v", processors, o.PerMinibatch, own.PerMinibatch, k.Plan)
			}
			busy := computing(t, k.Plan, o, processors)
			if len(o.Spans) != len(own.Spans) || o.Makespan < busy/float64(processors)*(1-1e-9) || o.Makespan < own.Makespan*(1-1e-9) && k.Plan.IsFlush() && processors == 1 {
				t.Errorf("%d processors: %d tasks in %g s, %g s computing; of their own %g s: %+v", processors, len(o.Spans), o.Makespan, busy, own.Makespan, k.Plan)
			}
			if o.PerMinibatch > own.PerMinibatch*(1+1e-6) {
				slower++
			}
		}
	}
	if slower < 30 {
		t.Errorf("sharing makes only %d slower", slower)
	}
}

// computing returns the seconds that all tasks compute together, of which no more run at once than there are processors.
func computing(t *testing.T, plan *pipeline.Plan, o *pipeline.Outcome, processors int) (busy float64) {
	t.Helper()
	var ends []float64 // of the tasks that run
	for _, s := range o.Spans {
		if s.Task >= len(plan.Tasks) || plan.Tasks[s.Task].Kind.Communication() || s.End == s.Start {
			continue
		}
		busy += s.End - s.Start
		ends = slices.DeleteFunc(ends, func(end float64) bool { return end <= s.Start*(1+1e-12) })
		if ends = append(ends, s.End); len(ends) > processors {
			t.Fatalf("%d tasks run at %g s on %d processors: %+v", len(ends), s.Start, processors, plan)
		}
	}
	return busy
}

// Where links take no time, one processor is never idle: a step takes as long as all tasks one after the other.
func TestOneProcessorIsNeverIdle(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(9, 2))
	flushes := 0
	for range 200 {
		k := random(rnd)
		if !k.Plan.IsFlush() || len(k.Plan.Synchronization) > 0 {
			continue
		}
		free := pipeline.NewPlatform(k.Platform.Devices, pipeline.NoLimit, pipeline.Free())
		o, err := pipeline.SimulateShared(k.Chain, free, k.Plan, 1)
		if err != nil {
			continue // its times hold for its own links
		}
		flushes++
		if busy := computing(t, k.Plan, o, 1); !near(o.Makespan, busy) {
			t.Errorf("%g s, its tasks take %g s: %+v", o.Makespan, busy, k.Plan)
		}
	}
	if flushes < 20 {
		t.Errorf("only %d plans", flushes)
	}
}

func TestProcessorsRefused(t *testing.T) {
	t.Parallel()
	k := random(rand.New(rand.NewPCG(1, 2)))
	if _, err := pipeline.SimulateShared(k.Chain, k.Platform, k.Plan, 0); !errors.Is(err, pipeline.ErrPlan) {
		t.Errorf("no processor: %v", err)
	}
}
