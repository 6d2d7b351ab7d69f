package train

import (
	"errors"
	"math"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/models/data"
)

// fetching brings batches of a job to a plan that is ready to run.
func fetching(t *testing.T, j *Job) *fetcher {
	t.Helper()
	r := planned(t, j, 3)
	e, err := j.Start(r.Plan.Sequence(), executor.Options{Limit: r.Plan.Limit, Sim: executor.Following(r.Chain, r.Plan.Plan), Timed: true})
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	from, err := j.loader(t.Context(), e.Workload, data.Train, 0)
	must(t, err)
	t.Cleanup(func() { from.Close() })
	return &fetcher{to: e, from: from}
}

// While a step runs the next batch comes, to where the step does not read it; behind the last one none is asked for. An evaluation
// between two steps leaves it there.
func TestTheNextBatchComesBesideAStep(t *testing.T) {
	t.Parallel()
	j := opened(t, tiny(4))
	f := fetching(t, j)
	e := f.to
	images, err := e.Images()
	must(t, err)
	want, labels := make([]float32, len(images)), make([]int32, j.Config.Batch)
	for step := range 3 {
		_, err := f.get()
		must(t, err)
		_, err = j.train.Fill(int64(step), want, labels)
		must(t, err)
		now, err := e.Images()
		must(t, err)
		if !slices.Equal(now, want) {
			t.Errorf("step %d has another batch", step)
		}
		_, late, err := f.step(uint64(step), 0.1, step < 2)
		must(t, err)
		if late < 0 || f.there != (step < 2) {
			t.Errorf("step %d: late by %v, and the next batch is there: %v", step, late, f.there)
		}
		_, err = e.Evaluate(t.Context())
		must(t, err)
	}
}

// A batch that cannot be made fails the step that needs it, not the one beside which it was asked for.
func TestABatchThatFailsWaitsForItsStep(t *testing.T) {
	t.Parallel()
	j := opened(t, tiny(4))
	broken := errors.New("broken.jpg")
	spoil(t, j, 4, func([]float32) error { return broken })
	f := fetching(t, j)
	_, err := f.get()
	must(t, err)
	res, _, err := f.step(0, 0.1, true)
	must(t, err)
	if !finite(res.Loss) {
		t.Errorf("loss %v", res.Loss)
	}
	if _, err := f.get(); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// What a device did not compute is shared out to reasons that add up.
func TestIdleSharesAddUp(t *testing.T) {
	t.Parallel()
	var i idleness
	for range 2 { // of 10 s each, of which 5 are computed
		i.add(&executor.Result{Busy: 5, Upload: 1, Sequence: 6, Update: 1}, 500e6)
	}
	got := *i.shares(20)
	want := Idle{Share: 0.5, Data: 0.05, Batch: 0.1, Copies: 0.2, Host: 0.15}
	for k, pair := range [][2]float64{{got.Share, want.Share}, {got.Data, want.Data}, {got.Batch, want.Batch}, {got.Copies, want.Copies}, {got.Host, want.Host}} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("figure %d of %+v, want %+v", k, got, want)
		}
	}
}
