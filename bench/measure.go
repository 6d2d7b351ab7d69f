package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"plimsoll/executor"
	"plimsoll/executor/measure"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
)

// measureMemory measures what one step of a row does in the arena, and with Audit what every op leaves.
func (g *Grid) measureMemory(ctx context.Context, row *Row) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := g.Job.Start(g.planOf(row), pipe.Options{HostLimit: g.HostLimit, Audit: true})
	if err != nil {
		return err
	}
	audit := r.Audited()[0]
	row.MeasuredPeakBytes, row.ExtentBytes, row.Measured.Live = audit.PeakBytes, audit.ExtentBytes, audit.Live
	if err := r.Close(); err != nil {
		return err
	}
	if g.Audit {
		row.Difference, err = g.sideBySide(ctx, g.planOf(row), min(g.Steps, auditedSteps))
	}
	return err
}

// auditedSteps is how many steps are compared op by op: the second starts from what the first left.
const auditedSteps = 2

// planOf returns a row's plan as it is run.
func (g *Grid) planOf(row *Row) *train.JobPlan {
	return g.Job.SequenceOf(g.Chain, row.Plan, row.LimitBytes)
}

// rounds runs steps in turns. Each round has a step of store-all, the reference of the bits, then one of every row.
// Between them come, again and again, steps of a profile. Machines drift, and so what is compared has to run at the
// same time. Where the arenas have no room beside each other, rounds are of one runner alone.
type rounds struct {
	grid      *Grid
	reference *timed   // nil where it ran before
	profile   []*drill // none where it runs behind
	rows      []*timed
	samples   *measure.Samples
	bits      *bits // of the reference
	storeAllS float64
}

// profileEvery is the number of rows between two steps of each exercise of the profile.
const profileEvery = 6

// timed is a runner with the times of its steps.
type timed struct {
	*train.Runner
	row   *Row // nil for the reference
	steps executor.Recent
}

// drill is an exercise of the profile on a device of its own.
type drill struct {
	*measure.OpTimer
	close func() error
}

// measureTimes measures the rows in groups whose arenas fit in the device together, beside the reference and the profile. If a
// single row has no such room, they run one after the other.
func (g *Grid) measureTimes(ctx context.Context, rows []Row, samples *measure.Samples, done func(steps int)) error {
	g.reference = storeAll
	for len(rows) > 0 {
		n, err := g.together(rows)
		if err != nil {
			return err
		}
		if n == 0 {
			return g.measureAlone(ctx, rows, samples, done)
		}
		r := &rounds{grid: g, samples: samples, bits: &bits{of: storeAll}}
		err = r.open(rows[:n])
		if err == nil {
			err = r.run(ctx, done)
		}
		if err := errors.Join(err, r.close()); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// together returns how many of the rows can have their arenas at the same time.
func (g *Grid) together(rows []Row) (n int, err error) {
	all, err := g.exercises(math.MaxInt64)
	if err != nil {
		return 0, err
	}
	free := g.Job.Device.Memory - all[0].Extent
	for _, x := range all {
		free -= x.Extent
	}
	for n < len(rows) && free >= rows[n].LimitBytes {
		free -= rows[n].LimitBytes
		n++
	}
	return n, nil
}

// exercises returns the exercises of a profile within a limit.
func (g *Grid) exercises(limit int64) ([]*measure.Exercise, error) {
	target, err := g.Job.Target()
	if err != nil {
		return nil, err
	}
	all, err := measure.Exercises(g.Job.Work, target.Library, limit, false)
	return all, errors.Join(err, target.Device.Close())
}

// measureAlone measures store-all, where any device has room for it, and then row by row, and behind each a profile.
func (g *Grid) measureAlone(ctx context.Context, rows []Row, samples *measure.Samples, done func(steps int)) error {
	all, err := g.exercises(g.Job.Device.Memory)
	if err != nil {
		return err
	}
	r := &rounds{grid: g, samples: samples, bits: &bits{}}
	if err := r.first(ctx); err != nil {
		return err
	}
	defer func() { g.reference = r.bits.of }()
	for i := range rows {
		one := &rounds{grid: g, samples: samples, bits: r.bits, storeAllS: r.storeAllS}
		t, err := g.start(g.Job, g.planOf(&rows[i]), &rows[i])
		if err != nil {
			return fmt.Errorf("%s at %s: %w", rows[i].Strategy, rows[i].Limit, err)
		}
		one.rows = []*timed{t}
		if err := errors.Join(one.run(ctx, done), one.close()); err != nil {
			return err
		}
		if r.bits.of == "" {
			r.bits.of = fmt.Sprintf("%s at %s", rows[i].Strategy, rows[i].Limit)
		}
		if err := g.sampleAlone(ctx, all, samples); err != nil {
			return err
		}
	}
	return nil
}

// first runs the reference alone, if it has room: on the job's device, or on the machine's whole memory when the device is
// smaller by the user's wish. Otherwise the first row is the reference.
func (r *rounds) first(ctx context.Context) error {
	job, plan, err := r.grid.large()
	if err != nil || job == nil {
		return err
	}
	r.bits.of = storeAll
	if job != r.grid.Job {
		r.bits.of = storeAll + " on a larger device"
	}
	if r.reference, err = r.grid.start(job, plan, nil); err != nil {
		return err
	}
	err = r.run(ctx, func(int) {})
	r.storeAllS = r.reference.steps.Middle().Whole
	return errors.Join(err, r.close())
}

// sampledAlone is how many steps of an exercise run behind a row that has the device alone: fewer would be a matter of chance.
const sampledAlone = 4

// sampleAlone runs the exercises of a profile one after the other. The first step of each touches its memory and does not count.
func (g *Grid) sampleAlone(ctx context.Context, all []*measure.Exercise, samples *measure.Samples) error {
	for _, x := range all {
		r := &rounds{grid: g, samples: samples}
		d, err := g.drill(x)
		if err != nil {
			return err
		}
		r.profile = []*drill{d}
		for step := 0; step < sampledAlone && err == nil; step++ {
			err = r.sample(ctx, step)
		}
		if err := errors.Join(err, r.close()); err != nil {
			return err
		}
	}
	return nil
}

func (g *Grid) drill(x *measure.Exercise) (*drill, error) {
	target, err := g.Job.Target()
	if err != nil {
		return nil, err
	}
	t, err := x.Start(target, g.Job.Seed, g.Job.LoadFirst)
	if err != nil {
		return nil, errors.Join(err, target.Device.Close())
	}
	return &drill{t, target.Device.Close}, nil
}

func (r *rounds) open(rows []Row) error {
	all, err := r.grid.exercises(math.MaxInt64)
	if err != nil {
		return err
	}
	plan, err := r.grid.Job.StoreAll()
	if err != nil {
		return err
	}
	if r.reference, err = r.grid.start(r.grid.Job, plan, nil); err != nil {
		return err
	}
	for _, x := range all {
		d, err := r.grid.drill(x)
		if err != nil {
			return err
		}
		r.profile = append(r.profile, d)
	}
	for i := range rows {
		t, err := r.grid.start(r.grid.Job, r.grid.planOf(&rows[i]), &rows[i])
		if err != nil {
			return fmt.Errorf("%s at %s: %w", rows[i].Strategy, rows[i].Limit, err)
		}
		r.rows = append(r.rows, t)
	}
	return nil
}

func (g *Grid) start(job *train.Job, plan *train.JobPlan, row *Row) (*timed, error) {
	r, err := job.Start(plan, pipe.Options{HostLimit: g.HostLimit, Timed: &pipe.Timed{Ops: true}})
	if err != nil {
		return nil, err
	}
	return &timed{Runner: r, row: row}, nil
}

func (r *rounds) close() error {
	var all error
	for _, t := range append([]*timed{r.reference}, r.rows...) {
		if t != nil {
			all = errors.Join(all, t.Close())
		}
	}
	for _, d := range r.profile {
		all = errors.Join(all, d.close())
	}
	return all
}

func (r *rounds) run(ctx context.Context, done func(steps int)) error {
	for step := range r.grid.Steps {
		if r.reference != nil {
			if err := r.step(ctx, r.reference, step); err != nil {
				return err
			}
		}
		// Another order each time: what else the machine does may have a rhythm.
		order := rand.New(rand.NewPCG(r.grid.Job.Seed, uint64(step))).Perm(len(r.rows))
		for i, row := range order {
			t := r.rows[row]
			if i%profileEvery == 0 {
				if err := r.sample(ctx, step); err != nil {
					return err
				}
			}
			if err := r.step(ctx, t, step); err != nil {
				return fmt.Errorf("%s at %s: %w", t.row.Strategy, t.row.Limit, err)
			}
			done(1)
		}
	}
	if r.reference != nil {
		r.storeAllS = r.reference.steps.Middle().Whole
	}
	for _, t := range r.rows {
		t.finish(r.storeAllS)
	}
	return nil
}

// sample runs a step of each exercise of the profile.
func (r *rounds) sample(ctx context.Context, step int) error {
	for _, d := range r.profile {
		if err := ctx.Err(); err != nil {
			return err
		}
		times, err := d.Step()
		if err != nil {
			return err
		}
		if r.counts(step) {
			r.samples.Add(d.Exercise, times)
		}
	}
	return nil
}

// counts reports whether the times of a round count. The first touches memory for the first time and counts for its
// bits alone, unless there is no other.
func (r *rounds) counts(step int) bool { return step > 0 || r.grid.Steps == 1 }

// step runs one step of the reference or a row, takes its times and compares a row with the reference.
func (r *rounds) step(ctx context.Context, t *timed, step int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	took, err := t.Train(r.grid.Rate.At(step))
	if err != nil {
		return err
	}
	for k := range took.Parts {
		if r.counts(step) {
			t.steps.Add(&took.Parts[k], k)
		}
	}
	last := step == r.grid.Steps-1
	if t.row == nil || r.bits.of == "" {
		return r.bits.remember(last, t.Runner)
	}
	if t.row.Difference == "" {
		t.row.Difference, err = r.bits.compare(step, last, t.Runner)
	}
	return err
}

// finish fills in what the row measured: the step in the middle.
func (t *timed) finish(storeAll float64) {
	row, live := t.row, t.row.Measured.Live
	row.Measured, row.times = t.steps.Middle(), t.steps.Times()
	row.Measured.Live, row.MeasuredS, row.StoreAllS = live, row.Measured.Whole, storeAll
	row.Identical = row.Difference == ""
}
