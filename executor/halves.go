package executor

import (
	"plimsoll/models"
	"plimsoll/planner/schedule"
)

// halved returns the workload whose every backward runs its halves one behind the other.
func (w *Workload) halved() *Workload {
	h := *w
	h.Layers = make([]*models.Programs, len(w.Layers))
	for i, p := range w.Layers {
		q := *p
		q.Back = p.Halves()
		h.Layers[i] = &q
	}
	return &h
}

// firstHalf returns how many launches of an op come before the middle of a backward in halves.
func (e *Executor) firstHalf(p int) int {
	if op := e.step.layout.seq[p]; e.opt.halves && op.Kind == schedule.Backward {
		return len(e.Layers[op.Layer-1].BackInput.Steps)
	}
	return 0
}
