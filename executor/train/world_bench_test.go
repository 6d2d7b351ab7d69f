package train

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/freeport/freeporttest"
	"plimsoll/internal/stats"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/world"
	"plimsoll/runtime/world/tcp"
)

// blank is a feed without pictures.
type blank struct{}

func (blank) Images(int, []float32) error { return nil }
func (blank) Labels(int, []int32) error   { return nil }

// simulatedStep measures steps of a plan in simulated time, real messages and real streams, with its devices in so many processes, which
// are all this one: seconds, the median.
func simulatedStep(b *testing.B, p *JobPlan, spec Spec, processes int) float64 {
	b.Helper()
	devices := len(p.Needs)
	pace := func(kind pipeline.Kind, _ int) time.Duration {
		return map[pipeline.Kind]time.Duration{pipeline.F: 5 * time.Millisecond, pipeline.B: 10 * time.Millisecond}[kind]
	}
	run := func(on []executor.Target, w *World) (took []float64) {
		o := p.options()
		o.Feed, o.Rate, o.Pace = blank{}, func(int) float32 { return 0 }, pace
		if w != nil {
			o.World = w.describe()
		}
		e, err := pipe.New(p.Work, on, p.Costs, p.Plan, o)
		must(b, err)
		for range 9 {
			if w != nil { // they begin together
				_, err := w.AllGather(b.Context(), nil)
				must(b, err)
			}
			begun := time.Now()
			must(b, e.Run(b.Context(), p.Group))
			took = append(took, time.Since(begun).Seconds())
		}
		return took
	}
	if processes == 1 {
		on, err := (&spec).Targets()
		must(b, err)
		defer func() { must(b, closeTargets(on)) }()
		return stats.Median(run(on, nil))
	}
	address := freeporttest.Address(b)
	spec.Devices = fmt.Sprintf("cpu*%d", devices/processes)
	all, longest := sync.WaitGroup{}, make([]float64, 9)
	var mu sync.Mutex
	for rank := range processes {
		all.Go(func() {
			doing := &Doing{}
			m, err := world.Join(b.Context(), world.Options{Identity: world.Identity{Rank: rank, Size: processes, Address: address}, Timeout: time.Minute})
			must(b, err)
			w, err := NewWorld(b.Context(), m, tcp.New(m), devices/processes, doing)
			must(b, err)
			on, err := (&spec).Targets()
			must(b, err)
			for i, s := range run(on, w) {
				mu.Lock()
				longest[i] = max(longest[i], s)
				mu.Unlock()
			}
			must(b, w.Leave(b.Context()))
			must(b, closeTargets(on))
		})
	}
	all.Wait()
	return stats.Median(longest)
}

// BenchmarkProcesses compares the step of a pipeline of 4 devices in one process and in 4 processes that exchange messages over sockets.
// The time is simulated: 16 microbatches of 16 images, forwards of 5 ms and backwards of 10 ms.
func BenchmarkProcesses(b *testing.B) {
	for _, strategy := range []string{"1f1b-flush", "gpipe"} {
		b.Run(strategy, func(b *testing.B) {
			spec := tiny(256)
			spec.Model, spec.Config.Image = "resnet20", 32
			spec.Config = models.Config{Batch: 256, Image: 32, Channels: 3, Classes: 62}
			spec.Data, spec.Devices, spec.Microbatches, spec.Kernels.Threads = "glyphs", "cpu*4", 16, 1
			p := pipeRun(b, opened(b, spec), strategy, 4, 1).Plan
			for b.Loop() {
				one, four := simulatedStep(b, p, spec, 1), simulatedStep(b, p, spec, 4)
				b.ReportMetric(one*1e3, "ms/one-process")
				b.ReportMetric(four*1e3, "ms/four-processes")
				b.ReportMetric(four/one, "ratio")
			}
		})
	}
}
