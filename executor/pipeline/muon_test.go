package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

var muon = kernels.Muon{Momentum: 0.95, WeightDecay: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}

// Matrices are updated as a whole, in every schedule, with every kind of weight versions, in replicas and in each type. The results have the
// bits of the definition on one device, and the memory has the planned peak. The momentum is the only state that every weight has.
func TestMuonInPipelines(t *testing.T) {
	t.Parallel()
	for _, d := range []kernels.DType{kernels.Float32, kernels.TF32, kernels.BFloat16} {
		m := builtModel(t, false, d)
		for _, q := range m.Params() {
			if q.Matrix.Is() && q.Matrix.DType != d {
				t.Errorf("%s of a model in %v is updated in %v", q.Name, d, q.Matrix.DType)
			}
		}
		w, err := Compile(m, onlyLibrary(t), muon)
		must(t, err)
		c := costs(w, 3, 2)
		plans := map[string]*pipeline.Plan{"data": dataParallel(c, 6), "flush": planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 4})}
		for _, versions := range []pipeline.Versions{pipeline.Stash, pipeline.DoubleBuffered} {
			plans[string(versions)] = planFor(t, "1f1b*", c, pipeline.Options{Versions: versions})
		}
		for name, plan := range plans {
			t.Run(fmt.Sprintf("%s/%v", name, d), func(t *testing.T) { checkMuonIn(t, w, c, name, plan) })
		}
	}
}

// checkMuonIn runs a plan and compares it with its definition.
func checkMuonIn(t *testing.T, w *Workload, c Costs, name string, plan *pipeline.Plan) {
	t.Helper()
	e, out := trainedWith(t, w, c, plan, 3*groupOf(t, w, c, plan), host.Config{Chaos: 2}, Options{Audit: plan.IsFlush()})
	out.Tensors = tensors(t, e)
	var p pipelinetest.Program
	switch {
	case name == "data":
		p = newInstants(t, c, plan).expected(e.layout, len(out.Losses))
	case plan.IsFlush():
		p = pipelinetest.Flush(plan.Repeats())
	default:
		p = program(plan.Versions, delays(t, c, plan), e.Group())
	}
	on := targets(t, 1, host.Config{})[0]
	same(t, referenceWith(t, pipelinetest.Config{Model: w.Model, Device: on.Device, Library: on.Library, LR: p.Rate(rate), Optimizer: muon}, plan, p, len(out.Losses)), out)
	for _, a := range e.Audited() {
		if want := e.memory[a.Device].Peak; a.PeakBytes != want {
			t.Errorf("device %d: peak %d, planned %d", a.Device, a.PeakBytes, want)
		}
	}
	states := map[string]int{}
	for _, x := range out.Tensors {
		states[x.Role]++
	}
	if n := states["weight"]; states["state0"] != n || states["state1"] != n-14 { // the convolutions
		t.Errorf("tensors %v", states)
	}
}

// Parts of a matrix cannot be updated by themselves: a plan that divides the state is refused, and says what to do.
func TestMuonIsNotDivided(t *testing.T) {
	t.Parallel()
	w, err := Compile(wideModel(t), onlyLibrary(t), muon)
	must(t, err)
	c := costs(w, 2, 3)
	divided, whole := sharing(t, c, dataParallel(c, 4))
	for plan, refused := range map[*pipeline.Plan]bool{divided: true, whole: false} {
		_, err := Needs(w, c, plan, Options{})
		if errors.Is(err, order.ErrPlan) != refused || refused && !strings.Contains(fmt.Sprint(err), "muon") {
			t.Errorf("with \"zero\" of %v: %v", plan.Zero, err)
		}
	}
}

// The memory of a stage is that of AdamW less the second state of matrices, with the workspace of the largest one.
func TestMemoryOfMuon(t *testing.T) {
	t.Parallel()
	m, lib := wideModel(t), onlyLibrary(t)
	needs := func(u kernels.Update) (*executor.Workload, []Memory) {
		w, err := Compile(m, lib, u)
		must(t, err)
		c := costs(w, 2, 3)
		all, err := Needs(w, c, planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 2}), Options{})
		must(t, err)
		return w, all
	}
	w, got := needs(muon)
	_, adamw := needs(muon.AdamW())
	var workspace, matrices int64
	for _, bytes := range w.UpdateWorkspaces[:2] {
		workspace = max(workspace, bytes)
	}
	for _, l := range m.Layers[:2] {
		for _, q := range l.Params() {
			if q.Matrix.Is() {
				matrices += q.Desc.Storage()
			}
		}
	}
	first := planFor(t, "1f1b-flush", costs(w, 2, 3), pipeline.Options{Microbatches: 2}).Stages[0]
	if first.Last != 2 || workspace == 0 {
		t.Fatalf("the first stage ends with layer %d, a workspace has %d bytes", first.Last, workspace)
	}
	if want := adamw[0].Static - matrices + workspace; got[0].Static != want {
		t.Errorf("static memory %d, want %d", got[0].Static, want)
	}
}
