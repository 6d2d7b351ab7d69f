package executor

import (
	"context"

	"plimsoll/models"
	"plimsoll/planner/chain"
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
	if op := e.step.tape.seq[p]; e.opt.halves && op.Kind == schedule.Backward {
		return len(e.Layers[op.Layer-1].BackInput.Steps)
	}
	return 0
}

// halvesSamples are measured seconds of the halves of every backward, by layer.
type halvesSamples struct {
	*Samples      // of the whole sequence and the whole backwards
	input, params [][]float64
}

// halves measures both halves of every backward along store-all, and adds their times to the chain. They are scaled as all
// times are: see Samples.Chain.
func (p *profile) halves(ctx context.Context, c *chain.Chain) error {
	w, n := p.halved(), c.Len()
	seq := w.StoreAll()
	extent, err := w.Extent(seq)
	if err != nil {
		return err
	}
	s := &halvesSamples{Samples: w.NewSamples(), input: make([][]float64, n), params: make([][]float64, n)}
	opt := p.options(max(p.limit, extent))
	opt.halves = true
	err = p.with(w, seq, opt, 0, func(e *Executor) error {
		return p.train(ctx, e, func(r *Result) error { return s.add(e, seq, r) })
	})
	for i := range c.Layers {
		c.Layers[i].BackwardInputS, c.Layers[i].BackwardWeightS = s.times(i)
	}
	return err
}

func (s *halvesSamples) add(e *Executor, seq schedule.Sequence, r *Result) error {
	s.Add(seq, r)
	for p, op := range seq {
		if op.Kind != schedule.Backward {
			continue
		}
		middle, err := e.seconds(e.script.middle[p], eventBegin)
		if err != nil {
			return err
		}
		at, l := r.Intervals[p], op.Layer-1
		s.input[l], s.params[l] = append(s.input[l], middle-at.Start), append(s.params[l], at.End-middle)
	}
	return nil
}

// times returns the seconds of both halves of layer i+1. A half without steps takes none, whatever its events say.
func (s *halvesSamples) times(i int) (input, params *float64) {
	scaled := func(p *models.Program, samples []float64) *float64 {
		t := 0.0
		if len(p.Steps) > 0 {
			t = s.scale() * median(samples)
		}
		return &t
	}
	p := s.w.Layers[i]
	return scaled(&p.BackInput, s.input[i]), scaled(&p.BackParams, s.params[i])
}
