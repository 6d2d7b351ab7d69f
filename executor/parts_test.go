package executor

import (
	"errors"
	"math/rand/v2"
	"testing"

	"plimsoll/executor/internal/hazard"
	"plimsoll/models"
	"plimsoll/runtime/host"
)

// The order check misses a wait of any kind of part of a step, from one part to the next, too.
func TestWaitsOfPartsAreNeeded(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(33, 34))
	var missed, kept [3]int
	for range 8 {
		r := newRig(t, testModel(t), host.Config{}, models.Accumulation)
		x := randomTransfers(t, rnd, r.Workload)
		e, err := New(r.Workload, r.on, x.seq, Options{Sim: x.sim, Limit: testMemory, Parts: 3})
		if unused := (*UnusedPrefetchError)(nil); errors.As(err, &unused) {
			continue
		}
		must(t, err)
		for k, s := range []*script{&e.early[0], &e.early[1], &e.script} {
			for i, c := range s.list {
				if i < s.head || c.Wait < eventOps {
					continue
				}
				s.list[i].Wait = none
				if err := ordered(e.rounds(), s.events); err == nil {
					kept[k]++
				} else if errors.As(err, new(*hazard.Error)) {
					missed[k]++
				}
				s.list[i].Wait = c.Wait
			}
		}
	}
	for k := range missed {
		if missed[k] < 60 || kept[k] > missed[k]/4 { // as in TestEveryWaitIsNeeded some are the rule's
			t.Errorf("part %d: %d missing waits are found, %d are not", k, missed[k], kept[k])
		}
	}
}

// Invariant 1.
func TestStepsInPartsAllocateNothing(t *testing.T) {
	// Serial: it counts allocations.
	r := newRig(t, testModel(t), host.Config{}, models.Accumulation)
	e := r.executor(t, r.StoreAll(), Options{Seed: 7, Timed: true, Parts: 3})
	allocs := testing.AllocsPerRun(20, func() {
		for range 3 {
			_, err := e.Step(1, 0.1)
			must(t, err)
		}
	})
	if allocs > 0 {
		t.Errorf("a step allocates %v times", allocs)
	}
}
