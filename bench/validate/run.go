package validate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/models/data"
)

const (
	// patience ends a run that is stuck.
	patience = 5 * time.Minute
	// batches is how many different batches a run trains on, over and over: as many are held in memory.
	batches = 8
)

// ErrDiverged is returned for a step with a flush whose loss is not finite: its bits would say nothing.
var ErrDiverged = errors.New("the loss is not finite: lower --lr")

// album is the first batches of a job's training data, which serves as the feed of every run.
type album struct {
	images [][]float32
	labels [][]int32
}

func newAlbum(j *train.Job) (*album, error) {
	b, err := data.NewBatcher(j.Set, data.Train, j.Config.Batch, j.Seed)
	if err != nil {
		return nil, err
	}
	a, shape := &album{}, j.Set.Shape()
	for i := range batches {
		images, labels := make([]float32, shape[0]*shape[1]*shape[2]*j.Config.Batch), make([]int32, j.Config.Batch*data.Labels(j.Set))
		if _, err := b.Fill(int64(i), images, labels); err != nil {
			return nil, err
		}
		a.images, a.labels = append(a.images, images), append(a.labels, labels)
	}
	return a, nil
}

// Images implements pipeline.Feed.
func (a *album) Images(minibatch int, dst []float32) error {
	copy(dst, a.images[minibatch%batches])
	return nil
}

// Labels implements pipeline.Feed.
func (a *album) Labels(minibatch int, dst []int32) error {
	copy(dst, a.labels[minibatch%batches])
	return nil
}

// options are the options of every run of a job: only so are its bits the same.
func (f *Fleet) options(j *train.Job, feed pipe.Feed) pipe.Options {
	return pipe.Options{Feed: feed, Seed: j.Seed, Rate: f.Rate.At, Patience: patience}
}

// measure runs a row's plan.
func (f *Fleet) measure(ctx context.Context, row *Row, known *references) error {
	spec := row.from.Job.Spec
	return onDevices(&spec, func(on []executor.Target) error {
		for d := range row.PerDevice {
			row.PerDevice[d].Name = on[d].Device.Info().Name
			row.line.Names = append(row.line.Names, row.PerDevice[d].Name)
		}
		if f.Simulated {
			return f.simulate(ctx, row, on, known.feed)
		}
		return f.compute(ctx, row, on, known)
	})
}

// simulate runs a plan whose tasks take the chain's times.
func (f *Fleet) simulate(ctx context.Context, row *Row, on []executor.Target, feed *album) error {
	opt := f.options(row.from.Job, feed)
	opt.Timed, opt.Pace = &pipe.Timed{}, row.line.Flat.Pace
	x, err := pipe.New(row.pipe.Work, on, row.pipe.Costs, row.pipe.Plan, opt)
	if err != nil {
		return err
	}
	return f.drive(ctx, x, row)
}

// compute runs a plan with kernels, and looks at what it leaves.
func (f *Fleet) compute(ctx context.Context, row *Row, on []executor.Target, known *references) error {
	opt := f.options(row.from.Job, known.feed)
	opt.Timed, opt.Audit = &pipe.Timed{}, f.Audit && row.pipe.IsFlush()
	var diverged atomic.Bool
	opt.Done = func(r pipe.Result) {
		if math.IsNaN(r.Loss) || math.IsInf(r.Loss, 0) {
			diverged.Store(true)
		}
	}
	for _, m := range row.pipe.Needs {
		opt.Limits = append(opt.Limits, m.Extent+beyond)
	}
	x, err := pipe.New(row.pipe.Work, on, row.pipe.Costs, row.pipe.Plan, opt)
	if err != nil {
		return err
	}
	for _, a := range x.Audited() {
		row.PerDevice[a.Device].MeasuredPeakBytes = a.PeakBytes
	}
	if err := row.paint(on); err != nil {
		return err
	}
	if err := f.drive(ctx, x, row); err != nil {
		return err
	}
	if row.pipe.IsFlush() && diverged.Load() {
		return ErrDiverged
	}
	if err := known.compare(ctx, row, x); err != nil {
		return err
	}
	return row.look(ctx, on, x, known.feed)
}

// drive lets a plan run, and fills in what its clocks say.
func (f *Fleet) drive(ctx context.Context, x *pipe.Executor, row *Row) error {
	if !row.pipe.IsFlush() {
		n := row.run(f.Minibatches, x.Group())
		if err := x.Run(ctx, n); err != nil {
			return err
		}
		tasks, err := x.Timings()
		if err != nil {
			return err
		}
		row.steady(tasks, n/row.Minibatches-2*row.line.Flat.Depth)
		return nil
	}
	var all [][]pipe.Timing
	for range f.Steps {
		if err := x.Run(ctx, row.Minibatches); err != nil {
			return err
		}
		tasks, err := x.Timings()
		if err != nil {
			return err
		}
		all = append(all, tasks)
	}
	row.steps(all)
	return nil
}

// run returns how many minibatches pass when at least so many shall end in the steady state. Before and after these come
// as many as fill and drain the pipeline; all make whole periods and updates.
func (r *Row) run(minibatches, group int) int {
	periods := 2*r.line.Flat.Depth + max(2, (minibatches+r.Minibatches-1)/r.Minibatches)
	n := periods * r.Minibatches
	for n%group != 0 {
		n += r.Minibatches
	}
	return n
}

// onDevices opens the devices of a spec, and closes them when do has done; not when a stream is stuck, which would hold that
// up, too.
func onDevices(spec *train.Spec, do func([]executor.Target) error) (err error) {
	on, err := spec.Targets()
	if err != nil {
		return err
	}
	defer func() {
		if errors.As(err, new(*pipe.StuckError)) {
			return
		}
		for _, t := range on {
			if failure := t.Device.Close(); failure != nil && err == nil {
				err = fmt.Errorf("closing %s: %w", t.Device.Info().Name, failure)
			}
		}
	}()
	return do(on)
}
