package executor

import (
	"context"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// The pieces that the arena holds at the peak add up to the peak, to the byte, for plans that recompute, plans that transfer, and models
// with joins. Every piece names its role, and a layer that exists.
func TestWhatIsHeldAtThePeakIsThePeak(t *testing.T) {
	t.Parallel()
	checked, moved := 0, 0
	roles := map[Role]int{}
	for _, m := range []*models.Model{fourImages(t, "resnet20"), fourImages(t, "vgg16"), siameseModel(t)} {
		w, err := Compile(m, ref.New(nil), kernels.Adam{})
		must(t, err)
		for _, seq := range heldCases(t, w) {
			sim := Sim{Chain: costs(w.Chain()), Limits: schedule.Limits{Link: schedule.Link{Bandwidth: 1e6}}}
			at, err := w.Layout(seq, schedule.NoLimit, sim)
			must(t, err)
			op, all, err := w.AtPeak(seq, schedule.NoLimit, sim)
			must(t, err)
			sum := int64(0)
			for _, h := range all {
				sum += h.Bytes
				roles[h.Role]++
				if h.Role == "" || h.Bytes <= 0 || h.Layer < 0 || h.Layer > len(w.Layers) {
					t.Errorf("%s: %+v", m.Name, h)
				}
			}
			if sum != at.Peak || op < 0 || op >= len(seq) {
				t.Errorf("%s: %d bytes are held at op %d, the peak is %d", m.Name, sum, op, at.Peak)
			}
			checked++
			if transfers(seq) {
				moved++
			}
		}
	}
	if checked < 12 || moved < 2 || len(roles) < 7 {
		t.Errorf("%d peaks, %d of plans with transfers, roles %v", checked, moved, roles)
	}
}

// heldCases are store-all and what strategies make of shares of its memory.
func heldCases(t *testing.T, w *Workload) (all []schedule.Sequence) {
	t.Helper()
	all = append(all, w.StoreAll())
	peak, err := w.PeakBytes(w.StoreAll())
	must(t, err)
	for _, name := range []string{"rotor-exact", "offload-greedy", "multi-delta"} {
		s, err := planner.Lookup(name)
		must(t, err)
		for _, share := range []int64{85, 60, 50, 33} {
			p := strategy.Problem{Chain: costs(w.Chain()), Memory: (peak - w.StaticBytes()) * share / 100, Link: schedule.Link{Bandwidth: 1e6}}
			if plan, err := s.Solve(context.Background(), p.Request()); err == nil {
				all = append(all, plan.Sequence())
			}
		}
	}
	return all
}
