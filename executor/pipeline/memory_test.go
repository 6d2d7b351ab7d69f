package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// Every device writes up to the last byte of what the plan was said to need, and none beyond.
func TestRunsTouchExactlyThePredictedMemory(t *testing.T) {
	t.Parallel()
	m := testModel(t)
	w := workload(t, m)
	const beyond = 1 << 16
	devices := 0
	for _, name := range []string{"1f1b-flush", "interleaved", "1f1b*", "list"} {
		c := costs(w, 3, 5)
		plan := planFor(t, name, c, pipeline.Options{Microbatches: 6})
		needs, err := Needs(w, c, plan, Options{})
		must(t, err)
		on, opt := targets(t, 3, host.Config{}), Options{Feed: feedOf(m), Rate: rate}
		for _, n := range needs {
			opt.Limits = append(opt.Limits, n.Extent+beyond)
		}
		e, err := New(w, on, c, plan, opt)
		must(t, err)
		for _, d := range e.drivers {
			static := e.memory[d.Number].Static
			must(t, on[d.Number].Device.(runtime.Inspector).Fill(runtime.Span{Offset: static, Bytes: opt.Limits[d.Number] - static}, 0xFF))
		}
		must(t, e.Run(context.Background(), 12))
		for _, d := range e.drivers {
			look := make([]byte, opt.Limits[d.Number])
			must(t, on[d.Number].Device.(runtime.Inspector).Peek(runtime.Span{Bytes: int64(len(look))}, look))
			end := int64(len(bytes.TrimRight(look, "\xff")))
			if need := needs[d.Number]; end > need.Extent || end <= need.Extent-2*kernels.Alignment || need.Peak > need.Extent {
				t.Errorf("%s, device %d: wrote up to byte %d, predicted %+v", name, d.Number, end, need)
			}
			devices++
		}
	}
	if devices < 10 {
		t.Errorf("looked at %d devices only", devices)
	}
}

// The memory of a stage follows from the chain's sizes and the checker's count of live minibatches.
func TestNeedsAreWhatTheCheckerCounts(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	seen := 0
	for seed := range uint64(20) {
		devices := 2 + int(seed%3)
		c := costs(w, devices, seed)
		plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash})
		needs, err := Needs(w, c, plan, Options{})
		must(t, err)
		report, err := pipeline.Check(c.Chain, c.Platform, plan)
		must(t, err)
		for s, st := range plan.Stages {
			var saved int64
			for l := st.First; l <= st.Last; l++ {
				saved += kernels.Align(c.Chain.Layer(l).SavedBytes)
			}
			saved += 2 * kernels.ScalarsBytes
			if s == 0 {
				saved += kernels.Align(w.InputBytes())
			}
			if s == len(plan.Stages)-1 {
				saved += kernels.Align(w.Model.Labels.Bytes())
			}
			if got, want := needs[st.Devices[0]].InFlight, int64(report.NCA[s])*saved; got != want {
				t.Errorf("seed %d, stage %d: %d bytes in flight, want %d minibatches of %d bytes", seed, s, got, report.NCA[s], saved)
			}
			if got, want := needs[st.Devices[0]].Weights, int64(report.NCA[s])*copyBytes(w, st); got != want {
				t.Errorf("seed %d, stage %d: %d bytes of weights, want %d versions of %d bytes", seed, s, got, report.NCA[s], copyBytes(w, st))
			}
			seen++
		}
	}
	if seen < 40 {
		t.Errorf("%d stages only", seen)
	}
}

// copyBytes returns the size of one copy of a stage's weights.
func copyBytes(w *Workload, st pipeline.Stage) (bytes int64) {
	for l := st.First; l <= st.Last; l++ {
		bytes += kernels.Align(w.Layers[l-1].GradBytes)
	}
	return bytes
}

func TestADeviceThatIsTooSmallIsNamed(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 2, 1)
	plan := planFor(t, "1f1b*", c, pipeline.Options{})
	needs, err := Needs(w, c, plan, Options{})
	must(t, err)
	_, err = New(w, targets(t, 2, host.Config{}), c, plan, Options{Feed: random{classes: 5}, Rate: rate, Limits: []int64{0, needs[1].Extent - 1}})
	want := fmt.Sprintf("device 1 needs %s (%s of it for weights, gradients and optimizer state), it may use %s",
		units.Precise(needs[1].Extent), units.Bytes(needs[1].Static), units.Precise(needs[1].Extent-1))
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// With vertical_sync no stage keeps more versions than the first one stashes, which is what plans count that do not say, and some
// need them all.
func TestVerticalSyncKeepsTheFirstStagesVersions(t *testing.T) {
	t.Parallel()
	w := workload(t, smallModel(t))
	plans, all := 0, 0
	for _, name := range []string{"1f1b", "1f1b*", "k-periodic", "eager"} {
		for seed := range uint64(8) {
			c := costs(w, 4, seed)
			plan := planFor(t, name, c, pipeline.Options{Versions: pipeline.Stash})
			plan.Versions = pipeline.VerticalSync
			report, err := pipeline.Check(c.Chain, c.Platform, plan)
			must(t, err)
			e := &layout{Workload: w, opt: Options{}}
			must(t, e.layOut(c, plan, 4))
			plans++
			for _, d := range e.drivers {
				for s, stage := range d.stages {
					if stage == nil {
						continue
					}
					if n := len(stage.weights); n > report.NCA[0] {
						t.Errorf("%s, seed %d: stage %d keeps %d versions of its weights, %d minibatches are live in the first", name, seed, s, n, report.NCA[0])
					} else if n == report.NCA[0] && s > 0 {
						all++
					}
				}
			}
		}
	}
	if plans != 32 || all == 0 {
		t.Errorf("%d plans; %d later stages need all versions", plans, all)
	}
}
