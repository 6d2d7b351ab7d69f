package pipeline

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// sequences are strategies for one device, of which the last ones offload.
var sequences = []string{"store-all", "periodic", "rotor", "offload-dynprog", "offload-greedy", "vdnn", "autoswap", "pofo", "capper"}

// accumulated trains steps of n microbatches with the sequential reference, which stores all that a backward needs, on batches of a feed.
// Steps for which skip is true it leaves out.
func accumulated(t *testing.T, w *Workload, feed Feed, steps, n int, maxNorm float32, skip func(step int) bool) *pipelinetest.Outcome {
	t.Helper()
	var kept []int
	for step := range steps {
		if !skip(step) {
			kept = append(kept, step)
		}
	}
	on := targets(t, 1, host.Config{})[0]
	r, err := pipelinetest.New(pipelinetest.Config{
		Model: w.Model, Device: on.Device, Library: on.Library, Optimizer: w.Optimizer, Seed: 7, MaxNorm: maxNorm,
		Stages: []pipelinetest.Stage{{First: 1, Last: len(w.Layers)}},
		LR:     func(_, update int) float32 { return rate(kept[update]) },
		Batch: func(m int, images []float32, labels []int32) {
			m = kept[m/n]*n + m%n
			must(t, errors.Join(feed.Images(m, images), feed.Labels(m, labels)))
		},
	})
	must(t, err)
	out, err := r.Run(pipelinetest.Flush(n), len(kept)*n)
	must(t, err)
	return out
}

// noStep is no step that is skipped.
func noStep(int) bool { return false }

// known returns the norm of a step; of one that was skipped a number that no norm is.
func known(norm float64, skipped bool) float64 {
	if skipped {
		return -1
	}
	return norm
}

// The table of a sequence with offloads and prefetches holds the bytes that are planned. It trains the weights of the sequential reference,
// whatever the streams' times.
// Only this test finds that a transfer is planned with other bytes, or issued in another order, than its readers need.
func TestSequencesTrainAsTheReference(t *testing.T) {
	t.Parallel()
	moved, ran := 0, 0
	shares, most := []float64{1, 0.75, 0.6}, [2]int{30, 12}
	if testing.Short() {
		shares, most = []float64{0.6}, [2]int{8, 5}
	}
	for i, z := range []sample{{"resnet20", models.Config{Batch: 4, Image: 16, Classes: 10}}, {"tiny", models.Config{Batch: 4, Image: 8, Classes: 10}}, {"gpt2-3-16-untied", models.Config{Batch: 2, Image: 12, Classes: 50}}} {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workload(t, m)
		c := counted(w, 1)
		full, err := w.Extent(w.StoreAll())
		must(t, err)
		want := accumulated(t, w, feedOf(w.Model), 3, 1, 0, noStep)
		for k, name := range sequences {
			s, err := planner.Lookup(name)
			must(t, err)
			for j, share := range shares {
				c.Chain.Bandwidth = []float64{2e9, 4e10}[j%2]
				limit := w.StaticBytes() + int64(share*float64(full-w.StaticBytes()))
				plan, err := executor.Plan(t.Context(), w, c.Chain, s, limit, strategy.Options{HostMemory: 1 << 30})
				if small := (*executor.TooSmallError)(nil); errors.As(err, &small) {
					continue
				}
				must(t, err)
				plan.Platform.Duplex = (i+k+j)%2 == 0
				if _, err := schedule.Simulate(c.Chain, plan.Sequence(), plan.Limits()); err != nil {
					plan.Platform.Duplex = false
				}
				what := fmt.Sprintf("%s, %s in %.0f %%", z.name, name, 100*share)
				sim := executor.Following(c.Chain, plan)
				at, err := w.Layout(plan.Sequence(), limit, sim)
				must(t, err)
				on := Costs{c.Chain, plan.Platform}
				opt := Options{Limits: []int64{max(limit, at.Extent)}, Audit: (k+j)%3 == 1}
				needs, err := Needs(w, on, plan, opt)
				must(t, err)
				if got := needs[0]; got.Peak != at.Peak || got.Extent != at.Extent || got.Offloaded != at.Copies {
					t.Errorf("%s: peak %d, extent %d, %d on the host; planned %+v", what, got.Peak, got.Extent, got.Offloaded, at)
				}
				e, out := trainedWith(t, w, on, plan, 3, host.Config{Chaos: uint64(ran + 1)}, opt)
				out.Tensors = tensors(t, e)
				for _, a := range e.Audited() {
					if a.PeakBytes != at.Peak {
						t.Errorf("%s: audited peak %d, planned %d", what, a.PeakBytes, at.Peak)
					}
				}
				if d := want.FirstDifference(out); d != "" {
					t.Errorf("%s: %s", what, d)
				}
				if ran++; plan.Offloads() {
					moved++
				}
			}
		}
	}
	t.Logf("%d plans, %d of them with transfers", ran, moved)
	if ran < most[0] || moved < most[1] {
		t.Errorf("%d plans, %d of them with transfers", ran, moved)
	}
}

// infiniteIn serves batches of which one has an image that is no number.
type infiniteIn struct {
	random
	batch int
}

func (x infiniteIn) Images(m int, dst []float32) error {
	err := x.random.Images(m, dst)
	if m == x.batch {
		dst[0] = float32(math.Inf(1))
	}
	return err
}

// A step of microbatches that each run a sequence accumulates gradients. Peak, extent and host copies are as large as for one microbatch.
// Losses, norms, weights and the optimizer's state equal the sequential reference bit for bit. If the norm of a step is not a number, the
// step changes neither the weights nor the optimizer's state.
func TestAccumulatedSequencesTrainAsTheReference(t *testing.T) {
	t.Parallel()
	m, err := models.New("resnet20", models.Config{Batch: 2, Image: 16, Classes: 10})
	must(t, err)
	w := workload(t, m)
	c := counted(w, 1)
	full, err := w.Extent(w.StoreAll())
	must(t, err)
	moved, skipped := 0, 0
	for i, name := range []string{"store-all", "rotor", "offload-dynprog", "vdnn", "pofo"} {
		s, err := planner.Lookup(name)
		must(t, err)
		c.Chain.Bandwidth = []float64{2e9, 4e10}[i%2]
		limit := full
		if name != "store-all" {
			limit = w.StaticBytes() + (full-w.StaticBytes())*6/10
		}
		plan, err := executor.Plan(t.Context(), w, c.Chain, s, limit, strategy.Options{HostMemory: 1 << 30})
		must(t, err)
		sim, costs := executor.Following(c.Chain, plan), Costs{c.Chain, plan.Platform}
		at, err := w.Layout(plan.Sequence(), limit, sim)
		must(t, err)
		for k, n := range []int{1, 2, 5} {
			const steps = 3
			feed := infiniteIn{feedOf(w.Model), none}
			if k == i%3 {
				feed.batch, skipped = n+n/2, skipped+1 // of the second step
			}
			opt := Options{Limits: []int64{max(limit, at.Extent)}, Audit: k == 1, Feed: feed, Seed: 7, Rate: rate, MaxNorm: []float32{0, 0.5}[(i+k)%2]}
			out := &pipelinetest.Outcome{}
			opt.Done = func(r Result) {
				out.Losses, out.Correct = append(out.Losses, r.Loss), append(out.Correct, r.Correct)
				if r.Minibatch%n == n-1 {
					out.Norms = append(out.Norms, known(r.Norm, r.Skipped))
				}
			}
			what, step := fmt.Sprintf("%d microbatches along %s", n, name), plan.Accumulated(n)
			needs, err := Needs(w, costs, step, opt)
			must(t, err)
			if got := needs[0]; got.Peak != at.Peak || got.Extent != at.Extent || got.Offloaded != at.Copies {
				t.Errorf("%s: peak %d, extent %d, %d on the host; planned %+v", what, got.Peak, got.Extent, got.Offloaded, at)
			}
			e, err := New(w, targets(t, 1, host.Config{Chaos: uint64(3*i + k + 1)}), costs, step, opt)
			must(t, err)
			for range steps {
				must(t, e.Run(t.Context(), n))
			}
			for _, a := range e.Audited() {
				if a.PeakBytes != at.Peak {
					t.Errorf("%s: audited peak %d, planned %d", what, a.PeakBytes, at.Peak)
				}
			}
			out.Tensors = tensors(t, e)
			own := accumulated(t, w, feed, steps, n, opt.MaxNorm, func(step int) bool { return feed.batch/n == step && feed.batch != none })
			if bad := slices.Index(out.Norms, -1); (bad >= 0) != (feed.batch != none) {
				t.Errorf("%s: norms %v", what, out.Norms)
			} else if bad >= 0 { // its batches have moved BatchNorm's statistics
				out.Norms, out.Losses = slices.Delete(out.Norms, bad, bad+1), slices.Delete(out.Losses, bad*n, bad*n+n)
				statistic := func(x pipelinetest.Tensor) bool { return x.Role == "buffer" }
				out.Tensors, own.Tensors = slices.DeleteFunc(out.Tensors, statistic), slices.DeleteFunc(own.Tensors, statistic)
			}
			if opt.MaxNorm == 0 {
				out.Norms = nil
			}
			if d := own.FirstDifference(out); d != "" {
				t.Errorf("%s: %s", what, d)
			}
			if plan.Offloads() {
				moved++
			}
		}
	}
	if moved < 9 || skipped < 5 {
		t.Errorf("%d plans with transfers, %d steps skipped", moved, skipped)
	}
}

// When a step is timed op by op, its batch, every op and every transfer are timed once. An op is within its task and behind the op before
// it, the first behind the batch. A transfer is behind the op that it follows in the sequence, and a prefetch behind its offload.
func TestOpsAreTimed(t *testing.T) {
	t.Parallel()
	m, err := models.New("resnet20", models.Config{Batch: 4, Image: 16, Classes: 10})
	must(t, err)
	w := workload(t, m)
	c := counted(w, 1)
	c.Chain.Bandwidth = 4e10
	full, err := w.Extent(w.StoreAll())
	must(t, err)
	s, err := planner.Lookup("offload-dynprog")
	must(t, err)
	plan, err := executor.Plan(t.Context(), w, c.Chain, s, w.StaticBytes()+(full-w.StaticBytes())*6/10, strategy.Options{HostMemory: 1 << 30})
	must(t, err)
	const steps = 4
	c.Platform = plan.Platform
	e, _ := trainedWith(t, w, c, plan, 1, host.Config{Chaos: 1}, Options{Timed: &Timed{Ops: true}})
	all, err := e.Timings()
	must(t, err)
	e.opt.Done = nil
	for step := range steps - 1 {
		must(t, e.Run(t.Context(), 1))
		more, err := e.Timings()
		must(t, err)
		for _, x := range more {
			x.Minibatch += step + 1
			all = append(all, x)
		}
	}
	seq := plan.Sequence()
	tasks, ops, batches := map[[2]int]Timing{}, make([][]Timing, steps), make([]Timing, steps)
	for i := range ops {
		ops[i] = make([]Timing, len(seq)+1)
	}
	for _, x := range all {
		switch {
		case x.Computes():
			tasks[[2]int{int(x.Kind), x.Minibatch}] = x
		case x.Op == TheBatch:
			batches[x.Minibatch] = x
		case x.Op > 0:
			if ops[x.Minibatch][x.Op].Op > 0 {
				t.Errorf("op %d of step %d is timed twice", x.Op, x.Minibatch)
			}
			ops[x.Minibatch][x.Op] = x
		}
	}
	moved := 0
	for step, list := range ops {
		before := batches[step]
		if before.Op != TheBatch || before.End < before.Start {
			t.Errorf("the batch of step %d: %+v", step, before)
		}
		away := map[int]float64{}
		for p, op := range seq {
			x := list[p+1]
			switch task := tasks[[2]int{int(x.Kind), step}]; {
			case x.Op == 0 || x.End < x.Start:
				t.Fatalf("op %d of step %d, %v: %+v", p, step, op, x)
			case x.Start < before.End:
				t.Errorf("op %d of step %d, %v, starts at %v; the op before it ends at %v", p, step, op, x.Start, before.End)
			case !op.Kind.Transfer() && (x.Start < task.Start || x.End > task.End):
				t.Errorf("op %d of step %d, %v, is at %+v, its task at %+v", p, step, op, x, task)
			}
			switch op.Kind {
			case schedule.Offload:
				away[op.Layer] = x.End
			case schedule.Prefetch:
				if moved++; x.Start < away[op.Layer] {
					t.Errorf("op %d of step %d, %v, starts at %v, its offload ends at %v", p, step, op, x.Start, away[op.Layer])
				}
			default:
				before = x
			}
		}
	}
	if moved < steps {
		t.Errorf("%d prefetches in %d steps", moved, steps)
	}
}
