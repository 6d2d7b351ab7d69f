package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/planner/schedule"
)

// measureMemory measures what one step of a row does in the arena, and with Audit what every op leaves.
func (g *Grid) measureMemory(ctx context.Context, row *Row) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	audit, err := g.Job.Audit(row.Plan.Ops, g.options(row))
	if err != nil {
		return err
	}
	row.MeasuredPeakBytes, row.ExtentBytes, row.Measured.Live = audit.PeakBytes, audit.ExtentBytes, audit.Live
	if g.Audit {
		row.Difference, err = SideBySide(ctx, g.Job, row.Plan.Ops, g.options(row), min(g.Steps, auditedSteps), g.Rate)
	}
	return err
}

// auditedSteps is how many steps are compared op by op: the second starts from what the first left.
const auditedSteps = 2

// options are how a row's plan is run.
func (g *Grid) options(row *Row) executor.Options {
	return executor.Options{Limit: row.LimitBytes, HostLimit: g.HostLimit, Sim: executor.Following(g.Chain, row.Plan), Initial: &g.initial}
}

// rounds runs steps in turns: each round a step of store-all, the reference of the bits, then one of every row, and
// between them, again and again, steps of a profile. Machines drift, and so what is compared has to run at the same
// time.
type rounds struct {
	grid      *Grid
	reference *timed
	profile   []*timed // along executor.ProfileSequences
	rows      []*timed
	samples   *executor.Samples
}

// profileEvery is the number of rows between two steps of each sequence of the profile.
const profileEvery = 6

// timed is a runner with the times of its steps.
type timed struct {
	*train.Runner
	seq   schedule.Sequence
	row   *Row // nil for the profile and the reference
	steps train.Recent
}

// measureTimes measures the rows in groups whose arenas fit in the device together.
func (g *Grid) measureTimes(ctx context.Context, rows []Row, samples *executor.Samples, done func(steps int)) error {
	for len(rows) > 0 {
		n, err := g.together(rows)
		if err != nil {
			return err
		}
		r := &rounds{grid: g, samples: samples}
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

// together returns how many of the rows can have their arenas at the same time, at least one.
func (g *Grid) together(rows []Row) (int, error) {
	extent, err := g.Job.ProfileBytes()
	free := g.Job.Device.Memory - 3*extent
	for i := range rows {
		if free -= rows[i].LimitBytes; free < 0 && i > 0 {
			return i, err
		}
	}
	return len(rows), err
}

func (r *rounds) open(rows []Row) error {
	limit, err := r.grid.Job.ProfileBytes()
	if err != nil {
		return err
	}
	if r.reference, err = r.grid.start(r.grid.Job.Work.StoreAll(), executor.Options{Limit: limit}, nil); err != nil {
		return err
	}
	for _, seq := range r.grid.Job.Work.ProfileSequences() {
		t, err := r.grid.start(seq, executor.Options{Limit: limit}, nil)
		if err != nil {
			return err
		}
		r.profile = append(r.profile, t)
	}
	for i := range rows {
		t, err := r.grid.start(rows[i].Plan.Ops, r.grid.options(&rows[i]), &rows[i])
		if err != nil {
			return fmt.Errorf("%s at %s: %w", rows[i].Strategy, rows[i].Limit, err)
		}
		r.rows = append(r.rows, t)
	}
	return nil
}

func (g *Grid) start(seq schedule.Sequence, opt executor.Options, row *Row) (*timed, error) {
	opt.Timed, opt.Initial = true, &g.initial
	e, err := g.Job.Start(seq, opt)
	if err != nil {
		return nil, err
	}
	return &timed{Runner: e, seq: seq, row: row}, nil
}

func (r *rounds) close() error {
	var all error
	for _, t := range slices.Concat([]*timed{r.reference}, r.profile, r.rows) {
		if t != nil {
			all = errors.Join(all, t.Close())
		}
	}
	return all
}

func (r *rounds) run(ctx context.Context, done func(steps int)) error {
	for step := range r.grid.Steps {
		if err := r.step(ctx, r.reference, step); err != nil {
			return err
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
	for _, t := range r.rows {
		t.finish(r.reference.steps.Middle().Whole)
	}
	return nil
}

// sample runs a step of each sequence of the profile, at a learning rate of 0.
func (r *rounds) sample(ctx context.Context, step int) error {
	for _, t := range r.profile {
		if err := ctx.Err(); err != nil {
			return err
		}
		res, err := t.Train(step, 0)
		if err != nil {
			return err
		}
		if r.counts(step) {
			r.samples.Add(t.seq, res)
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
	res, err := t.Train(step, r.grid.Rate.At(step))
	if err != nil {
		return err
	}
	if r.counts(step) {
		t.steps.Add(res)
	}
	if t.row == nil || t.row.Difference != "" {
		return nil
	}
	t.row.Difference, err = differ(step, step == r.grid.Steps-1, r.reference.Runner, t.Runner)
	return err
}

// finish fills in what the row measured: the step in the middle.
func (t *timed) finish(storeAll float64) {
	row, live := t.row, t.row.Measured.Live
	row.Measured = t.steps.Middle()
	row.Measured.Live, row.MeasuredS, row.StoreAllS = live, row.Measured.Whole, storeAll
	row.Identical = row.Difference == ""
}
