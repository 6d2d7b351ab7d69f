//go:build cuda && linux && amd64

package pipeline

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	_ "plimsoll/kernels/cuda"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/devices"
	"plimsoll/runtime/host"
)

// TestMain makes the emulated driver delay its work and fill new memory with NaNs, unless the environment says otherwise. Its
// settings are read once.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"CHAOS": "1", "POISON": "1"} {
		if name = "PLIMSOLL_EMULATOR_" + name; os.Getenv(name) == "" {
			_ = os.Setenv(name, value)
		}
	}
	os.Exit(m.Run())
}

// gpus opens n virtual GPUs of the first one.
func gpus(t testing.TB, n int) []executor.Target {
	t.Helper()
	list, err := devices.Open(fmt.Sprintf("cuda:0*%d", n), devices.Options{Memory: int64(n) << 30, HostMemory: int64(n) << 28})
	must(t, err)
	var on []executor.Target
	for _, d := range list {
		lib, err := library.Open(d, library.Options{})
		must(t, err)
		on = append(on, executor.Target{Device: d, Library: lib})
		t.Cleanup(func() { must(t, d.Close()) })
	}
	return on
}

// Virtual GPUs train as virtual CPUs do, and every schedule that flushes gives the same bits as one GPU alone, as graphs or call by
// call.
func TestGPUsTrainAsOne(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m := plainModel(t)
	one := gpus(t, 1)
	w, err := Compile(m, one[0].Library, optimizer)
	must(t, err)
	run := func(on []executor.Target, name string, noGraph bool, o pipeline.Options) *pipelinetest.Outcome {
		c := costs(w, len(on), 1)
		plan := planFor(t, name, c, o)
		n := 8
		out := &pipelinetest.Outcome{Losses: make([]float64, n), Correct: make([]int, n)}
		e, err := New(w, on, c, plan, Options{
			Feed: feedOf(m), Seed: 7, Rate: rate, NoGraph: noGraph,
			Done: func(r Result) { out.Losses[r.Minibatch], out.Correct[r.Minibatch] = r.Loss, r.Correct },
		})
		must(t, err)
		if calls := followingCalls(e); (calls > 0) != noGraph {
			t.Errorf("%s, no graphs: %v: %d calls follow each other", name, noGraph, calls)
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Minute, fmt.Errorf("stuck"))
		defer cancel()
		must(t, e.Run(ctx, n))
		out.Tensors = tensors(t, e)
		return out
	}
	want := run(one, "1f1b-flush", true, pipeline.Options{Microbatches: 4})
	alone := workload(t, m)
	c := costs(alone, 1, 1)
	_, onCPU := trained(t, alone, c, planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 4}), len(want.Losses), host.Config{})
	for i := range want.Losses {
		if d := math.Abs(want.Losses[i] - onCPU.Losses[i]); !(d <= 1e-4*math.Abs(onCPU.Losses[i])) {
			t.Errorf("minibatch %d: loss %v on the GPU, %v on the CPU", i, want.Losses[i], onCPU.Losses[i])
		}
	}
	for name, n := range map[string]int{"1f1b-flush": 8, "zb-h1": 4, "zb-v": 2, "interleaved": 2, "v-half": 2} {
		same(t, want, run(gpus(t, n), name, false, pipeline.Options{Microbatches: 4}))
	}
}

// followingCalls counts the calls of tables that could be one with the call before them.
func followingCalls(e *Executor) (n int) {
	for _, d := range e.drivers {
		for i := range d.table.Rows {
			list := slices.Collect(d.table.Rows[i].Commands())
			for k := range list {
				n += max(capturer{driver: d}.together(list[k:])-1, 0)
			}
		}
	}
	return n
}

// On virtual GPUs, too, asynchronous plans follow the staleness equations, and replicas add up their gradients.
func TestGPUsFollowTheStalenessEquations(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m := plainModel(t)
	on := gpus(t, 1)[0]
	w, err := Compile(m, on.Library, optimizer)
	must(t, err)
	ran := 0
	for _, x := range []struct {
		name     string
		versions pipeline.Versions
		devices  int
	}{
		{"1f1b*", pipeline.Stash, 2}, {"1f1b*", pipeline.VerticalSync, 3}, {"madpipe", pipeline.DoubleBuffered, 4}, {"1f1b", pipeline.Latest, 8},
		{"chimera", pipeline.Flush, 4},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d", x.name, x.versions, x.devices), func(t *testing.T) {
			c := costs(w, x.devices, 2)
			o := pipeline.Options{Microbatches: 4}
			if x.versions != pipeline.Flush {
				o = pipeline.Options{Versions: x.versions, WeightCopies: []float64{9}}
			}
			plan := planFor(t, x.name, c, o)
			n := 2 * groupOf(t, w, c, plan)
			if n < 8 {
				n = 8
			}
			e, out := trainedOn(t, gpus(t, x.devices), w, c, plan, n, Options{})
			out.Tensors = tensors(t, e)
			p := pipelinetest.Flush(4)
			if x.versions == pipeline.Flush {
				p.Replica = replicas(e, plan)
			} else {
				p = program(x.versions, delays(t, c, plan), e.Group())
			}
			same(t, referenceOn(t, gpus(t, 1)[0], m, plan, p, n, p.Rate(rate)), out)
			ran++
		})
	}
	if ran < 5 {
		t.Errorf("%d plans ran", ran)
	}
}

// With PLIMSOLL_ZOO set every strategy trains models of the zoo on 2, 4 and 8 virtual GPUs, bit for bit. The images are so small
// that the last BatchNorms have 2x2 values of each channel.
func TestGPUsTrainTheZoo(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	if os.Getenv("PLIMSOLL_ZOO") == "" {
		t.Skip("slow: set PLIMSOLL_ZOO=1")
	}
	on := bed{gpus(t, 1)[0].Library, gpus}
	on.train(t, []sample{
		{"unet-3-4", models.Config{Batch: 2, Image: 32, Classes: 5}}, {"densenet121", models.Config{Batch: 1, Image: 64, Classes: 5}}, {"resnet50", models.Config{Batch: 1, Image: 33, Classes: 5}},
	}, []int{2, 4, 8})
}
