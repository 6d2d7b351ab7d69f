package pipeline

import (
	"fmt"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// keepMasters returns a workload whose cyclic plans have weights in bfloat16.
func keepMasters(t *testing.T, w *Workload) *Workload {
	t.Helper()
	lib, err := cpu.New(nil, cpu.Options{Threads: 1})
	must(t, err)
	x := *w
	x.KeepMasters(lib)
	return &x
}

// Weights are in bfloat16, with master copies in the optimizer's state. Plans that move both train the same weights, to the last bit, as a
// plan that keeps weights in float32 on the device. Audited, their memory is what the layout says. A rounded weight takes half its bytes.
func TestCyclicPlansKeepMasters(t *testing.T) {
	t.Parallel()
	cases := append([]cyclicCase{}, cyclicCases...)
	cases = append(cases, cyclicCase{sample{"tiny", models.Config{Batch: 4, Image: 8, Classes: 10}}, kernels.Muon{Momentum: 0.9, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6}})
	if testing.Short() {
		cases = cases[:2]
	}
	for _, z := range cases {
		z.config.DType = kernels.BFloat16
		m, err := models.New(z.name, z.config)
		must(t, err)
		wide := workloadOf(t, m, z.rule)
		w := keepMasters(t, wide)
		rounded := int64(0)
		for _, q := range m.Params() {
			if w.Rounded(q) && q.Of == nil {
				rounded += q.Desc.Bytes() / 2
			}
		}
		if rounded == 0 {
			t.Fatalf("%s: no weight is rounded", z.name)
		}
		c, unrounded := withState(w), withState(wide)
		p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 40}
		for _, n := range []int{1, 2} {
			want := residentOutcome(t, wide, n)
			for name, way := range cyclicPlans {
				what := fmt.Sprintf("%s, %s, %d microbatches", z.name, name, n)
				e, out := trainedCycle(t, w, c, p, name, way.byLayer(c, n), n)
				if a, m := e.Audited()[0], e.memory[0]; a.PeakBytes != m.Peak || a.ExtentBytes > m.Extent {
					t.Errorf("%s: audited %+v, planned %+v", what, a, m)
				}
				if d := want.FirstDifference(out); d != "" {
					t.Errorf("%s: %s", what, d)
				}
				if name != "optimizer" { // its state never leaves the host
					continue
				}
				least := func(w *Workload, c *chain.Chain) int64 { // of a layout without slack
					plan, err := pipeline.PlanCycle(c, name, way.byLayer(c, n), p)
					must(t, err)
					return needed(t, w, Costs{c, p.WithMemory(1)}, plan)[0].Peak
				}
				spare := int64(len(m.Params())) * kernels.Alignment // every weight begins at a multiple of it
				if saved := least(wide, unrounded) - least(w, c); saved < rounded-spare || saved > rounded+spare {
					t.Errorf("%s: the peak is %d B less than with weights in float32: half of the rounded weights are %d B", what, saved, rounded)
				}
			}
		}
	}
}

// trainedCycle trains four steps of a cyclic sequence.
func trainedCycle(t *testing.T, w *Workload, c *chain.Chain, p *pipeline.Platform, name string, seq cycle.Sequence, n int) (*Executor, *pipelinetest.Outcome) {
	t.Helper()
	plan, err := pipeline.PlanCycle(c, name, seq, p)
	must(t, err)
	e, out := trainedWith(t, w, Costs{c, p}, plan, 4*n, host.Config{Chaos: uint64(n)}, Options{Audit: true})
	out.Tensors = tensors(t, e)
	return e, out
}
