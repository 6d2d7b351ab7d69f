package pipeline

import (
	"context"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// duel is one plan on the two engines of one device, each step timed op by op.
type duel struct {
	own   *executor.Executor // of sequences
	table *Executor
	feed  random
	steps int
}

// newDuel binds a plan of a strategy, in a share of what store-all's ops take, on both engines.
func newDuel(b *testing.B, w *Workload, name string, share float64) *duel {
	b.Helper()
	c := counted(w, 1)
	c.Chain.Bandwidth = 4e9
	full, err := w.Extent(w.StoreAll())
	must(b, err)
	s, err := planner.Lookup(name)
	must(b, err)
	limit := w.StaticBytes() + int64(share*float64(full-w.StaticBytes()))
	plan, err := executor.Plan(b.Context(), w, c.Chain, s, limit, strategy.Options{HostMemory: 1 << 30})
	must(b, err)
	d := &duel{feed: random{w.Model.Classes}}
	d.own, err = executor.New(w, targets(b, 1, host.Config{})[0], plan.Sequence(), executor.Options{Limit: limit, Sim: executor.Following(c.Chain, plan), Seed: 7, Timed: true})
	must(b, err)
	images, err := d.own.Images()
	must(b, err)
	labels, err := d.own.Labels()
	must(b, err)
	d.feed.batch(0, images, labels)
	d.table, err = New(w, targets(b, 1, host.Config{}), Costs{c.Chain, plan.Platform}, plan, Options{
		Limits: []int64{limit}, Seed: 7, Feed: still{}, Rate: rate, Timed: &Timed{Ops: true},
	})
	must(b, err)
	p := d.table.drivers[0].staging[0]
	for i := range p.images {
		dst, err := d.table.drivers[0].dev.HostBytes(p.images[i])
		must(b, err)
		copy(dst, asBytes(images))
	}
	return d
}

// pair returns the seconds of a step on each engine, the one or the other first.
func (d *duel) pair(b *testing.B) (own, table float64) {
	run := []func(){
		func() {
			start := time.Now()
			_, err := d.own.Step(uint64(d.steps), rate(d.steps))
			must(b, err)
			own = time.Since(start).Seconds()
		},
		func() {
			start := time.Now()
			must(b, d.table.Run(context.Background(), 1))
			_, err := d.table.Timings()
			must(b, err)
			table = time.Since(start).Seconds()
		},
	}
	d.steps++
	run[d.steps%2]()
	run[1-d.steps%2]()
	return own, table
}

// BenchmarkEngines alternates steps of a sequence on the executor of one device with steps on the table engine. ratio is the median of how
// many times as long the table's took.
func BenchmarkEngines(b *testing.B) {
	m, err := models.New("resnet20", models.Config{Batch: 32, Image: 32, Classes: 10})
	must(b, err)
	w := workload(b, m)
	for _, x := range []struct {
		name  string
		share float64
	}{{"store-all", 1}, {"offload-dynprog", 0.6}} {
		b.Run(x.name, func(b *testing.B) {
			d := newDuel(b, w, x.name, x.share)
			d.pair(b)
			var ratios []float64
			for b.Loop() {
				own, table := d.pair(b)
				ratios = append(ratios, table/own)
			}
			b.ReportMetric(stats.Median(ratios), "ratio")
			b.ReportMetric(float64(len(ratios)), "pairs")
		})
	}
}
