package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// tapped is a library in which something happens before a forward kernel runs.
type tapped struct {
	kernels.Library
	before func(number int64)
	ran    atomic.Int64
}

func (l *tapped) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	launch, err := l.Library.Prepare(c, o)
	if err != nil || c.Pass != kernels.Forward {
		return launch, err
	}
	return tap{launch.(host.Launch), l}, nil
}

type tap struct {
	host.Launch
	of *tapped
}

func (t tap) Run() error {
	t.of.before(t.of.ran.Add(1) - 1)
	return t.Launch.Run()
}

// gpipe4 is a run of gpipe with 4 microbatches on 3 devices; change may replace the targets.
func gpipe4(t *testing.T, w *Workload, config host.Config, opt Options, change func([]executor.Target)) (*Executor, *pipeline.Plan) {
	t.Helper()
	c := costs(w, 3, 1)
	plan := planFor(t, "gpipe", c, pipeline.Options{Microbatches: 4})
	on := targets(t, 3, config)
	if change != nil {
		change(on)
	}
	if opt.Feed == nil {
		opt.Feed = feedOf(w.Model)
	}
	opt.Seed, opt.Rate = 7, rate
	e, err := New(w, on, c, plan, opt)
	must(t, err)
	return e, plan
}

// wantTask checks that an error names a task, and that the executor has stopped.
func wantTask(t *testing.T, e *Executor, err error, device int, task string, minibatch int) {
	t.Helper()
	var got *TaskError
	if !errors.As(err, &got) || got.Device != device || got.Task != task || got.Minibatch != minibatch {
		t.Errorf("%v; want device %d, task %s of minibatch %d", err, device, task, minibatch)
	}
	if err := e.Run(t.Context(), 4); !errors.Is(err, ErrStopped) {
		t.Errorf("after a failure: %v", err)
	}
}

// Whoever notices first that a message failed, the error names the message; the first one of a run is known.
func TestAFailingDeviceIsNamed(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	broken := errors.New("broken")
	for failing := range int64(6) {
		var copies atomic.Int64
		e, _ := gpipe4(t, w, host.Config{Fault: func(op string) error {
			if op == "copy to peer" && copies.Add(1)-1 == failing {
				return broken
			}
			return nil
		}}, Options{Past: Past{Minibatches: 8}}, nil)
		err := e.Run(t.Context(), 8)
		if !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		if failing == 0 {
			wantTask(t, e, err, 0, "CF0", 8)
			continue
		}
		var task *TaskError
		if !errors.As(err, &task) || !strings.HasPrefix(task.Task, "C") {
			t.Errorf("%v", err)
		}
	}
}

// forwards counts the kernels of a stage's forward.
func forwards(w *Workload, st pipeline.Stage) (n int64) {
	for l := st.First; l <= st.Last; l++ {
		n += int64(len(w.Layers[l-1].Save.Steps))
	}
	return n
}

// A kernel that panics in the forward of a minibatch ends the run of all devices, and the error names that forward, although
// later ones are issued already.
func TestAPanicInAKernelIsNamed(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	for minibatch := range 4 {
		for device := range 3 {
			var lib *tapped
			e, plan := gpipe4(t, w, host.Config{}, Options{}, func(on []executor.Target) {
				lib = &tapped{Library: on[device].Library}
				on[device].Library = lib
			})
			at := int64(minibatch) * forwards(w, plan.Stages[device])
			lib.before = func(number int64) {
				if number == at {
					panic("kernel")
				}
			}
			err := e.Run(t.Context(), 4)
			if err == nil || !strings.Contains(err.Error(), "panic: kernel") {
				t.Errorf("%v", err)
			}
			wantTask(t, e, err, device, fmt.Sprintf("F%d", device), minibatch)
		}
	}
}

// If an operation after the last period of a segment fails, the error names the last update of its stage. Such operations move weights to
// slot 0, or share statistics among replicas.
func TestTheEndOfASegmentIsNamed(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	broken := errors.New("broken")
	c := costs(w, 3, 1)
	plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.DoubleBuffered})
	const first = 12
	moved := 0
	for device := range 3 {
		for updates := 1; updates <= 4; updates++ {
			e, err := New(w, targets(t, 3, host.Config{}), c, plan, Options{Feed: still{}, Rate: rate, Past: Past{Minibatches: first}})
			must(t, err)
			n, after := updates*e.Group(), 0
			end := &e.drivers[device].table.Ends[0]
			list := end.Settle(n)
			if len(list) == 0 {
				continue
			}
			moved++
			list[1].On.S = failing{list[1].On.S, &after, broken}
			if err = e.Run(t.Context(), n); !errors.Is(err, broken) {
				t.Errorf("%v", err)
			}
			wantTask(t, e, err, device, fmt.Sprintf("update %d", end.Stage), first+n-1)
		}
	}
	if moved < 4 {
		t.Errorf("the weights move %d times, want 4", moved)
	}
	c, plan = replicated(t, w, pipeline.Stash)
	e, err := New(w, targets(t, 3, host.Config{}), c, plan, Options{Feed: still{}, Rate: rate})
	must(t, err)
	n, shared := 2*e.Group(), 0
	for _, d := range e.drivers {
		for _, x := range d.table.Ends {
			must(t, x.Play(x.Shares, n, func(_ *table.Command, v *order.Instance) error {
				if shared++; v.Kind != pipeline.Update || v.Stage != x.Stage || v.Minibatch != n-1 {
					t.Errorf("statistics of stage %d are shared in %s of minibatch %d", x.Stage, v.Name(), v.Minibatch)
				}
				return nil
			}))
		}
	}
	if shared == 0 {
		t.Error("no statistics are shared")
	}
}

// bad is a feed with one bad minibatch.
type bad struct {
	random
	at   int
	what func() error
}

func (b bad) Images(m int, dst []float32) error {
	if m == b.at {
		return b.what()
	}
	return b.random.Images(m, dst)
}

func TestBadDataAndCtrlCStopAllDevices(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	broken := errors.New("broken.jpg")
	e, _ := gpipe4(t, w, host.Config{}, Options{Feed: bad{random{classes: 5}, 6, func() error { return broken }}}, nil)
	err := e.Run(t.Context(), 8)
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	wantTask(t, e, err, 0, "F0", 6)

	e, _ = gpipe4(t, w, host.Config{}, Options{Feed: bad{random{classes: 5}, 5, func() error { panic("feed") }}}, nil)
	err = e.Run(t.Context(), 8)
	if err == nil || !strings.Contains(err.Error(), "BUG: panic: feed") {
		t.Errorf("%v", err)
	}
	wantTask(t, e, err, 0, "F0", 5)

	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("Ctrl-C")
	e, _ = gpipe4(t, w, host.Config{}, Options{Feed: bad{random{classes: 5}, 7, func() error { cancel(stop); return nil }}}, nil)
	if err := e.Run(ctx, 800); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if err := e.Run(t.Context(), 4); !errors.Is(err, ErrStopped) {
		t.Errorf("%v", err)
	}
}

// A stream that is stuck ends the run with a text. For every device the text names the task that it issues, the needs of that task, and the
// commands that its streams wait for. Patience alone ends nothing. In these tests the clock stands still while anything goes on.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := workload(t, testModel(t))
		release := make(chan struct{})
		var lib *tapped
		e, plan := gpipe4(t, w, host.Config{}, Options{Patience: time.Minute}, func(on []executor.Target) {
			lib = &tapped{Library: on[1].Library}
			on[1].Library = lib
		})
		t.Cleanup(func() { close(release) }) // before the devices are closed
		at := 2 * forwards(w, plan.Stages[1])
		lib.before = func(number int64) {
			if number == at+1 {
				<-release
			}
		}
		err := e.Run(t.Context(), 8)
		var stuck *StuckError
		if !errors.As(err, &stuck) || len(stuck.Devices) != 3 {
			t.Fatalf("%v", err)
		}
		for _, want := range []string{"device 0: ", "device 1: ", "device 2: ", "of minibatch ", "stream", ", now ", "wait for command"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in %v", want, err)
			}
		}
	})
}

// So does a stream that is stuck in an evaluation.
func TestWatchdogOfAnEvaluation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := workload(t, testModel(t))
		release, hold := make(chan struct{}), false
		var lib *tapped
		e, _ := gpipe4(t, w, host.Config{}, Options{Patience: time.Minute}, func(on []executor.Target) {
			lib = &tapped{Library: on[2].Library}
			on[2].Library = lib
		})
		t.Cleanup(func() { close(release) }) // before the devices are closed
		lib.before = func(int64) {
			if hold {
				<-release
			}
		}
		must(t, e.Evaluate(t.Context(), random{classes: 5}, 3, func(int, []float32) error { return nil }))
		hold = true
		err := e.Evaluate(t.Context(), random{classes: 5}, 3, func(int, []float32) error { return nil })
		if !errors.As(err, new(*StuckError)) || !strings.Contains(err.Error(), "device 2") {
			t.Errorf("%v", err)
		}
		if err := e.Run(t.Context(), 4); !errors.Is(err, ErrStopped) {
			t.Errorf("after a stuck evaluation: %v", err)
		}
	})
}

// A run that goes on, however slowly, is not stuck.
func TestPatienceIsForWhatStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := workload(t, testModel(t))
		const patience, kernel = time.Minute, 50 * time.Second
		e, _ := gpipe4(t, w, host.Config{}, Options{Patience: patience}, func(on []executor.Target) {
			for i := range on {
				on[i].Library = &tapped{Library: on[i].Library, before: func(int64) { time.Sleep(kernel) }}
			}
		})
		start := time.Now()
		must(t, e.Run(t.Context(), 8))
		if took := time.Since(start); took < 10*patience {
			t.Errorf("the run took %v, less than ten times the patience", took)
		}
	})
}

// The status of a driver names its needs from other devices in the words of plans.
func TestStatuses(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	e, _ := gpipe4(t, w, host.Config{}, Options{}, nil)
	d := e.drivers[1]
	d.progress.tasks.Store(0)
	d.progress.done.Store(0) // as before the dry run
	if got := d.status(); got != "has issued no task" {
		t.Errorf("%q", got)
	}
	for want, instruction := range map[string]order.Instruction{
		"issues F1 of minibatch 3, which needs CF0 from device 0":         {Kind: pipeline.F, Stage: 1},
		"issues B1 of minibatch 3, which needs CB1 from device 2":         {Kind: pipeline.B, Stage: 1},
		"issues CF1 of minibatch 3, which needs a free block of device 2": {Kind: pipeline.CF, Stage: 1},
		"issues CB0 of minibatch 3, which needs a free block of device 0": {Kind: pipeline.CB, Stage: 0},
		"issues F0 of minibatch 3":                                        {Kind: pipeline.F, Stage: 0},
		"issues B2 of minibatch 3":                                        {Kind: pipeline.B, Stage: 2},
		"issues update 1 of minibatch 3":                                  {Kind: pipeline.Update, Stage: 1},
	} {
		d.progress.begin(order.Instance{Instruction: instruction, Minibatch: 3})
		if got := d.status(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	d.progress.end()
	if got := d.status(); !strings.HasPrefix(got, "waits for its streams, the last task is ") {
		t.Errorf("%q", got)
	}
}
