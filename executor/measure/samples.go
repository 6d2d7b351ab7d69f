package measure

import (
	"encoding/json"

	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// KernelsField is the chain file's extra field with the algorithms that a kernels.Chooser picked while it was measured.
const KernelsField = "kernels"

// Samples are the measured seconds of a profile.
type Samples struct {
	w       *executor.Workload
	windows []*windowSamples
	chosen  any // by the library: see kernels.Chooser
}

// windowSamples are the seconds of the ops of one window, by its layers, and of its sequences.
type windowSamples struct {
	*Exercise          // one of the window's
	save, forget, back [][]float64
	input, params      [][]float64 // of the halves of backwards
	update             []float64
	whole              map[string][]float64 // by the sequence's text
	seqs               []schedule.Sequence
}

// NewSamples returns no samples yet.
func NewSamples(w *executor.Workload) *Samples { return &Samples{w: w} }

// Add adds the times of a step along an exercise.
func (s *Samples) Add(x *Exercise, r *OpTimes) {
	v := s.window(x)
	for i, op := range x.Seq {
		at := v.of(op)
		*at = append(*at, r.Ops[i])
		if op.Kind == schedule.Backward && x.halves {
			l := op.Layer - 1
			v.input[l], v.params[l] = append(v.input[l], r.FirstHalves[i]), append(v.params[l], r.Ops[i]-r.FirstHalves[i])
		}
	}
	v.update = append(v.update, r.Update)
	text := x.Seq.String()
	if v.whole[text] == nil {
		v.seqs = append(v.seqs, x.Seq)
	}
	v.whole[text] = append(v.whole[text], r.Sequence)
}

// window returns the samples of an exercise's window; those of backwards in halves are apart.
func (s *Samples) window(x *Exercise) *windowSamples {
	for _, v := range s.windows {
		if v.first == x.first && v.halves == x.halves {
			return v
		}
	}
	table := func() [][]float64 { return make([][]float64, len(x.Layers)) }
	v := &windowSamples{Exercise: x, save: table(), forget: table(), back: table(), input: table(), params: table(), whole: map[string][]float64{}}
	s.windows = append(s.windows, v)
	return v
}

// of returns the samples of an op.
func (v *windowSamples) of(op schedule.Op) *[]float64 {
	switch op.Kind {
	case schedule.ForwardAll:
		return &v.save[op.Layer-1]
	case schedule.Backward:
		return &v.back[op.Layer-1]
	}
	return &v.forget[op.Layer-1]
}

// scale returns the factor by which the medians of the ops fall short of the medians of whole sequences. A
// disturbance of the machine hits some ops of every sequence, but seldom the same: the medians of the ops miss
// it.
func (v *windowSamples) scale() float64 {
	var ops, whole float64
	for _, seq := range v.seqs {
		for _, op := range seq {
			ops += stats.Median(*v.of(op))
		}
		whole += stats.Median(v.whole[seq.String()])
	}
	if !(ops > 0 && whole > 0) {
		return 1
	}
	return whole / ops
}

// Chain makes the medians a chain, scaled to the medians of whole sequences. The loss is never recomputed without saving, so it
// has no time of its own for that.
func (s *Samples) Chain() (*chain.Chain, error) {
	c, update := s.w.Chain(), 0.0
	for _, v := range s.windows {
		v.times(c.Layers[v.first : v.first+v.count])
		if !v.halves {
			update += stats.Median(v.update)
		}
	}
	raw, err := json.Marshal(update)
	if err != nil {
		return nil, err
	}
	c.Extra = map[string]json.RawMessage{executor.UpdateField: raw}
	if s.chosen != nil {
		c.Extra[KernelsField], err = json.Marshal(s.chosen)
	}
	return c, err
}

// times fills in the times of the window's layers.
func (v *windowSamples) times(layers []chain.Layer) {
	scale := v.scale()
	for i := range layers {
		l := &layers[i]
		if v.halves {
			p := v.Layers[i]
			l.BackwardInputS, l.BackwardWeightS = half(&p.BackInput, scale, v.input[i]), half(&p.BackParams, scale, v.params[i])
			continue
		}
		l.ForwardS, l.BackwardS = scale*stats.Median(v.save[i]), scale*stats.Median(v.back[i])
		if len(v.forget[i]) > 0 {
			forget := scale * stats.Median(v.forget[i])
			l.DiscardForwardS = &forget
		}
	}
}

// half returns the seconds of a half of a backward. One without steps takes none, whatever its events say.
func half(p *models.Program, scale float64, samples []float64) *float64 {
	t := 0.0
	if len(p.Steps) > 0 {
		t = scale * stats.Median(samples)
	}
	return &t
}
