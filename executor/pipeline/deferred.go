package pipeline

import (
	"context"
	"fmt"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// checkDeferral refuses, with ErrPlan, plans without steps.
func (lay *layout) checkDeferral() error {
	if lay.opt.DeferredBatchNorm && !lay.order.Plan.IsFlush() {
		return fmt.Errorf("%w: deferred batch normalization needs steps of several microbatches, and the plan's weight versions are %q",
			order.ErrPlan, lay.order.Plan.Versions)
	}
	return nil
}

// deferred returns the deferral of a stage, without memory.
func (lay *layout) deferred(s int) (f deferral) {
	f.inTurn = !lay.opt.DeferredBatchNorm
	if lay.opt.DeferredBatchNorm || lay.order.Plan.IsFlush() && len(lay.order.Hosts(s)) > 1 {
		f.microbatches = lay.order.Repeats
	}
	return f
}

// laterBytes returns the bytes of the rows of a stage.
func (lay *layout) laterBytes(s int) int64 {
	st, f := lay.order.Plan.Stages[s], lay.deferred(s)
	return f.bytes(bufferBytes(lay.Model.Layers[st.First-1 : st.Last]))
}

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
			if q.Statistic() {
				bytes += kernels.Align(q.Desc.Bytes())
			}
		}
	}
	return bytes
}

// moves returns the launches that move the running statistics of a stage at the end of a step.
func (b *binder) moves(s *localStage) ([]table.Prepared, error) {
	if s.deferred.microbatches == 0 || s.deferred.moves != nil {
		return s.deferred.moves, nil
	}
	list := []table.Prepared{}
	for i := range s.ops[0].Tasks[pipeline.F] {
		o := &s.ops[0].Tasks[pipeline.F][i]
		for _, step := range o.Program.Steps {
			if op, norm := step.Call.Op.(kernels.BatchNorm); !norm || op.Frozen || !o.First {
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
					return nil, fmt.Errorf("statistics of layer %d, op %s: %w", o.Layer, step.Name, err)
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
	d.launch(moves)
	if !t.shards() {
		return nil
	}
	return d.sums().share(ctx, t)
}

// shards reports whether replicas have parts of the sum of the stage's gradients, not all of it.
func (s *localStage) shards() bool { return s.sums != nil && s.sums.Shards }
