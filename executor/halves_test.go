package executor

import (
	"testing"

	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

// The halves of a backward are measured when asked for, with other memory than the whole one.
func TestProfileMeasuresHalves(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	steps := 0
	open := func() (Target, error) { return openRig(t, testModel(t), host.Config{}, nil).on, nil }
	fill := func(e *Executor) error { fillBatch(t, e, 1); return nil }
	extent, err := r.Extent(r.StoreAll())
	must(t, err)
	c, err := Profile(t.Context(), r.Workload, open, extent, fill, ProfileOptions{
		Warmup: 1, Repeats: 3, Halves: true, Progress: func(done, total int) { steps = total - done },
	})
	must(t, err)
	must(t, c.Validate())
	for i := range c.Layers {
		l, p := &c.Layers[i], r.Layers[i]
		if l.BackwardInputS == nil || l.BackwardWeightS == nil {
			t.Fatalf("layer %s has no halves", l.Name)
		}
		if (*l.BackwardInputS > 0) != (len(p.BackInput.Steps) > 0) || (*l.BackwardWeightS > 0) != (len(p.BackParams.Steps) > 0) {
			t.Errorf("layer %s: halves of %v and %v s, of %d and %d calls", l.Name, *l.BackwardInputS, *l.BackwardWeightS, len(p.BackInput.Steps), len(p.BackParams.Steps))
		}
	}
	if steps != 0 {
		t.Errorf("%d steps of the progress left", steps)
	}
}

// Backwards in halves train to the same bits.
func TestHalvesTrainAlike(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	want := train(t, r.executor(t, r.checkpointAll(), Options{Seed: 7}), 3)
	r = newRig(t, testModel(t), host.Config{}, nil)
	r.Workload = r.halved()
	got := train(t, r.executor(t, r.checkpointAll(), Options{Seed: 7}), 3)
	if d := firstDifference(want, got); d != "" {
		t.Errorf("backwards in halves differ in the %s", d)
	}
}

// The event between the halves stands behind the calls of the first and before those of the second.
func TestMiddleOfABackward(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	r.Workload = r.halved()
	e := r.executor(t, r.StoreAll(), Options{Seed: 7, Timed: true, halves: true})
	backwards := 0
	for m, p := range e.step.layout.Order {
		op := e.step.layout.seq[p]
		if op.Kind != schedule.Backward {
			if e.script.middle[p] != none {
				t.Errorf("%v has a middle", op)
			}
			continue
		}
		var calls [2]int
		half := 0
		for _, c := range e.script.list[e.script.part[m]:e.script.part[m+1]] {
			if c.launch != nil {
				calls[half]++
			} else if c.Record == e.script.middle[p] {
				half++
			}
		}
		if l := r.Layers[op.Layer-1]; calls != [2]int{len(l.BackInput.Steps), len(l.BackParams.Steps)} || half != 1 {
			t.Errorf("%v has %v calls around %d middles, its halves have %d and %d", op, calls, half, len(l.BackInput.Steps), len(l.BackParams.Steps))
		}
		backwards++
	}
	if backwards != len(r.Layers) {
		t.Errorf("%d backwards", backwards)
	}
}
