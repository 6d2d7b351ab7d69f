package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor/internal/hazard"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// deferral keeps the statistics of a step's microbatches until the step ends. Until then the statistics of each microbatch wait in rows
// of their own (kernels.Moments), behind the gradients. A replica writes no rows of microbatches that it does not see. So the sum of the
// gradients brings the rows of all microbatches together.
//
// Deferred batch normalization (torchgpipe) moves the running statistics once, by those of the whole minibatch. Otherwise stages with
// replicas move them by those of each microbatch in turn, as one device does.
type deferral struct {
	microbatches int          // of a step; 0: nothing is deferred
	inTurn       bool         // a move for each microbatch
	rows         runtime.Span // microbatches times as much as the buffers, in their order
	moves        []prepared
}

// checkDeferral refuses, with ErrPlan, plans without steps.
func (e *Executor) checkDeferral() error {
	if e.opt.DeferredBatchNorm && !e.order.plan.IsFlush() {
		return fmt.Errorf("%w: deferred batch normalization needs steps of several microbatches, and the plan's weight versions are %q",
			ErrPlan, e.order.plan.Versions)
	}
	return nil
}

// deferred returns the deferral of a stage, without memory.
func (e *Executor) deferred(s int) (f deferral) {
	f.inTurn = !e.opt.DeferredBatchNorm
	if e.opt.DeferredBatchNorm || e.order.plan.IsFlush() && len(e.order.hosts(s)) > 1 {
		f.microbatches = e.order.repeats
	}
	return f
}

// laterBytes returns what the rows of a stage take.
func (e *Executor) laterBytes(s int) int64 {
	st, f := e.order.plan.Stages[s], e.deferred(s)
	return f.bytes(bufferBytes(e.Model.Layers[st.First-1 : st.Last]))
}

// bytes returns what the rows of so many bytes of buffers take.
func (f *deferral) bytes(buffers int64) int64 { return int64(f.microbatches) * buffers }

// row returns which rows a minibatch, counted from the start of a run, has.
func (f *deferral) row(minibatch int) int {
	if f.microbatches == 0 {
		return 0
	}
	return minibatch % f.microbatches
}

// bufferBytes returns the bytes of the running statistics of a stage.
func bufferBytes(layers []*models.Layer) (bytes int64) {
	for _, l := range layers {
		for _, q := range l.Params() {
			if !q.Trained {
				bytes += kernels.Align(q.Desc.Bytes())
			}
		}
	}
	return bytes
}

// moments returns the moments of a BatchNorm, and where its rows lie: as far behind each other as the buffers of all
// BatchNorms before it would.
func (s *localStage) moments(c kernels.Call, o kernels.Operands) (m kernels.Moments, rows runtime.Span) {
	x := c.In[0]
	channels := x.Shape[len(x.Shape)-1]
	m = kernels.Moments{
		Momentum: c.Op.(kernels.BatchNorm).Momentum, Batches: s.deferred.microbatches,
		Rows: x.Elements() / int64(channels), Channels: channels,
	}
	return m, s.deferred.rows.Part(s.deferred.bytes(o.Params[2].Offset-s.buffers.Offset), m.Bytes())
}

// redirect lets a BatchNorm that would move its running statistics write its own into the rows of a microbatch.
func (s *localStage) redirect(c *kernels.Call, o *kernels.Operands, row int) {
	op, norm := c.Op.(kernels.BatchNorm)
	if !norm || !c.UpdateStats || s.deferred.microbatches == 0 {
		return
	}
	m, rows := s.moments(*c, *o)
	for i := range int64(2) {
		o.Params[2+i] = rows.Part((2*int64(row)+i)*m.Row(), o.Params[2+i].Bytes)
	}
	op.Momentum = 1
	c.Op = op
}

// moves returns the launches that move the running statistics of a stage at the end of a step.
func (b *binder) moves(s *localStage) ([]prepared, error) {
	if s.deferred.microbatches == 0 || s.deferred.moves != nil {
		return s.deferred.moves, nil
	}
	list := []prepared{}
	for i := range s.ops[0].tasks[pipeline.F] {
		o := &s.ops[0].tasks[pipeline.F][i]
		for _, step := range o.program.Steps {
			if _, norm := step.Call.Op.(kernels.BatchNorm); !norm || !o.first {
				continue
			}
			params := make([]runtime.Span, len(step.Refs.Params))
			for k, ref := range step.Refs.Params {
				params[k] = s.resolve(o, &frame{}, ref)
			}
			m, rows := s.moments(step.Call, kernels.Operands{Params: params})
			for _, at := range s.deferred.turns(&m, kernels.MomentsOperands{Moments: rows, Mean: params[2], Variance: params[3]}) {
				launch, err := b.lib.PrepareMoments(m, at)
				if err != nil {
					return nil, fmt.Errorf("statistics of layer %d, op %s: %w", o.layer, step.Name, err)
				}
				list = append(list, b.ready(launch, hazard.Uses(b.device, at.Uses(m))))
			}
		}
	}
	s.deferred.moves = list
	return list, nil
}

// turns returns the operands of each move of a BatchNorm, and makes m what each move takes.
func (f *deferral) turns(m *kernels.Moments, whole kernels.MomentsOperands) (all []kernels.MomentsOperands) {
	if !f.inTurn {
		return []kernels.MomentsOperands{whole}
	}
	m.Batches = 1
	for k := range int64(f.microbatches) {
		one := whole
		one.Moments = whole.Moments.Part(k*m.Bytes(), m.Bytes())
		all = append(all, one)
	}
	return all
}

// moveStatistics moves the running statistics of a stage at the end of a step. Where the step's gradients are divided among replicas,
// the last one has the statistics of all microbatches, and the others get what it has.
func (d *compiler) moveStatistics(ctx context.Context, t *localStage) error {
	moves, err := d.binder.moves(t)
	if err != nil {
		return err
	}
	if err := d.launch(moves); err != nil || !t.divided() {
		return err
	}
	return d.sums().share(ctx, t)
}

// divided reports whether replicas have parts of the sum of the stage's gradients, not all of it.
func (s *localStage) divided() bool { return s.sums != nil && s.sums.divided() }

// freshen makes the rows what they are between steps.
func (e *Executor) freshen() error {
	for _, d := range e.own() {
		for _, t := range d.stages {
			if t == nil || t.deferred.rows.Bytes == 0 {
				continue
			}
			if err := d.write(t.deferred.rows, asBytes(slices.Repeat([]float32{kernels.NoMoment}, int(t.deferred.rows.Bytes/4)))); err != nil {
				return err
			}
		}
	}
	return nil
}
