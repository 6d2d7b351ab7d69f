package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

// noting is a feed that notes which images it is asked for, and has those of one batch only the second time.
type noting struct {
	random
	told  *[]string
	late  int
	early func(minibatch int) bool
}

func (f *noting) Early(m int) bool { return f.early != nil && f.early(m) }

func (f *noting) Images(m int, dst []float32) error {
	*f.told = append(*f.told, fmt.Sprintf("images %d", m))
	if f.late == m {
		f.late = none
		return errors.New("not yet")
	}
	return f.random.Images(m, dst)
}

// sequencePlan returns store-all's plan for one device.
func sequencePlan(t *testing.T, w *Workload) (Costs, *pipeline.Plan) {
	t.Helper()
	c := counted(w, 1)
	plan, err := pipeline.PlanSequence(c.Chain, "store-all", w.StoreAll(), schedule.Limits{Memory: schedule.NoLimit})
	must(t, err)
	c.Platform = plan.Platform
	return c, plan
}

// Where it may, the batch of the next run comes while a step runs; behind the last one none is asked for. One that cannot be made, or
// that an evaluation takes the place of, is asked for again. The weights are the same.
func TestBatchesComeEarly(t *testing.T) {
	t.Parallel()
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 16, Classes: 10})
	must(t, err)
	w := workload(t, m)
	c, plan := sequencePlan(t, w)
	const parts, steps = 2, 4
	run := func(early func(int) bool, late int) (told []string, e *Executor) {
		feed := &noting{feedOf(m), &told, late, early}
		e, err := New(w, targets(t, 1, host.Config{}), c, plan.Accumulated(parts), Options{
			Feed: feed, Seed: 7, Rate: rate, Done: func(r Result) { told = append(told, fmt.Sprintf("result %d", r.Minibatch)) },
		})
		must(t, err)
		for step := range steps {
			must(t, e.Run(t.Context(), parts))
			if step == 2 {
				must(t, e.Evaluate(t.Context(), feedOf(m), 1, func(int, []float32) error { return nil }))
			}
		}
		return told, e
	}
	want, plain := run(nil, none)
	got, ahead := run(func(m int) bool { return m < parts*steps }, parts)
	if len(want) != 2*parts*steps || slices.Index(want, fmt.Sprintf("images %d", parts)) < slices.Index(want, fmt.Sprintf("result %d", parts-1)) {
		t.Errorf("in turn: %v", want)
	}
	counts := map[string]int{}
	for _, x := range got {
		counts[x]++
	}
	for k := range parts * steps {
		again := k == parts || k == 3*parts // it was late, and the evaluation came
		if n := counts[fmt.Sprintf("images %d", k)]; (n == 2) != again || !again && n != 1 {
			t.Errorf("batch %d is asked for %d times", k, n)
		}
	}
	before := func(a, b string) bool { return slices.Index(got, a) < slices.Index(got, b) }
	if counts[fmt.Sprintf("images %d", parts*steps)] > 0 || !before(fmt.Sprintf("images %d", 2*parts), fmt.Sprintf("result %d", 2*parts-1)) {
		t.Errorf("ahead: %v", got)
	}
	for i, x := range tensors(t, plain) {
		if y := tensors(t, ahead)[i]; !slices.Equal(x.Values, y.Values) {
			t.Errorf("the %s of %s differs", x.Role, x.Name)
		}
	}
}

// A limit of host memory that a plan does not keep is refused with the smallest that works.
func TestHostMemoryIsLimited(t *testing.T) {
	t.Parallel()
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 16, Classes: 10})
	must(t, err)
	w := workload(t, m)
	c, plan := sequencePlan(t, w)
	bind := func(limit int64) (*Executor, error) {
		return New(w, targets(t, 1, host.Config{}), c, plan, Options{Feed: still{}, Rate: rate, HostLimit: limit})
	}
	_, err = bind(1)
	small, ok := errors.AsType[*executor.HostLimitError](err)
	if !ok || small.Needed > w.LeastHostBytes() {
		t.Fatalf("%v; LeastHostBytes says %d", err, w.LeastHostBytes())
	}
	e, err := bind(small.Needed)
	if err != nil || e.HostBytes() != small.Needed {
		t.Errorf("%v", err)
	}
	if _, err := bind(small.Needed - 1); !errors.As(err, new(*executor.HostLimitError)) {
		t.Errorf("a byte less: %v", err)
	}
}
