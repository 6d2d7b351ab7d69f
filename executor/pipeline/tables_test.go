package pipeline

import (
	"path/filepath"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/runtime/host"
)

// PyTorch's own schedules run, those that are legal: with the bits of their tasks on one device.
func TestPyTorchTablesRun(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../planner/pipeline/interop/testdata/pytorch/*.csv")
	must(t, err)
	w := workload(t, plainModel(t))
	ran, refused := 0, 0
	for _, file := range files {
		table, err := interop.ReadSchedule(file)
		must(t, err)
		c := costs(w, len(table.Rows), 6)
		placed, err := table.Place(c.Chain, c.Platform)
		must(t, err)
		run, err := placed.Run()
		must(t, err)
		plan, err := placed.Plan(run)
		if err != nil {
			refused++
			continue
		}
		n := 2 * plan.Microbatches
		e, got := trained(t, w, c, plan, n, host.Config{})
		got.Tensors = tensors(t, e)
		one, want := trained(t, w, Costs{c.Chain, pipeline.NewPlatform(1, pipeline.NoLimit, 1)}, alone(plan), n, host.Config{})
		want.Tensors = tensors(t, one)
		if d := want.FirstDifference(got); d != "" {
			t.Errorf("%s: %s", filepath.Base(file), d)
		}
		ran++
	}
	t.Logf("%d tables run, %d are not legal", ran, refused)
	if ran < 25 {
		t.Errorf("%d tables ran, want 25", ran)
	}
}
