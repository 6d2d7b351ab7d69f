package train

import (
	"context"
	"errors"

	pipe "plimsoll/executor/pipeline"
)

// blank is a feed of images without a picture.
type blank struct{}

// Images implements pipeline.Feed.
func (blank) Images(_ int, dst []float32) error {
	clear(dst)
	return nil
}

// Labels implements pipeline.Feed.
func (blank) Labels(_ int, dst []int32) error {
	clear(dst)
	return nil
}

// Audit runs one step of a plan that flushes, on devices of its own, that stops behind every task and looks at the memory of every
// device; nothing of other plans. Arenas are as large as limits say, or as the plan needs. Errors: those of the executor.
func (p *Pipe) Audit(ctx context.Context, spec *Spec, o pipe.Options) (all []pipe.Audited, err error) {
	if !p.Plan.IsFlush() {
		return nil, nil
	}
	on, err := spec.Targets()
	if err != nil {
		return nil, err
	}
	defer func() {
		if !errors.As(err, new(*pipe.StuckError)) { // a stream that is stuck would hold Close, too
			err = errors.Join(err, closeTargets(on))
		}
	}()
	o.Feed, o.Rate, o.Audit = blank{}, func(int) float32 { return 0 }, true
	x, err := pipe.New(p.Work, on, p.Costs, p.Plan, o)
	if err != nil {
		return nil, err
	}
	if err := x.Run(ctx, p.Group); err != nil {
		return nil, err
	}
	return x.Audited(), nil
}

// auditPipe audits a step of the run and notes what it measured.
func (r *Run) auditPipe(ctx context.Context, s *Summary) error {
	all, err := r.Pipe.Audit(context.WithoutCancel(ctx), &r.Job.Spec, r.pipeOptions())
	for _, a := range all {
		s.Pipe.Devices[a.Device].MeasuredPeakBytes = a.PeakBytes
		s.MeasuredPeakBytes = max(s.MeasuredPeakBytes, a.PeakBytes)
	}
	return err
}
