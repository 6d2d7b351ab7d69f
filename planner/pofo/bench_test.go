package pofo

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// deepChain is a chain of n-1 layers and the loss with the shape of a ResNet of three groups: each group halves the
// activation and has layers of nearly equal time, as measured: no two times are equal.
func deepChain(n int) *chain.Chain {
	c := &chain.Chain{Name: fmt.Sprintf("deep%d", n), InputBytes: 4 * 3 * 224 * 224}
	for l := 1; l < n; l++ {
		group := 3 * (l - 1) / (n - 1)
		size := int64(4*64*56*56) >> group
		jitter := float64((l*7919)%1009) * 1e-6
		c.Layers = append(c.Layers, chain.Layer{
			Name: fmt.Sprintf("block%d", l), ForwardS: 1e-3 + jitter, BackwardS: 2e-3 + 2*jitter,
			OutputBytes: size, SavedBytes: 5 * size / 2, GradientBytes: size,
			ForwardOverheadBytes: size / 4, BackwardOverheadBytes: size / 2,
		})
	}
	c.Layers = append(c.Layers, chain.Layer{Name: "loss", ForwardS: 1e-4, BackwardS: 1e-4, OutputBytes: 4, SavedBytes: 4004})
	return c
}

// BenchmarkPofo plans deep chains by their length, limit, bandwidth and N. At 375 MB/s the link moves a layer's saved set
// in about the time of four layers; the chain is compute bound at 1.5 GB/s.
func BenchmarkPofo(b *testing.B) {
	for _, k := range []struct {
		n, cells int
		percents []int64
	}{
		{28, 50, []int64{25}}, {56, 50, []int64{10, 25, 50}}, {84, 50, []int64{25}}, {111, 50, []int64{10, 25, 50}},
		{56, 25, []int64{25}}, {56, 100, []int64{25}}, {56, 200, []int64{25}},
	} {
		for _, percent := range k.percents {
			for _, bandwidth := range []float64{375e6, 750e6} {
				b.Run(fmt.Sprintf("L=%d/N=%d/memory=%d%%/MBps=%d", k.n-1, k.cells, percent, int(bandwidth/1e6)), func(b *testing.B) {
					bench(b, solvePofo, k.n, k.cells, percent, bandwidth)
				})
			}
		}
	}
}

// BenchmarkHeuristics plans a chain of 110 layers.
func BenchmarkHeuristics(b *testing.B) {
	for _, s := range Strategies()[:3] {
		b.Run(s.Name, func(b *testing.B) { bench(b, s.Solve, 111, 0, 25, 375e6) })
	}
}

func bench(b *testing.B, solve func(context.Context, strategy.Problem) (schedule.Sequence, error), n, cells int, percent int64, bandwidth float64) {
	b.Helper()
	c := deepChain(n)
	high, err := storeAllPeak(c)
	if err != nil {
		b.Fatal(err)
	}
	p := problem(c, high*percent/100, bandwidth)
	p.PofoSlots = cells
	b.ReportAllocs()
	begin := processorTime(b)
	for b.Loop() {
		if _, err := solve(context.Background(), p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processorTime(b)-begin).Seconds()*1e9/float64(b.N), "cpu-ns/op")
}

// processorTime returns the time that the process has had on all processors: unlike the time that passes, it says
// little about what else the machine does.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
