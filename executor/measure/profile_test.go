package measure

import (
	"encoding/json"
	"testing"

	"plimsoll/executor"
	"plimsoll/runtime/host"
)

func TestProfileMeasuresEveryOp(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	steps := 0
	open := func() (executor.Target, error) { return openRig(t, testModel(t), host.Config{}, nil).on, nil }
	c, err := Profile(t.Context(), r.Workload, open, testMemory/2, fill, ProfileOptions{Warmup: 1, Repeats: 3, Progress: func(done, total int) { steps = total - done }})
	must(t, err)
	must(t, c.Validate())
	for i := range c.Layers {
		l := &c.Layers[i]
		if l.ForwardS <= 0 || l.BackwardS <= 0 || (l.DiscardForwardS == nil) != (i == len(c.Layers)-1) {
			t.Errorf("layer %s: %+v", l.Name, l)
		}
	}
	var link executor.LinkProfile
	must(t, json.Unmarshal(c.Extra[executor.LinkField], &link))
	if c.Bandwidth != min(link.ToHost, link.ToDevice) || c.Bandwidth <= 0 || link.Slowdown <= 0 || executor.LinkOf(c).Bandwidth != c.Bandwidth {
		t.Errorf("bandwidth %v, link %+v", c.Bandwidth, link)
	}
	if executor.UpdateSeconds(c) <= 0 || steps != 0 {
		t.Errorf("update %v s, %d steps of the progress left", executor.UpdateSeconds(c), steps)
	}
}

// The halves of a backward are measured when asked for, with other memory than the whole one.
func TestProfileMeasuresHalves(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	steps := 0
	open := func() (executor.Target, error) { return openRig(t, testModel(t), host.Config{}, nil).on, nil }
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
