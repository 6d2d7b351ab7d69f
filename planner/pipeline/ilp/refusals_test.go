package ilp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

// stop is a solver whose time is always over; it counts its calls and notes their longest time.
type stop struct {
	calls   int
	longest float64
}

func (s *stop) solve(_ context.Context, _ *milp.Program, o milp.Options) (*milp.Solution, error) {
	s.calls, s.longest = s.calls+1, max(s.longest, o.Seconds)
	return nil, milp.ErrStopped
}

// tight is a request whose best plan is not the first one: three devices, memory for little more than one minibatch.
func tight(n int) pipeline.Request {
	r := pipeline.Request{Chain: row(n), Platform: pipeline.NewPlatform(3, int64(n)+2, 1)}
	r.Versions = pipeline.Latest
	return r
}

// If all programs of a search run out of time, the search keeps the plan that it began with, and says how far that plan may be from the
// best. It asks no more than once for each window and part.
func TestILPKeepsTheBestPlan(t *testing.T) {
	t.Parallel()
	r := tight(12)
	r.TimeLimit = time.Hour
	begin, err := with(t, "madpipe", r)
	if err != nil {
		t.Fatal(err)
	}
	s, never := searchOf(t, r), &stop{}
	s.solve = never.solve
	_, err = s.best(context.Background())
	var late *pipeline.UnfinishedError
	if !errors.As(err, &late) || late.Best == nil || late.Best.Period > begin.Period || late.Best.Strategy != name {
		t.Fatalf("%v; began with %v", err, begin.Period)
	}
	want, left := late.Best.Period/s.fastest()-1, (late.Best.Period-s.fastest())/late.Best.Period
	var said float64
	if err := json.Unmarshal(late.Best.Predicted.Extra["mip_gap"], &said); err != nil || !close(said, left) || late.Gap < want || late.Gap > want+1e-4 || want < 0.01 {
		t.Errorf("a gap of %v, the plan says %v, %v; want %v and %v", late.Gap, said, err, want, left)
	}
	windows := 0
	for width := narrow; width < 12; width += stride {
		windows += 12 / stride
	}
	if most := windows + 6; never.calls > most || never.calls < windows || never.longest > 1800 {
		t.Errorf("%d programs, want %d to %d; the longest had %v s of 3600", never.calls, windows, most, never.longest)
	}
	if _, err := pipeline.Check(r.Chain, r.Platform, late.Best); err != nil {
		t.Error(err)
	}
}

// The time of a real search ends it, with a plan.
func TestILPEndsInTime(t *testing.T) {
	t.Parallel()
	need(t)
	r := tight(20)
	r.TimeLimit = 300 * time.Millisecond
	s := searchOf(t, r)
	asked := 0.0
	solver := s.solve
	s.solve = func(ctx context.Context, p *milp.Program, o milp.Options) (*milp.Solution, error) {
		asked += o.Seconds
		return solver(ctx, p, o)
	}
	plan, err := s.best(context.Background())
	var late *pipeline.UnfinishedError
	if errors.As(err, &late) {
		plan = late.Best
	}
	if plan == nil || asked > 1 {
		t.Errorf("%v, %v; programs were given %v s", plan, err, asked)
	}
}

// A time that is over from the start leaves the plans of other strategies, or the memory at which they have one.
func TestILPWithoutTime(t *testing.T) {
	t.Parallel()
	r := tight(6)
	r.Platform = r.Platform.WithMemory(4)
	s, never := searchOf(t, r), &stop{}
	s.solve, s.limit = never.solve, time.Minute
	_, err := s.best(context.Background())
	small, e := with(t, "madpipe", r)
	var fits *pipeline.InfeasibleError
	if !errors.As(e, &fits) {
		t.Fatalf("%v, %v", small, e)
	}
	if !errors.Is(err, pipeline.ErrUnfinished) || !strings.Contains(err.Error(), "limit of 1m0s") || !strings.Contains(err.Error(), " B for each device") {
		t.Errorf("%v; madpipe: %v", err, e)
	}
}

func TestILPRefusals(t *testing.T) {
	t.Parallel()
	if !milp.Built {
		if _, err := solve(context.Background(), tight(4)); !errors.Is(err, milp.ErrNoSolver) {
			t.Errorf("without a solver: %v", err)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := solve(cancelled, tight(4)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for what, c := range map[string]struct {
		mar  func(r *pipeline.Request)
		want error
		said string
	}{
		"too long": {func(r *pipeline.Request) { r.Chain = row(mostLayers + 1) }, ErrTooLarge, "65 layers"},
		"flush":    {func(r *pipeline.Request) { r.Versions = pipeline.Flush }, periodic.ErrOptions, "flush"},
		"copies":   {func(r *pipeline.Request) { r.WeightCopies = []float64{1, 2} }, periodic.ErrOptions, "2 entries"},
		"platform": {func(r *pipeline.Request) { r.Platform = &pipeline.Platform{} }, pipeline.ErrPlatform, "devices"},
	} {
		r := tight(4)
		c.mar(&r)
		if _, err := solve(context.Background(), r); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.said) {
			t.Errorf("%s: %v, want %v with %q", what, err, c.want, c.said)
		}
	}
}

// Devices 0 and 1 are joined only through device 2: no plan sends between them.
func TestILPMissingLink(t *testing.T) {
	t.Parallel()
	need(t)
	p := pipeline.NewPlatform(3, pipeline.NoLimit, 0)
	p.Pairs = map[[2]int]float64{{0, 2}: 1e9, {1, 2}: 1e9}
	r := pipeline.Request{Chain: row(3), Platform: p}
	plan, err := solve(context.Background(), r)
	if err != nil || !close(plan.Period, 2) {
		t.Fatalf("%v, %v; want a second each way for each layer", plan, err)
	}
	if _, err := pipeline.Check(r.Chain, p, plan); err != nil {
		t.Error(err)
	}
}

// Layers and transfers that take no time do not stop a search.
func TestILPNothing(t *testing.T) {
	t.Parallel()
	need(t)
	r := tight(2)
	for i := range r.Chain.Layers {
		r.Chain.Layers[i].ForwardS, r.Chain.Layers[i].BackwardS = 0, 0
	}
	r.Platform.Bandwidth = pipeline.Free()
	if plan, err := solve(context.Background(), r); err != nil || plan.Period != periodic.Instant {
		t.Errorf("%v, %v", plan, err)
	}
}
