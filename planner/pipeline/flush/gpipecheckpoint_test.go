package flush

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/schedule"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// GPipe section 2.3, every stage as long as the other: the last microbatch does not recompute, and recomputation fills the wait for
// gradients. Beside the last microbatch, a device holds m-1 inputs of its stage. While the backward of the third layer runs, the last
// microbatch has its input, three saved sets, δ_2 and, in front of another stage, δ_3.
func TestCheckpointedFormula(t *testing.T) {
	t.Parallel()
	compared := 0
	for _, s := range whole {
		for _, P := range []int{1, 2, 4, 7} {
			for _, m := range []int{1, 2, P, 3*P + 1} {
				q := pipeline.Request{Chain: uniform(3*P, s.F/3, s.B/3, 0), Platform: free(P), Options: pipeline.Options{Microbatches: m}}
				q.Platform.NoBuffers = true
				plan, err := checkpointing().Solve(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				if want := float64(m+P-1)*(s.F+s.B) + float64(m-1)*s.F; !near(plan.Predicted.Makespan, want) {
					t.Errorf("%d devices, %d microbatches: makespan %g, want %g", P, m, plan.Predicted.Makespan, want)
				}
				want := slices.Repeat([]int64{int64(m - 1 + 6)}, P)
				want[P-1]--
				if !slices.Equal(plan.PerDevicePeak, want) {
					t.Errorf("%d devices, %d microbatches: peaks %v, want %v", P, m, plan.PerDevicePeak, want)
				}
				compared++
			}
		}
	}
	if compared != 64 {
		t.Errorf("%d sizes", compared)
	}
}

// pass is the pipeline of GPipe with recomputation, by its recurrences: everything begins when what it needs has ended. It
// returns when the last backward of stage 0 or any other one ends.
func pass(c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan) float64 {
	m := plan.Microbatches
	kept, saved, back := sums(c, plan)
	arrived := make([]float64, m) // at the stage: the input of each microbatch
	free := make([]float64, len(plan.Stages))
	for s := range plan.Stages {
		link := 0.0
		for k := range m {
			free[s] = max(free[s], arrived[k])
			if k == m-1 {
				free[s] += saved[s]
			} else {
				free[s] += kept[s]
			}
			if s+1 < len(plan.Stages) {
				link = max(link, free[s]) + seconds(p, plan, s, c.Activation(plan.Stages[s].Last))
				arrived[k] = link
			}
		}
	}
	end := 0.0
	gradient := make([]float64, m)
	for s := len(plan.Stages) - 1; s >= 0; s-- {
		link := 0.0
		for k := m - 1; k >= 0; k-- {
			if k < m-1 {
				free[s] += saved[s]
			}
			free[s] = max(free[s], gradient[k]) + back[s]
			if s > 0 {
				link = max(link, free[s]) + seconds(p, plan, s-1, c.Gradient(plan.Stages[s-1].Last))
				gradient[k] = link
			}
		}
		end = max(end, free[s])
	}
	return end
}

// sums returns of each stage the times of a forward that saves nothing, of one that saves, and of the backward.
func sums(c *chain.Chain, plan *pipeline.Plan) (kept, saved, back []float64) {
	for _, st := range plan.Stages {
		var x [3]float64
		for _, l := range c.Layers[st.First-1 : st.Last] {
			x[0], x[1], x[2] = x[0]+l.DiscardSeconds(), x[1]+l.ForwardS, x[2]+l.BackwardS
		}
		kept, saved, back = append(kept, x[0]), append(saved, x[1]), append(back, x[2])
	}
	return kept, saved, back
}

// seconds returns the time of a message over the boundary after a stage.
func seconds(p *pipeline.Platform, plan *pipeline.Plan, s int, bytes int64) float64 {
	return p.Seconds(bytes, plan.Stages[s].Devices[0], plan.Stages[s+1].Devices[0])
}

// checkpointable is a random request with forwards that take other times when they save nothing.
func checkpointable(rnd *rand.Rand) pipeline.Request {
	q := request(rnd)
	for i := range q.Chain.Layers {
		if rnd.IntN(3) == 0 {
			x := float64(rnd.IntN(5))
			q.Chain.Layers[i].DiscardForwardS = &x
		}
	}
	if rnd.IntN(2) == 0 {
		q = divided(rnd, gpipe(), q)
	}
	return q
}

// Whatever the costs, links and stages: the makespan is that of the recurrences, the simulator needs the same time, and the
// plan survives its file.
func TestCheckpointedOfAnyCosts(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 11))
	early, busyLinks := 0, 0
	for range 200 {
		q := checkpointable(rnd)
		plan, err := checkpointing().Solve(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if want := pass(q.Chain, q.Platform, plan); !near(plan.Predicted.Makespan, want) {
			t.Errorf("makespan %g, the recurrences end at %g", plan.Predicted.Makespan, want)
		}
		o, err := pipeline.Simulate(q.Chain, q.Platform, plan, pipeline.Noise{})
		if err != nil || !near(o.Makespan, plan.Predicted.Makespan) {
			t.Errorf("makespan %g, simulated %+v, %v", plan.Predicted.Makespan, o, err)
		}
		var file bytes.Buffer
		if err := plan.Encode(&file); err != nil {
			t.Fatal(err)
		}
		read, err := pipeline.Decode(&file)
		if err != nil {
			t.Fatal(err)
		}
		report, err := pipeline.Check(q.Chain, q.Platform, read)
		if err != nil || report.Warnings != nil || !near(report.Makespan, plan.Predicted.Makespan) || !slices.Equal(report.PerDevicePeak, plan.PerDevicePeak) {
			t.Errorf("read back: %+v, %v", report, err)
		}
		early += beforeGradient(t, q, plan)
		if q.Platform.Beta(plan.Stages[0].Devices[0], plan.Stages[1].Devices[0]) < 5 {
			busyLinks++
		}
	}
	if early < 500 || busyLinks < 50 {
		t.Errorf("%d backwards before their gradient, %d plans with slow links", early, busyLinks)
	}
}

// beforeGradient counts the backwards that begin to recompute before their gradient is there.
func beforeGradient(t *testing.T, q pipeline.Request, plan *pipeline.Plan) (n int) {
	t.Helper()
	spans, err := pipeline.Planned(q.Chain, q.Platform, plan, 1)
	if err != nil {
		t.Fatal(err)
	}
	ready := map[[2]int]float64{}
	for _, s := range spans {
		switch task := plan.Tasks[s.Task]; task.Kind {
		case pipeline.CB: // from the stage behind
			ready[[2]int{task.Stage, task.Shift}] = max(ready[[2]int{task.Stage, task.Shift}], task.Start)
		case pipeline.B:
			at := [2]int{task.Stage - 1, task.Shift}
			ready[at] = max(ready[at], s.End)
		}
	}
	for _, task := range plan.Tasks {
		if task.Kind == pipeline.B && task.Start < ready[[2]int{task.Stage, task.Shift}]-1e-9 {
			n++
		}
	}
	return n
}

// No more memory than it says: with one byte less the plan is refused, and the memory that works is named. Recomputing needs
// less than gpipe, which keeps everything, where there is much to keep.
func TestCheckpointedMemory(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 12))
	refused, smaller := 0, 0
	for range 60 {
		q := checkpointable(rnd)
		plan, err := checkpointing().Solve(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Accounting = pipeline.Saved
		all, err := lookup(t, "gpipe").Solve(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Max(plan.PerDevicePeak) < slices.Max(all.PerDevicePeak) {
			smaller++
		}
		most := slices.Max(plan.PerDevicePeak)
		if most == 0 {
			continue
		}
		q.Platform = q.Platform.WithMemory(most)
		if _, err := checkpointing().Solve(t.Context(), q); err != nil {
			t.Error(err)
		}
		q.Platform = q.Platform.WithMemory(most - 1)
		_, err = checkpointing().Solve(t.Context(), q)
		if e, ok := errors.AsType[*pipeline.InfeasibleError](err); !ok || e.Smallest != most || e.Best == nil {
			t.Errorf("a byte less: %v", err)
		}
		refused++
	}
	if refused < 50 || smaller < 30 {
		t.Errorf("%d refused, %d plans with less memory than gpipe's", refused, smaller)
	}
}

func TestCheckpointedRefuses(t *testing.T) {
	t.Parallel()
	for says, edit := range map[string]func(q *pipeline.Request){
		"has enough for 4 devices": func(q *pipeline.Request) { q.Platform = free(5) },
		"microbatches is -1":       func(q *pipeline.Request) { q.Microbatches = -1 },
		"a chain and a platform":   func(q *pipeline.Request) { q.Chain = nil },
		"has its own ops": func(q *pipeline.Request) {
			q.Stages = []pipeline.Stage{{First: 1, Last: 4, LastOps: schedule.Sequence{{Kind: schedule.ForwardAll, Layer: 1}}}}
		},
		"takes longer than a number": func(q *pipeline.Request) { q.Chain, q.Platform = uniform(1, 1e308, 1, 0), free(1) },
	} {
		q := pipeline.Request{Chain: uniform(4, 1, 1, 0), Platform: free(2), Options: pipeline.Options{Microbatches: 3}}
		edit(&q)
		_, err := checkpointing().Solve(t.Context(), q)
		if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, ErrOptions) && !errors.Is(err, pipeline.ErrInfeasible) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// The plan file: ops for all microbatches but the last, and for that one.
func TestCheckpointedFile(t *testing.T) {
	t.Parallel()
	c := pipelinetest.Chain(rand.New(rand.NewPCG(7, 15)), 5, false)
	q := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, pipeline.NoLimit, 8), Options: pipeline.Options{Microbatches: 3}}
	plan, err := checkpointing().Solve(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := plan.Encode(&got); err != nil {
		t.Fatal(err)
	}
	const path = "testdata/gpipe-checkpoint.json"
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s (go test -update rewrites it): %v\n%s", path, err, got.Bytes())
	}
}
