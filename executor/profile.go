package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// UpdateField is the chain file's extra field with the seconds of the optimizer's update, which follows the
// sequence in every step.
const UpdateField = "update_s"

// KernelsField is the chain file's extra field with the algorithms that a kernels.Chooser picked while it was measured.
const KernelsField = "kernels"

// ProfileOptions are how a model is measured.
type ProfileOptions struct {
	Warmup  int // steps of each sequence before the measured ones
	Repeats int // measured steps of each sequence
	Seed    uint64
	// Halves measures the two halves of every backward as well, along one more sequence: the chain then has the fields
	// backward_input_s and backward_weight_s.
	Halves   bool
	Progress func(done, total int) // called after every step; may be nil
}

// Profile measures a model on a device, in place: it trains a few steps along sequences that together contain every
// op of every layer, and takes each op's median time; then it measures the link to host memory. Byte counts come from
// the model's graph. open gives a fresh target for each sequence; fill puts a batch into its executor.
func Profile(ctx context.Context, w *Workload, open func() (Target, error), limit int64, fill func(*Executor) error, opt ProfileOptions) (*chain.Chain, error) {
	p := &profile{Workload: w, open: open, limit: limit, fill: fill, opt: opt, samples: w.NewSamples()}
	seqs := w.ProfileSequences()
	p.steps = len(seqs)*(opt.Warmup+opt.Repeats) + linkSteps
	if opt.Halves {
		p.steps += opt.Warmup + opt.Repeats
	}
	for _, seq := range seqs {
		if err := p.measure(ctx, seq); err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
	}
	c, err := p.samples.Chain()
	if err != nil {
		return nil, err
	}
	if opt.Halves {
		if err := p.halves(ctx, c); err != nil {
			return nil, fmt.Errorf("profile of the halves of backward: %w", err)
		}
	}
	link, err := p.link(ctx)
	if err != nil {
		return nil, fmt.Errorf("profile of the link: %w", err)
	}
	c.Bandwidth = min(link.ToHost, link.ToDevice)
	c.Extra[LinkField], err = json.Marshal(link)
	return c, err
}

// profile is a profile while it is made.
type profile struct {
	*Workload
	open        func() (Target, error)
	limit       int64
	fill        func(*Executor) error
	opt         ProfileOptions
	samples     *Samples
	steps, done int
}

// ProfileSequences returns the sequences that Profile measures: between them, in its natural surroundings, they
// contain every op.
func (w *Workload) ProfileSequences() []schedule.Sequence {
	return []schedule.Sequence{w.StoreAll(), w.checkpointAll()}
}

// checkpointAll returns the sequence that saves every activation and recomputes every layer.
func (w *Workload) checkpointAll() schedule.Sequence {
	n := len(w.Layers)
	var seq schedule.Sequence
	for l := 1; l < n; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardCheckpoint, Layer: l})
	}
	for l := n; l >= 1; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l}, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

// step counts a step.
func (p *profile) step() {
	if p.done++; p.opt.Progress != nil {
		p.opt.Progress(p.done, p.steps)
	}
}

func (p *profile) measure(ctx context.Context, seq schedule.Sequence) error {
	return p.with(p.Workload, seq, p.options(p.limit), 0, func(e *Executor) error {
		err := p.train(ctx, e, func(r *Result) error { p.samples.Add(seq, r); return nil })
		if lib, ok := e.lib.(kernels.Chooser); ok {
			p.samples.chosen = lib.Chosen()
		}
		return err
	})
}

// train trains a few steps and hands the results of those behind the warmup to add.
func (p *profile) train(ctx context.Context, e *Executor, add func(*Result) error) error {
	for i := range p.opt.Warmup + p.opt.Repeats {
		if err := ctx.Err(); err != nil {
			return err
		}
		// A learning rate of 0 keeps the values, and so the times, those of a fresh model.
		r, err := e.Step(uint64(i), 0)
		if err != nil {
			return err
		}
		if i >= p.opt.Warmup {
			if err := add(r); err != nil {
				return err
			}
		}
		p.step()
	}
	return nil
}

// link measures the link, with buffers behind the blocks of store-all.
func (p *profile) link(ctx context.Context) (link LinkProfile, err error) {
	const buffers = 2 * probeBytes
	err = p.with(p.Workload, p.StoreAll(), p.options(p.limit+buffers), buffers, func(e *Executor) error {
		link, err = e.measureLink(ctx, p.step)
		return err
	})
	return link, err
}

func (p *profile) options(limit int64) Options {
	return Options{Limit: limit, Seed: p.opt.Seed, Timed: true}
}

// with runs do with an executor of a fresh target.
func (p *profile) with(w *Workload, seq schedule.Sequence, opt Options, probe int64, do func(*Executor) error) (err error) {
	target, err := p.open()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, target.Device.Close()) }()
	e, err := newExecutor(w, target, seq, opt, probe)
	if err != nil {
		return err
	}
	if err := p.fill(e); err != nil {
		return err
	}
	return do(e)
}

// Samples are measured seconds by op kind and layer, and of whole sequences.
type Samples struct {
	w                  *Workload
	save, forget, back [][]float64
	update             []float64
	whole              map[string][]float64 // by the sequence's text
	seqs               []schedule.Sequence
	chosen             any // by the library: see kernels.Chooser
}

// NewSamples returns no samples yet.
func (w *Workload) NewSamples() *Samples {
	n := len(w.Layers)
	return &Samples{w: w, whole: map[string][]float64{}, save: make([][]float64, n), forget: make([][]float64, n), back: make([][]float64, n)}
}

// Add adds the times of a timed step along seq. Sequences with transfers wait for them, as all do for offloaded weights, so
// their times as a whole do not count; nor does what the update waits for offloaded state.
func (s *Samples) Add(seq schedule.Sequence, r *Result) {
	for i, op := range seq {
		if !op.Kind.Transfer() {
			at := s.of(op)
			*at = append(*at, r.Ops[i])
		}
	}
	s.update = append(s.update, r.UpdateKernels)
	if transfers(seq) || s.w.Offloading() == OffloadWeights {
		return
	}
	text := seq.String()
	if s.whole[text] == nil {
		s.seqs = append(s.seqs, seq)
	}
	s.whole[text] = append(s.whole[text], r.Sequence)
}

// of returns the samples of an op.
func (s *Samples) of(op schedule.Op) *[]float64 {
	switch op.Kind {
	case schedule.ForwardAll:
		return &s.save[op.Layer-1]
	case schedule.Backward:
		return &s.back[op.Layer-1]
	}
	return &s.forget[op.Layer-1]
}

// scale returns the factor by which the medians of the ops fall short of the medians of whole sequences. What
// disturbs a machine hits some ops of every sequence, but seldom the same: the medians of the ops miss it.
func (s *Samples) scale() float64 {
	var ops, whole float64
	for _, seq := range s.seqs {
		for _, op := range seq {
			ops += median(*s.of(op))
		}
		whole += median(s.whole[seq.String()])
	}
	if !(ops > 0 && whole > 0) {
		return 1
	}
	return whole / ops
}

// Chain makes the medians a chain, scaled to the medians of whole sequences. The loss is never recomputed without saving, so it has no time of its own for that.
func (s *Samples) Chain() (*chain.Chain, error) {
	c, scale := s.w.Chain(), s.scale()
	for i := range c.Layers {
		l := &c.Layers[i]
		l.ForwardS, l.BackwardS = scale*median(s.save[i]), scale*median(s.back[i])
		if len(s.forget[i]) > 0 {
			forget := scale * median(s.forget[i])
			l.DiscardForwardS = &forget
		}
	}
	update, err := json.Marshal(median(s.update))
	if err != nil {
		return nil, err
	}
	c.Extra = map[string]json.RawMessage{UpdateField: update}
	if s.chosen != nil {
		if c.Extra[KernelsField], err = json.Marshal(s.chosen); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// UpdateSeconds returns the time of the optimizer's update that a profiled chain carries, 0 if it has none.
func UpdateSeconds(c *chain.Chain) float64 {
	var s float64
	if json.Unmarshal(c.Extra[UpdateField], &s) != nil {
		return 0
	}
	return s
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
