package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// album keeps what Options.Save was given: the tensors of each stage behind so many minibatches.
type album struct {
	mu  sync.Mutex
	all map[[2]int][]pipelinetest.Tensor // by minibatches and stage
	err error
}

func (a *album) save(x *Snapshot) {
	list, err := snapped(x)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = errors.Join(a.err, err)
	a.all[[2]int{x.Done, x.Stage}] = list
}

func snapped(x *Snapshot) (list []pipelinetest.Tensor, err error) {
	for _, t := range x.Tensors() {
		v := make([]float32, t.Desc.Elements())
		err = errors.Join(err, x.Read(t, v))
		list = append(list, pipelinetest.Tensor{Role: t.Role, Name: t.Name, Values: v})
	}
	return list, err
}

// state puts the stages together that were saved behind so many minibatches.
func (a *album) state(stages, done int) (list []pipelinetest.Tensor) {
	for s := range stages {
		list = append(list, a.all[[2]int{done, s}]...)
	}
	return list
}

// A run in segments equals one run for each segment, bit for bit: in its losses, and in the state behind every segment. The state of each
// stage is saved once while training goes on, however slow any stream is.
// Only this test finds updates of the next segment in a saved state of zb-h1, latest or vertical_sync weights.
func TestSegmentsAreRuns(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	type segmented struct {
		name     string
		versions pipeline.Versions
	}
	plans := []segmented{
		{"1f1b-flush", ""}, {"chimera", ""}, {"replicated", pipeline.DoubleBuffered}, {"1f1b*", pipeline.Stash}, {"list", pipeline.Latest}, {"1f1b", pipeline.VerticalSync},
	}
	if !testing.Short() {
		plans = append(plans, segmented{"zb-h1", ""}, segmented{"interleaved", ""}, segmented{"replicated", pipeline.Stash}, segmented{"madpipe", pipeline.DoubleBuffered})
	}
	cases := 0
	for _, x := range plans {
		t.Run(x.name+string(x.versions), func(t *testing.T) {
			c := costs(w, 4, 3)
			var plan *pipeline.Plan
			if x.name == "replicated" {
				c, plan = replicated(t, w, x.versions)
			} else {
				plan = planFor(t, x.name, c, pipeline.Options{Microbatches: 8, Versions: x.versions, WeightCopies: []float64{6}})
			}
			run := func(config host.Config, save func(*Snapshot)) (*Executor, map[int]float64) {
				losses := map[int]float64{}
				e, err := New(w, targets(t, c.Platform.Devices, config), c, plan, Options{
					Feed: feedOf(w.Model), Seed: 7, Rate: rate, Save: save,
					Done: func(r Result) { losses[r.Minibatch] = r.Loss },
				})
				must(t, err)
				return e, losses
			}
			want, wantLosses := run(host.Config{}, nil)
			g := want.Group()
			lengths := []int{3 * g, g, 2 * g, 4 * g, g} // some are shorter than the pipeline is long
			book := &album{all: map[[2]int][]pipelinetest.Tensor{}}
			got, gotLosses := run(host.Config{Chaos: 5}, book.save)
			var segments []Segment
			for i, n := range lengths {
				segments = append(segments, Segment{n, i != 1})
			}
			must(t, got.RunUntil(t.Context(), nil, segments...))
			got.Saved()
			must(t, book.err)
			for i, n := range lengths {
				must(t, want.Run(t.Context(), n))
				state := book.state(len(plan.Stages), want.Done())
				if i == 1 {
					if len(state) > 0 {
						t.Errorf("segment %d was saved", i)
					}
					continue
				}
				if d := pipelinetest.FirstDifference(tensors(t, want), state); d != "" {
					t.Fatalf("behind segment %d: %s", i, d)
				}
				cases++
			}
			if d := pipelinetest.FirstDifference(tensors(t, want), tensors(t, got)); d != "" || got.Done() != want.Done() {
				t.Errorf("%d minibatches, want %d: %s", got.Done(), want.Done(), d)
			}
			if !maps.Equal(gotLosses, wantLosses) || len(gotLosses) != 11*g || len(book.all) != 4*len(plan.Stages) {
				t.Errorf("%d losses, want %d; %d stages saved", len(gotLosses), len(wantLosses), len(book.all))
			}
			must(t, got.Save(t.Context())) // at rest
			got.Saved()
			if d := pipelinetest.FirstDifference(tensors(t, want), book.state(len(plan.Stages), got.Done())); d != "" {
				t.Error(d)
			}
		})
	}
	if cases != 4*len(plans) {
		t.Errorf("%d states were compared", cases)
	}
}

// If a run in segments is told to end at any instant, the segments before that instant are complete and saved. The segment of that instant
// runs up to where its pipeline emptied. No later segment is begun.
func TestSegmentsThatEndEarly(t *testing.T) {
	t.Parallel()
	const runs = 6
	w := workload(t, smallModel(t))
	early := 0
	for i, x := range []struct {
		name     string
		versions pipeline.Versions
	}{{"1f1b-flush", ""}, {"chimera", ""}, {"1f1b*", pipeline.Stash}, {"madpipe", pipeline.DoubleBuffered}, {"replicated", pipeline.DoubleBuffered}} {
		c := costs(w, 4, uint64(i))
		var plan *pipeline.Plan
		if x.name == "replicated" {
			c, plan = replicated(t, w, x.versions)
		} else {
			plan = planFor(t, x.name, c, pipeline.Options{Microbatches: 4, Versions: x.versions, WeightCopies: []float64{9}})
		}
		r := rand.New(rand.NewPCG(uint64(i), 12))
		s := &stopper{random: feedOf(w.Model), losses: map[int]float64{}, pauses: rand.New(rand.NewPCG(r.Uint64(), 1))}
		book := &album{all: map[[2]int][]pipelinetest.Tensor{}}
		e, err := New(w, targets(t, c.Platform.Devices, host.Config{}), c, plan, Options{Feed: s, Seed: 7, Rate: rate, Done: s.done, Save: book.save})
		must(t, err)
		want, err := New(w, targets(t, c.Platform.Devices, host.Config{}), c, plan, Options{Feed: s.random, Seed: 7, Rate: rate})
		must(t, err)
		for range runs {
			before, g := e.Done(), e.Group()
			lengths := []int{g * (1 + r.IntN(6)), g * (1 + r.IntN(6)), g * (1 + r.IntN(6)), g * (1 + r.IntN(6))}
			n := lengths[0] + lengths[1] + lengths[2] + lengths[3]
			s.at, s.result, s.enough = before+r.IntN(n), r.IntN(2) == 0, make(chan struct{})
			var segments []Segment
			for _, l := range lengths {
				segments = append(segments, Segment{l, true})
			}
			clear(book.all)
			must(t, e.RunUntil(t.Context(), s.enough, segments...))
			e.Saved()
			must(t, book.err)
			ends := 0
			for _, l := range lengths {
				if l = min(l, e.Done()-want.Done()); l == 0 {
					break
				}
				must(t, want.Run(t.Context(), l))
				ends++
				if d := pipelinetest.FirstDifference(tensors(t, want), book.state(len(plan.Stages), want.Done())); d != "" {
					t.Fatalf("%s, segments of %v minibatches that end after %d, behind %d: %s", x.name, lengths, e.Done()-before, want.Done()-before, d)
				}
			}
			if want.Done() != e.Done() || len(book.all) != ends*len(plan.Stages) || (e.Done()-before)%g != 0 {
				t.Errorf("%s: %d minibatches, want %d; %d stages saved behind %d segments", x.name, e.Done(), want.Done(), len(book.all), ends)
			}
			if e.Done()-before < n {
				early++
			}
		}
		if d := pipelinetest.FirstDifference(tensors(t, want), tensors(t, e)); d != "" || len(s.losses) != e.Done() {
			t.Errorf("%s: %s; %d losses of %d minibatches", x.name, d, len(s.losses), e.Done())
		}
	}
	t.Logf("%d of %d runs ended early", early, 5*runs)
	if early == 0 {
		t.Error("no run ended early")
	}
}

// segmented is a run of 1f1b* on 3 devices whose states save takes.
func segmented(t *testing.T, config host.Config, opt Options) *Executor {
	t.Helper()
	w := workload(t, plainModel(t))
	c := costs(w, 3, 1)
	opt.Feed, opt.Rate = feedOf(w.Model), rate
	e, err := New(w, targets(t, 3, config), c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), opt)
	must(t, err)
	return e
}

// Training goes on while a state is saved: until it has the next one to save, which waits. If it did not, this test would hang.
func TestTrainingGoesOnWhileAStateIsSaved(t *testing.T) {
	t.Parallel()
	trained := make(chan struct{})
	var mu sync.Mutex
	var order []string
	e := segmented(t, host.Config{}, Options{
		Done: func(r Result) {
			if r.Minibatch == 15 {
				close(trained)
			}
		},
		Save: func(x *Snapshot) {
			<-trained // the last minibatch of the second segment has its loss
			mu.Lock()
			defer mu.Unlock()
			order = append(order, fmt.Sprintf("%d of stage %d", x.Done, x.Stage))
		},
	})
	must(t, e.RunUntil(t.Context(), nil, Segment{8, true}, Segment{8, true}))
	e.Saved()
	for s := range 3 {
		first, second := slices.Index(order, fmt.Sprintf("8 of stage %d", s)), slices.Index(order, fmt.Sprintf("16 of stage %d", s))
		if first < 0 || second < first {
			t.Errorf("stage %d: saved in the order %v", s, order)
		}
	}
}

// Devices do not wait for each other where a state is saved. While the first device still has its state behind the first segment to save,
// the others save their state behind the second. If they waited, this test would hang.
func TestDevicesDoNotWaitForEachOthersSaving(t *testing.T) {
	t.Parallel()
	var others sync.WaitGroup
	others.Add(2)
	saved, statuses := 0, make(chan string, 1)
	var e *Executor
	e = segmented(t, host.Config{}, Options{Save: func(x *Snapshot) {
		switch {
		case x.Stage > 0 && x.Done == 16:
			others.Done()
		case x.Stage == 0:
			if others.Wait(); saved == 0 { // the device waits with its next state, or will
				for !e.drivers[0].progress.saving.Load() {
					time.Sleep(time.Millisecond)
				}
				statuses <- e.drivers[0].status()
			}
			saved++
		}
	}})
	must(t, e.RunUntil(t.Context(), nil, Segment{8, true}, Segment{8, true}, Segment{8, false}))
	e.Saved()
	if saved != 2 {
		t.Errorf("stage 0 was saved %d times", saved)
	}
	if got := <-statuses; !strings.HasPrefix(got, "waits until an earlier state is saved, the last task is ") {
		t.Errorf("%q", got)
	}
}

// A device that fails behind a state that is saved leaves it whole; one that fails before leaves an error to whoever reads it.
// Whoever saves is waited for, and a run that is stopped while a device waits for it ends.
func TestSavingWhenDevicesFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	failed := make(chan struct{})
	var begun sync.WaitGroup
	begun.Add(3)
	var mu sync.Mutex
	whole := 0
	e := segmented(t, host.Config{}, Options{Save: func(x *Snapshot) {
		begun.Done()
		<-failed
		list, err := snapped(x)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || len(list) == 0 {
			t.Errorf("stage %d: %v", x.Stage, err)
		}
		whole++
	}})
	e.opt.Feed = bad{random{classes: 5}, 12, func() error { begun.Wait(); return broken }}
	if err := e.RunUntil(t.Context(), nil, Segment{8, true}, Segment{8, true}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	close(failed)
	e.Saved()
	if whole != 3 {
		t.Errorf("%d stages were saved", whole)
	}
	if err := e.Save(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("after a failure: %v", err)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	stop, release := errors.New("Ctrl-C"), make(chan struct{})
	e = segmented(t, host.Config{}, Options{Save: func(*Snapshot) { <-release }})
	e.opt.Done = func(r Result) {
		if r.Minibatch == 15 {
			cancel(stop)
		}
	}
	if err := e.RunUntil(ctx, nil, Segment{8, true}, Segment{8, true}, Segment{8, true}); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	close(release)
	e.Saved()

	unread := 0
	var copies func(op string) error
	e = segmented(t, host.Config{Fault: func(op string) error {
		if copies == nil {
			return nil
		}
		return copies(op)
	}}, Options{Save: func(x *Snapshot) {
		_, err := snapped(x)
		mu.Lock()
		defer mu.Unlock()
		if stream := (*runtime.StreamError)(nil); errors.As(err, &stream) {
			unread++
		}
	}})
	must(t, e.Run(t.Context(), 8))
	issued := make(chan struct{}) // a copy that fails while others are still issued is Save's own error
	copies = func(op string) error {
		if strings.HasPrefix(op, "copy") {
			<-issued
			return broken
		}
		return nil
	}
	must(t, e.Save(t.Context()))
	close(issued)
	e.Saved()
	if unread != 3 {
		t.Errorf("%d stages could not be read", unread)
	}
}

// Needs states the page-locked memory that saving takes: one copy of weights, statistics and states.
func TestSnapshotsAreAsLargeAsTheState(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	seen := 0
	for _, versions := range []pipeline.Versions{pipeline.Stash, pipeline.DoubleBuffered} {
		c, plan := replicated(t, w, versions)
		needs, err := Needs(w, c, plan, Options{})
		must(t, err)
		book := &album{all: map[[2]int][]pipelinetest.Tensor{}}
		e, err := New(w, targets(t, 3, host.Config{}), c, plan, Options{Feed: random{classes: 5}, Rate: rate, Save: book.save})
		must(t, err)
		must(t, e.Save(t.Context()))
		e.Saved()
		var want, padding int64
		for _, x := range e.Tensors() {
			want += kernels.Align(x.Desc.Bytes())
			padding += kernels.Alignment
		}
		if got := needs[0].Snapshot + needs[2].Snapshot; got < want-padding || got > want+padding || needs[1].Snapshot != 0 {
			t.Errorf("%s: %d, %d and %d bytes for %d", versions, needs[0].Snapshot, needs[1].Snapshot, needs[2].Snapshot, want)
		}
		if d := pipelinetest.FirstDifference(tensors(t, e), book.state(2, 0)); d != "" {
			t.Error(d)
		}
		seen++
	}
	if seen != 2 {
		t.Errorf("%d plans", seen)
	}
}

// Tasks are timed with the minibatches of the run, whatever segments these are in.
func TestTimingsOfSegments(t *testing.T) {
	t.Parallel()
	e := segmented(t, host.Config{}, Options{Timed: &Timed{}})
	must(t, e.RunUntil(t.Context(), nil, Segment{Minibatches: 3}, Segment{Minibatches: 5}))
	all, err := e.Timings()
	must(t, err)
	times := map[[3]int]int{}
	for _, x := range all {
		times[[3]int{int(x.Kind), x.Stage, x.Minibatch}]++
	}
	for m := range 8 {
		for s := range 3 {
			if times[[3]int{int(pipeline.F), s, m}] != 1 || times[[3]int{int(pipeline.B), s, m}] != 1 {
				t.Errorf("minibatch %d in stage %d: %d forwards, %d backwards", m, s, times[[3]int{int(pipeline.F), s, m}], times[[3]int{int(pipeline.B), s, m}])
			}
		}
	}
}

// A device whose host memory is too small for its state says what the state takes.
func TestNoHostMemoryForAState(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	c := costs(w, 2, 1)
	plan := planFor(t, "1f1b*", c, pipeline.Options{})
	on := targets(t, 2, host.Config{})
	needs, err := Needs(w, c, plan, Options{})
	must(t, err)
	small, err := host.New(host.Config{Memory: 1 << 30, HostMemory: executor.ChunkBytes})
	must(t, err)
	t.Cleanup(func() { must(t, small.Close()) })
	on[0].Device = small
	_, err = New(w, on, c, plan, Options{Feed: random{classes: 5}, Rate: rate, Save: func(*Snapshot) {}})
	want := fmt.Sprintf("; %s of host memory are for its state while that is saved", units.Bytes(needs[0].Snapshot))
	if full := (*runtime.OutOfMemoryError)(nil); !errors.As(err, &full) || !strings.HasSuffix(err.Error(), want) || needs[0].Snapshot == 0 {
		t.Errorf("%v, want %q", err, want)
	}
}

// Stages whose updates take different numbers of minibatches count them apart, and a run goes on with their counts, to the bits of
// one that has emptied its pipeline there.
func TestStagesCountTheirUpdates(t *testing.T) {
	t.Parallel()
	m := plainModel(t)
	w, err := Compile(m, targets(t, 1, host.Config{})[0].Library, kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8})
	must(t, err)
	c, plan := replicated(t, w, pipeline.Stash)
	const first = 8
	opt := Options{Feed: feedOf(m), Seed: 7, Rate: rate}
	whole, err := New(w, targets(t, 3, host.Config{}), c, plan, opt)
	must(t, err)
	must(t, whole.Run(t.Context(), first))
	var want []int64
	for l := range m.Layers {
		n := int64(first)
		if l < plan.Stages[0].Last {
			n /= 2
		}
		want = append(want, n)
	}
	updates := whole.updates(first, 0)
	if !slices.Equal(updates, want) {
		t.Errorf("updates %v, want %v", updates, want)
	}
	state := tensors(t, whole)
	must(t, whole.Run(t.Context(), first))
	for name, counts := range map[string][]int64{"the counts": updates, "none": make([]int64, len(updates))} {
		opt.Past = Past{first, counts}
		again, err := New(w, targets(t, 3, host.Config{}), c, plan, opt)
		must(t, err)
		for i, x := range again.Tensors() {
			must(t, again.Write(x, state[i].Values))
		}
		must(t, again.Run(t.Context(), first))
		if d := pipelinetest.FirstDifference(tensors(t, whole), tensors(t, again)); (d == "") != (name == "the counts") {
			t.Errorf("%s: %q", name, d)
		}
	}
}

// Timings of so many periods are those of the latest tasks, and not of earlier ones.
func TestTimingsGoBackSomePeriods(t *testing.T) {
	t.Parallel()
	all, some := segmented(t, host.Config{}, Options{Timed: &Timed{}}), segmented(t, host.Config{}, Options{Timed: &Timed{Periods: 2}})
	for range 2 { // the second run has the events of the first
		var counts [2]map[int]int
		for i, e := range []*Executor{all, some} {
			must(t, e.Run(t.Context(), 20))
			tasks, err := e.Timings()
			must(t, err)
			counts[i] = map[int]int{}
			for _, x := range tasks {
				counts[i][x.Minibatch]++
			}
		}
		if len(counts[0]) != 20 || len(counts[1]) >= 12 || counts[1][19] != counts[0][19] || counts[1][18] != counts[0][18] {
			t.Errorf("tasks by minibatch: of all %v, of some %v", counts[0], counts[1])
		}
	}
}

// A disk that is slower than patience is not taken for a device that is stuck; who saves and waits for something else is.
func TestSlowDisksAreNotStuckDevices(t *testing.T) {
	t.Parallel()
	const patience, disk = time.Minute, time.Hour
	for _, writes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			e := segmented(t, host.Config{}, Options{Patience: patience, Save: func(x *Snapshot) {
				slow := func() { time.Sleep(disk) }
				if writes {
					x.Write(slow)
				} else {
					slow()
				}
			}})
			err := e.RunUntil(t.Context(), nil, Segment{8, true}, Segment{8, true}, Segment{8, true}, Segment{8, false})
			if stuck := errors.As(err, new(*StuckError)); stuck == writes || !stuck && err != nil {
				t.Errorf("writes: %v: %v", writes, err)
			}
			e.Saved()
		})
	}
}
